"""Orders above the first: through the rule, through the function where no rule says otherwise, and rules of rules."""

import math
from typing import Any

import pytest

import gradtape as tf


def orders(f: Any, at: float, count: int) -> list[float]:
    """Derivatives of f of order 1 to count by nested tapes."""
    x = tf.constant(at, tf.float64)

    def derivative(k: int) -> Any:
        if k == 0:
            return f(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = derivative(k - 1)
        return tape.gradient(y, x, unconnected_gradients="zero")

    return [float(derivative(k)) for k in range(1, count + 1)]


@tf.custom_gradient
def cube(x: Any) -> Any:
    return x**3, lambda up: up * 3.0 * x**2


def test_the_second_order_is_the_derivative_of_the_rule() -> None:
    assert orders(cube, 2.0, 3) == pytest.approx([12.0, 12.0, 6.0])


def test_a_rule_that_is_no_derivative_is_differentiated_as_it_is() -> None:
    @tf.custom_gradient
    def wrong(x: Any) -> Any:
        return x**3, lambda up: up * tf.sin(x)

    assert orders(wrong, 2.0, 3) == pytest.approx([math.sin(2.0), math.cos(2.0), -math.sin(2.0)])


def test_a_rule_may_use_the_result() -> None:
    @tf.custom_gradient
    def exponential(x: Any) -> Any:
        y = tf.exp(x)
        return y, lambda up: up * y  # y is recorded as the inner function made it

    assert orders(exponential, 0.5, 3) == pytest.approx([math.exp(0.5)] * 3)


def test_a_constant_rule_has_no_second_order() -> None:
    @tf.custom_gradient
    def fixed(x: Any) -> Any:
        return x**3, lambda up: up * 4.0

    assert orders(fixed, 2.0, 2) == [4.0, 0.0]


def test_a_rule_with_a_rule() -> None:
    @tf.custom_gradient
    def curve(x: Any) -> Any:
        def slope(up: Any) -> Any:
            @tf.custom_gradient
            def fixed_slope(_: Any) -> Any:
                return tf.constant(0.25, tf.float64), lambda upup: upup * 4.0

            return fixed_slope(x) * up

        return tf.tanh(x), slope

    assert orders(curve, 1.5, 3) == [0.25, 4.0, 0.0]


def test_composed_with_ordinary_operations() -> None:
    def f(x: Any) -> Any:
        return cube(tf.sin(x)) * x + cube(cube(x) * 0.1)

    def g(x: Any) -> Any:
        return tf.sin(x) ** 3 * x + (x**3 * 0.1) ** 3

    assert orders(f, 0.7, 3) == pytest.approx(orders(g, 0.7, 3))


def test_a_rule_that_takes_gradients_itself() -> None:
    @tf.custom_gradient
    def remade(x: Any) -> Any:
        def rule(up: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.sin(x) * x
            return up * tape.gradient(y, x)

        return tf.sin(x) * x, rule

    assert orders(remade, 0.7, 3) == pytest.approx(orders(lambda x: tf.sin(x) * x, 0.7, 3))


def test_custom_functions_inside_custom_functions() -> None:
    @tf.custom_gradient
    def outer(x: Any) -> Any:
        y = cube(x)  # its rule is hidden by this one
        return y, lambda up: up * 1000.0

    assert orders(outer, 2.0, 1) == [1000.0]

    @tf.custom_gradient
    def through(x: Any) -> Any:
        return x * 1.0, lambda up: up * cube(x)

    assert orders(through, 2.0, 3) == pytest.approx([8.0, 12.0, 12.0])


def test_a_persistent_tape_in_its_own_block() -> None:
    x = tf.constant(2.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        d = [cube(x)]
        for _ in range(3):
            d.append(tape.gradient(d[-1], x))
    assert [float(v) for v in d] == [8.0, 12.0, 12.0, 6.0]


def test_the_cotangent_is_differentiated_too() -> None:
    x, u = tf.constant(2.0), tf.constant(5.0)
    with tf.GradientTape() as outer:
        outer.watch([x, u])
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = cube(x)
        g = inner.gradient(y, x, output_gradients=u)
    gx, gu = outer.gradient(g, [x, u])
    assert (float(gx), float(gu)) == (60.0, 12.0)


def test_none_at_the_second_order() -> None:
    @tf.custom_gradient
    def once(x: Any) -> Any:
        @tf.custom_gradient
        def slope(v: Any) -> Any:
            return v * 2.0, lambda up: None

        return x * x, lambda up: up * slope(x)

    x = tf.constant(3.0)
    for _ in range(2):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = once(x)
            g = inner.gradient(y, x)
        assert float(g) == 6.0
        assert outer.gradient(g, x) is None
