"""Derivatives of functions: products with Jacobians and Hessians, per-example gradients, traces."""

from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.jacobian.programs import W35, W53, jacobian, normal

X, V = normal(3), normal(3)


def f(x: Any) -> Any:
    return tf.matmul(tf.tanh(x[None, :] * tf.constant(X)), W35)[0] * tf.reduce_sum(x * x)


def scalar(x: Any) -> Any:
    return tf.reduce_sum(tf.sin(f(x)) * f(x))


J = jacobian(f, X).numpy()
H = tf.hessian(scalar, tf.constant(X)).numpy()


# ------------------------------------------------------------------ first order


def test_jvp_and_vjp_are_products_with_the_jacobian() -> None:
    value, pushed = tf.jvp(f, [tf.constant(X)], [tf.constant(V)])
    np.testing.assert_allclose(value.numpy(), f(tf.constant(X)).numpy())
    np.testing.assert_allclose(pushed.numpy(), J @ V)
    value, pullback = tf.vjp(f, tf.constant(X))
    u = normal(5)
    (pulled,) = pullback(tf.constant(u))
    np.testing.assert_allclose(pulled.numpy(), u @ J)
    (again,) = pullback(tf.constant(2 * u))
    np.testing.assert_allclose(again.numpy(), 2 * u @ J)


def test_linearize_runs_the_function_once() -> None:
    calls = []

    def counted(x: Any) -> Any:
        calls.append(1)
        return f(x)

    value, push = tf.linearize(counted, tf.constant(X))
    np.testing.assert_allclose(value.numpy(), f(tf.constant(X)).numpy())
    for e in np.eye(3):
        np.testing.assert_allclose(push(tf.constant(e)).numpy(), J @ e, rtol=1e-12, atol=1e-14)
    assert len(calls) == 1


def test_structures_of_arguments_and_results() -> None:
    def g(a: Any, rest: Any) -> Any:
        return {"s": a * rest["b"], "t": (tf.reduce_sum(a), rest["c"][0] ** 2)}

    a, rest = tf.constant(2.0), {"b": tf.constant(3.0), "c": [tf.constant(5.0)]}
    one = tf.constant(1.0)
    value, pushed = tf.jvp(g, [a, rest], [one, {"b": one, "c": [one]}])
    assert float(value["s"]) == 6.0
    assert float(pushed["s"]) == 5.0
    assert [float(t) for t in pushed["t"]] == [1.0, 10.0]
    _, pullback = tf.vjp(g, a, rest)
    by_a, by_rest = pullback({"s": one, "t": (one, one)})
    assert float(by_a) == 4.0
    assert float(by_rest["b"]) == 2.0
    assert float(by_rest["c"][0]) == 10.0


def test_unconnected_arguments_give_zeros() -> None:
    one = tf.constant([1.0, 2.0])
    _, pushed = tf.jvp(lambda a, b: a * 2.0, [one, one], [one * 0.0, one])
    np.testing.assert_array_equal(pushed.numpy(), [0, 0])
    _, pullback = tf.vjp(lambda a, b: a * 2.0, one, one)
    np.testing.assert_array_equal(pullback(one)[1].numpy(), [0, 0])


def test_an_argument_given_twice_is_two_arguments() -> None:
    x = tf.constant(X)
    _, pullback = tf.vjp(lambda a, b: a * a * b, x, x)
    by_a, by_b = pullback(tf.ones([3], tf.float64))
    np.testing.assert_allclose(by_a.numpy(), 2 * X * X)
    np.testing.assert_allclose(by_b.numpy(), X * X)
    _, pushed = tf.jvp(lambda a, b: a * b, [x, x], [tf.constant(V), tf.constant(0 * V)])
    np.testing.assert_allclose(pushed.numpy(), V * X)


def test_tangents_that_do_not_fit() -> None:
    x = tf.constant(X)
    with pytest.raises(ValueError, match="shape"):
        tf.jvp(f, [x], [tf.constant(normal(4))])
    with pytest.raises(ValueError, match="tangent"):
        tf.jvp(f, [x], [])
    with pytest.raises(ValueError, match="float32"):
        tf.jvp(f, [x], [tf.constant(V, tf.float32)])


# ------------------------------------------------------------------ second order


def test_hvp_is_a_product_with_the_hessian() -> None:
    gradients, products = tf.hvp(scalar, [tf.constant(X)], [tf.constant(V)])
    np.testing.assert_allclose(products[0].numpy(), H @ V, rtol=1e-9)
    value, pullback = tf.vjp(scalar, tf.constant(X))
    np.testing.assert_allclose(gradients[0].numpy(), pullback(tf.ones_like(value))[0].numpy())


def test_hvp_of_several_arguments() -> None:
    g = lambda a, b: tf.reduce_sum(a * a * tf.sin(b))  # noqa: E731
    x = tf.constant(X)
    _, (pa, pb) = tf.hvp(g, [x, x], [tf.constant(V), tf.constant(-V)])
    blocks = tf.hessian(g, [x, x])
    np.testing.assert_allclose(pa.numpy(), blocks[0][0].numpy() @ V - blocks[0][1].numpy() @ V)
    np.testing.assert_allclose(pb.numpy(), blocks[1][0].numpy() @ V - blocks[1][1].numpy() @ V)


