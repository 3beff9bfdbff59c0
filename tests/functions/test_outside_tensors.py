"""Tensors from outside of a traced function: what is computed of them alone is part of the function, so that tapes
around it find derivatives by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf

X = tf.constant(3.0)
MATRIX = tf.constant([[2.0, 1.0], [0.5, 3.0]])


def derivatives(f: Callable[[], Any]) -> list[float | None]:
    """f() and its first two derivatives by X, which it uses without being given it."""
    with tf.GradientTape() as outer:
        outer.watch(X)
        with tf.GradientTape() as inner:
            inner.watch(X)
            y = f()
        first = inner.gradient(y, X)
    second = None if first is None else outer.gradient(first, X)
    return [None if t is None else float(t) for t in (y, first, second)]


def by_a_tape_inside() -> Any:
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = X * X * X
    return tape.gradient(y, X)


def by_a_tape_around_a_loop() -> Any:
    """The tape is inside of the function, and so is the tensor that it watches."""
    c = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(c)
        y = tf.constant(0.0)
        for _ in tf.range(2):
            y = y + c * c * X * X
    return tape.gradient(y, c)


def in_a_for_loop() -> Any:
    y = tf.constant(1.0)
    for _ in tf.range(3):
        y = y * (X * X)
    return y


def in_a_while_loop() -> Any:
    y = X
    while y < 100.0:
        y = y * y
    return y


def in_a_branch() -> Any:
    return X * X if X > 0.0 else -X


def in_a_branch_on_what_is_computed() -> Any:
    if X * 2.0 > 0.0:
        return X * X
    return -X


def of_its_own_rule() -> Any:
    @tf.custom_gradient
    def fivefold(v: Any) -> Any:
        return v, lambda up: up * 5.0

    return fivefold(X)


square = tf.function(lambda: X * X)
cube = tf.function(lambda: square() * X)
CASES: dict[str, tuple[Callable[[], Any], list[float | None]]] = {
    "with itself": (lambda: X * X, [9, 6, 2]),
    "with a number": (lambda: X * 2.0, [6, 2, None]),
    "with a constant of the function": (lambda: X * tf.constant(2.0), [6, 2, None]),
    "one operand": (lambda: tf.sin(X), [np.sin(3), np.cos(3), -np.sin(3)]),
    "several operands": (lambda: tf.reduce_sum(tf.stack([X, X, 1.0]) ** 2.0), [19, 12, 4]),
    "several results": (lambda: tf.add_n(tf.split(tf.stack([X * X, X]), 2))[0], [12, 7, 2]),
    "a decomposition": (lambda: tf.linalg.det(MATRIX * X), [49.5, 33, 11]),
    "functions in functions": (lambda: cube() * X, [81, 108, 108]),
    "a map": (lambda: tf.vectorized_map(lambda e: e * (X * X), tf.ones(3))[0], [9, 6, 2]),
    "computed again": (lambda: tf.recompute_grad(lambda: X * X)(), [9, 6, 2]),
    "a condition": (lambda: tf.cond(X > 0.0, lambda: X * X, lambda: X), [9, 6, 2]),
    "a stopped gradient": (lambda: tf.stop_gradient(X) * X, [9, 3, None]),
    "its own rule": (of_its_own_rule, [3, 5, None]),
    "a tape inside": (by_a_tape_inside, [27, 18, 6]),
    "a tape around a loop": (by_a_tape_around_a_loop, [72, 48, 16]),
    "a for loop": (in_a_for_loop, [729, 1458, 2430]),
    "a while loop": (in_a_while_loop, [6561, 17496, 40824]),
    "a branch": (in_a_branch, [9, 6, 2]),
    "a branch on what is computed": (in_a_branch_on_what_is_computed, [9, 6, 2]),
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives_by_a_tensor_that_a_function_is_not_given(name: str) -> None:
    python, wanted = CASES[name]
    f = tf.function(python)
    for _ in range(3):
        found = derivatives(f)
        assert [x is None for x in found] == [x is None for x in wanted]
        np.testing.assert_allclose(*([x for x in xs if x is not None] for xs in (found, wanted)), 1e-5)
    assert f.experimental_get_tracing_count() == 1


def test_after_a_call_that_no_tape_saw_and_in_other_traces() -> None:
    f = tf.function(lambda n: X * X * n)
    assert float(f(2)) == 18.0
    for n in (2, 3, 2):
        assert derivatives(lambda n=n: f(n)) == [9.0 * n, 6.0 * n, 2.0 * n]  # type: ignore[misc]
    assert f.experimental_get_tracing_count() == 2


def test_with_shapes_that_are_not_known() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None])])
    def f(v: Any) -> Any:
        return X * X + tf.reduce_sum(v) * tf.sin(X)

    for n in (2, 5, 2):
        found = derivatives(lambda n=n: f(tf.ones(n)))  # type: ignore[misc]
        wanted = [9 + n * np.sin(3), 6 + n * np.cos(3), 2 - n * np.sin(3)]
        np.testing.assert_allclose(np.array(found, float), wanted, 1e-5)
    assert f.experimental_get_tracing_count() == 1


def test_with_gradients_that_a_scope_puts_in_place_of_others() -> None:
    with tf.override_gradient({"square": lambda op, up: up * 100.0}):
        assert derivatives(tf.function(lambda: tf.square(X) * X)) == [27.0, 309.0, 200.0]


def test_forward_mode_and_jacobians() -> None:
    f = tf.function(lambda: X * X * tf.ones(2))
    with tf.autodiff.ForwardAccumulator(X, tf.constant(1.0)) as forward:
        y = f()
    np.testing.assert_array_equal(forward.jvp(y).numpy(), [6.0, 6.0])
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = f()
    np.testing.assert_array_equal(tape.jacobian(y, X).numpy(), [6.0, 6.0])


def test_python_looks_at_tensors_from_outside_and_at_what_is_an_index() -> None:
    seen: list[Any] = []

    @tf.function
    def f() -> Any:
        n = tf.cast(X, tf.int32) + 1
        seen.extend([float(X), int(n), int(tf.shape(MATRIX)[0]), bool(X > 2.0), np.asarray(MATRIX).sum()])
        return tf.reduce_sum(tf.reshape(tf.repeat(MATRIX, n, axis=0), [2, n, 2]))

    assert float(f()) == float(f()) == 26.0
    assert seen == [3.0, 4, 2, True, 6.5]


def test_a_variable_begins_with_what_is_computed_of_a_tensor_from_outside() -> None:
    made: list[Any] = []

    @tf.function
    def f() -> Any:
        if not made:
            made.append(tf.Variable(X * 2.0))
        return made[0] * X

    assert [float(f()), float(f())] == [18.0, 18.0]


def test_numbers_of_the_program_stay_numbers() -> None:
    """A number stands in the graph; what is computed of numbers alone is one too."""
    f = tf.function(lambda: X * (tf.constant(2.0) + 1.0) * tf.sqrt(4.0)).get_concrete_function()
    assert [t is X for t in f.captured_inputs] == [True]
    assert [n.step.name for n in f.graph.nodes if n.step.name in ("add", "sqrt")] == []
