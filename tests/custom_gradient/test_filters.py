"""Filters of gradients: as functions and as scopes, alone and with each other, in every way of asking."""

from typing import Any

import numpy as np
import pytest

import gradtape as tf

g = tf.gradients
X = np.array([3.0, -4.0])


def slope(f: Any, x: Any = X, up: Any = None) -> Any:
    x = tf.constant(x, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    found = tape.gradient(y, x, up)
    return None if found is None else found.numpy()


FILTERS: dict[str, tuple[Any, Any]] = {
    "clip_norm": (lambda: g.clip_norm(1.0), lambda up: up * min(1.0, 1.0 / np.linalg.norm(up))),
    "clip_norm over axes": (lambda: g.clip_norm(1.0, axes=[0]), lambda up: up * min(1.0, 1.0 / np.linalg.norm(up))),
    "clip_value": (lambda: g.clip_value(-0.5, 2.0), lambda up: np.clip(up, -0.5, 2.0)),
    "scale": (lambda: g.scale(0.25), lambda up: up * 0.25),
    "scale by a tensor": (lambda: g.scale(tf.constant([2.0, 3.0])), lambda up: up * [2.0, 3.0]),
    "reverse": (lambda: g.reverse(), lambda up: -up),
    "reverse by": (lambda: g.reverse(0.5), lambda up: up * -0.5),
}


@pytest.mark.parametrize("name", FILTERS)
def test_as_a_function(name: str) -> None:
    make, want = FILTERS[name]
    assert slope(lambda x: make()(x * 1.0) * X) == pytest.approx(want(X))
    x = tf.constant(X)
    assert make()(x).numpy().tolist() == X.tolist()
    y = make()({"a": x, "b": [x, tf.constant(1)]})
    assert y["a"].numpy().tolist() == X.tolist() and int(y["b"][1]) == 1


@pytest.mark.parametrize("name", FILTERS)
def test_as_a_scope(name: str) -> None:
    """Once for what enters, however many ops and uses there are in the block."""
    make, want = FILTERS[name]

    def f(x: Any) -> Any:
        with make():
            y = x * 2.0
            y = tf.sin(y) + y * x - tf.sin(y)
        return y

    up = 4.0 * X
    assert slope(f) == pytest.approx(want(up))


@pytest.mark.parametrize("name", FILTERS)
def test_in_traced_functions_and_jacobians(name: str) -> None:
    make, want = FILTERS[name]
    filtered = tf.function(lambda x: make()(x * 1.0) * X)
    assert slope(filtered) == pytest.approx(want(X))

    def scoped(x: Any) -> Any:
        with make():
            return x * X

    assert slope(tf.function(scoped)) == pytest.approx(want(X))
    inner = tf.function(lambda x: x * X)

    def around(x: Any) -> Any:
        with make():
            return inner(x)

    assert slope(around) == pytest.approx(want(X))
    x = tf.constant(X)
    for f in (scoped, tf.function(scoped), filtered):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(x)
        rows = np.stack([want(row) for row in np.diag(X)])
        np.testing.assert_allclose(tape.jacobian(y, x).numpy(), rows)


def test_in_functions_of_unknown_dimensions() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float64)])
    def f(x: Any) -> Any:
        with g.scale(3.0):
            return x * x

    with pytest.warns(UserWarning, match="traced anew for each shape"):
        assert slope(f, X) == pytest.approx(6.0 * X)
    assert slope(f, np.array([1.0, 2.0, 3.0])) == pytest.approx(6.0 * np.array([1.0, 2.0, 3.0]))


def test_variables_that_are_read_in_the_scope() -> None:
    v, w = tf.Variable(3.0), tf.Variable(5.0)
    with tf.GradientTape() as tape:
        with g.scale(10.0):
            y = v * v * w
        z = y + v
    assert [float(t) for t in tape.gradient(z, [v, w])] == [301.0, 90.0]


