"""Functions of functions: derivatives by closed forms, maps by loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as tf

X, T = np.array([0.5, -1.0, 2.0]), np.array([1.0, 2.0, -1.0])


def f(x: Any) -> Any:
    """(sin x₀ · x₁, x₀², x₁ x₂)"""
    return tf.stack([tf.sin(x[0]) * x[1], x[0] ** 2, x[1] * x[2]])


def jacobian(x: Any) -> Any:
    return np.array([[np.cos(x[0]) * x[1], np.sin(x[0]), 0], [2 * x[0], 0, 0], [0, x[2], x[1]]])


def cubes(x: Any) -> Any:
    return tf.reduce_sum(x**3) + tf.reduce_prod(x)


def hessian_of_cubes(x: Any) -> Any:
    a, b, c = x
    return np.array([[6 * a, c, b], [c, 6 * b, a], [b, a, 6 * c]])


def test_products_with_the_jacobian() -> None:
    x, t = tf.constant(X), tf.constant(T)
    y, pushed = tf.jvp(f, [x], [t])
    assert np.allclose(y, f(x))
    assert np.allclose(pushed, jacobian(X) @ T)
    y, pull = tf.vjp(f, x)
    assert np.allclose(y, f(x))
    pulled = pull(t)
    assert np.allclose(pulled[0] if isinstance(pulled, list | tuple) else pulled, T @ jacobian(X))
    y, push = tf.linearize(f, x)
    assert np.allclose(y, f(x))
    assert np.allclose(push(t), jacobian(X) @ T)
    assert np.allclose(push(2.0 * t), jacobian(X) @ T * 2.0)


def test_second_derivatives() -> None:
    x, t = tf.constant(X), tf.constant(T)
    h = hessian_of_cubes(X)
    assert np.allclose(np.squeeze(np.asarray(flat(tf.hessian(cubes, x))[0])), h)
    assert np.allclose(flat(tf.hvp(cubes, [x], [t]))[-1], h @ T)
    assert np.allclose(tf.laplacian(cubes, x[None]), np.trace(h)) or np.allclose(tf.laplacian(cubes, x), np.trace(h))
    assert np.allclose(tf.divergence(f, x), np.trace(jacobian(X)))


def flat(result: Any) -> list[Any]:
    if isinstance(result, list | tuple):
        return [leaf for part in result for leaf in flat(part)]
    return [result]


def test_a_gauss_newton_product() -> None:
    x, t = tf.constant(X), tf.constant(T)
    got = flat(tf.gauss_newton_product(f, lambda y: tf.reduce_sum(y**2) / 2.0, [x], [t]))[-1]
    assert np.allclose(got, jacobian(X).T @ jacobian(X) @ T)


def test_gradients_of_each_example() -> None:
    w = tf.Variable([1.0, 2.0])
    inputs = tf.constant([[1.0, 0.0], [0.0, 1.0], [2.0, 3.0]])
    got = flat(tf.per_example_gradients(lambda row: tf.reduce_sum(row * w) ** 2, [w], inputs))[0]
    rows = inputs.numpy()
    assert np.allclose(got, 2 * (rows @ w.numpy())[:, None] * rows)


def test_maps_over_rows() -> None:
    a, b = tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([10.0, 20.0])
    for mapped in (tf.map_fn, tf.vectorized_map):
        assert np.allclose(mapped(lambda row: tf.reduce_sum(row) * row, a), [[3.0, 6.0], [21.0, 28.0]])
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        y = tf.vectorized_map(lambda pair: tf.reduce_sum(pair[0] ** 2) * pair[1], (a, b))
    assert np.allclose(y, [50.0, 500.0])
    ga, gb = tape.gradient(y, [a, b])
    assert np.allclose(ga, 2 * a.numpy() * b.numpy()[:, None])
    assert np.allclose(gb, [5.0, 25.0])


def test_static_shapes_broadcast() -> None:
    assert tf.broadcast_static_shape(tf.TensorShape([2, 1]), tf.TensorShape([3])) == [2, 3]


def test_folds_and_scans() -> None:
    x = tf.Variable([1.0, 2.0, 3.0])

    def digits(a: Any, b: Any) -> Any:
        return a * 10.0 + b

    with tf.GradientTape(persistent=True) as tape:
        left, right = tf.foldl(digits, x), tf.foldr(digits, x, initializer=tf.constant(5.0))
        steps = tf.scan(digits, x)
    assert (float(left), float(right)) == (123.0, 5321.0)
    assert steps.numpy().tolist() == [1.0, 12.0, 123.0]
    assert tape.gradient(left, x).numpy().tolist() == [100.0, 10.0, 1.0]
    assert tape.gradient(right, x).numpy().tolist() == [1.0, 10.0, 100.0]
    assert tape.gradient(steps, x).numpy().tolist() == [111.0, 11.0, 1.0]


def test_branches_and_loops() -> None:
    x = tf.Variable(3.0)
    with tf.GradientTape(persistent=True) as tape:
        taken = tf.cond(x > 2.0, lambda: x * x, lambda: x * 100.0)
        chosen = tf.switch_case(tf.constant(1), [lambda: x * 100.0, lambda: x * 7.0])
        _, power = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), (tf.constant(0), tf.constant(1.0)))
    assert [float(t) for t in (taken, chosen, power)] == [9.0, 21.0, 27.0]
    assert [float(tape.gradient(t, x)) for t in (taken, chosen, power)] == [6.0, 7.0, 27.0]
    assert float(tf.cond(tf.constant(False), lambda: tf.constant(1.0), lambda: tf.constant(2.0))) == 2.0


def test_slopes_at_the_ends_of_branches() -> None:
    """At 0 `selu` has the slope of its right side and `elu` that of both; `acosh` has none below 1, and NaN says so."""
    scale = 1.0507009873554805
    x = tf.constant([0.0, -1.0, 1.0], tf.float64)
    for f, want in ((tf.nn.selu, [scale, scale * 1.6732632423543772 / np.e, scale]), (tf.nn.elu, [1, 1 / np.e, 1])):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        np.testing.assert_allclose(tape.gradient(y, x), want, rtol=1e-12)
    x = tf.constant([0.5, -0.5, -1.0, -2.0, 2.0], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.acosh(x)
    np.testing.assert_allclose(tape.gradient(y, x), [np.nan] * 4 + [3**-0.5], rtol=1e-12)


def test_directions_and_cotangents_by_key() -> None:
    """Dicts are paired by their keys; anything else beside a dict is refused."""
    given = {"a": tf.constant(2.0), "b": tf.constant(3.0)}
    along = {"b": tf.constant(10.0), "a": tf.constant(1.0)}

    def powers(d: Any) -> Any:
        return {"a": d["a"] ** 2, "b": d["b"] ** 3}

    value, pullback = tf.vjp(powers, given)
    _, push = tf.linearize(powers, given)
    for (found,) in (pullback(along), [push(along)], [tf.jvp(powers, [given], [along])[1]]):
        assert {k: float(v) for k, v in found.items()} == {"a": 4.0, "b": 270.0}
    for wrong in ({"a": along["a"], "c": along["b"]}, [along["a"], along["b"]], {"a": along["a"]}):
        with pytest.raises(ValueError, match="`output_gradients` should have the keys"):
            pullback(wrong)
        for call in (lambda w: push(w), lambda w: tf.jvp(powers, [given], [w])):
            with pytest.raises(ValueError, match="`tangents` should have the keys"):
                call(wrong)
    assert value.keys() == given.keys()
