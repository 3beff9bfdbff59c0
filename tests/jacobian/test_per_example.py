"""Gradients of each example and their norms, against one example at a time."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.runtime import vectorized

RNG = np.random.default_rng(5)
BATCH = 7


def _network() -> tuple[list[Any], Any]:
    sizes = (6, 5, 4, 3)
    parameters = [tf.Variable(RNG.normal(size=s)) for s in itertools.pairwise(sizes)]
    parameters.append(tf.Variable(RNG.normal(size=3)))

    def loss(example: Any) -> Any:
        x, label = example
        a, b, c, bias = parameters
        h = tf.nn.relu(tf.linalg.matvec(a, x, transpose_a=True))
        h = tf.tanh(tf.linalg.matvec(b, h, transpose_a=True))
        logits = tf.linalg.matvec(c, h, transpose_a=True) + bias
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)

    return parameters, loss


def _shared_weight() -> tuple[list[Any], Any]:
    w = tf.Variable(RNG.normal(size=(6, 6)))

    def loss(example: Any) -> Any:
        h = tf.linalg.matvec(w, tf.linalg.matvec(w, example[0]))  # a gradient that is a sum of two outer products
        return tf.reduce_sum(h * h)

    return [w], loss


@pytest.mark.parametrize("make", [_network, _shared_weight])
def test_gradients_and_norms_of_each_example(make: Any) -> None:
    parameters, loss = make()
    inputs = (tf.constant(RNG.normal(size=(BATCH, 6))), tf.constant(RNG.integers(0, 3, BATCH)))
    gradients = tf.per_example_gradients(loss, parameters, inputs)
    norms = tf.per_example_gradient_norms(loss, parameters, inputs)
    for i in range(BATCH):
        with tf.GradientTape() as tape:
            value = loss([x[i] for x in inputs])
        for g, n, one in zip(gradients, norms, tape.gradient(value, parameters), strict=True):
            np.testing.assert_allclose(g[i].numpy(), one.numpy(), 1e-12, 1e-12)
            np.testing.assert_allclose(n[i].numpy(), np.linalg.norm(one.numpy()), 1e-12, 1e-12)


def test_the_norm_of_an_outer_product_does_not_write_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = []
    made = vectorized.all_rows
    monkeypatch.setattr(vectorized, "all_rows", lambda *args: graphs.append(made(*args)) or graphs[-1])
    parameters, loss = _network()
    inputs = (tf.constant(RNG.normal(size=(BATCH + 1, 6))), tf.constant(RNG.integers(0, 3, BATCH + 1)))
    tf.per_example_gradient_norms(loss, parameters, inputs)
    [graph] = graphs
    largest = max(v.aval.size for node in graph.nodes for v in node.outputs)
    assert largest <= (BATCH + 1) * 6  # activations; the first kernel's gradients would be 30 times the batch


def test_a_parameter_that_no_example_reaches_has_norm_0() -> None:
    w, unused = tf.Variable([1.0, 2.0]), tf.Variable([[3.0]])
    norms = tf.per_example_gradient_norms(lambda x: tf.reduce_sum(w * x), [w, unused], tf.ones([4, 2]))
    assert norms[1].numpy().tolist() == [0.0] * 4
