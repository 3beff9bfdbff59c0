"""Kernels with deliberate faults, and how tests run them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda_emulator.device import Device
from tests.cuda_emulator.faults import DeviceFault
from tests.cuda_emulator.memory import Buffer
from tests.cuda_emulator.module import Function

KERNELS = r"""
extern "C" __global__ void reads_one_too_many(const float* x, float* out, int n) {
    int i = threadIdx.x;
    if (i < n) out[i] = x[i + 1] - x[i];
}

extern "C" __global__ void writes_one_too_many(const float* x, float* out, int n) {
    int i = threadIdx.x;
    if (i <= n) out[i] = 1.0f;
}

extern "C" __global__ void writes_before(float* out) { out[int(threadIdx.x) - 1] = 1.0f; }

extern "C" __global__ void null(float* out) { out[threadIdx.x] = 1.0f; }

extern "C" __global__ void forgets_barrier(const float* x, float* out) {
    __shared__ float line[64];
    line[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = line[63 - threadIdx.x];
}

extern "C" __global__ void overwrites_too_early(const float* x, float* out) {
    __shared__ float line[64];
    line[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    float other = line[63 - threadIdx.x];
    line[threadIdx.x] = other;
    __syncthreads();
    out[threadIdx.x] = line[threadIdx.x];
}

extern "C" __global__ void forgets_warp_barrier(float* out) {
    __shared__ float line[32];
    int lane = threadIdx.x;
    line[lane] = lane;
    __syncwarp();
    if (lane < 16) line[lane] += line[lane + 16];
    if (lane < 8) line[lane] += line[lane + 8];
    __syncwarp();
    out[lane] = line[0];
}

extern "C" __global__ void two_write_one(float* out) { out[threadIdx.x / 2] = threadIdx.x; }

extern "C" __global__ void bytes_beside(unsigned char* out) { out[threadIdx.x] = 1; }

extern "C" __global__ void blocks_write_one(float* out) { if (threadIdx.x == 0) out[0] += 1.0f; }

extern "C" __global__ void maximum(const float* x, float* out, int n) {
    __shared__ float most[32];
    float v = 0.0f;  // and not minus infinity
    for (int i = threadIdx.x; i < n; i += 32) v = fmaxf(v, x[i]);
    most[threadIdx.x] = v;
    __syncthreads();
    for (int half = 16; half > 0; half /= 2) {
        if (threadIdx.x < half) most[threadIdx.x] = fmaxf(most[threadIdx.x], most[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) *out = most[0];
}

extern "C" __global__ void copies_four(const float* x, float* out) {
    reinterpret_cast<float4*>(out)[threadIdx.x] = reinterpret_cast<const float4*>(x)[threadIdx.x];
}

extern "C" __global__ void doubles(float* x) { x[threadIdx.x] *= 2.0f; }

extern "C" __global__ void sums_part_of_a_warp(const float* x, float* out, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_down_sync(0xffffffffu, v, offset);
    if (i == 0) *out = v;
}

extern "C" __global__ void leaves_itself_out(float* out) { out[threadIdx.x] = __shfl_sync(0xfffeu, 1.0f, 3); }

extern "C" __global__ void two_calls_at_once(int* out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __any_sync(0xffffffffu, 1);
    else out[threadIdx.x] = __all_sync(0xffffffffu, 1);
}

extern "C" __global__ void reads_unnamed_lane(float* out) {
    if (threadIdx.x < 8) out[threadIdx.x] = __shfl_down_sync(0xffu, 1.0f, 4);
}

extern "C" __global__ void waits_for_half(float* out) {
    if (threadIdx.x < 48) __syncthreads();
    out[threadIdx.x] = 1.0f;
}

extern "C" __global__ void two_barriers(float* out) {
    if (threadIdx.x < 16) {
        __syncthreads();
    } else {
        out[threadIdx.x] = 1.0f;
        __syncthreads();
    }
}

extern "C" __global__ void index_overflows(float* out, int rows, int columns) {
    int i = rows * columns + int(threadIdx.x);
    if (i == 0) out[i] = 1.0f;
}

extern "C" __global__ void divides_by_zero(int* out, int n) { out[threadIdx.x] = 7 / n; }

extern "C" __global__ void batches(float* out, long long n) { if (blockIdx.y < n) out[blockIdx.y] = 1.0f; }

extern "C" __global__ void __launch_bounds__(2 * 64) bounded(float* out) { out[threadIdx.x] = 1.0f; }

extern "C" __global__ void dynamic(float* out, int n) {
    extern __shared__ float line[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) line[i] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = line[threadIdx.x];
}

extern "C" __global__ void too_much_static(float* out) {
    __shared__ float line[13000];
    line[threadIdx.x] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = line[63 - threadIdx.x];
}

extern "C" __global__ void local_array(float* out, int n) {
    float own[4] = {0.0f, 1.0f, 2.0f, 3.0f};
    out[threadIdx.x] = own[threadIdx.x + n];
}

extern "C" __global__ void reads_unwritten_line(float* out) {
    __shared__ float line[64];
    if (threadIdx.x != 5) line[threadIdx.x] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = line[threadIdx.x];
}

extern "C" __global__ void hands_on_to_the_next_block(float* out) {
    __shared__ float line[64];
    if (atomicAdd(out, 1.0f) == 1.0f) line[0] = 2.0f;
    __syncthreads();
    out[1 + blockIdx.x] = line[0];
}

extern "C" __global__ void adds_at_a_byte(unsigned char* x) { atomicAdd(reinterpret_cast<int*>(x + 2), 1); }

extern "C" __global__ void caches_what_it_writes(float* x) { x[threadIdx.x] = __ldg(x + threadIdx.x) * 2.0f; }

extern "C" __global__ void promises(const float* __restrict__ x, float* __restrict__ out) {
    out[threadIdx.x] = x[threadIdx.x] + 1.0f;
}

__device__ int deeper(int n) {
    volatile int room[1000];
    room[n % 1000] = n;
    return n == 0 ? 0 : deeper(n - 1) + room[n % 1000];
}
extern "C" __global__ void runs_over_its_stack(int* out) { out[threadIdx.x] = deeper(1000000); }

extern "C" __global__ void never_ends(int* flag) { while (flag[0] == 0) { __threadfence(); } }

extern "C" __global__ void asserts(const int* x) {
    assert(x[threadIdx.x] > 0);
}
"""


def kernel(device: Device, name: str) -> Function:
    return device.module(KERNELS).get_function(name)


def line(words: str) -> int:
    """The line of the kernels' text that has these words, counted from 1."""
    found = [number for number, text in enumerate(KERNELS.split("\n"), 1) if words in text]
    assert len(found) == 1
    return found[0]


def fault(device: Device, name: str, arguments: tuple, block: int = 64, grid: int = 1, shared: int = 0) -> DeviceFault:
    """The fault of a launch; that it is told only when the host waits is part of the contract."""
    kernel(device, name)((grid,), (block,), arguments, shared_mem=shared)
    with pytest.raises(DeviceFault) as caught:
        device.synchronize()
    assert caught.value.kernel == name
    return caught.value


def buffer(device: Device, n: int, name: str = "x") -> Buffer:
    """Ones."""
    return device.alloc(4 * n, name).copy_from(np.ones(n, np.float32))
