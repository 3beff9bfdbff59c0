"""Programs with kernels of `numba.cuda.jit`, run by Numba's simulator: on the host, and on the emulated device.

NUMBA_ENABLE_CUDASIM=1 python -m tests.kernel_ops.numba_programs host|device"""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from typing import Any

import numpy as np
from numba import cuda

import gradtape as tf
from gradtape.runtime.devices import DEVICES
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.devices import emulated


@cuda.jit
def soft(x, a, y, size):
    i = cuda.grid(1)
    if i < size:
        y[i] = math.log(1 + math.exp(a[i] * x[i])) / a[i]


@cuda.jit
def soft_back(x, a, y, dy, dx, da, size):
    i = cuda.grid(1)
    if i < size:
        s = 1 / (1 + math.exp(-a[i] * x[i]))
        dx[i] = dy[i] * s
        da[i] = dy[i] * (x[i] * s - y[i]) / a[i]


@cuda.jit
def picked(x, index, y, scale):
    r = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        y[r] = scale * x[r, index[r]]


@cuda.jit
def counted(x, y, n):
    i = cuda.grid(1)
    if i < x.shape[0]:
        y[i] = 0
        for k in range(n):
            y[i] += x[i, k] > 0


@cuda.jit(device=True)
def slope(x, a=2.0):
    return 1 / (1 + math.exp(-a * x))


def drawn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(0.5, 2.0, shape)


def values_and_gradients() -> None:
    op = tf.kernel_op(soft, signature="(),()->()", backward=soft_back, linear=True, block=4)
    x, a = drawn(3, 4), drawn(4, seed=1)
    np.testing.assert_allclose(op(x, a), np.log(1 + np.exp(a * x)) / a)
    assert op(tf.ones([2], tf.float32), 2.0).dtype is tf.float32
    assert op(tf.zeros([0]), 2.0).shape == (0,)
    op.check(x[:1], a, modes=("reverse", "forward"))
    v = tf.Variable(x)
    with tf.GradientTape(persistent=True) as tape:
        y = op(v, 2.0)
    loop = tape.jacobian(y, v, experimental_use_pfor=False)
    np.testing.assert_allclose(tape.jacobian(y, v), loop)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(tape.batch_jacobian(y, v), tf.einsum("bibj->bij", loop))
    np.testing.assert_allclose(tf.vectorized_map(lambda r: op(r, 2.0), v), y)
    np.testing.assert_allclose(tf.function(lambda x: op(x, 2.0))(v), y)


def integers_and_numbers() -> None:
    def rule(op: Any, up: Any) -> Any:
        chosen = tf.one_hot(op.inputs[1], op.inputs[0].shape[-1], dtype=up.dtype)
        return up[..., None] * chosen * op.get_attr("scale"), None

    op = tf.kernel_op(
        picked, signature="(n),()->()", grid=lambda size: size, block=1, static={"scale": 1.0}, backward=rule
    )
    x, index = drawn(3, 4), np.array([2, 0, 3])
    np.testing.assert_allclose(op(x, index, scale=3.0), 3 * x[np.arange(3), index])
    op.check(x, tf.constant(index))
    counts = tf.kernel_op(counted, signature="(n)->()", dtypes="int32", block=4)
    found = counts(x - 1)
    assert found.dtype is tf.int32
    np.testing.assert_array_equal(found, (x > 1).sum(1))


def scalar_functions() -> None:
    op = tf.kernel_op(slope)
    np.testing.assert_allclose(op(drawn(3)), 1 / (1 + np.exp(-2 * drawn(3))))
    op.check(drawn(3), order=2)
    elementwise = tf.kernel_op(soft, signature="(),()->()", derivative=(slope, None), block=4)
    v = tf.Variable(drawn(3))
    with tf.GradientTape() as tape:
        y = elementwise(v, 2.0)
    np.testing.assert_allclose(tape.gradient(y, v), 1 / (1 + np.exp(-2 * drawn(3))))


def launches() -> None:
    op = tf.kernel_op(soft, signature="(),()->()", block=64)
    device = cupy_stand_in.device()
    x = tf.constant(drawn(10, 10))
    a = tf.constant(drawn(10, 10))
    device.counts.clear()
    y = op(x, a)
    assert device.counts.synchronizations == []
    device.synchronize("it")
    (launch,) = device.counts.launches
    assert (launch.kernel, launch.grid, launch.block) == ("soft", (2, 1, 1), (64, 1, 1))
    assert y.shape == (10, 10)
    traced = tf.function(lambda x: op(x, 2.0), jit_compile=True)
    for seed in range(4):
        given = drawn(4, seed=seed)
        np.testing.assert_allclose(traced(tf.constant(given)), np.log(1 + np.exp(2 * given)) / 2)
    assert device.counts.graphs


PROGRAMS = {"host": (values_and_gradients, integers_and_numbers, scalar_functions)}
PROGRAMS["device"] = (*PROGRAMS["host"], launches)

if __name__ == "__main__":
    where = sys.argv[1]
    with contextlib.ExitStack() as stack:
        if where == "device":
            stack.enter_context(cupy_stand_in.using_device())
            DEVICES.use(emulated())
        for program in PROGRAMS[where]:
            program()
            print(program.__name__)
        if where == "device":
            cupy_stand_in.device().synchronize("the end")
