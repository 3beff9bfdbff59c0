"""Variables that a function reads, keywords, methods; and what is refused."""

from typing import Any

import pytest

import gradtape as tf


def test_variables_that_the_function_reads() -> None:
    w, frozen = tf.Variable(0.5, name="w"), tf.Variable(3.0, trainable=False)
    seen = []

    @tf.custom_gradient
    def damped(x: Any) -> Any:
        out = w * x * frozen

        def rule(up: Any, variables: Any = None) -> Any:
            seen.append([v is w for v in variables])
            return up * 10.0, [tf.reduce_sum(up) * 100.0]

        return out, rule

    x = tf.constant([1.0, 2.0, 3.0])
    for _ in range(2):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = damped(x)
        gx, gw = tape.gradient(y, [x, w])
        assert y.numpy().tolist() == [1.5, 3.0, 4.5]
        assert gx.numpy().tolist() == [10.0, 10.0, 10.0]
        assert float(gw) == 300.0
    assert seen == [[True], [True]]


def test_several_variables_in_one_order() -> None:
    a, b = tf.Variable(2.0), tf.Variable(5.0)

    @tf.custom_gradient
    def f(x: Any) -> Any:
        def rule(up: Any, variables: Any) -> Any:
            return up, [up * (1000.0 if v is a else 2000.0) for v in variables]

        return x * b * a * b, rule

    x = tf.constant(1.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    assert [float(g) for g in tape.gradient(y, [a, b, x])] == [1000.0, 2000.0, 1.0]


def test_none_for_a_variable() -> None:
    a = tf.Variable(2.0)

    @tf.custom_gradient
    def f(x: Any) -> Any:
        return x * a, lambda up, variables: (up * 3.0, [None])

    x = tf.constant(1.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    gx, ga = tape.gradient(y, [x, a])
    assert float(gx) == 3.0
    assert ga is None


def test_a_variable_as_an_argument_is_an_argument() -> None:
    v, w = tf.Variable(2.0), tf.Variable(5.0)

    @tf.custom_gradient
    def f(a: Any, b: Any) -> Any:
        return a * b, lambda up: (up * 100.0, up * 200.0)

    with tf.GradientTape() as tape:
        y = f(v, w)
    assert float(y) == 10.0
    assert [float(g) for g in tape.gradient(y, [v, w])] == [100.0, 200.0]


def test_a_rule_without_variables_where_the_function_reads_some() -> None:
    v = tf.Variable(2.0, name="weight")

    @tf.custom_gradient
    def f(x: Any) -> Any:
        return x * v, lambda up: up

    with pytest.raises(TypeError, match=r"must accept a keyword argument 'variables'.*weight"):
        f(tf.constant(1.0))


def test_a_wrong_number_of_variable_gradients() -> None:
    v = tf.Variable(2.0)

    @tf.custom_gradient
    def f(x: Any) -> Any:
        return x * v, lambda up, variables: (up, [])

    x = tf.constant(1.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    with pytest.raises(ValueError, match=r"`f`.*each of its 1 variables, got 0"):
        tape.gradient(y, x)


@pytest.mark.parametrize(("given", "count"), [([1.0], 1), ([1.0, 2.0, 3.0], 3), (None, 1)])
def test_a_wrong_number_of_gradients(given: Any, count: int) -> None:
    @tf.custom_gradient
    def product(x: Any, y: Any) -> Any:
        return x * y, lambda up: given

    a, b = tf.constant(1.0), tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        z = product(a, b)
    with pytest.raises(ValueError, match=rf"expected to return 2 gradients, but returned {count} instead.*`product`"):
        tape.gradient(z, [a, b])


def test_a_gradient_of_a_shape_that_does_not_fit() -> None:
    @tf.custom_gradient
    def f(x: Any) -> Any:
        return x * 1.0, lambda up: tf.ones([2])

    x = tf.ones([3])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    with pytest.raises(ValueError, match=r"`f`.*\(2,\).*argument 0.*\(3,\)"):
        tape.gradient(y, x)


@pytest.mark.parametrize("answer", [1.0, (1.0,), (1.0, 2.0), None])
def test_a_function_that_returns_no_rule(answer: Any) -> None:
    f = tf.custom_gradient(lambda x: answer)
    with pytest.raises(TypeError, match=r"\(result, grad_fn\)"):
        f(tf.constant(1.0))


def test_options_by_keyword_are_no_arguments_of_the_rule() -> None:
    @tf.custom_gradient
    def f(x: Any, scale: float = 2.0, *, shift: float = 0.0) -> Any:
        return x * scale + shift, lambda up: up * scale

    x = tf.constant(3.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, z = f(x, scale=5.0, shift=1.0), f(x)
    assert (float(y), float(z)) == (16.0, 6.0)
    assert [float(tape.gradient(t, x)) for t in (y, z)] == [5.0, 2.0]


def test_tensors_by_keyword_are_arguments_of_the_rule() -> None:
    @tf.custom_gradient
    def f(x: Any, y: Any) -> Any:
        return x * y, lambda up: (up * 10.0, up * 20.0)

    x, y = tf.constant(3.0), tf.Variable(4.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        by_name, swapped = f(x, y=y), f(y=y, x=x)
    for z in (by_name, swapped):
        assert float(z) == 12.0
        assert [float(g) for g in tape.gradient(z, [x, y])] == [10.0, 20.0]


def test_tensors_by_keyword_only_are_refused() -> None:
    @tf.custom_gradient
    def f(x: Any, *, y: Any, **more: Any) -> Any:
        return x * y, lambda up: up

    with pytest.raises(TypeError, match=r"\['y'\].*positional"):
        f(tf.constant(1.0), y=tf.constant(2.0))
    with pytest.raises(TypeError, match=r"\['extra'\].*positional"):
        f(tf.constant(1.0), y=2.0, extra=[tf.constant(2.0)])
    assert float(f(tf.constant(1.0), y=2.0)) == 2.0


def test_a_method_decorated_in_its_class_and_in_its_object() -> None:
    class Layer:
        slope = 3.0

        def __init__(self) -> None:
            self.bound = tf.custom_gradient(self.plain)

        @tf.custom_gradient
        def method(self, x: Any) -> Any:
            return x * self.slope, lambda up: up * 7.0

        def plain(self, x: Any) -> Any:
            return x * self.slope, lambda up: up * 9.0

    x, layer = tf.constant(1.0), Layer()
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, z = layer.method(x), layer.bound(x)
    assert (float(y), float(z)) == (3.0, 3.0)
    assert [float(tape.gradient(t, x)) for t in (y, z)] == [7.0, 9.0]


def test_grad_pass_through() -> None:
    x, v = tf.constant([0.2, 1.7, -0.6]), tf.Variable(1.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.grad_pass_through(tf.math.round)(x * 2.0) * 3.0
    assert y.numpy().tolist() == [0.0, 9.0, -3.0]
    assert tape.gradient(y, x).numpy().tolist() == [6.0, 6.0, 6.0]
    z = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = tf.grad_pass_through(v.assign)(z**2)
    assert float(y) == float(v) == 9.0
    assert float(tape.gradient(y, z)) == 6.0
