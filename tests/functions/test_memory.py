"""What is left of the making of a traced function: its graph, and numbers in its place when it is compiled."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends import small
from gradtape.backends.clusters import POLICY
from gradtape.ir.folded import Folded
from gradtape.ir.graph import Node, check, structure, text
from gradtape.runtime import backward
from gradtape.runtime import small as deciding
from gradtape.runtime.tensor import SymbolicTensor
from gradtape.runtime.trie import TRIE, TrieNode

A = tf.constant(np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32))


def slope(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x
        for _ in range(5):
            y = tf.sin(y) * x + tf.exp(-tf.linalg.matvec(A, y))
        z = tf.reduce_sum(y)
    return tape.gradient(z, x)


def rows(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.tanh(tf.linalg.matvec(tf.reshape(tf.range(9.0), [3, 3]), x) * x)
    return tape.jacobian(y, x)


def loop(x: Any) -> Any:
    _, y = tf.while_loop(lambda k, y: k < 4, lambda k, y: (k + 1, tf.sin(y) + x), (0, x))
    return y, tf.split(x, [1, 2])


def alive(kind: type) -> int:
    gc.collect()
    return sum(isinstance(o, kind) for o in gc.get_objects())


@pytest.mark.parametrize("f", [slope, rows])
def test_a_trace_leaves_its_graph_and_nothing_else(f: Any) -> None:
    spec = tf.TensorSpec([3])
    tf.function(f).get_concrete_function(spec)  # what steps remember is remembered
    kinds = (SymbolicTensor, TrieNode, Node)
    before = list(map(alive, kinds))
    concrete = tf.function(f).get_concrete_function(spec)
    symbols, records, nodes = (alive(k) - b for k, b in zip(kinds, before, strict=True))
    assert (symbols, records, nodes) == (0, 0, len(concrete.graph.nodes))


def test_what_is_recorded_in_a_trace_is_found_again_there_and_nowhere_else() -> None:
    def slopes(x: Any) -> Any:
        return [slope(x + k) for k in range(4)]

    size, programs, built = TRIE.size, len(backward.PROGRAMS.recent), backward.COUNTS["built"]
    f = tf.function(slopes)
    x = tf.constant([0.5, 1.0, 2.0])
    found = f(x)
    assert backward.COUNTS["built"] == built + 1
    assert (TRIE.size, len(backward.PROGRAMS.recent)) == (size, programs)
    for a, b in zip(found, slopes(x), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)


@pytest.mark.parametrize("f", [slope, rows, loop])
def test_a_graph_that_was_put_away_is_the_same(f: Any) -> None:
    graph = tf.function(f).get_concrete_function(tf.TensorSpec([3])).graph
    again = Folded(graph).unfolded()
    check(again)
    assert text(again) == text(graph) and structure(again) == structure(graph)
    assert not {*graph.nodes} & {*again.nodes}


@pytest.mark.host("kernels of the host")
def test_the_graph_of_a_compiled_program_is_put_away_until_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POLICY, "compile", "now")
    for module in (small, deciding):
        monkeypatch.setattr(module, "MANY", 5)
    x = tf.constant([0.5, 1.0, 2.0])
    tf.function(slope)(x)  # what steps remember is remembered
    f, nodes = tf.function(slope), alive(Node)
    concrete = f.get_concrete_function(x)
    shown = text(concrete.graph)
    assert alive(Node) == nodes + len(concrete.graph.nodes)
    first = f(x).numpy()
    assert alive(Node) == nodes
    np.testing.assert_allclose(first, slope(x).numpy(), rtol=1e-5)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    second = tape.gradient(y, x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = slope(x)
    np.testing.assert_allclose(second.numpy(), tape.gradient(y, x).numpy(), rtol=1e-4)
    assert text(concrete.graph) == shown and np.array_equal(f(x).numpy(), first)
