"""Right kernels give right results: what the emulator must not find fault with, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.cuda_emulator.device import Device
from tests.cuda_emulator.memory import Buffer
from tests.cuda_emulator.module import Function

KERNELS = r"""
extern "C" __global__ void __launch_bounds__(256)
add(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = x[i] + y[i];
}

// Four at a time, and what is left one by one.
extern "C" __global__ void __launch_bounds__(256) scale4(const float* x, float* out, float a, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (4 * i + 3 < n) {
        float4 v = *reinterpret_cast<const float4*>(x + 4 * i);
        v.x *= a; v.y *= a; v.z *= a; v.w *= a;
        *reinterpret_cast<float4*>(out + 4 * i) = v;
    } else {
        for (long long j = 4 * i; j < n; j++) out[j] = x[j] * a;
    }
}

struct alignas(16) Eight { float v[8]; };
extern "C" __global__ void scale8(const Eight* x, Eight* out) {
    Eight v = x[threadIdx.x];
    for (int i = 0; i < 8; i++) v.v[i] *= 2.0f;
    out[threadIdx.x] = v;
}

extern "C" __global__ void transpose(const float* x, float* out, int rows, int columns) {
    __shared__ float tile[16][17];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = x[row * columns + column];
    __syncthreads();
    row = blockIdx.x * 16 + threadIdx.y;
    column = blockIdx.y * 16 + threadIdx.x;
    if (row < columns && column < rows) out[row * rows + column] = tile[threadIdx.x][threadIdx.y];
}

__device__ __forceinline__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_down_sync(0xffffffffu, v, offset);
    return v;
}

template <int WARPS>
__device__ float block_sum(float v) {
    __shared__ float parts[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    v = warp_sum(v);
    if (lane == 0) parts[warp] = v;
    __syncthreads();
    if (warp == 0) v = warp_sum(lane < WARPS ? parts[lane] : 0.0f);
    return v;
}

// Both stages of a sum: one partial result for each block, then one block over these.
extern "C" __global__ void __launch_bounds__(128) sum(const float* x, float* out, int n) {
    float v = 0.0f;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) v += x[i];
    v = block_sum<4>(v);
    if (threadIdx.x == 0) out[blockIdx.x] = v;
}

// One block for each row, the row in shared memory.
extern "C" __global__ void __launch_bounds__(128) softmax(const float* x, float* out, int columns) {
    extern __shared__ __align__(16) float row[];
    __shared__ float parts[4];
    x += (long long)blockIdx.x * columns;
    out += (long long)blockIdx.x * columns;
    float most = -__int_as_float(0x7f800000);
    for (int i = threadIdx.x; i < columns; i += 128) most = fmaxf(most, row[i] = x[i]);
    for (int offset = 16; offset > 0; offset >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, offset));
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = most;
    __syncthreads();
    most = fmaxf(fmaxf(parts[0], parts[1]), fmaxf(parts[2], parts[3]));
    __syncthreads();
    float total = 0.0f;
    for (int i = threadIdx.x; i < columns; i += 128) total += row[i] = expf(row[i] - most);
    for (int offset = 16; offset > 0; offset >>= 1) total += __shfl_xor_sync(~0u, total, offset);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = total;
    __syncthreads();
    total = parts[0] + parts[1] + parts[2] + parts[3];
    for (int i = threadIdx.x; i < columns; i += 128) out[i] = row[i] / total;
}

extern "C" __global__ void histogram(const int* values, unsigned int* counts, int n) {
    __shared__ unsigned int own[16];
    if (threadIdx.x < 16) own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&own[values[i]], 1u);
    }
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&counts[threadIdx.x], own[threadIdx.x]);
}

// A maximum of floats by compare and swap.
extern "C" __global__ void largest(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int* bits = reinterpret_cast<int*>(out);
    int seen = atomicAdd(bits, 0);
    while (__int_as_float(seen) < x[i]) {
        int before = atomicCAS(bits, seen, __float_as_int(x[i]));
        if (before == seen) break;
        seen = before;
    }
}

