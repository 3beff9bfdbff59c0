"""Jacobians of gradients in a row: products come out in any order of axes, and other terms are added to them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf

SIZES = (28, 32, 28, 8)


def _network() -> tuple[list[Any], Callable[[], Any]]:
    rng = np.random.default_rng(0)
    x = tf.constant(rng.standard_normal((32, SIZES[0])), tf.float32)
    parameters: list[Any] = []
    for a, b in itertools.pairwise(SIZES):
        parameters.append(tf.Variable(rng.standard_normal((a, b)) * a**-0.5, dtype=tf.float32))
        parameters.append(tf.Variable(0.1 * rng.standard_normal(b), dtype=tf.float32))

    def loss() -> Any:
        h = x
        for k in range(0, len(parameters), 2):
            h = h @ parameters[k] + parameters[k + 1]
            h = tf.nn.elu(h) if k + 2 < len(parameters) else h
        return tf.reduce_mean(h * h)

    return parameters, loss


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_a_hessian_by_all_parameters_is_that_of_each_pair(traced: bool) -> None:
    """Of 2,084 parameters: large enough for products to be written over."""
    parameters, loss = _network()

    def whole() -> Any:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                y = loss()
            flat = tf.concat([tf.reshape(g, [-1]) for g in inner.gradient(y, parameters)], 0)
        return [tf.reshape(j, [flat.shape[0], -1]) for j in outer.jacobian(flat, parameters)]

    with tf.GradientTape(persistent=True) as outer:
        with tf.GradientTape() as inner:
            y = loss()
        slopes = inner.gradient(y, parameters)
    pairs = [
        np.concatenate([np.reshape(j, (int(g.shape.num_elements()), -1)) for j in outer.jacobian(g, parameters)], 1)
        for g in slopes
    ]
    found = np.concatenate((tf.function(whole) if traced else whole)(), 1)
    np.testing.assert_allclose(found, np.concatenate(pairs, 0), atol=1e-6)
    np.testing.assert_allclose(found, found.T, atol=1e-6)
