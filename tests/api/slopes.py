"""Gradients of public functions to second order against differences of their values, and Jacobians against rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as tf

STEP = 1e-4


def weights(y: Any) -> Any:
    """A fixed cotangent with no two equal elements."""
    return tf.constant(np.cos(np.arange(np.prod(y.shape, dtype=int)) * 0.7).reshape(y.shape) + 1.3)


def weighted(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a number."""

    def total(*xs: Any) -> Any:
        y = f(*xs)
        return tf.reduce_sum(y * weights(y))

    return total


def slope(f: Callable[..., Any], arrays: list[Any], k: int) -> Any:
    """The gradient of a number in one operand, by central differences of fourth order."""
    found = np.zeros(arrays[k].shape)
    for at in np.ndindex(*arrays[k].shape):

        def value(distance: float, at: tuple[int, ...] = at) -> float:
            moved = arrays[k].copy()
            moved[at] += distance
            return float(f(*arrays[:k], moved, *arrays[k + 1 :]))

        near, far = value(STEP) - value(-STEP), value(2 * STEP) - value(-2 * STEP)
        found[at] = (8 * near - far) / (12 * STEP)
    return found


def gradient_of(f: Callable[..., Any]) -> Callable[..., Any]:
    """The gradients of a number, joined to one vector."""

    def gradients(*xs: Any) -> Any:
        tensors = [tf.convert_to_tensor(x) for x in xs]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = f(*tensors)
        found = tape.gradient(y, tensors, unconnected_gradients="zero")
        return tf.concat([tf.reshape(tf.convert_to_tensor(g), [-1]) for g in found], axis=0)

    return gradients


def assert_derivatives(f: Callable[..., Any], *arrays: Any) -> None:
    """First and second derivatives are the slopes, and rows computed at once are those computed one by one."""
    floats = [np.asarray(a, np.float64) for a in arrays]
    first = weighted(f)
    for g in (first, weighted(gradient_of(first))):
        with tf.device("/CPU:0"):  # wherever gradients are computed
            want = np.concatenate([slope(g, floats, k).reshape(-1) for k in range(len(floats))])
        np.testing.assert_allclose(gradient_of(g)(*floats).numpy(), want, rtol=1e-6, atol=1e-6)
    x = tf.constant(floats[0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x, *floats[1:])
    rows = tape.jacobian(y, x, experimental_use_pfor=False)
    np.testing.assert_allclose(tape.jacobian(y, x), rows, rtol=1e-12, atol=1e-12)
