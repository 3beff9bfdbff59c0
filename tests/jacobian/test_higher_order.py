"""Jacobians of gradients, of Jacobians and of batch Jacobians, to third order, in all modes."""

from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.jacobian.programs import PROGRAMS, W35, by_rows, normal

X = np.array([0.7, -1.2, 0.4])
SMALL = [n for n, p in PROGRAMS.items() if p.at.size <= 8 and n not in ("scalar to scalar", "inverses")]


def looped_jacobian(function: Any, x: Any) -> Any:
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = function(x)
    return by_rows(tape, y, x)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("inner", ["reverse", "forward"])
@pytest.mark.parametrize("outer", ["reverse", "forward"])
def test_jacobian_of_a_jacobian(name: str, inner: str, outer: str) -> None:
    program = PROGRAMS[name]
    x = tf.constant(program.at)
    with tf.GradientTape(persistent=True) as o:
        o.watch(x)
        with tf.GradientTape(persistent=True) as i:
            i.watch(x)
            y = program.function(x)
        j = i.jacobian(y, x, mode=inner)
    found = o.jacobian(j, x, mode=outer, unconnected_gradients="zero")
    want = looped_jacobian(lambda v: looped_jacobian(program.function, v), x)
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", SMALL)
def test_gradient_of_a_jacobian(name: str) -> None:
    program = PROGRAMS[name]
    x = tf.constant(program.at)

    def slope(loop: bool) -> np.ndarray:
        with tf.GradientTape() as o:
            o.watch(x)
            with tf.GradientTape(persistent=True) as i:
                i.watch(x)
                y = program.function(x)
            j = by_rows(i, y, x) if loop else i.jacobian(y, x)
            size = tf.reduce_sum(tf.sin(j) * j)
        return o.gradient(size, x, unconnected_gradients="zero").numpy()

    np.testing.assert_allclose(slope(False), slope(True), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("first", ["gradient", "jacobian"])
@pytest.mark.parametrize("second", ["gradient", "jacobian"])
@pytest.mark.parametrize("third", ["gradient", "jacobian"])
def test_three_orders(first: str, second: str, third: str) -> None:
    """An elementwise x⁵: whatever mixture of questions, all is on the diagonal."""
    x = tf.constant(X)
    with tf.GradientTape() as c:
        c.watch(x)
        with tf.GradientTape() as b:
            b.watch(x)
            with tf.GradientTape() as a:
                a.watch(x)
                y = x**5
            d = getattr(a, first)(y, x)
        e = getattr(b, second)(d, x)
    f = getattr(c, third)(e, x).numpy()
    rank = 1
    for question in (first, second, third):  # a gradient sums over all axes of its target
        rank = rank + 1 if question == "jacobian" else 1
    want = np.zeros((3,) * rank)
    want[(range(3),) * rank] = 60 * X**2
    np.testing.assert_allclose(f, want, rtol=1e-12)


def test_third_order_of_a_program_that_mixes() -> None:
    x = tf.constant(X)
    f = lambda v: tf.reduce_prod(v) * tf.tanh(tf.reduce_sum(v * v)) + tf.reduce_sum(tf.exp(v[:2] * v[1:]))  # noqa: E731
    with tf.GradientTape() as c:
        c.watch(x)
        with tf.GradientTape() as b:
            b.watch(x)
            with tf.GradientTape() as a:
                a.watch(x)
                y = f(x)
            g = a.gradient(y, x)
        h = b.jacobian(g, x)
    t = c.jacobian(h, x).numpy()
    for order in ((1, 0, 2), (2, 1, 0), (0, 2, 1)):
        np.testing.assert_allclose(t, t.transpose(order), rtol=1e-10, atol=1e-10)
    step = 1e-4
    for k in range(3):
        e = np.eye(3)[k] * step
        high, low = (tf.hessian(f, tf.constant(X + s * e)).numpy() for s in (1, -1))
        np.testing.assert_allclose(t[:, :, k], (high - low) / (2 * step), rtol=1e-5, atol=1e-5)


def test_a_penalty_on_a_batch_jacobian_trains_a_weight() -> None:
    """A contractive penalty: the gradient by the weight of the squared batch Jacobian by the input."""
    data, w = tf.constant(normal(4, 3)), tf.Variable(W35)

    def penalty(weight: Any) -> Any:
        with tf.GradientTape() as i:
            i.watch(data)
            y = tf.tanh(tf.matmul(data, weight))
        return tf.reduce_sum(i.batch_jacobian(y, data) ** 2)

    with tf.GradientTape() as o:
        p = penalty(w)
    slope = o.gradient(p, w).numpy()
    h = 1e-6
    for at in ((0, 0), (1, 3), (2, 4)):
        e = np.zeros((3, 5))
        e[at] = h
        high, low = (float(penalty(tf.constant(W35.numpy() + s * e))) for s in (1, -1))
        assert slope[at] == pytest.approx((high - low) / (2 * h), rel=1e-5)


def test_a_persistent_tape_differentiates_its_own_jacobian() -> None:
    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.sin(x) * x
        j = tape.jacobian(y, x)
        d = tf.linalg.diag_part(j)
    np.testing.assert_allclose(tape.gradient(d, x).numpy(), 2 * np.cos(X) - X * np.sin(X))


def test_a_jacobian_that_is_constant_has_no_slope() -> None:
    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as o:
        o.watch(x)
        with tf.GradientTape() as i:
            i.watch(x)
            y = 3.0 * x
        j = i.jacobian(y, x)
    found = o.gradient(j, x)
    assert found is None or not found.numpy().any()
    np.testing.assert_array_equal(o.gradient(j, x, unconnected_gradients="zero").numpy(), np.zeros(3))


def test_sources_of_the_outer_tape_that_the_inner_one_does_not_watch() -> None:
    x, w = tf.constant(X), tf.constant(np.array([2.0, 3.0, 5.0]))
    with tf.GradientTape() as o:
        o.watch(w)
        with tf.GradientTape() as i:
            i.watch(x)
            y = w * x * x
        j = i.jacobian(y, x)
    found = o.jacobian(j, w).numpy()
    want = np.zeros((3, 3, 3))
    want[range(3), range(3), range(3)] = 2 * X
    np.testing.assert_allclose(found, want)


def test_structured_answers_in_an_outer_tape() -> None:
    x = tf.constant(X)
    v = tf.constant(np.array([1.0, 2.0, -1.0]))
    with tf.GradientTape(persistent=True) as o:
        o.watch(x)
        with tf.GradientTape() as i:
            i.watch(x)
            y = x**3
        s = i.jacobian(y, x, structured=True)
        d, p, t, n, f = s.diagonal(), s @ v, s.T @ v, s.row_norms(), s.dense()
    np.testing.assert_allclose(o.gradient(d, x).numpy(), 6 * X)
    np.testing.assert_allclose(o.gradient(p, x).numpy(), 6 * X * v.numpy())
    np.testing.assert_allclose(o.gradient(t, x).numpy(), 6 * X * v.numpy())
    np.testing.assert_allclose(o.gradient(n, x).numpy(), 6 * X)
    np.testing.assert_allclose(o.gradient(f, x).numpy(), 6 * X)
    np.testing.assert_allclose(o.jacobian(d, x).numpy(), np.diag(6 * X))


def test_a_vector_of_a_structured_product_is_differentiated() -> None:
    x, v = tf.constant(X), tf.constant(np.array([1.0, 2.0, -1.0]))
    with tf.GradientTape() as o:
        o.watch(v)
        with tf.GradientTape() as i:
            i.watch(x)
            y = x**3
        p = i.jacobian(y, x, structured=True) @ v
    np.testing.assert_allclose(o.jacobian(p, v).numpy(), np.diag(3 * X**2))