// The last block to arrive adds up what all wrote.
extern "C" __global__ void sum_at_once(const float* x, float* parts, unsigned int* arrived, float* out, int n) {
    __shared__ bool last;
    float v = 0.0f;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) v += x[i];
    v = block_sum<4>(v);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = v;
        __threadfence();
        last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float total = 0.0f;
        for (int i = 0; i < gridDim.x; i++) total += parts[i];
        *out = total;
    }
}

template <class T> __device__ void copy_rounded(const float* x, T* out, float* back, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = T(x[i]);
        back[i] = float(out[i]);
    }
}
extern "C" __global__ void halves(const float* x, __half* out, float* back, int n) { copy_rounded(x, out, back, n); }
extern "C" __global__ void bfloats(const float* x, __nv_bfloat16* out, float* back, int n) {
    copy_rounded(x, out, back, n);
}

extern "C" __global__ void votes(const int* x, unsigned int* out) {
    int lane = threadIdx.x;
    unsigned mask = lane < 8 ? 0xffu : 0xffffff00u;
    unsigned ballot = __ballot_sync(mask, x[lane] > 0);
    bool any = __any_sync(mask, x[lane] > 0), all = __all_sync(mask, x[lane] > 0);
    int first = __shfl_sync(0xffffffffu, x[lane], 2, 8);
    int up = __shfl_up_sync(0xffffffffu, x[lane], 1);
    out[5 * lane] = ballot;
    out[5 * lane + 1] = any + 2 * all;
    out[5 * lane + 2] = first;
    out[5 * lane + 3] = up;
    out[5 * lane + 4] = __syncthreads_count(x[lane] > 0);
}

// Warps work in shared memory with no barrier but their own.
extern "C" __global__ void warp_scan(int* x) {
    __shared__ int line[64];
    int t = threadIdx.x, lane = t % 32;
    line[t] = x[t];
    __syncwarp();
    for (int offset = 1; offset < 32; offset *= 2) {
        int add = lane >= offset ? line[t - offset] : 0;
        __syncwarp();
        line[t] += add;
        __syncwarp();
    }
    x[t] = line[t];
}

struct Geometry { int rows, columns; float scale; };
__constant__ float table[4] = {1.0f, 2.0f, 3.0f, 4.0f};
extern "C" __global__ void structured(const float* x, float* out, const Geometry g) {
    int i = threadIdx.x;
    if (i < g.rows * g.columns) out[i] = __ldg(x + i) * g.scale + table[i % 4];
}

