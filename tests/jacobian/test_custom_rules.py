"""Custom gradients in Jacobians: a rule sees each row by itself, runs once, and may be anything."""

from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.jacobian.programs import jacobian, jacobian_by_rows

X = np.array([1.0, -2.0, 3.0])


def clip(norm: float) -> Any:
    """The identity, whose cotangent is clipped to a norm."""

    @tf.custom_gradient
    def clipped(x: Any) -> Any:
        return x, lambda up: tf.clip_by_norm(up, norm)

    return clipped


@tf.custom_gradient
def tripled(x: Any) -> Any:
    """exp with a slope three times too large."""
    y = tf.exp(x)
    return y, lambda up: 3.0 * up * y


@tf.custom_gradient
def constant_slope(x: Any) -> Any:
    return x * x, lambda up: tf.ones_like(x) * 7.0


@tf.custom_gradient
def with_two(x: Any, y: Any) -> Any:
    return (x * y, x + y), lambda a, b: (a * y * 2.0 + b, None)


PROGRAMS: dict[str, Any] = {
    "clipped rows": lambda x: clip(0.5)(x * x) * 10.0,
    "clipped rows that meet": lambda x: tf.linalg.matvec(tf.ones([2, 3], tf.float64), clip(1.0)(x * x)),
    "a wrong slope": lambda x: tripled(x) * x,
    "a slope that is not linear": constant_slope,
    "one after the other": lambda x: clip(2.0)(tripled(tf.sin(x))),
    "several results": lambda x: with_two(x, tf.sin(x))[0] + with_two(x, x)[1] ** 2,
    "a sum of a part": lambda x: tf.reduce_sum(tripled(x[:2])) * x,
    "nothing passes": tf.custom_gradient(lambda x: (x * x, lambda up: up * 0.0)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_are_what_one_pass_per_row_gives(name: str) -> None:
    want = jacobian_by_rows(PROGRAMS[name], X)
    for how in ({}, {"mode": "reverse"}, {"parallel_iterations": 2}, {"experimental_use_pfor": False}):
        np.testing.assert_allclose(jacobian(PROGRAMS[name], X, **how).numpy(), want.numpy(), rtol=1e-12)


def test_each_row_is_clipped_by_itself() -> None:
    found = jacobian(lambda x: clip(0.5)(x * 1.0) * 10.0, X).numpy()
    np.testing.assert_allclose(found, 0.5 * np.eye(3))  # not the norm of the stack, which would be 0.5 / sqrt(3)


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_per_example(name: str) -> None:
    x = tf.constant(np.stack([X, X * 0.5]))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x + tripled(x) * clip(1.0)(x)
    found = tape.batch_jacobian(y, x, on_dependence="ignore")
    want = tape.batch_jacobian(y, x, on_dependence="ignore", experimental_use_pfor=False)
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-12)


def test_a_rule_runs_once_for_all_rows_of_each_call() -> None:
    calls = []

    @tf.custom_gradient
    def counted(x: Any) -> Any:
        def rule(up: Any) -> Any:
            calls.append(up.shape)
            return up * 2.0

        return x * x, rule

    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = counted(x) * 3.0
    tape.jacobian(y, x)
    tape.jacobian(y, x)
    assert len(calls) == 2
    assert all(tuple(s) == (3,) for s in calls), "a rule sees one row"


def test_what_a_rule_captured_is_read_anew() -> None:
    strength = tf.Variable(1.0, dtype=tf.float64)

    @tf.custom_gradient
    def scaled(x: Any) -> Any:
        return x * x, lambda up: up * strength.read_value()

    x = tf.constant(X)
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(x)
        y = scaled(x)
    np.testing.assert_allclose(tape.jacobian(y, x).numpy(), np.eye(3))
    strength.assign(4.0)
    np.testing.assert_allclose(tape.jacobian(y, x).numpy(), 4 * np.eye(3))


def test_rules_with_variables() -> None:
    w = tf.Variable(X)

    @tf.custom_gradient
    def weighted(x: Any) -> Any:
        def rule(up: Any, variables: Any) -> Any:
            return up * 2.0, [up * 5.0 for _ in variables]

        return x * w, rule

    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = weighted(x) * 1.0
    by_x, by_w = tape.jacobian(y, [x, w])
    np.testing.assert_allclose(by_x.numpy(), 2 * np.eye(3))
    np.testing.assert_allclose(by_w.numpy(), 5 * np.eye(3))


def test_a_rule_that_answers_none() -> None:
    @tf.custom_gradient
    def first_only(x: Any, y: Any) -> Any:
        return x * y, lambda up: (up * y, None)

    x, z = tf.constant(X), tf.constant(X + 1)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, z])
        y = first_only(x, z)
    by_x, by_z = tape.jacobian(y, [x, z])
    np.testing.assert_allclose(by_x.numpy(), np.diag(X + 1))
    assert by_z is None


def test_forward_mode_and_structure_say_why_not() -> None:
    with pytest.raises(ValueError, match="JVP"):
        jacobian(tripled, X, mode="forward")
    with pytest.raises(ValueError, match="custom gradient"):
        jacobian(tripled, X, structured=True)


def test_a_rule_that_asks_for_values_says_so() -> None:
    @tf.custom_gradient
    def peeking(x: Any) -> Any:
        return x * x, lambda up: up * float(up.numpy().max())

    with pytest.raises(Exception, match="not known"):
        jacobian(peeking, X)
    np.testing.assert_allclose(jacobian(peeking, X, experimental_use_pfor=False).numpy(), np.eye(3))


def test_jacobians_of_rules_are_differentiated_again() -> None:
    x = tf.constant(X)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tripled(x)
        j = inner.jacobian(y, x)
    found = outer.jacobian(j, x).numpy()
    # d/dx of 3·y, where y itself is exp: recorded inside the function
    want = np.zeros((3, 3, 3))
    want[range(3), range(3), range(3)] = 3 * np.exp(X)
    np.testing.assert_allclose(found, want)
