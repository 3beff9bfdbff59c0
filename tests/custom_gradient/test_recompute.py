"""`recompute_grad` computes a block again in the backward pass instead of keeping what it made."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np

import gradtape as tf


def test_values_and_gradients_are_those_of_the_block() -> None:
    w = tf.Variable([[0.5, -0.2], [0.1, 0.3]])
    calls = []

    def block(x: Any) -> Any:
        calls.append(1)
        return tf.tanh(x @ w)

    x = tf.constant([[1.0, 2.0]])
    again = tf.recompute_grad(block)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(again(again(x)) ** 2)
    forward = len(calls)
    got = tape.gradient(y, [x, w])
    assert (forward, len(calls)) == (2, 4)
    with tf.GradientTape() as tape:
        tape.watch(x)
        z = tf.reduce_sum(block(block(x)) ** 2)
    assert float(y) == float(z)
    for g, due in zip(got, tape.gradient(z, [x, w]), strict=True):
        assert np.allclose(g, due)


def test_what_the_block_makes_is_not_kept() -> None:
    made = []

    def block(x: Any) -> Any:
        inner = tf.tanh(x)
        made.append(weakref.ref(inner))
        return inner * 2.0

    x = tf.Variable(np.ones(100))
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(tf.recompute_grad(block)(x))
    gc.collect()
    assert made[0]() is None
    assert np.allclose(tape.gradient(y, x), 2 * (1 - np.tanh(1.0) ** 2))


def test_keywords_and_several_arguments() -> None:
    def block(x: Any, y: Any, scale: float = 1.0) -> Any:
        return x * y * scale

    x, y = tf.constant(2.0), tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch([x, y])
        z = tf.recompute_grad(block)(x, y, scale=10.0)
    assert [float(g) for g in tape.gradient(z, [x, y])] == [30.0, 20.0]