extern "C" __global__ void bits(const unsigned int* x, unsigned int* out) {
    unsigned int v = x[threadIdx.x];
    unsigned int* row = out + 6 * threadIdx.x;
    row[0] = __popc(v); row[1] = __clz(v); row[2] = __ffs(v);
    row[3] = __umulhi(v, 0x9e3779b9u); row[4] = __brev(v); row[5] = __funnelshift_l(v, 5u, 3);
}
"""


@pytest.fixture(params=[0, 1, 2], ids="seed {}".format)
def device(request: pytest.FixtureRequest) -> Device:
    return Device(seed=request.param)


def kernel(device: Device, name: str) -> Function:
    return device.module(KERNELS).get_function(name)


def on(device: Device, array: np.ndarray, name: str = "x") -> Buffer:
    return device.alloc(array.nbytes, name).copy_from(array)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape, np.float32)


@pytest.mark.parametrize("n", [1, 255, 256, 1000, 3001])
def test_sums_of_vectors(device: Device, n: int) -> None:
    x, y = numbers(2, n)
    out = device.alloc(4 * n)
    kernel(device, "add")((3,), (256,), (on(device, x), on(device, y), out, np.int32(n)))
    assert np.array_equal(out.to_numpy(), x + y)


@pytest.mark.parametrize("n", [1, 4, 1027])
def test_vectors_of_four_are_one_access_each(device: Device, n: int) -> None:
    x = numbers(n)
    out = device.alloc(4 * n)
    kernel(device, "scale4")((-(-n // 1024),), (256,), (on(device, x), out, np.float32(3), np.int64(n)))
    assert np.array_equal(out.to_numpy(), x * np.float32(3))
    launch = device.counts.launches[-1]
    assert launch.bytes_moved == 8 * n
    assert launch.traffic["x"].wide_reads == launch.traffic["out"].wide_writes == n // 4
    assert launch.traffic["x"].reads == launch.traffic["out"].writes == n // 4 + n % 4


def test_larger_structures_are_several_wide_accesses(device: Device) -> None:
    x = numbers(80)
    out = device.alloc(x.nbytes)
    kernel(device, "scale8")((1,), (10,), (on(device, x), out))
    assert np.array_equal(out.to_numpy(), 2 * x)
    traffic = device.counts.launches[-1].traffic
    assert (traffic["x"].bytes_read, traffic["x"].wide_reads) == (320, 20)
    assert (traffic["out"].bytes_written, traffic["out"].wide_writes) == (320, 20)


def test_tiles_in_shared_memory(device: Device) -> None:
    x = numbers(37, 50)
    out = device.alloc(x.nbytes)
    kernel(device, "transpose")((4, 3), (16, 16), (on(device, x), out, np.int32(37), np.int32(50)))
    assert np.array_equal(out.to_numpy(shape=(50, 37)), x.T)
    traffic = device.counts.launches[-1]
    assert traffic.bytes_moved == 2 * x.nbytes
    assert traffic.shared.bytes_written == traffic.shared.bytes_read == x.nbytes


def test_sum_in_two_stages(device: Device) -> None:
    x = np.random.default_rng(0).integers(-9, 9, 5000).astype(np.float32)
    parts, out = device.alloc(28), device.alloc(4)
    sums = kernel(device, "sum")
    sums((7,), (128,), (on(device, x), parts, np.int32(x.size)))
    sums((1,), (128,), (parts, out, np.int32(7)))
    assert out.to_numpy() == x.sum()
    assert len(device.counts.launches) == 2
    assert len(device.counts.synchronizations) == 1


def test_softmax_of_rows(device: Device) -> None:
    x = numbers(5, 300)
    out = device.alloc(x.nbytes)
    kernel(device, "softmax")((5,), (128,), (on(device, x), out, np.int32(300)), shared_mem=1200)
    e = np.exp(x - x.max(1, keepdims=True))
    assert np.allclose(out.to_numpy(shape=x.shape), e / e.sum(1, keepdims=True), rtol=1e-6, atol=0)
    assert device.counts.launches[-1].bytes_moved == 2 * x.nbytes


def test_histogram(device: Device) -> None:
    values = np.random.default_rng(0).integers(0, 16, 1000, dtype=np.int32)
    counts = on(device, np.zeros(16, np.uint32))
    kernel(device, "histogram")((3,), (64,), (on(device, values), counts, np.int32(values.size)))
    assert np.array_equal(counts.to_numpy(np.uint32), np.bincount(values, minlength=16))
    assert device.counts.launches[-1].traffic["counts"].atomics == 48


def test_compare_and_swap(device: Device) -> None:
    x = numbers(300)
    out = on(device, np.float32([-np.inf]))
    kernel(device, "largest")((3,), (128,), (on(device, x), out, np.int32(300)))
    assert out.to_numpy() == x.max()


def test_last_block_sees_what_was_fenced(device: Device) -> None:
    x = np.arange(3000, dtype=np.float32) % 7
    out, parts = device.alloc(4), device.alloc(20)
    arrived = on(device, np.uint32([0]))
    arguments = (on(device, x), parts, arrived, out, np.int32(x.size))
    for _ in range(2):  # the counter is 0 again after each
        kernel(device, "sum_at_once")((5,), (128,), arguments)
        assert out.to_numpy() == x.sum()


@pytest.mark.parametrize(("name", "dtype"), [("halves", np.float16), ("bfloats", ml_dtypes.bfloat16)])
def test_halves_round_as_numpy_does(name: str, dtype: type) -> None:
    device = Device()
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
    exact = every[np.isfinite(every)]
    middles = ((exact[1:].astype(np.float64) + exact[:-1]) / 2).astype(np.float32)
    x = np.concatenate(
        [every, middles, np.nextafter(middles, np.float32(np.inf)), np.float32([65519.99, 65520, 3.4e38])]
    )
    out, back = device.alloc(2 * x.size), device.alloc(4 * x.size)
    kernel(device, name)((-(-x.size // 1024),), (1024,), (on(device, x), out, back, np.int32(x.size)))
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = x.astype(dtype)
    found = out.to_numpy(np.uint16)
    number = ~np.isnan(x)
    assert np.array_equal(found[number], wanted.view(np.uint16)[number])
    assert np.array_equal(back.to_numpy(), wanted.astype(np.float32), equal_nan=True)


def test_votes_and_shuffles_of_part_of_a_warp(device: Device) -> None:
    x = np.random.default_rng(0).integers(-3, 4, 32, dtype=np.int32)
    x[8:] = np.abs(x[8:]) + 1
    out = device.alloc(5 * 4 * 32)
    kernel(device, "votes")((1,), (32,), (on(device, x), out))
    ballot, some, first, up, count = out.to_numpy(np.int32, (32, 5)).T
    positive = sum(int(v > 0) << i for i, v in enumerate(x))
    assert np.array_equal(ballot.view(np.uint32), [positive & 0xFF] * 8 + [positive & 0xFFFFFF00] * 24)
    assert np.array_equal(some, [int((x[:8] > 0).any()) + 2 * int((x[:8] > 0).all())] * 8 + [3] * 24)
    assert np.array_equal(first, np.repeat(x[2::8], 8))
    assert np.array_equal(up, np.concatenate([x[:1], x[:-1]]))
    assert np.array_equal(count, np.full(32, (x > 0).sum()))


def test_warps_may_work_by_barriers_of_their_own(device: Device) -> None:
    x = np.arange(64, dtype=np.int32)
    buffer = on(device, x)
    kernel(device, "warp_scan")((1,), (64,), (buffer,))
    assert np.array_equal(buffer.to_numpy(np.int32), x.reshape(2, 32).cumsum(1).ravel())


def test_structures_and_constants(device: Device) -> None:
    geometry = np.zeros((), np.dtype([("rows", "i4"), ("columns", "i4"), ("scale", "f4")]))
    geometry[...] = (2, 5, 3.0)
    x = numbers(10)
    out = device.alloc(40)
    kernel(device, "structured")((1,), (32,), (on(device, x), out, geometry))
    assert np.array_equal(out.to_numpy(), x * np.float32(3) + np.float32([1, 2, 3, 4] * 3)[:10])


def test_bits(device: Device) -> None:
    x = np.uint32([0, 1, 0x80000000, 0xFFFFFFFF, 0x12345678])
    out = device.alloc(6 * x.nbytes)
    kernel(device, "bits")((1,), (5,), (on(device, x), out))
    wanted = []
    for v in map(int, x):
        text = f"{v:032b}"
        ones, leading = text.count("1"), len(text) - len(text.lstrip("0"))
        last = 0 if v == 0 else 32 - text.rindex("1")
        wanted.append([ones, leading, last, v * 0x9E3779B9 >> 32, int(text[::-1], 2), (5 << 3 | v >> 29) & 0xFFFFFFFF])
    assert out.to_numpy(np.uint32, (5, 6)).tolist() == wanted
