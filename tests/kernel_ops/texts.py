"""Kernels in CUDA C++ as users write them, with their forms for the host."""

from __future__ import annotations

from typing import Any

import numpy as np

import gradtape as tf

SOFT = r"""
// log(1 + exp(a x)) / a
extern "C" __global__ void soft(const T* __restrict__ x, const T* a, T* y, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) y[i] = log(1 + exp(a[i] * x[i])) / a[i];
}
__global__ void soft_back(const T* x, const T* a, const T* y, const T* dy, T* dx, T* da, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    T s = 1 / (1 + exp(-a[i] * x[i]));
    dx[i] = dy[i] * s;
    da[i] = dy[i] * (x[i] * s - y[i]) / a[i];
}
"""
NORMED = r"""
__global__ void __launch_bounds__(32) normed(float* y, float* norm, const float* x, long long size, int n, float eps) {
    for (long long r = blockIdx.x; r < size; r += gridDim.x) {
        __shared__ float total;
        if (threadIdx.x == 0) {
            total = eps;
            for (int k = 0; k < n; ++k) total += x[r * n + k] * x[r * n + k];
            norm[r] = sqrtf(total);
        }
        __syncthreads();
        for (int k = threadIdx.x; k < n; k += blockDim.x) y[r * n + k] = x[r * n + k] / sqrtf(total);
        __syncthreads();
    }
}
"""
DOT = r"""
__global__ void dot(const T* x, const T* w, T* y, int size, int n) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= size) return;
    T total = 0;
    for (int k = 0; k < n; ++k) total += x[r * n + k] * w[r * n + k];
    y[r] = total;
}
__global__ void dot_back(const T* x, const T* w, const T* up, T* dx, T* dw, int size, int n) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= size) return;
    for (int k = 0; k < n; ++k) {
        dx[r * n + k] = up[r] * w[r * n + k];
        dw[r * n + k] = up[r] * x[r * n + k];
    }
}
"""
RUNNING = r"""
__global__ void running_squares(const double* x, double* y, int size, int n) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    double total = 0;
    for (int k = 0; r < size && k < n; ++k) y[r * n + k] = total += x[r * n + k] * x[r * n + k];
}
__global__ void running_back(const double* x, const double* up, double* dx, int size, int n) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    double total = 0;
    for (int k = n - 1; r < size && k >= 0; --k) dx[r * n + k] = 2 * x[r * n + k] * (total += up[r * n + k]);
}
"""
WHOLE = r"""
__global__ void centred(const double* x, double* y, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    double mean = 0;
    for (int k = 0; k < count; ++k) mean += x[k] / count;
    y[i] = x[i] - mean;
}
"""


def soft_of(x: Any, a: Any) -> Any:
    return np.log(1 + np.exp(a * x)) / a


def soft_back(x: Any, a: Any, y: Any, dy: Any) -> Any:
    s = 1 / (1 + np.exp(-a * x))
    return dy * s, dy * (x * s - y) / a


def soft(**options: Any) -> Any:
    return tf.kernel_op(SOFT, **{"name": "soft", "types": "T", "signature": "(),()->()", "host": soft_of, **options})


def soft_with_backward(**options: Any) -> Any:
    return soft(backward="soft_back", backward_host=soft_back, **options)


def soft_with_derivative() -> Any:
    def partials(x, a, out):
        s = 1 / (1 + tf.exp(-a * x))
        return s, (x * s - out) / a

    return soft(derivative=partials)


def normed_of(x: Any, eps: float) -> Any:
    norm = np.sqrt((x * x).sum(-1) + np.float32(eps))
    return x / norm[:, None], norm


def normed_rule(op: Any, dy: Any, dn: Any) -> Any:
    y, n = op.outputs
    return (dy - y * tf.reduce_sum(dy * y, -1, keepdims=True)) / n[..., None] + dn[..., None] * y


def normed(**options: Any) -> Any:
    return tf.kernel_op(
        NORMED,
        **{
            "signature": "(n)->(n),()",
            "grid": lambda size: min(size, 4),
            "block": 32,
            "host": normed_of,
            "backward": normed_rule,
            "static": {"eps": 0.1},
            **options,
        },
    )


def dot(**options: Any) -> Any:
    return tf.kernel_op(
        DOT,
        **{
            "name": "dot",
            "types": "T",
            "signature": "(n),(n)->()",
            "host": lambda x, w: (x * w).sum(-1),
            "backward": "dot_back",
            "backward_host": lambda x, w, up: (up[:, None] * w, up[:, None] * x),
            **options,
        },
    )


def centred(**options: Any) -> Any:
    return tf.kernel_op(
        WHOLE,
        **{
            "shapes": lambda x, count: x,
            "host": lambda x, count: x - x.mean(),
            "backward": lambda op, up: up - tf.reduce_mean(up),
            **options,
        },
    )


def running_squares(**options: Any) -> Any:
    return tf.kernel_op(
        RUNNING,
        **{
            "name": "running_squares",
            "signature": "(n)->(n)",
            "host": lambda x: np.cumsum(x * x, -1),
            "backward": "running_back",
            "backward_host": lambda x, up: 2 * x * np.cumsum(up[:, ::-1], -1)[:, ::-1],
            **options,
        },
    )
