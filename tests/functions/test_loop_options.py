"""What the first lines of a loop say of it, and loops that change a shape."""

from __future__ import annotations

from typing import Any

import pytest

import gradtape as tf

set_loop_options = tf.autograph.experimental.set_loop_options


def for_loop(n: Any, most: Any) -> Any:
    total = 0
    for i in tf.range(n):
        set_loop_options(maximum_iterations=most)
        total += i + 1
    return total


def while_loop(n: Any, most: Any) -> Any:
    total, i = 0, 0
    while i < n:
        set_loop_options(maximum_iterations=most)
        i += 1
        total += i
        if total > 100:
            break
    return total


@pytest.mark.parametrize("f", [for_loop, while_loop])
@pytest.mark.parametrize("signature", [None, [tf.TensorSpec([], tf.int32)] * 2])
def test_loops_end_after_so_many_rounds(f: Any, signature: Any) -> None:
    traced = tf.function(f, input_signature=signature)
    for n, most in ((10, 3), (2, 3), (10, 0), (0, 3)):
        rounds = min(n, most)
        assert int(traced(tf.constant(n), tf.constant(most))) == rounds * (rounds + 1) // 2


def test_each_loop_has_a_limit_of_its_own() -> None:
    @tf.function
    def f(n: Any) -> Any:
        total = 0
        for _ in tf.range(n):
            set_loop_options(maximum_iterations=2)
            for _ in tf.range(5):
                set_loop_options(maximum_iterations=3)
                total += 1
            for _ in range(5):
                set_loop_options(maximum_iterations=1)  # a loop of Python's does not heed it
                total += 100
        return total

    assert int(f(tf.constant(4))) == 2 * 3 + 2 * 500


def test_a_variable_is_assigned_once_in_each_round() -> None:
    v = tf.Variable(0)

    @tf.function
    def f(n: Any) -> None:
        for _ in tf.range(n):
            set_loop_options(maximum_iterations=3)
            v.assign_add(1)

    f(tf.constant(10))
    assert int(v) == 3


def growing(n: Any, v: Any) -> Any:
    x = tf.ones([1])
    for _ in tf.range(n):
        set_loop_options(shape_invariants=[(x, tf.TensorShape([None]))])
        x = tf.concat([x, x[-1:] * v], 0)
    return tf.reduce_sum(x)


def growing_while_loop(n: Any, v: Any) -> Any:
    _, x = tf.while_loop(
        lambda i, x: i < n,
        lambda i, x: (i + 1, tf.concat([x, x[-1:] * v], 0)),
        [tf.constant(0), tf.ones([1])],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
    )
    return tf.reduce_sum(x)


@pytest.mark.parametrize("f", [growing, growing_while_loop])
def test_vjp_of_a_loop_whose_shape_may_change(f: Any) -> None:
    v, traced = tf.Variable(2.0), tf.function(lambda n: f(n, v))
    with pytest.warns(UserWarning, match="shape depends on how often the loop runs"), tf.GradientTape() as tape:
        y = traced(tf.constant(3))
    assert (float(y), float(tape.gradient(y, v))) == (15.0, 17.0)


def test_other_shapes_and_dtypes_are_refused() -> None:
    @tf.function
    def f(n: Any) -> Any:
        x = tf.ones([1])
        for _ in tf.range(n):
            x = tf.concat([x, x], 0)
        return x

    @tf.function
    def g(n: Any) -> Any:
        x = tf.ones([1])
        for _ in tf.range(n):
            set_loop_options(shape_invariants=[(x, tf.TensorShape([None]))])
            x = tf.cast(x, tf.int32)
        return x

    with pytest.raises(ValueError, match=r"'x' has shape \(1,\) before the loop, but shape \(2,\)"):
        f(tf.constant(3))
    with pytest.raises(TypeError, match="dtype float32 before the loop, but dtype int32"):
        g(tf.constant(3))
