"""Gradients of gradients: nested tapes, a persistent tape's own gradients, mixed partials, composed programs."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf

Function = Callable[[Any], Any]

# A function, and its derivatives of order 1 to 4 at 1.2.
CURVES: dict[str, tuple[Function, list[float]]] = {
    "x**5": (lambda x: x**5, [5 * 1.2**4, 20 * 1.2**3, 60 * 1.2**2, 120 * 1.2]),
    "sin": (tf.sin, [math.cos(1.2), -math.sin(1.2), -math.cos(1.2), math.sin(1.2)]),
    "exp(2x)": (lambda x: tf.exp(2.0 * x), [2**k * math.exp(2.4) for k in (1, 2, 3, 4)]),
    "1/x": (lambda x: 1.0 / x, [-(1.2**-2), 2 * 1.2**-3, -6 * 1.2**-4, 24 * 1.2**-5]),
    "log": (tf.math.log, [1 / 1.2, -(1.2**-2), 2 * 1.2**-3, -6 * 1.2**-4]),
    "a matrix product": (
        lambda x: tf.reduce_sum(tf.matmul(tf.reshape(x, [1, 1]), tf.reshape(x * x, [1, 1]))),
        [3 * 1.2**2, 6 * 1.2, 6.0, 0.0],
    ),
}


@pytest.mark.parametrize("name", CURVES)
def test_derivatives_to_fourth_order_by_nested_tapes(name: str) -> None:
    f, want = CURVES[name]
    x = tf.Variable(1.2, dtype=tf.float64)

    def derivative(order: int) -> Any:
        if order == 0:
            return f(x)
        with tf.GradientTape() as tape:
            y = derivative(order - 1)
        return tape.gradient(y, x, unconnected_gradients="zero")

    assert [float(derivative(k)) for k in (1, 2, 3, 4)] == pytest.approx(want)


@pytest.mark.parametrize("name", CURVES)
def test_a_persistent_tape_differentiates_its_own_gradients(name: str) -> None:
    f, want = CURVES[name]
    x = tf.constant(1.2, tf.float64)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        d = [f(x)]
        for _ in range(3):
            d.append(tape.gradient(d[-1], x))
    assert [float(g) for g in d[1:]] == pytest.approx(want[:3])
    last = tape.gradient(d[-1], x, unconnected_gradients="zero")
    assert float(last) == pytest.approx(want[3])


def test_a_gradient_outside_all_blocks_is_no_function_of_anything() -> None:
    x = tf.Variable(2.0)
    with tf.GradientTape(persistent=True) as tape:
        y = x**3
    g = tape.gradient(y, x)
    assert tape.gradient(g, x) is None


def test_mixed_partials_agree() -> None:
    x, y = tf.Variable(0.7, dtype=tf.float64), tf.Variable(-1.3, dtype=tf.float64)
    with tf.GradientTape(persistent=True) as outer:
        with tf.GradientTape() as inner:
            f = x**2 * tf.cos(y) + tf.exp(x * y)
        fx, fy = inner.gradient(f, [x, y])
    fxx, fxy = outer.gradient(fx, [x, y])
    fyx, fyy = outer.gradient(fy, [x, y])
    a, b = 0.7, -1.3
    e = math.exp(a * b)
    assert float(fxy) == pytest.approx(float(fyx)) == pytest.approx(-2 * a * math.sin(b) + e * (1 + a * b))
    assert float(fxx) == pytest.approx(2 * math.cos(b) + b * b * e)
    assert float(fyy) == pytest.approx(-a * a * math.cos(b) + a * a * e)


def test_the_inner_tape_may_watch_less_than_the_outer() -> None:
    w, x = tf.Variable([[2.0, -1.0]], dtype=tf.float64), tf.constant([[0.5], [1.5]], tf.float64)
    with tf.GradientTape() as outer:
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(x)
            y = tf.reduce_sum(tf.tanh(x @ w))
        g = inner.gradient(y, x)
        penalty = tf.reduce_sum(g * g)

    def at(weights: Any) -> float:
        slope = (1 - np.tanh(x.numpy() @ weights) ** 2) @ weights.T
        return float((slope**2).sum())

    got = outer.gradient(penalty, w).numpy()
    h = 1e-6
    for k in range(2):
        step = np.eye(1, 2, k) * h
        assert got[0, k] == pytest.approx((at(w.numpy() + step) - at(w.numpy() - step)) / (2 * h), rel=1e-6)


def test_a_hessian_vector_product_by_output_gradients() -> None:
    x = tf.constant([0.5, -1.0, 2.0], tf.float64)
    v = tf.constant([1.0, 2.0, -1.0], tf.float64)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_prod(x) + tf.reduce_sum(x**3)
        g = inner.gradient(y, x)
    a, b, c = x.numpy()
    hessian = np.array([[6 * a, c, b], [c, 6 * b, a], [b, a, 6 * c]])
    assert np.allclose(outer.gradient(g, x, output_gradients=v), hessian @ v.numpy())


def test_forward_mode_as_the_transpose_of_the_transpose() -> None:
    x, t = tf.constant([0.5, -1.0], tf.float64), tf.constant([3.0, 2.0], tf.float64)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.stack([tf.sin(x[0]) * x[1], x[0] * x[0], x[1]])
        u = tf.zeros_like(y)
        outer.watch(u)
        g = inner.gradient(y, x, output_gradients=u)
    pushed = outer.gradient(g, u, output_gradients=t)
    want = [math.cos(0.5) * -1.0 * 3.0 + math.sin(0.5) * 2.0, 2 * 0.5 * 3.0, 2.0]
    assert np.allclose(pushed, want)


def test_a_gradient_may_be_used_beside_what_it_came_from() -> None:
    x = tf.Variable(2.0)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = x**3
        g = inner.gradient(y, x)
        z = y * g  # 3 x⁵
    assert float(outer.gradient(z, x)) == 15 * 16.0


def test_a_gradient_step_inside_a_tape() -> None:
    w, rate = tf.Variable(3.0), tf.Variable(0.1)
    with tf.GradientTape() as outer:
        fast = w * 1.0
        for _ in range(2):
            with tf.GradientTape() as inner:
                inner.watch(fast)
                loss = fast**2
            fast = fast - rate * inner.gradient(loss, fast)
        after = fast**2  # w² (1 - 2r)⁴
    gw, gr = outer.gradient(after, [w, rate])
    assert float(gw) == pytest.approx(2 * 3.0 * 0.8**4, rel=1e-5)
    assert float(gr) == pytest.approx(9.0 * 4 * 0.8**3 * -2, rel=1e-5)


def test_three_tapes_one_after_the_other_see_each_the_gradients_within() -> None:
    x = tf.Variable(1.5, dtype=tf.float64)
    with tf.GradientTape(persistent=True) as third:
        with tf.GradientTape(persistent=True) as second:
            with tf.GradientTape(persistent=True) as first:
                y = tf.sin(x) * x
            d1 = first.gradient(y, x)
        d2 = second.gradient(d1, x)
        assert second.gradient(y, x) is not None
    assert float(third.gradient(d2, x)) == pytest.approx(-3 * math.sin(1.5) - 1.5 * math.cos(1.5))
    assert float(third.gradient(d1, x)) == pytest.approx(float(d2))
    assert float(third.gradient(y, x)) == pytest.approx(float(d1))
