"""Names that have no value, or None, before a loop of tensors which sets them."""

from typing import Any

import pytest

import gradtape as tf


def _last(x: Any, n: Any) -> Any:
    y = None
    for i in tf.range(n):
        y = x * tf.cast(i, tf.float32)
    return y


def _unset(x: Any, n: Any) -> Any:
    for i in tf.range(n):
        y = x * tf.cast(i, tf.float32)
    return y


def _while(x: Any, n: Any) -> Any:
    y, i = None, 0
    while i < n:
        y = x * tf.cast(i, tf.float32)
        i += 1
    return y


@pytest.mark.parametrize("f", [_last, _unset, _while])
@pytest.mark.parametrize("shape", [[], [None]])
def test_the_last_round_says_what_they_are(f: Any, shape: list[Any]) -> None:
    traced = tf.function(f, input_signature=[tf.TensorSpec(shape), tf.TensorSpec([], tf.int32)])
    x = tf.ones([3] * len(shape)) * 2.0
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = traced(x, tf.constant(4))
    assert tf.reduce_all(y == 6.0)
    assert tf.reduce_all(tape.gradient(y, x) == 3.0)


@pytest.mark.parametrize("f", [_last, _unset, _while])
def test_there_must_be_a_round(f: Any) -> None:
    traced = tf.function(f)
    assert float(traced(tf.constant(2.0), tf.constant(1))) == 0
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least once to initialize 'y'"):
        traced(tf.constant(2.0), tf.constant(0))


def test_none_becomes_a_structure() -> None:
    @tf.function
    def f(x: Any) -> Any:
        y = None
        for row in x:
            y = (row, {"twice": row * 2.0})
        return y

    first, rest = f(tf.constant([2.0, 3.0]))
    assert (float(first), float(rest["twice"])) == (3, 6)


def test_what_a_round_reads_is_no_name_without_a_value() -> None:
    @tf.function
    def largest(x: Any) -> Any:
        best = None
        for row in x:
            if best is None:
                best = row
            best = tf.maximum(best, row)
        return best

    with pytest.raises(TypeError, match="'best' is None before a loop of tensors"):
        largest(tf.constant([2.0, 3.0]))


def test_rows_of_a_jacobian_go_through_the_check() -> None:
    traced = tf.function(_unset)
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = traced(x * x, tf.constant(3))
    assert tape.jacobian(y, x).numpy().tolist() == [[4, 0], [0, 8]]


def test_one_branch_with_none_is_a_value_error_too() -> None:
    @tf.function
    def f(x: Any) -> Any:
        y = None
        if x > 1.0:
            y = x
        return y

    for error in (TypeError, ValueError):
        with pytest.raises(error, match="'y' is"):
            f(tf.constant(2.0))