def test_scopes_in_scopes_and_functions_in_them() -> None:
    def f(x: Any) -> Any:
        with g.scale(2.0), g.clip_value(-3.0, 3.0):
            y = x * x
        with g.reverse():
            return y + g.scale(10.0)(x)

    # the inner filter first, then the outer one; what a scope made is from outside for the next
    assert slope(f, [1.0, 5.0]) == pytest.approx([-2.0 * 2.0 - 10.0, -2.0 * 3.0 - 10.0])


def test_one_filter_used_again_and_in_itself() -> None:
    half = g.scale(0.5)

    def f(x: Any) -> Any:
        with half:
            y = x * 1.0
            with half:
                y = y + x
        with half:
            return y * 1.0

    # x enters the outer scope, then both; y is made in the outer one and enters the inner one
    assert slope(f, [1.0]) == pytest.approx([0.5 * (0.5 * 0.5 + 0.5 * 0.5)])


def test_outside_the_scope_nothing_changes() -> None:
    with g.reverse():
        x = tf.constant(X)
        assert (x * 2.0).numpy().tolist() == (X * 2).tolist()
    assert slope(lambda x: x * x) == pytest.approx(2 * X)
    with pytest.raises(ZeroDivisionError), g.reverse():
        raise ZeroDivisionError
    assert slope(lambda x: x * x) == pytest.approx(2 * X)


def test_stop() -> None:
    assert slope(lambda x: g.stop()(x * x)) is None

    def f(x: Any) -> Any:
        with g.stop():
            weight = x * x
        return weight * x

    assert slope(f) == pytest.approx(X * X)


def test_straight_through() -> None:
    assert slope(lambda x: g.straight_through(tf.round)(x * 0.3) * 2.0) == pytest.approx([0.6, 0.6])

    def f(x: Any) -> Any:
        with g.straight_through():
            return tf.round(x) + tf.floor(x) + tf.math.ceil(x) + tf.sign(x) * 10.0 + tf.sin(x) * 0.0

    assert slope(f) == pytest.approx([13.0, 13.0])
    assert slope(lambda x: tf.sign(x)) == pytest.approx([0.0, 0.0])


def test_with_rules_of_ones_own_and_recomputation() -> None:
    @tf.custom_gradient
    def tripled(x: Any) -> Any:
        return x * x, lambda up: up * 6.0 * x

    assert slope(lambda x: g.scale(0.5)(tripled(g.reverse()(x)))) == pytest.approx(-3.0 * X)
    again = tf.recompute_grad(lambda x: g.scale(0.5)(tripled(x)))
    assert slope(again) == pytest.approx(3.0 * X)

    def scoped(x: Any) -> Any:
        with g.scale(0.5):
            return tripled(x * 1.0) + tf.stop_gradient(x)

    assert slope(scoped) == pytest.approx(3.0 * X)
    assert slope(tf.recompute_grad(scoped)) == pytest.approx(3.0 * X)
    assert slope(lambda x: tf.grad_pass_through(tf.recompute_grad(tf.round))(x) * 2.0) == pytest.approx([2.0, 2.0])
    assert slope(lambda x: g.straight_through(lambda v: tf.stop_gradient(tf.round(v)))(x)) == pytest.approx([1.0, 1.0])


def test_overrides_inside_scopes_and_around_them() -> None:
    seven = {"square": lambda op, up: up * 7.0}

    def inside(x: Any) -> Any:
        with g.scale(2.0), tf.override_gradient(seven):
            return tf.square(x)

    def around(x: Any) -> Any:
        with tf.override_gradient(seven), g.scale(2.0):
            return tf.square(x)

    assert slope(inside) == pytest.approx([14.0, 14.0])
    assert slope(around) == pytest.approx([14.0, 14.0])


