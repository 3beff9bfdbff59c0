"""Custom gradients inside `tf.vectorized_map`: the function runs for all rows, its rule for each row by itself."""

import warnings
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import float64
from gradtape.ir.graph import Graph, Value
from gradtape.ops.op import constant, emit
from gradtape.runtime.compiled import CompiledGraph
from gradtape.transforms.linearity import is_linear
from tests.jacobian.programs import normal

X = normal(4, 3)
W = tf.Variable(normal(3))


def clip(norm: float) -> Any:
    """The identity, whose cotangent is clipped to a norm."""

    @tf.custom_gradient
    def clipped(x: Any) -> Any:
        return x * 1.0, lambda up: tf.clip_by_norm(up, norm)

    return clipped


@tf.custom_gradient
def tripled(x: Any) -> Any:
    """exp with a slope three times too large."""
    y = tf.exp(x)
    return y, lambda up: 3.0 * up * y


@tf.custom_gradient
def with_two(x: Any, y: Any) -> Any:
    return (x * y, x + y), lambda a, b: (a * y * 2.0 + b, None)


@tf.custom_gradient
def weighted(x: Any) -> Any:
    def rule(up: Any, variables: Any) -> Any:
        return up * 2.0, [up * x * 5.0 for _ in variables]

    return x * W, rule


@tf.custom_gradient
def counted(x: Any) -> Any:
    """A result without gradients beside one with."""
    return (x * x, tf.argmax(x)), lambda up, _: up * x * 7.0


@tf.custom_gradient
def constant_slope(x: Any) -> Any:
    return x * x, lambda up: tf.ones_like(x) * 7.0


@tf.recompute_grad
def forgetful(x: Any) -> Any:
    return tf.sin(x) * tf.exp(x)


PROGRAMS: dict[str, Any] = {
    "clipped rows": lambda r: clip(0.5)(r) * r,
    "a wrong slope": lambda r: tripled(r) * r,
    "a slope that is not linear": constant_slope,
    "one after the other": lambda r: clip(2.0)(tripled(tf.sin(r))),
    "two results": lambda r: with_two(r, tf.sin(r))[0] + with_two(r, r)[1] ** 2,
    "variables": weighted,
    "a result without gradients": lambda r: counted(r)[0] * tf.cast(counted(r)[1], tf.float64),
    "recomputed": forgetful,
    "of a part": lambda r: tf.reduce_sum(tripled(r[:2])) * r,
    "nothing varies": lambda r: tripled(tf.constant([1.0, 2.0, 3.0], tf.float64)) * r,
    "something outside": lambda r: with_two(r, W * 2.0)[0],
    "within a map": lambda r: tf.vectorized_map(lambda e: tripled(e) * e, r),
    "a clipped row of a map within a map": lambda r: tf.vectorized_map(clip(0.3), r[:, None] * r)[0],
}


def derivatives(mapped: Any, f: Any) -> list[np.ndarray]:
    """Values, gradients, Jacobians and gradients of gradients."""
    x = tf.constant(X)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = mapped(f, x)
            total = tf.reduce_sum(tf.sin(y))
        by_x, by_w = tape.gradient(total, [x, W], unconnected_gradients="zero")
        both = tf.reduce_sum(by_x**2) + tf.reduce_sum(by_w)
    j = tape.jacobian(y, x)
    return [t.numpy() for t in (y, by_x, by_w, j, outer.gradient(both, x, unconnected_gradients="zero"))]


@pytest.mark.parametrize("name", PROGRAMS)
def test_maps_are_loops(name: str) -> None:
    f = PROGRAMS[name]
    for found, want in zip(derivatives(tf.vectorized_map, f), derivatives(tf.map_fn, f), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_for_each_example(name: str) -> None:
    """The tape stands inside; its Jacobians and Hessians too."""
    f = PROGRAMS[name]

    def slopes(r: Any) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(r)
            y = f(r)
            total = tf.reduce_sum(tf.sin(y))
        return tape.gradient(total, r), tape.jacobian(y, r)

    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(x)
        found, want = tf.vectorized_map(slopes, x), tf.map_fn(slopes, x)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-11, atol=1e-12)
        second, first = (
            outer.gradient(a, x, unconnected_gradients="zero"),
            outer.gradient(b, x, unconnected_gradients="zero"),
        )
        np.testing.assert_allclose(second.numpy(), first.numpy(), rtol=1e-11, atol=1e-12)


def test_each_row_is_clipped_by_itself() -> None:
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.vectorized_map(clip(0.5), x) * 10.0
    norms = np.linalg.norm(tape.gradient(y, x).numpy(), axis=1)
    np.testing.assert_allclose(norms, 0.5)


def test_a_structure_of_what_is_mapped_and_what_is_shared() -> None:
    x, c = tf.constant(X), tf.constant(normal(1, 3))
    with tf.GradientTape() as tape:
        tape.watch(c)
        y = tf.vectorized_map(lambda e: with_two(e["c"], e["x"])[0], {"x": x, "c": c})
    np.testing.assert_allclose(tape.gradient(y, c).numpy(), 2 * X.sum(0, keepdims=True))


