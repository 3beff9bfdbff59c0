"""What counts as a race, and what does not: pairs of kernels that differ in one barrier, mask or address."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda_emulator.device import Device
from tests.cuda_emulator.faults import DeviceFault

# Bodies of kernels, for one block of 64 threads over `x` (64 ones) and `out` (64 zeros). The first of each pair is
# right, the second races.
WITHIN_A_BLOCK = {
    "all read, one writes": (
        "s[t] = x[t]; __syncthreads(); float v = s[5] + s[t]; __syncthreads(); if (t == 40) s[5] = v; out[t] = v;",
        "s[t] = x[t]; __syncthreads(); float v = s[5] + s[t]; if (t == 40) s[5] = v; out[t] = v;",
    ),
    "one warp reads, another writes": (
        "if (t < 32) out[t] = x[3]; __syncthreads(); if (t == 63) x[3] = 2;",
        "if (t < 32) out[t] = x[3]; if (t == 63) x[3] = 2;",
    ),
    "a thread's own values": (
        "s[t] = 1; s[t] += 1; s[t] *= s[t]; out[t] = s[t];",
        "s[t] = 1; s[t ^ 1] += 1; out[t] = 0;",
    ),
    "barrier of the warp": (
        "s[t] = x[t]; __syncwarp(); out[t] = s[t ^ 16];",
        "s[t] = x[t]; __syncwarp(); out[t] = s[t ^ 32];",
    ),
    "barrier of half a warp": (
        "s[t] = x[t]; __syncwarp(t % 32 < 16 ? 0xffffu : 0xffff0000u); out[t] = s[t ^ 8];",
        "s[t] = x[t]; __syncwarp(t % 32 < 16 ? 0xffffu : 0xffff0000u); out[t] = s[t ^ 16];",
    ),
    "barriers of the warp hand on what was heard": (
        # Lane 0 to lane 1, lane 1 to lane 2.
        "if (t == 0) s[0] = 1; if (t < 2) __syncwarp(3); if (t == 1 || t == 2) __syncwarp(6); if (t == 2) *out = s[0];",
        "if (t == 0) s[0] = 1; if (t == 1 || t == 2) __syncwarp(6); if (t < 2) __syncwarp(3); if (t == 2) *out = s[0];",
    ),
    "reads before a barrier of the warp": (
        "if (t < 32) { s[t] = 1; __syncwarp(); out[t] = s[0] + s[t]; __syncwarp(); if (t == 7) s[0] = 2; }",
        "if (t < 32) { s[t] = 1; __syncwarp(); out[t] = s[0] + s[t]; if (t == 7) s[0] = 2; __syncwarp(); }",
    ),
    "writes after a barrier of the warp": (
        "s[t] = 0; __syncwarp(); if (t == 3) s[3] = 1; __syncwarp(); if (t == 4) out[4] = s[3];",
        "s[t] = 0; __syncwarp(); if (t == 3) s[3] = 1; if (t == 4) out[4] = s[3];",
    ),
    "two warps read, and one of them writes": (
        "if (t == 5) out[5] = x[3]; __syncwarp(); if (t == 40) out[t] = x[3]; __syncthreads(); if (t == 5) x[3] = 2;",
        "if (t == 5) out[5] = x[3]; __syncwarp(); if (t == 40) out[t] = x[3]; if (t == 5) x[3] = 2;",
    ),
    "a shuffle orders no memory": (
        "s[t] = 1; float v = __shfl_xor_sync(~0u, s[t], 1); out[t] = v;",
        "s[t] = 1; float v = __shfl_xor_sync(~0u, 1.0f, 1); out[t] = v + s[t ^ 1];",
    ),
    "atomics among themselves": (
        "if (t == 0) s[0] = 0; __syncthreads(); atomicAdd(&s[0], 1.0f); __syncthreads(); out[t] = s[0];",
        "if (t == 0) s[0] = 0; __syncthreads(); atomicAdd(&s[0], 1.0f); out[t] = s[0];",
    ),
    "atomics and a store": (
        "if (t == 0) s[0] = 0; __syncthreads(); atomicAdd(&s[0], 1.0f);",
        "if (t == 0) s[0] = 0; atomicAdd(&s[0], 1.0f);",
    ),
    "halves of a word": (
        "auto h = reinterpret_cast<unsigned short*>(s); h[t] = 1; __syncthreads(); out[t] = h[63 - t];",
        "auto h = reinterpret_cast<unsigned short*>(s); h[t] = 1; out[t] = reinterpret_cast<int*>(s)[t / 2];",
    ),
    "words first, bytes later": (
        "auto b = reinterpret_cast<unsigned char*>(s); s[t] = 1; b[4 * t + 1] = 2; __syncthreads(); out[t] = b[t];",
        "auto b = reinterpret_cast<unsigned char*>(s); s[t] = 1; b[t] = 2;",
    ),
    "the same value": (
        "if (t == 0) s[0] = 1; __syncthreads(); out[t] = s[0];",
        "s[0] = 1; __syncthreads(); out[t] = s[0];",
    ),
}

# The same for three blocks of one thread; `b` is the block.
BETWEEN_BLOCKS = {
    "places of their own": ("out[b] = x[0];", "out[0] = x[0];"),
    "reading what another wrote": ("out[b] = 1; x[b] = out[b];", "out[b] = 1; x[b] = out[(b + 1) % 3];"),
    "all read, one writes": ("x[b] = x[b] + 1;", "out[b] = x[0]; if (b == 1) x[0] = 2;"),
    "atomics among themselves": ("atomicAdd(&out[0], 1.0f);", "if (b == 0) out[0] = 1; else atomicAdd(&out[0], 1.0f);"),
    "fences": (
        "out[b] = 1; __threadfence(); if (atomicAdd(&x[0], 1.0f) == 3) x[1] = out[0] + out[1] + out[2];",
        "out[b] = 1; if (atomicAdd(&x[0], 1.0f) == 3) x[1] = out[0] + out[1] + out[2];",
    ),
    "a fence on both sides": (
        "out[b] = 1; __threadfence(); if (atomicAdd(&x[0], 1.0f) == 3) x[1] = out[0] + out[1] + out[2];",
        "out[b] = 1; if (atomicAdd(&x[0], 1.0f) == 3) { __threadfence(); x[1] = out[0] + out[1] + out[2]; }",
    ),
    "fences before a store": (
        "out[b] = x[2]; __threadfence(); if (atomicAdd(&x[0], 1.0f) == 3) x[2] = 5;",
        "out[b] = x[2]; if (atomicAdd(&x[0], 1.0f) == 3) x[2] = 5;",
    ),
}


def text(table: dict[str, tuple[str, str]], head: str) -> str:
    return "\n".join(
        f'extern "C" __global__ void k{number}_{which}(float* x, float* out) {{ {head} {body} }}'
        for number, pair in enumerate(table.values())
        for which, body in enumerate(pair)
    )


def run(table: dict[str, tuple[str, str]], head: str, name: str, which: int, seed: int, sizes: tuple[int, int]) -> None:
    device = Device(seed=seed)
    kernel = device.module(text(table, head)).get_function(f"k{list(table).index(name)}_{which}")
    x = device.alloc(256).copy_from(np.ones(64, np.float32))
    out = device.alloc(256).copy_from(np.zeros(64, np.float32))
    kernel((sizes[0],), (sizes[1],), (x, out))
    device.synchronize()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", WITHIN_A_BLOCK)
def test_threads_of_a_block(name: str, seed: int) -> None:
    head = "const int t = threadIdx.x; __shared__ float s[64];"
    run(WITHIN_A_BLOCK, head, name, 0, seed, (1, 64))
    with pytest.raises(DeviceFault) as caught:
        run(WITHIN_A_BLOCK, head, name, 1, seed, (1, 64))
    # In some orders a thread finds what nobody has written yet.
    assert caught.value.kind in ("race", "unwritten")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", BETWEEN_BLOCKS)
def test_blocks_of_a_launch(name: str, seed: int) -> None:
    head = "const int b = blockIdx.x;"
    run(BETWEEN_BLOCKS, head, name, 0, seed, (3, 1))
    with pytest.raises(DeviceFault) as caught:
        run(BETWEEN_BLOCKS, head, name, 1, seed, (3, 1))
    assert caught.value.kind == "race"


@pytest.mark.parametrize("seed", range(3))
def test_launches_are_in_order(seed: int) -> None:
    device = Device(seed=seed)
    flip = device.module(
        'extern "C" __global__ void flip(const float* x, float* out) { int t = threadIdx.x; out[t] = 1 - x[63 - t]; }'
    ).get_function("flip")
    x, y = (device.alloc(256).copy_from(np.ones(64, np.float32)) for _ in range(2))
    for _ in range(3):
        flip((1,), (64,), (x, y))
        flip((1,), (64,), (y, x))
    assert (x.to_numpy() == 1).all()
