"""CUDA graphs with products: steps that were captured are replayed with another rate and another seed than they were
captured with, beside the same steps without a graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as tf
from gradtape.backends.cuda.capture import Captured
from tools.gpu_check.comparing import agree
from tools.gpu_check.outcome import Found
from tools.gpu_check.setting import Setting

RATES = (0.01, 0.01, 0.01, 0.3, 0.3, 0.02, 0.02, 0.02)
SEEDS = (11, 11, 5, 5, 7, 7, 7, 2)
TOLERANCE = 1e-5  # cuBLAS may choose another way in memory of a graph's own
LOOSE = 2e-3  # of losses by Adam, which divides by what may be next to nothing


class Launches:
    """How often graphs are launched, in a block."""

    def __enter__(self) -> Launches:
        self.count, self.launch = 0, Captured.launch

        def counted(captured: Captured) -> None:
            self.count += 1
            self.launch(captured)

        Captured.launch = counted  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Captured.launch = self.launch  # type: ignore[method-assign]


def _trained(make: Callable[[float], Any], width: int, batch: int, capture: bool) -> list[Any]:
    """Losses of some steps, each with its rate, its seed and its inputs."""
    rng = np.random.default_rng(12)
    tf.random.set_seed(3)
    layers = [tf.keras.layers.Dense(width, activation="tanh"), tf.keras.layers.Dropout(0.3), tf.keras.layers.Dense(10)]
    model, optimizer = tf.keras.Sequential(layers), make(RATES[0])
    inputs = [tf.constant(rng.standard_normal((batch, 24)).astype(np.float32)) for _ in RATES]
    labels = tf.one_hot(np.arange(batch) % 10, 10)
    model(inputs[0])

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(x + tf.random.normal(x.shape, stddev=0.1), training=True)
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    run = tf.function(step, jit_compile=capture)
    losses = []
    for x, rate, seed in zip(inputs, RATES, SEEDS, strict=True):
        optimizer.learning_rate = rate
        tf.random.set_seed(seed)
        losses.append(run(x).numpy())
    return [np.array(losses)]


def _jacobians(n: int, capture: bool) -> list[Any]:
    """Batch Jacobians of a network, of other inputs in each call."""
    rng = np.random.default_rng(13)
    w1, w2 = (tf.constant((rng.standard_normal((n, n)) / n**0.5).astype(np.float32)) for _ in range(2))

    def blocks(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.matmul(tf.tanh(tf.matmul(x, w1)), w2)
        return tape.batch_jacobian(y, x)

    run = tf.function(blocks, jit_compile=capture)
    return [run(tf.constant(rng.standard_normal((7, n)).astype(np.float32))).numpy() for _ in range(4)]


def run(s: Setting) -> Found:
    width, batch = s.size(512, 9), s.size(256, 12)
    keras, replays = tf.keras.optimizers, len(RATES) - 1
    programs: dict[str, tuple[Callable[[bool], list[Any]], int, float]] = {
        "SGD": (lambda c: _trained(lambda rate: keras.SGD(rate, momentum=0.9), width, batch, c), replays, TOLERANCE),
        "Adam": (lambda c: _trained(keras.Adam, width, batch, c), replays, LOOSE),
        "batch Jacobian": (lambda c: _jacobians(s.size(64, 5), c), 3, TOLERANCE),
    }
    told = []
    for name, (program, count, tolerance) in programs.items():
        wanted = program(False)
        with Launches() as launches, warnings.catch_warnings():
            warnings.simplefilter("error")  # a function that is not captured says why
            found = program(True)
        assert launches.count == count, f"{name}: {launches.count} launches of a graph, wanted {count}"
        worst = max(agree(f"{name}, result {k}", a, b, tolerance) for k, (a, b) in enumerate(zip(found, wanted)))
        told.append(f"{name} ({count} launches, apart by {worst:.1e})")
    return Found(f"replays agree with steps without a graph: {', '.join(told)}")