def test_rules_that_may_not_be_linear_stay_in_reverse_mode() -> None:
    x = tf.constant(0.5, tf.float64)

    def recorded(f: Any) -> Any:
        tape = tf.GradientTape(persistent=True)
        with tape:
            tape.watch(x)
            y = tf.vectorized_map(f, x * tf.constant(X))
        return tape, y

    tape, y = recorded(tripled)
    assert set(tape.plan_jacobian(y, x).costs) == {"forward", "reverse"}
    tape, y = recorded(clip(0.5))
    assert set(tape.plan_jacobian(y, x).costs) == {"reverse"}
    with pytest.raises(ValueError, match="Forward mode wants the JVP of `clipped`"):
        tape.jacobian(y, x, mode="forward")
    with tf.autodiff.ForwardAccumulator(x, tf.constant(1.0, tf.float64)) as acc:
        straight = tf.vectorized_map(tripled, x * tf.constant(X))
        bent = tf.vectorized_map(clip(0.5), x * tf.constant(X))
    np.testing.assert_allclose(acc.jvp(straight).numpy(), 3 * np.exp(0.5 * X) * X)
    with pytest.raises(ValueError, match="JVP of `clipped`"):
        acc.jvp(bent)


def test_the_graph_of_all_rows_is_made_once(monkeypatch: Any) -> None:
    made = []
    start = CompiledGraph.__init__
    monkeypatch.setattr(CompiledGraph, "__init__", lambda self, graph: (made.append(1), start(self, graph))[1])
    x = tf.constant(X)
    for _ in range(3):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.vectorized_map(lambda r: clip(0.25)(r) * 3.0, x)
        tape.gradient(y, x)
        made.append(0)
    assert made[-2:] == [0, 0], "the second and third time nothing is compiled"


def test_a_rule_that_wants_values() -> None:
    @tf.custom_gradient
    def peeking(x: Any) -> Any:
        return x * x, lambda up: up * float(tf.reduce_max(up))

    x = tf.constant(X)
    np.testing.assert_allclose(tf.vectorized_map(peeking, x).numpy(), X * X)  # nobody asks for its gradient
    with tf.GradientTape() as tape:
        tape.watch(x)
        with pytest.raises(TypeError, match=r"wants values.*`tf\.map_fn`"):
            tf.vectorized_map(peeking, x)


def test_in_a_function() -> None:
    @tf.function
    def f(x: Any) -> Any:
        return tf.vectorized_map(lambda r: clip(0.5)(r) * tripled(r), x)

    x = tf.constant(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            found = f(x)
            want = tf.map_fn(lambda r: clip(0.5)(r) * tripled(r), x)
    np.testing.assert_allclose(tape.gradient(found, x).numpy(), tape.gradient(want, x).numpy())


def test_functions_are_traced_with_their_rules() -> None:
    @tf.function
    def f(x: Any) -> Any:
        return clip(0.5)(x * W) + weighted(x)

    x = tf.constant(X[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with tf.GradientTape() as tape:
                tape.watch(x)
                found = f(x)
            by_x, by_w = tape.gradient(found, [x, W])
            with tf.GradientTape() as tape:
                tape.watch(x)
                want = f.python_function(x)
            for a, b in zip((by_x, by_w), tape.gradient(want, [x, W]), strict=True):
                np.testing.assert_allclose(a.numpy(), b.numpy())
            W.assign_add(tf.ones_like(W))


# ------------------------------------------------------------------ linear or not

V, C = Value(aval((3,), float64)), Value(aval((3,), float64))
LINEAR: dict[str, tuple[Value, bool]] = {
    "itself": (V, True),
    "a product": (emit("multiply", V, C), True),
    "a sum with itself": (emit("add", V, emit("negative", V)), True),
    "a quotient": (emit("divide", V, C), True),
    "a sum of elements": (emit("reduce_sum", V, axes=(0,), keepdims=False), True),
    "a softmax of something else": (emit("multiply", emit("softmax", C, axis=0), V), True),
    "zeros": (constant(0, float64, (3,)), True),
    "joined with zeros": (emit("concat", V, constant(0, float64, (2,)), axis=0), True),
    "cumulative sums": (emit("cumsum", V, axis=0, exclusive=False, reverse=False), True),
    "a sum with a constant": (emit("add", V, C), False),
    "joined with a constant": (emit("concat", V, C, axis=0), False),
    "a product with itself": (emit("multiply", V, V), False),
    "a constant": (C, False),
    "ones": (constant(1, float64, (3,)), False),
    "in the denominator": (emit("divide", C, V), False),
    "a function": (emit("tanh", V), False),
    "the largest": (emit("reduce_max", V, axes=(0,), keepdims=False), False),
    "softmax": (emit("softmax", V, axis=0), False),
    "a square contracted": (emit("contract", V, V, subscripts="a,a->"), False),
}


@pytest.mark.parametrize("name", LINEAR)
def test_what_is_linear(name: str) -> None:
    value, linear = LINEAR[name]
    assert is_linear(Graph([V, C], [value]), [True, False]) is linear
