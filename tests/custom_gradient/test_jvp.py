"""A rule and its JVP: one rule for both modes where it is linear, `jvp=` where it is not."""

from typing import Any

import numpy as np
import pytest

import gradtape as tf

X = np.array([1.0, -2.0, 3.0])
T = np.array([0.5, 1.0, -1.0])


def clipped_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return t * 2.0 + x * t


@tf.custom_gradient(jvp=clipped_jvp)
def clipped(x: Any) -> Any:
    """x², whose cotangent is clipped, and whose tangent is something else again."""
    return x * x, lambda up: tf.clip_by_norm(up, 0.5)


def pushed(f: Any, x: Any = X, t: Any = T) -> Any:
    x = tf.constant(x)
    with tf.autodiff.ForwardAccumulator(x, tf.constant(t)) as acc:
        y = f(x)
    return acc.jvp(y).numpy()


def in_function(f: Any) -> Any:
    return tf.function(lambda x: f(x) * 1.0)


def in_branch(f: Any) -> Any:
    return tf.function(lambda x: tf.cond(tf.reduce_sum(x) > -100.0, lambda: f(x), lambda: x * 0.0))


def in_loop(f: Any) -> Any:
    def run(x: Any) -> Any:
        return tf.while_loop(lambda i, v: i < 1, lambda i, v: (i + 1, f(v)), [tf.constant(0), x])[1]

    return tf.function(run)


def in_map(f: Any) -> Any:
    return lambda x: tf.vectorized_map(lambda v: tf.reshape(f(v[None]), []), x)


AROUND = {"eager": lambda f: f, "function": in_function, "branch": in_branch, "loop": in_loop, "map": in_map}


@pytest.mark.parametrize("how", AROUND)
def test_forward_mode_takes_the_jvp(how: str) -> None:
    want = T * (2.0 + X)
    np.testing.assert_allclose(pushed(AROUND[how](clipped)), want)
    _, slope = tf.jvp(AROUND[how](clipped), [tf.constant(X)], [tf.constant(T)])
    np.testing.assert_allclose(slope.numpy(), want)


@pytest.mark.parametrize("how", AROUND)
def test_forward_jacobians_take_the_jvp_and_others_the_rule(how: str) -> None:
    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = AROUND[how](clipped)(x)
    np.testing.assert_allclose(tape.jacobian(y, x, mode="forward").numpy(), np.diag(2.0 + X))
    for mode in ("auto", "reverse"):
        np.testing.assert_allclose(tape.jacobian(y, x, mode=mode).numpy(), 0.5 * np.eye(3))
    np.testing.assert_allclose(tape.jacobian(y, x, mode="forward", structured=True).dense().numpy(), np.diag(2.0 + X))


@pytest.mark.parametrize("how", AROUND)
def test_without_it_forward_mode_names_the_rule(how: str) -> None:
    @tf.custom_gradient
    def kinked(x: Any) -> Any:
        return x * x, lambda up: tf.clip_by_norm(up, 0.5)

    with pytest.raises(ValueError, match=r"JVP of `kinked`.*jvp=\.\.\."):
        pushed(AROUND[how](kinked))
    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = AROUND[how](kinked)(x)
    with pytest.raises(ValueError, match="JVP of `kinked`"):
        tape.jacobian(y, x, mode="forward")
    np.testing.assert_allclose(tape.jacobian(y, x).numpy(), 0.5 * np.eye(3))


def test_a_jvp_beside_a_linear_rule() -> None:
    """The Jacobian in a mode that costs choose is that of the rule; a wrong JVP is not taken by chance."""

    @tf.custom_gradient(jvp=lambda primals, tangents: tangents[0] * 7.0)
    def odd(x: Any) -> Any:
        return x * 2.0, lambda up: up * 3.0

    np.testing.assert_allclose(pushed(odd), 7.0 * T)
    np.testing.assert_allclose(pushed(in_function(odd)), 7.0 * T)
    s = tf.constant(0.5)
    for f in (odd, in_function(odd)):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(s)
            y = f(s * tf.ones([640]))  # so many rows that columns cost less
        np.testing.assert_allclose(tape.jacobian(y, s).numpy(), np.full(640, 3.0))


