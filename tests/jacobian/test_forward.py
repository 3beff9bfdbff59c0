"""`tf.autodiff.ForwardAccumulator`: TensorFlow's contract, nesting, and tapes inside and outside of it."""

from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.jacobian.programs import PROGRAMS, normal, tape_of

X, V = normal(3), normal(3)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_jvp_is_a_product_with_the_jacobian(name: str) -> None:
    program = PROGRAMS[name]
    tape, y, x = tape_of(program)
    full = tape.jacobian(y, x).numpy().reshape(-1, max(1, program.at.size))
    v = np.asarray(np.random.default_rng(3).normal(size=program.at.shape))
    with tf.autodiff.ForwardAccumulator(x, tf.constant(v)) as acc:
        z = program.function(x)
    found = acc.jvp(z)
    assert (found.shape, found.dtype) == (y.shape, y.dtype)
    np.testing.assert_allclose(found.numpy().reshape(-1), full @ v.reshape(-1), rtol=1e-9, atol=1e-10)


def test_structures() -> None:
    x, w = tf.constant(X), tf.Variable(X + 1)
    with tf.autodiff.ForwardAccumulator({"x": x, "w": [w]}, {"x": tf.constant(V), "w": [tf.constant(2 * V)]}) as acc:
        y = (x * w, {"s": tf.reduce_sum(w)})
    found = acc.jvp(y)
    np.testing.assert_allclose(found[0].numpy(), V * (X + 1) + 2 * V * X)
    assert float(found[1]["s"]) == pytest.approx(2 * V.sum())


def test_primals_and_what_is_unconnected() -> None:
    x, lost = tf.constant(X), tf.constant([1.0, 2.0])
    with tf.autodiff.ForwardAccumulator(x, tf.constant(V)) as acc:
        y = lost * 2.0
    assert acc.jvp(y) is None
    assert acc.jvp(lost) is None
    np.testing.assert_array_equal(acc.jvp(y, unconnected_gradients=tf.UnconnectedGradients.ZERO).numpy(), [0, 0])
    np.testing.assert_array_equal(acc.jvp([y, x], unconnected_gradients="zero")[1].numpy(), V)


def test_what_was_computed_outside_the_block_is_unconnected() -> None:
    x = tf.constant(X)
    before = x * x
    with tf.autodiff.ForwardAccumulator(x, tf.constant(V)) as acc:
        inside = x * x
    after = x * x
    assert acc.jvp(before) is None
    assert acc.jvp(after) is None
    np.testing.assert_allclose(acc.jvp(inside).numpy(), 2 * X * V)


def test_jvps_inside_the_block() -> None:
    x = tf.constant(X)
    with tf.autodiff.ForwardAccumulator(x, tf.constant(V)) as acc:
        y = tf.sin(x)
        slope = acc.jvp(y)
    np.testing.assert_allclose(slope.numpy(), np.cos(X) * V)


def test_nested_accumulators_give_second_directional_derivatives() -> None:
    x = tf.constant(X)
    u, v = tf.constant(V), tf.constant(normal(3))
    f = lambda a: tf.exp(a) * tf.reduce_sum(a * a)  # noqa: E731
    with tf.autodiff.ForwardAccumulator(x, u) as outer:
        with tf.autodiff.ForwardAccumulator(x, v) as inner:
            y = f(x)
        slope = inner.jvp(y)
    found = outer.jvp(slope).numpy()
    for k in range(3):
        h = tf.hessian(lambda a, k=k: f(a)[k], x).numpy()
        assert found[k] == pytest.approx(u.numpy() @ h @ v.numpy())


def test_forward_over_reverse() -> None:
    x = tf.constant(X)
    f = lambda a: tf.reduce_sum(tf.tanh(a) * a**2)  # noqa: E731
    with tf.autodiff.ForwardAccumulator(x, tf.constant(V)) as acc:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        g = tape.gradient(y, x)
    np.testing.assert_allclose(acc.jvp(g).numpy(), tf.hessian(f, x).numpy() @ V)


def test_reverse_over_forward() -> None:
    x = tf.constant(X)
    f = lambda a: tf.reduce_sum(tf.tanh(a) * a**2)  # noqa: E731
    with tf.GradientTape() as tape:
        tape.watch(x)
        with tf.autodiff.ForwardAccumulator(x, tf.constant(V)) as acc:
            y = f(x)
        slope = acc.jvp(y)
    np.testing.assert_allclose(tape.gradient(slope, x).numpy(), tf.hessian(f, x).numpy() @ V)


def test_forward_over_a_jacobian() -> None:
    x = tf.constant(X)
    with tf.autodiff.ForwardAccumulator(x, tf.constant(V)) as acc:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x**3
        j = tape.jacobian(y, x)
    np.testing.assert_allclose(acc.jvp(j).numpy(), np.diag(6 * X * V))


def test_a_jacobian_of_a_jvp() -> None:
    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        with tf.autodiff.ForwardAccumulator(x, tf.constant(V)) as acc:
            y = x**3
        slope = acc.jvp(y)
    np.testing.assert_allclose(tape.jacobian(slope, x).numpy(), np.diag(6 * X * V))


def test_other_tangents_of_one_recording() -> None:
    x = tf.constant(X)
    with tf.autodiff.ForwardAccumulator(x, tf.constant(V)) as acc:
        y = tf.sin(x)
    again = acc.with_tangents(tf.constant(2 * V))
    np.testing.assert_allclose(again.jvp(y).numpy(), 2 * np.cos(X) * V)
    np.testing.assert_allclose(acc.jvp(y).numpy(), np.cos(X) * V)


def test_integers_carry_no_tangent() -> None:
    x = tf.constant(X)
    with tf.autodiff.ForwardAccumulator(x, tf.constant(V)) as acc:
        n = tf.argmax(x)
        m = tf.cast(x, tf.int32)
        y = tf.cast(m, tf.float64)
    assert acc.jvp(n) is None
    assert acc.jvp(m) is None
    assert acc.jvp(y) is None


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.complex64])
def test_dtypes(dtype: Any) -> None:
    x, v = tf.cast(X, dtype), tf.cast(V, dtype)
    with tf.autodiff.ForwardAccumulator(x, v) as acc:
        y = x * x
    found = acc.jvp(y)
    assert found.dtype == dtype
    want = tf.cast(2.0 * X * V, tf.complex128).numpy()
    np.testing.assert_allclose(tf.cast(found, tf.complex128).numpy(), want, rtol=2e-2)


def test_errors() -> None:
    x = tf.constant(X)
    make = tf.autodiff.ForwardAccumulator
    with pytest.raises(ValueError, match="multiple times"):
        make([x, x], [x, x])
    with pytest.raises(ValueError, match="one tangent"):
        make([x], [x, x])
    with pytest.raises(ValueError, match="shape"):
        make(x, tf.constant(normal(4)))
    with pytest.raises(TypeError, match="primal"):
        make([1.0], [tf.constant(1.0)])
    acc = make(x, x)
    with acc, pytest.raises(ValueError, match="already"):
        acc.__enter__()


def test_custom_rules_say_why_not() -> None:
    odd = tf.custom_gradient(lambda x: (x * x, lambda up: tf.clip_by_norm(up, 1.0)))
    x = tf.constant(X)
    with tf.autodiff.ForwardAccumulator(x, tf.constant(V)) as acc:
        y = odd(x)
    with pytest.raises(ValueError, match="reverse mode"):
        acc.jvp(y)