def test_second_order_and_forward_mode() -> None:
    x = tf.constant(X)

    def f(v: Any) -> Any:
        with g.scale(3.0):
            return v * v * v

    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = f(x)
        first = inner.gradient(y, x)
    np.testing.assert_allclose(first.numpy(), 9.0 * X**2)
    # the slope 3·v² is made of what entered the scope, and its gradient goes out through the filter again
    np.testing.assert_allclose(outer.gradient(first, x).numpy(), 54.0 * X)
    _, pushed = tf.jvp(f, [x], [tf.constant([1.0, 2.0], tf.float64)])
    np.testing.assert_allclose(pushed.numpy(), 9.0 * X**2 * [1.0, 2.0])
    with pytest.raises(ValueError, match="JVP of `clip_norm`"):
        tf.jvp(g.clip_norm(1.0), [x], [x])


def test_two_tapes_and_no_tape() -> None:
    x = tf.constant(X)
    with tf.GradientTape() as a, tf.GradientTape() as b:
        a.watch(x)
        with g.reverse():
            b.watch(x)
            y = x * 2.0
    assert a.gradient(y, x).numpy().tolist() == b.gradient(y, x).numpy().tolist() == [-2.0, -2.0]
    assert repr(g.clip_norm(0.5)) == "<filter clip_norm(0.5)>"


def test_a_scope_keeps_no_tensors_that_were_made_in_it() -> None:
    import gc
    import weakref

    x = tf.Variable(np.ones(10))
    with tf.GradientTape(), g.scale(2.0):
        y = x + 1.0
        array = weakref.ref(y._array)
        del y
        gc.collect()
        assert array() is None


@pytest.mark.parametrize("norm", [0.0, -1.0, float("nan")])
def test_a_norm_that_would_turn_gradients_around_is_refused(norm: float) -> None:
    with pytest.raises(ValueError, match="should be positive"):
        tf.gradients.clip_norm(norm)


def test_bounds_that_cross_are_refused() -> None:
    with pytest.raises(ValueError, match="should not be above `high`"):
        tf.gradients.clip_value(2.0, 1.0)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda x: tf.gradients.clip_norm(x, 1.0), ValueError, r"`clip_norm\(norm\)\(x\)`"),
        (lambda x: tf.gradients.clip_norm(1.0, 1.0), TypeError, "`axes` of `clip_norm` should be an integer"),
        (lambda x: tf.gradients.clip_norm("a"), TypeError, "`norm` of `clip_norm` should be a number"),
        (lambda x: tf.gradients.scale("a"), TypeError, "`factor` of `scale` should be a number or a tensor, got 'a'"),
        (lambda x: tf.gradients.scale(None), TypeError, "got None"),
        (lambda x: tf.gradients.scale(tf.constant("a")), TypeError, "should hold numbers, got string"),
        (lambda x: tf.gradients.reverse(True), TypeError, "got True"),
        (lambda x: tf.gradients.clip_value(0.0, "b"), TypeError, "`high` of `clip_value`"),
        (lambda x: tf.gradients.scale(tf.ones(5))(x), tf.errors.InvalidArgumentError, r"\(5,\) does not .* \(2,\)"),
        (lambda x: tf.gradients.scale(tf.ones([3, 2]))(x), tf.errors.InvalidArgumentError, r"\(3, 2\) does not"),
        (lambda x: tf.gradients.clip_value(tf.zeros(3), 1.0)(x), tf.errors.InvalidArgumentError, "`clip_value` got"),
    ],
)
def test_wrong_arguments(make: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        make(tf.ones(2))


def test_filters_of_several_tensors_and_of_tensors_as_numbers() -> None:
    x, k = tf.Variable([1.0, 2.0]), tf.Variable(3.0)
    with tf.GradientTape() as tape:
        a, b = tf.gradients.clip_norm(tf.constant(0.5))([x * 1.0, k * 1.0])
        c = tf.gradients.scale(tf.constant([2.0, 3.0]))(x)
        y = tf.reduce_sum(a * [3.0, 4.0]) + b * 7.0 + tf.reduce_sum(c)
    found = tape.gradient(y, [x, k])
    np.testing.assert_allclose(found[0].numpy(), [2.3, 3.4], rtol=1e-6)
    np.testing.assert_allclose(found[1].numpy(), 0.5)
