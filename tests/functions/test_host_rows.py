"""Steps that are Python for all rows at once, and in forward mode: Jacobians, `tf.vectorized_map`, `tf.jvp`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.jacobian.programs import normal

X = tf.constant(normal(4, 3))
W = tf.constant(normal(3))


def slow(x: Any, w: Any) -> Any:
    assert isinstance(x.numpy(), np.ndarray | np.float64)  # it sees values
    return tf.sin(x * w) * x


def called(x: Any, w: Any) -> Any:
    return tf.py_function(slow, [x, w], tf.float64)


def plain(x: Any, w: Any) -> Any:
    return tf.sin(x * w) * x


FORMS = {"eager": lambda f: f, "traced": tf.function}


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_forward_mode(form: Any) -> None:
    f = form(called)
    for g, h in ((f, plain), (lambda x, w: tf.reduce_sum(f(x, w)), lambda x, w: tf.reduce_sum(plain(x, w)))):
        given = [X, W], [X * 2.0, W + 1.0]
        for found, want in zip(tf.jvp(g, *given), tf.jvp(h, *given), strict=True):
            np.testing.assert_allclose(found, want, 1e-12)
    (found,), (want,) = (tf.hvp(lambda x, h=h: tf.reduce_sum(h(x, W)), [X], [tf.cos(X)])[1] for h in (f, plain))
    np.testing.assert_allclose(found, want, 1e-12)


def test_forward_mode_to_third_order() -> None:
    f = tf.function(lambda x: tf.py_function(lambda a: a * a * a * a, [x], tf.float64))
    one = tf.ones([], tf.float64)
    nest = lambda g: lambda x: tf.jvp(g, [x], [one])[1]  # noqa: E731
    assert float(nest(nest(nest(f)))(tf.constant(2.0, tf.float64))) == 48.0


def test_jacobians_and_hessians() -> None:
    f = tf.function(called)
    for source in (X, W):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([X, W])
            y, z = f(X, W), plain(X, W)
        np.testing.assert_allclose(tape.jacobian(y, source), tape.jacobian(z, source), 1e-12)
    np.testing.assert_allclose(
        tf.hessian(lambda w: tf.reduce_sum(f(X, w)), W), tf.hessian(lambda w: tf.reduce_sum(plain(X, w)), W), 1e-12
    )


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_maps_and_gradients_through_them(form: Any) -> None:
    f = form(called)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([X, W])
        y, z = (tf.vectorized_map(lambda row, h=h: h(row, W) * 2.0, X) for h in (f, plain))
    np.testing.assert_allclose(y, z, 1e-12)
    for source in (X, W):
        np.testing.assert_allclose(tape.gradient(y, source), tape.gradient(z, source), 1e-12)
        np.testing.assert_allclose(tape.jacobian(y, source), tape.jacobian(z, source), 1e-12)
    one, other = (tf.per_example_gradients(lambda row, h=h: tf.reduce_sum(h(row, W)), W, X) for h in (f, plain))
    np.testing.assert_allclose(one, other, 1e-12)
    nested = tf.vectorized_map(lambda row: tf.vectorized_map(lambda e: f(e, W[0]), row), X)
    np.testing.assert_allclose(nested, plain(X, W[0]), 1e-12)


def test_functions_of_arrays_in_maps() -> None:
    turn = lambda row: tf.numpy_function(lambda a: a[::-1], [row], tf.float64)  # noqa: E731
    for mapped in (tf.vectorized_map, tf.function(lambda f, x: tf.vectorized_map(f, x))):
        np.testing.assert_array_equal(mapped(turn, X), X[:, ::-1])


def say(a: Any) -> Any:
    tf.print("a", a)
    tf.print("b", a * 2)
    return a


@tf.function
def say_in_loop(a: Any) -> Any:
    for k in tf.range(2):
        tf.print(a + k)
    return a


PRINTED: dict[str, tuple[Any, str]] = {
    "Python": (say, "a 1\na 5\nb 2\nb 10\n"),
    "a traced function": (tf.function(say), "a 1\na 5\nb 2\nb 10\n"),
    "a loop": (say_in_loop, "1\n5\n2\n6\n"),
    "what is one for all": (lambda a: (tf.print("once"), a)[1], "once\n"),
}


@pytest.mark.parametrize("name", PRINTED)
@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_print_in_a_map(name: str, form: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Each `tf.print` prints the values of all slices, in their order, whenever the map runs."""
    f, text = PRINTED[name]

    def around(z: Any) -> Any:
        tf.print("before")
        found = tf.vectorized_map(f, z)
        tf.print("after")
        return found

    run = form(around)
    for _ in range(2):
        np.testing.assert_array_equal(run(tf.constant([1, 5])), [1, 5])
        assert capsys.readouterr().err == f"before\n{text}after\n"


def test_assertions_in_a_map() -> None:
    def root(a: Any) -> Any:
        tf.debugging.assert_positive(a, "a slice:")
        return tf.sqrt(a)

    for mapped in (tf.vectorized_map, tf.function(lambda f, x: tf.vectorized_map(f, x))):
        np.testing.assert_array_equal(mapped(root, tf.constant([4.0, 9.0])), [2.0, 3.0])
        with pytest.raises(tf.errors.InvalidArgumentError, match="a slice: Condition x > 0"):
            mapped(root, tf.constant([4.0, -9.0]))


@tf.function
def say_if_large(a: Any) -> Any:
    if a > 3:
        tf.print(a)
    return a


def test_where_only_some_slices_print() -> None:
    for f in (say_if_large, lambda a: tf.while_loop(lambda k: k < a, lambda k: (say(k) + 1,), [a * 0])[0]):
        with pytest.raises(tf.NotVectorizable, match="only some slices"):
            tf.vectorized_map(f, tf.constant([1, 5]))
