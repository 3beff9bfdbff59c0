"""A network with kernels of one's own: an activation that is a Python function, and a layer that is CUDA C++.

python examples/own_kernels.py [--steps 200]

The activation's width is trained too. The layer's kernel and its gradient run on a GPU where there is one, and as NumPy
functions elsewhere.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import gradtape as tf


@tf.kernel_op
def bent(x, width):
    """x beyond the width, and bent towards 0 within: x·|x| / (width + |x|)."""
    size = abs(x)
    return x * size / (abs(width) + size) if size > 0 else 0.0


@tf.kernel_op
def loss_of(error):
    """log(cosh(error)), without overflow: a square near 0, and a line where errors are large."""
    size = abs(error)
    return size + math.log1p(math.exp(-2 * size)) - math.log(2.0)


NORMED = r"""
// Each row divided by its length, a block for each row.
__device__ float sum(float* part, float mine) {
    part[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    float total = part[0];
    __syncthreads();
    return total;
}
__global__ void normed(const float* x, float* y, float* length, int n, float least) {
    __shared__ float part[64];
    const float* row = x + (long long)blockIdx.x * n;
    float squares = 0;
    for (int k = threadIdx.x; k < n; k += blockDim.x) squares += row[k] * row[k];
    float size = sqrtf(sum(part, squares) + least);
    for (int k = threadIdx.x; k < n; k += blockDim.x) y[(long long)blockIdx.x * n + k] = row[k] / size;
    if (threadIdx.x == 0) length[blockIdx.x] = size;
}
__global__ void normed_back(const float* x, const float* y, const float* length, const float* dy, const float* dl,
                            float* dx, int n) {
    __shared__ float part[64];
    long long first = (long long)blockIdx.x * n;
    float along = 0;
    for (int k = threadIdx.x; k < n; k += blockDim.x) along += dy[first + k] * y[first + k];
    along = sum(part, along);
    for (int k = threadIdx.x; k < n; k += blockDim.x)
        dx[first + k] = (dy[first + k] - along * y[first + k]) / length[blockIdx.x] + dl[blockIdx.x] * y[first + k];
}
"""


def normed_on_host(x: Any, least: float) -> Any:
    length = np.sqrt((x * x).sum(1) + np.float32(least))
    return x / length[:, None], length


def back_on_host(x: Any, y: Any, length: Any, dy: Any, dl: Any) -> Any:
    along = (dy * y).sum(1, keepdims=True)
    return (dy - along * y) / length[:, None] + dl[:, None] * y


normed = tf.kernel_op(
    NORMED,
    name="normed",
    signature="(n)->(n),()",
    static={"least": 1e-6},
    grid=lambda size: size,
    block=64,
    host=normed_on_host,
    backward="normed_back",
    backward_host=back_on_host,
    linear=True,
)


def train(steps: int) -> tuple[float, float, float]:
    """The loss before and after so many steps, and the width that was found."""
    tf.random.set_seed(1)
    x = tf.random.normal([256, 8])
    wanted = tf.reduce_sum(x[:, :4], axis=1, keepdims=True) * tf.sin(x[:, 4:5])
    first = tf.keras.layers.Dense(32)
    last = tf.keras.layers.Dense(1)
    width = tf.Variable(1.0)
    optimizer = tf.keras.optimizers.Adam(0.01)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            rows, length = normed(bent(first(x), width))
            loss = tf.reduce_mean(loss_of(last(rows) * length[:, None] - wanted))
        variables = [*first.trainable_variables, *last.trainable_variables, width]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    losses = [float(step()) for _ in range(steps)]
    return losses[0], losses[-1], float(width)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args(arguments).steps
    bent.check(tf.constant([0.3, -2.0], tf.float64), tf.constant(0.5, tf.float64), order=2)
    normed.check(tf.constant([[1.0, 2.0, -0.5]]))
    before, after, width = train(steps)
    print(f"loss {before:.3f} -> {after:.3f} after {steps} steps, width {width:.3f}")


if __name__ == "__main__":
    main()
