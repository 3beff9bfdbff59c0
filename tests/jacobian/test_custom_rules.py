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


def test_forward_mode_of_a_rule_that_may_not_be_linear_says_why_not() -> None:
    with pytest.raises(ValueError, match="JVP"):
        jacobian(constant_slope, X, mode="forward")
    with pytest.raises(ValueError, match="JVP"):
        jacobian(clip(0.5), X, mode="forward")
    x = tf.constant(X)
    with tf.autodiff.ForwardAccumulator(x, x) as acc:
        y = clip(0.5)(x * x)
    with pytest.raises(ValueError, match="JVP"):
        acc.jvp(y)


def test_a_linear_rule_runs_forwards() -> None:
    want = np.diag(3 * np.exp(X))
    np.testing.assert_allclose(jacobian(tripled, X, mode="forward").numpy(), want)
    x = tf.constant(X)
    with tf.autodiff.ForwardAccumulator(x, tf.constant([1.0, 2.0, -1.0], tf.float64)) as acc:
        y = tripled(x)
    np.testing.assert_allclose(acc.jvp(y).numpy(), want @ [1.0, 2.0, -1.0])
    with tf.GradientTape(persistent=True) as tape:
        scale = tf.constant(0.5, tf.float64)
        tape.watch(scale)
        z = tripled(scale * tf.ones([640], tf.float64))
    assert set(tape.plan_jacobian(z, scale).costs) == {"forward", "reverse"}
    np.testing.assert_allclose(tape.jacobian(z, scale).numpy(), np.full(640, 3 * np.exp(0.5)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_structured_answers_are_those_of_the_dense_one(name: str) -> None:
    dense = jacobian_by_rows(PROGRAMS[name], X).numpy()
    j = jacobian(PROGRAMS[name], X, structured=True)
    np.testing.assert_allclose(j.dense().numpy(), dense, rtol=1e-12)
    if dense.ndim == 2:
        np.testing.assert_allclose((j @ X).numpy(), dense @ X, rtol=1e-12)
        u = np.arange(1.0, 1 + len(dense))
        np.testing.assert_allclose((j.T @ u).numpy(), u @ dense, rtol=1e-12)
        np.testing.assert_allclose(j.to_scipy().toarray(), dense, rtol=1e-12)
        np.testing.assert_allclose(j.row_norms().numpy(), np.linalg.norm(dense, axis=1), rtol=1e-12)
    if dense.shape == (3, 3):
        np.testing.assert_allclose(j.diagonal().numpy(), np.diag(dense), rtol=1e-12)


def test_the_structure_of_an_elementwise_rule_is_a_diagonal() -> None:
    j = jacobian(lambda x: tripled(x) * x, X, structured=True)
    assert j.structure == "a | a : (a)"
    assert j.nnz == 3


def test_divergence_and_laplacian() -> None:
    x = tf.constant(X)
    slope = 3 * np.exp(X)
    np.testing.assert_allclose(tf.divergence(tripled, x).numpy(), slope.sum())
    np.testing.assert_allclose(tf.divergence(lambda v: clip(0.5)(v * 1.0) * 10.0, x).numpy(), 1.5)
    # the slope is 3·y, and y itself is exp: recorded inside the function
    np.testing.assert_allclose(tf.laplacian(lambda v: tf.reduce_sum(tripled(v)), x).numpy(), slope.sum())


@pytest.mark.parametrize("how", [{"memory": "1KiB"}, {"progress": True}, {"parallel_iterations": 1}])
def test_rows_in_chunks(how: Any) -> None:
    f = lambda x: clip(0.5)(tf.reshape(tripled(x)[:, None] * x, [9])) * 2.0  # noqa: E731
    np.testing.assert_allclose(jacobian(f, X, **how).numpy(), jacobian_by_rows(f, X).numpy(), rtol=1e-12)
    out = np.zeros((9, 3))
    jacobian(f, X, out=out, **how)
    np.testing.assert_allclose(out, jacobian_by_rows(f, X).numpy(), rtol=1e-12)


def test_the_plan_of_a_rule() -> None:
    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = clip(0.5)(x * x)
    plan = tape.plan_jacobian(y, x)
    assert plan.mode == "reverse" and set(plan.costs) == {"reverse"}
    assert tape.plan_jacobian(y, x, parallel_iterations=1).chunks == 3


def test_hessians_do_not_transpose_a_rule_that_is_not_linear() -> None:
    """The Hessian's second pass asks the rule once more, row by row."""
    x = tf.constant(X)

    def f(v: Any) -> Any:
        return tf.reduce_sum(tf.sin(clip(0.5)(v * v)))

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    found = tape.hessian(y, x).numpy()
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = f(x)
        g = inner.gradient(y, x)
    np.testing.assert_allclose(found, outer.jacobian(g, x).numpy(), rtol=1e-12)
    np.testing.assert_allclose(found, outer.jacobian(g, x, experimental_use_pfor=False).numpy(), rtol=1e-12)


def test_a_rule_that_asks_for_values_says_so() -> None:
    @tf.custom_gradient
    def peeking(x: Any) -> Any:
        return x * x, lambda up: up * float(tf.reduce_max(up))

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