def test_gauss_newton_products() -> None:
    loss = lambda y: tf.reduce_sum(y**4)  # noqa: E731
    (found,) = tf.gauss_newton_product(f, loss, [tf.constant(X)], [tf.constant(V)])
    inner = tf.hessian(loss, f(tf.constant(X))).numpy()
    np.testing.assert_allclose(found.numpy(), J.T @ (inner @ (J @ V)), rtol=1e-9)


def test_laplacian_is_the_trace_of_the_hessian() -> None:
    assert float(tf.laplacian(scalar, tf.constant(X))) == pytest.approx(np.trace(H))
    assert float(tf.laplacian(lambda x: tf.reduce_sum(x * V), tf.constant(X))) == 0.0
    matrix = normal(2, 3)
    g = lambda x: tf.reduce_sum(tf.tanh(x) ** 2) * tf.reduce_sum(x)  # noqa: E731
    full = tf.hessian(g, tf.constant(matrix)).numpy().reshape(6, 6)
    assert float(tf.laplacian(g, tf.constant(matrix))) == pytest.approx(np.trace(full))


def test_divergence_is_the_trace_of_the_jacobian() -> None:
    g = lambda x: tf.sin(x) * tf.reduce_sum(x)  # noqa: E731
    assert float(tf.divergence(g, tf.constant(X))) == pytest.approx(np.trace(jacobian(g, X).numpy()))
    assert float(tf.divergence(lambda x: tf.constant(V), tf.constant(X))) == 0.0
    with pytest.raises(tf.errors.InvalidArgumentError, match="shape"):
        tf.divergence(lambda x: x[:2], tf.constant(X))


@pytest.mark.parametrize("function", ["laplacian", "divergence"])
def test_traces_are_differentiable(function: str) -> None:
    """As physics-informed networks need them: the slope of a trace by a parameter."""
    x, a = tf.constant(X), tf.Variable(1.3, dtype=tf.float64)
    program = {
        "laplacian": lambda p: tf.laplacian(lambda v: tf.reduce_sum(tf.sin(p * v)), x),
        "divergence": lambda p: tf.divergence(lambda v: tf.sin(p * v), x),
    }[function]
    with tf.GradientTape() as tape:
        y = program(a)
    h = 1e-6
    want = (float(program(tf.constant(1.3 + h, tf.float64))) - float(program(tf.constant(1.3 - h, tf.float64)))) / 2 / h
    assert float(tape.gradient(y, a)) == pytest.approx(want, rel=1e-6)


def test_functions_that_are_no_scalars() -> None:
    for ask in (tf.hessian, tf.laplacian):
        with pytest.raises(tf.errors.InvalidArgumentError, match="scalar"):
            ask(f, tf.constant(X))
    with pytest.raises(tf.errors.InvalidArgumentError, match="scalar"):
        tf.hvp(f, [tf.constant(X)], [tf.constant(V)])


# ------------------------------------------------------------------ examples one by one


def test_per_example_gradients() -> None:
    weights = {"w": tf.Variable(W35), "v": [tf.Variable(W53), tf.Variable(normal(3))]}
    data, labels = tf.constant(normal(6, 3)), tf.constant([0, 2, 1, 0, 2, 1])

    def loss(example: Any) -> Any:
        x, label = example
        hidden = tf.tanh(tf.linalg.matvec(weights["w"], x, transpose_a=True))
        logits = tf.linalg.matvec(weights["v"][0], hidden, transpose_a=True) + weights["v"][1]
        return tf.nn.sparse_softmax_cross_entropy_with_logits(label, logits)

    found = tf.per_example_gradients(loss, weights, (data, labels))
    for i in range(6):
        with tf.GradientTape() as tape:
            y = loss((data[i], labels[i]))
        want = tape.gradient(y, weights)
        np.testing.assert_allclose(found["w"][i].numpy(), want["w"].numpy(), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(found["v"][0][i].numpy(), want["v"][0].numpy(), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(found["v"][1][i].numpy(), want["v"][1].numpy(), rtol=1e-10, atol=1e-12)


def test_per_example_gradients_of_an_embedding() -> None:
    """Each example looks up rows of its own: positions that differ from row to row."""
    table = tf.Variable(normal(7, 2))
    ids = tf.constant([[0, 1, 1], [6, 2, 0]])

    def loss(row: Any) -> Any:
        return tf.reduce_sum(tf.reduce_prod(tf.gather(table, row), axis=0))

    found = tf.per_example_gradients(loss, table, ids).numpy()
    for i in range(2):
        with tf.GradientTape() as tape:
            y = loss(ids[i])
        want = tf.convert_to_tensor(tape.gradient(y, table)).numpy()
        np.testing.assert_allclose(found[i], want)


def test_unused_parameters_have_zeros() -> None:
    w, lost = tf.Variable([1.0, 2.0]), tf.Variable([[1.0]])
    found = tf.per_example_gradients(lambda x: tf.reduce_sum(x * w), [w, lost], tf.constant([[1.0, 1.0], [2.0, 3.0]]))
    np.testing.assert_array_equal(found[0].numpy(), [[1, 1], [2, 3]])
    np.testing.assert_array_equal(found[1].numpy(), np.zeros((2, 1, 1)))
