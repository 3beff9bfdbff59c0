"""What lanes of a warp touch together: sectors of device memory, and the banks of shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda_emulator.device import Device, LaunchCount

KERNELS = """
extern "C" __global__ void gather(const float* x, float* out, int step) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[step * i];
}
extern "C" __global__ void rounds(const float* x, float* out, int n) {
    for (int i = threadIdx.x; i < n; i += 64) out[i] = x[i];
}
extern "C" __global__ void fours(const float4* x, float4* out) { out[threadIdx.x] = x[threadIdx.x]; }
extern "C" __global__ void banks(float* out, int step, int count) {
    extern __shared__ float line[];
    for (int i = threadIdx.x; i < count; i += blockDim.x) line[i] = i;
    __syncthreads();
    out[threadIdx.x] = line[step * threadIdx.x];
}
extern "C" __global__ void fours_in_shared(float* out) {
    __shared__ float4 line[64];
    line[threadIdx.x] = float4{1.0f, 2.0f, 3.0f, 4.0f};
    __syncthreads();
    out[threadIdx.x] = line[threadIdx.x].x;
}
extern "C" __global__ void columns(const float* x, float* out) {
    __shared__ float tile[32][WIDTH];
    tile[threadIdx.y][threadIdx.x] = x[32 * threadIdx.y + threadIdx.x];
    __syncthreads();
    out[32 * threadIdx.y + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
"""


def launched(
    name: str, floats: int, *rest: int, grid: int = 1, block: tuple[int, ...] = (64,), **given: int
) -> LaunchCount:
    """A launch over `floats` ones and as much room."""
    device = Device(watch_warps=True, seed=given.pop("seed", 0))
    module = device.module(KERNELS, (f"-DWIDTH={given.pop('width', 32)}",))
    x = device.alloc(4 * floats, "x").copy_from(np.ones(floats, np.float32))
    out = device.alloc(4 * floats, "out")
    kernel = module.get_function(name)
    pointers = (x, out) if kernel.parameters[0].name == "x" else (out,)
    kernel((grid,), block, (*pointers, *map(np.int32, rest)), **given)
    device.synchronize()
    return device.counts.launches[0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("step", "sectors"), [(0, 4), (1, 16), (2, 32), (4, 64), (8, 128), (9, 128)])
def test_steps_cost_sectors(step: int, sectors: int, seed: int) -> None:
    launch = launched("gather", 1200, step, grid=2, seed=seed)
    assert launch.sectors("x") == (sectors, 0)  # of four warps
    assert launch.sectors("out") == (0, 16)
    assert launch.traffic["x"].bytes_read == 512


def test_each_round_is_an_instruction() -> None:
    launch = launched("rounds", 1000, 1000)
    assert launch.sectors("x") == (125, 0)
    assert launch.sectors("out") == (0, 125)


def test_wide_accesses_take_no_more_sectors() -> None:
    launch = launched("fours", 256)
    assert launch.sectors("x") == (32, 0)
    assert launch.sectors("out") == (0, 32)


@pytest.mark.parametrize(("step", "passes"), [(0, 1), (1, 1), (2, 2), (3, 1), (8, 8), (32, 32), (33, 1)])
def test_banks(step: int, passes: int) -> None:
    launch = launched("banks", 64, step, 2112, shared_mem=4 * 2112)
    stores = 2112 // 32
    assert launch.bank_passes == (stores + 2 * passes, stores + 2)


def test_wide_stores_to_shared_memory_go_in_quarters() -> None:
    passes, instructions = launched("fours_in_shared", 64).bank_passes
    # Two warps: four passes to store, and a load of every fourth word, of which each bank has four.
    assert (passes, instructions) == (2 * 4 + 2 * 4, 4)


@pytest.mark.parametrize(("width", "passes"), [(32, 32), (33, 1)])
def test_a_padded_tile_has_no_conflicts(width: int, passes: int) -> None:
    launch = launched("columns", 1024, block=(32, 32), width=width)
    assert launch.bank_passes == (32 + 32 * passes, 64)


def test_what_nobody_counted_is_not_zero() -> None:
    device = Device()
    out = device.alloc(256)
    device.module(KERNELS, ("-DWIDTH=32",)).get_function("fours_in_shared")((1,), (64,), (out,))
    device.synchronize()
    with pytest.raises(ValueError, match="watch_warps=True"):
        device.counts.launches[0].sectors("out")
    with pytest.raises(ValueError, match="watch_warps=True"):
        assert device.counts.launches[0].bank_passes
