"""Graphs run from a list of steps as the function that is written for them runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends.cpu import lower
from gradtape.backends.program import compile_graph
from gradtape.backends.stepping import stepping
from gradtape.ir.graph import Graph, Value
from gradtape.ops.op import emit


def several(x: Any) -> Any:
    """Results of one step of which some are read, and none, and once more."""
    q, r = tf.linalg.qr(tf.matmul(x, x))
    values, _ = tf.linalg.qr(x)
    return q + tf.sin(r) * q, values


def around_graphs(x: Any) -> Any:
    k, y = tf.while_loop(lambda k, y: tf.reduce_sum(y) < 50, lambda k, y: (k + 1, y + tf.abs(x)), (0, x))
    return k, tf.cond(tf.reduce_sum(y) > 1, lambda: tf.sin(y), lambda: y)


def given_back(x: Any) -> Any:
    y = tf.tanh(x)
    return x, y, y, x * y


def recomputed(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(tf.recompute_grad(lambda v: tf.sin(v) * tf.exp(v))(x))
    return tape.gradient(y, x)


@pytest.mark.parametrize("f", [several, around_graphs, given_back, recomputed])
def test_steps_are_the_written_function(f: Callable[..., Any]) -> None:
    x = np.random.default_rng(0).normal(size=(3, 3))
    graph = tf.function(f).get_concrete_function(tf.constant(x)).graph
    given = x.copy()
    found, wanted = stepping(graph, lower)(given), compile_graph(graph, lower)(x)
    assert len(found) == len(wanted) == len(graph.outputs) and np.array_equal(given, x)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_array_is_gone_when_nothing_reads_it_any_more() -> None:
    live, most = 0, 0

    class Array(np.ndarray[Any, Any]):
        def __del__(self) -> None:
            nonlocal live
            live -= 1

    def counted(step: Any) -> Callable[..., Any]:
        def run(*arrays: Any) -> Any:
            nonlocal live, most
            live += 1
            most = max(most, live)
            return lower(step)(*map(np.asarray, arrays)).view(Array)

        return run

    x = y = Value(tf.zeros([4])._aval)
    for _ in range(100):
        y = emit("sin", emit("add", y, x))
    (found,) = stepping(Graph([x], [y]), counted)(np.ones(4, np.float32))
    (wanted,) = compile_graph(Graph([x], [y]), lower)(np.ones(4, np.float32))
    np.testing.assert_array_equal(found, wanted)
    assert most <= 3
