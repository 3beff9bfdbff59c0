"""Rules that call their own function, in traced functions: traced an order at a time."""

import numpy as np
import pytest

import gradtape as tf


@tf.custom_gradient
def exp(x):
    return tf.exp(x), lambda up: up * exp(x)


@tf.custom_gradient
def sine(x):
    return tf.sin(x), lambda up: up * cosine(x)


@tf.custom_gradient
def cosine(x):
    return tf.cos(x), lambda up: -up * sine(x)


def derivative(f, order):
    def of(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = derivative(f, order - 1)(x)
        return tape.gradient(y, x)

    return of if order else f


X = tf.constant([0.5, 1.0], tf.float64)


@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize("inside", [False, True])
def test_derivatives_of_higher_orders(order, inside):
    cases = [(exp, np.exp), (sine, [np.sin, np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x)][order])]
    for f, wanted in cases:
        g = tf.function(derivative(f, order)) if inside else derivative(tf.function(f), order)
        np.testing.assert_allclose(g(X).numpy(), wanted(X.numpy()), rtol=1e-12)
        np.testing.assert_allclose(g(2.0 * X).numpy(), wanted(2 * X.numpy()), rtol=1e-12)


def test_rows():
    f = tf.function(exp)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(X)
        y = f(X)
    for mode in ("reverse", "forward"):
        np.testing.assert_allclose(tape.jacobian(y, X, mode=mode).numpy(), np.diag(np.exp(X.numpy())))
    np.testing.assert_allclose(tf.hessian(lambda x: tf.reduce_sum(f(x)), X).numpy(), np.diag(np.exp(X.numpy())))


def test_with_variables_and_tensors_from_outside():
    scale, one = tf.Variable(2.0), tf.constant([1.0, 2.0])

    @tf.custom_gradient
    def f(x):
        def rule(up, variables):
            return up * f(x), [tf.reduce_sum(up * one * tf.exp(x))]

        return scale * one * tf.exp(x), rule

    def both(g):
        x = tf.constant([0.0, 1.0])
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = g(x)
            first = tape.gradient(y, x)
        return [first, *outer.gradient(first, [x, scale])]

    for traced, eager in zip(both(tf.function(f)), both(f), strict=True):
        np.testing.assert_allclose(traced.numpy(), eager.numpy(), rtol=1e-6)


def test_functions_made_anew_in_each_call():
    def powered(x):
        @tf.custom_gradient
        def f(y):
            return tf.exp(y), lambda up: up * powered(y)

        return f(x)

    for order in range(3):
        np.testing.assert_allclose(derivative(tf.function(powered), order)(X).numpy(), np.exp(X.numpy()))


def test_a_tensor_of_the_function_around_it():
    @tf.function
    def outer(x, k):
        @tf.custom_gradient
        def f(y):
            return tf.exp(y) * k, lambda up: up * f(y)

        return f(x)

    k = tf.constant(3.0, tf.float64)
    np.testing.assert_allclose(derivative(lambda x: outer(x, k), 1)(X).numpy(), 3 * np.exp(X.numpy()))
    with pytest.raises(TypeError, match=r"`f` calls `f`.* pass it as one"):
        derivative(lambda x: outer(x, k), 2)(X)


def test_not_saved(tmp_path):
    module = tf.Module()
    module.f = tf.function(exp, input_signature=[tf.TensorSpec([2])])
    with pytest.raises(ValueError, match="`exp` calls `exp` again"):
        tf.saved_model.save(module, tmp_path)