def test_derivatives_of_the_jvp() -> None:
    """d/dx of t · (2 + x) for t = 1, by a tape outside and by another accumulator."""
    x, one = tf.constant(X), tf.ones([3], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(x)
        with tf.autodiff.ForwardAccumulator(x, one) as acc:
            y = clipped(x)
        slope = acc.jvp(y)
    np.testing.assert_allclose(tape.gradient(slope, x).numpy(), np.ones(3))
    with tf.autodiff.ForwardAccumulator(x, tf.constant(T)) as outer:
        with tf.autodiff.ForwardAccumulator(x, one) as inner:
            y = clipped(x)
        slope = inner.jvp(y)
    np.testing.assert_allclose(outer.jvp(slope).numpy(), T)


def test_structures_options_and_several_results() -> None:
    seen = []

    def forward(primals: Any, tangents: Any) -> Any:
        (pair, index, _), (of_pair, none, mode) = primals, tangents
        seen.append((none, mode, of_pair[1] is not None, index.dtype))
        product = of_pair[0] * pair[1] + pair[0] * of_pair[1]
        return {"p": product, "q": None}

    @tf.custom_gradient(jvp=forward)
    def f(pair: Any, index: Any, mode: Any, *, scale: float = 1.0) -> Any:
        a, b = pair
        rule = lambda up, uq: ((tf.sign(up) * b, None), None, None)  # noqa: E731
        return {"p": a * b * scale, "q": a + b}, rule

    a, b = tf.constant(X), tf.Variable(X + 1)
    with tf.autodiff.ForwardAccumulator([a, b], [tf.constant(T), tf.constant(T * 2)]) as acc:
        r = f((a, b), tf.constant(1), "mode", scale=1.0)
    np.testing.assert_allclose(acc.jvp(r["p"]).numpy(), T * (X + 1) + X * T * 2)
    assert acc.jvp(r["q"]) is None or not acc.jvp(r["q"]).numpy().any()
    assert seen[0] == (None, None, True, tf.int32)


def test_variables() -> None:
    w = tf.Variable(X)

    def forward(primals: Any, tangents: Any, variables: Any, variable_tangents: Any) -> Any:
        assert [v is w for v in variables] == [True]
        return tangents[0] * 10.0 + variable_tangents[0] * primals[0]

    @tf.custom_gradient(jvp=forward)
    def f(x: Any) -> Any:
        return x * w, lambda up, variables: (tf.sign(up), [up])

    x = tf.constant(T)
    tangents = [tf.ones([3], tf.float64), tf.constant([1.0, 2.0, 3.0], tf.float64)]
    with tf.autodiff.ForwardAccumulator([x, w], tangents) as acc:
        y = f(x)
    np.testing.assert_allclose(acc.jvp(y).numpy(), 10.0 + np.array([1.0, 2.0, 3.0]) * T)

    @tf.custom_gradient(jvp=lambda primals, tangents: tangents[0])
    def g(x: Any) -> Any:
        return x * w, lambda up, variables: (tf.sign(up), [up])

    with pytest.raises(TypeError, match="variable_tangents="):
        pushed(g)


@pytest.mark.parametrize(
    ("forward", "says"),
    [
        (lambda p, t: tf.sin(t[0]), "`f` does not show that it is linear"),
        (lambda p, t: t[0] + 1.0, "`f` does not show that it is linear"),
        (lambda p, t: (t[0], t[0]), "a tangent for each of 1 results, got 2"),
        (lambda p, t: tf.ones([2]), r"`f` .*\(2,\) for result 0.*\(3,\)"),
    ],
)
def test_wrong_jvps(forward: Any, says: str) -> None:
    @tf.custom_gradient(jvp=forward)
    def f(x: Any) -> Any:
        return x * x, lambda up: up

    with pytest.raises(ValueError, match=says):
        pushed(f)
    with pytest.raises(TypeError, match="`jvp` should be a function"):
        tf.custom_gradient(f, jvp=3)


def test_the_rule_is_not_asked_where_its_jvp_is() -> None:
    @tf.custom_gradient(jvp=lambda primals, tangents: tangents[0] * 3.0)
    def f(x: Any) -> Any:
        return x * x, lambda up: up * float(tf.norm(up))  # wants values, which tracing has not

    np.testing.assert_allclose(pushed(f), 3.0 * T)
