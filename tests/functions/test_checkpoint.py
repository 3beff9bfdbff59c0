"""Functions that keep little for their gradient: what is held is counted, derivatives are those of the function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.runtime.record import Recorder

N = 400
W = [tf.Variable(np.random.default_rng(k).normal(size=(20, 20)) * 0.3) for k in range(4)]


def network(x: Any) -> Any:
    for w in W:
        x = tf.tanh(x @ w)
        x = tf.sin(x) * tf.exp(-x)
    return tf.reduce_sum(x**2)


def point() -> Any:
    return tf.constant(np.random.default_rng(9).normal(size=(N, 20)) * 0.5)


def held_bytes(f: Any, x: Any) -> int:
    """The bytes that a tape holds for the gradient, besides arguments and variables."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    recorder = tape._recorder
    assert isinstance(recorder, Recorder)
    own = {id(x._array), id(y._array), *(id(w._snapshot._array) for w in W)}
    arrays = {id(t._array): t._array for t in recorder.saved if hasattr(t, "_aval") and t._id not in own}
    return sum(a.nbytes for k, a in arrays.items() if k not in own and a.ndim)


def gradients(f: Any, x: Any) -> list[Any]:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return [g.numpy() for g in tape.gradient(y, [x, *W])]


@pytest.mark.parametrize("budget", [0, 100_000, "200kB", 300_000, None])
def test_gradients_and_bytes_within_a_budget(budget: Any) -> None:
    x = point()
    f = tf.checkpoint(network, budget=budget)
    for a, b in zip(gradients(f, x), gradients(network, x), strict=True):
        np.testing.assert_allclose(a, b, 1e-11, 1e-13)
    report = f.report(x)
    limit = {"200kB": 200_000, None: report.full_bytes}.get(budget, budget)
    assert report.kept_bytes <= limit
    assert report.full_bytes > 500_000, "what a budget of these sizes cannot hold"
    assert report.saved_bytes == report.full_bytes - report.kept_bytes
    assert held_bytes(f, x) == report.kept_bytes, "the report is what the tape holds"


def test_more_budget_means_less_work() -> None:
    x = point()
    reports = [tf.checkpoint(network, budget=b).report(x) for b in (0, 100_000, 300_000, None)]
    assert [r.kept_bytes for r in reports] == sorted(r.kept_bytes for r in reports)
    work = [r.multiply_adds for r in reports]
    assert work == sorted(work, reverse=True) and work[-1] == 0
    assert work[0] == 4 * N * 20 * 20, "each product is made once more"


def derivatives(f: Any, x: Any) -> list[float]:
    with tf.GradientTape() as third:
        third.watch(x)
        with tf.GradientTape() as second:
            second.watch(x)
            with tf.GradientTape() as first:
                first.watch(x)
                y = f(x)
            g = first.gradient(y, x)
        h = second.gradient(g, x)
    return [float(v) for v in (y, g, h, third.gradient(h, x))]


def curve(x: Any) -> Any:
    y = tf.sin(x) * tf.exp(x * 0.3)
    if y > 0.5:
        y = y * tf.tanh(y)
    for _ in tf.range(3):
        y = tf.sin(y) * x
    return y


@pytest.mark.parametrize("kind", ["checkpoint", "recompute_grad", "budget"])
def test_vjp_of_vjp_of_vjp_of_a_checkpoint(kind: str) -> None:
    f = {
        "checkpoint": tf.checkpoint(curve),
        "recompute_grad": tf.recompute_grad(curve),
        "budget": tf.checkpoint(budget=16)(curve),
    }[kind]
    for value in (0.3, 1.4):
        x = tf.constant(value, tf.float64)
        plain = derivatives(curve, x)
        np.testing.assert_allclose(derivatives(f, x), plain, 1e-11)
        np.testing.assert_allclose(derivatives(tf.function(lambda x: f(x)), x), plain, 1e-11)

        @tf.function
        def inside(x: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = f(x)
            return tape.gradient(y, x)

        assert float(inside(x)) == pytest.approx(plain[1], rel=1e-11)


def test_jacobians_of_a_checkpoint() -> None:
    f = tf.checkpoint(lambda x: tf.sin(x @ W[0]) * tf.exp(x))
    x = tf.constant(np.random.default_rng(3).normal(size=(3, 20)))

    def jacobian(f: Any, kind: str) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return getattr(tape, kind)(y, x).numpy()

    for kind in ("jacobian", "batch_jacobian"):
        np.testing.assert_allclose(jacobian(f, kind), jacobian(f.fn, kind), 1e-12, 1e-14)
    mapped = tf.vectorized_map(lambda r: f(r[None])[0], x)
    np.testing.assert_allclose(mapped.numpy(), f.fn(x).numpy(), 1e-12)


def test_what_a_traced_step_holds() -> None:
    """The graph of forward and backward together: between them are the kept values alone."""
    x = point()

    def step(f: Any) -> Any:
        @tf.function
        def run(x: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = f(x)
            return y, tape.gradient(y, [x, *W])

        return run

    f = tf.checkpoint(network)
    traced = step(f)
    for a, b in zip(traced(x)[1], gradients(network, x), strict=True):
        np.testing.assert_allclose(a.numpy(), b, 1e-11, 1e-13)
    nodes = traced.get_concrete_function(x).graph.nodes
    (inner,) = [n for n in nodes if n.step.name == "checkpoint"]
    kept = inner.outputs[1:]
    assert sum(v.aval.nbytes for v in kept) == f.report(x).kept_bytes == 0


def test_python_functions_do_not_run_again() -> None:
    calls = []

    def host(a: Any) -> Any:
        calls.append(1)
        return a * 2.0

    f = tf.function(tf.checkpoint(lambda x: tf.sin(tf.numpy_function(host, [x], tf.float64) * x)))
    x = tf.constant(0.7, tf.float64)
    for _ in range(2):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        assert float(tape.gradient(y, x)) == pytest.approx(np.cos(1.4 * 0.7) * 1.4)
    assert len(calls) == 2


def test_budgets_that_are_none() -> None:
    with pytest.raises(ValueError, match="size such as"):
        tf.checkpoint(network, budget="much")
