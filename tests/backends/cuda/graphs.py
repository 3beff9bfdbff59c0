"""Calls that are one launch, and a network that is trained by such calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as tf
from tests.cuda_emulator.device import Counts

COPIES = {"copy", "memcpy"}  # of the device, to and from arrays that stay where they are


def drawn(*shape: int, seed: int = 0) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def launched(counts: Counts, f: Callable[[], Any]) -> Any:
    """The result of a call that is one launch, beside copies of its operands and results."""
    counts.clear()
    made = f()
    assert (counts.graphs, counts.queued, counts.allocations, counts.synchronizations) == (1, 0, 0, [])
    assert set(counts.library_calls) <= COPIES and counts.copies_to_device <= 1
    return made


def numbers(x: Any) -> Any:
    return tf.nest.map_structure(lambda t: t.numpy(), x)


class Training:
    """A network, its optimizer, and what a step changes."""

    def __init__(self, make: Callable[[], Any], dropout: bool = False) -> None:
        tf.random.set_seed(3)
        layers = [tf.keras.layers.Dense(8, activation="tanh"), tf.keras.layers.Dense(3)]
        if dropout:
            layers.insert(1, tf.keras.layers.Dropout(0.5))
        self.model = tf.keras.Sequential(layers)
        self.optimizer = make()
        self.x, self.y = drawn(6, 4), tf.one_hot(np.arange(6) % 3, 3)
        self.model(self.x)
        self.step = tf.function(self.plain)

    def plain(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(y, self.model(x, training=True)))
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        return loss

    def state(self) -> list[np.ndarray]:
        return [v.numpy() for v in (*self.model.variables, *self.optimizer.variables)]
