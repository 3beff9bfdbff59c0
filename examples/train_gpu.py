"""Train two networks on real handwritten digits and print how many images a second they learn from: on a GPU where
gradtape finds one, else on the CPU. Nothing is downloaded.

python examples/train_gpu.py                           # both networks, a few epochs
python examples/train_gpu.py --network conv --epochs 20
python examples/train_gpu.py --policy mixed_float16    # arithmetic in float16, weights in float32, scaled losses
python examples/train_gpu.py --help
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

# Before NumPy is loaded: products of this size gain little from a second thread, and wait for it on a busy machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from digits import Digits, network, positive, read_digits, split

import gradtape as tf

POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")


def dense(side: int) -> tf.keras.Sequential:
    """The network of `digits.py`."""
    return tf.keras.Sequential([tf.keras.layers.Flatten(), *network().layers])


def convolutional(side: int) -> tf.keras.Sequential:
    """Two convolutions, each with a pooling behind it where the images are large enough."""
    layers = tf.keras.layers
    pooling = side >= 16
    return tf.keras.Sequential(
        [
            layers.Conv2D(16, 3, activation="relu"),
            *[layers.MaxPooling2D()] * pooling,
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.25),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, dtype="float32"),
        ]
    )


NETWORKS = {"dense": dense, "conv": convolutional}


class Trained(NamedTuple):
    """What came of a training: the part of held-out digits that is recognised, images per second, where it ran."""

    accuracy: float
    speed: float
    device: str


class Training:
    """A network, its optimizer and its step as one traced program."""

    def __init__(self, model: tf.keras.Sequential, scales_loss: bool) -> None:
        optimizer = tf.keras.optimizers.AdamW(1e-3)
        self.model = model
        self.optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer) if scales_loss else optimizer
        self.loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.step = tf.function(self._step)

    def _step(self, images: tf.Tensor, labels: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Move the weights along the gradient of a batch, these rows of all images; its loss."""
        x, y = tf.gather(images, rows), tf.gather(labels, rows)
        with tf.GradientTape() as tape:
            loss = self.loss_of(y, self.model(x, training=True))
            scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, self.model.trainable_variables)
        self.optimizer.apply(gradients, self.model.trainable_variables)
        return loss

    def epoch(self, images: tf.Tensor, labels: tf.Tensor, batches: Any) -> float:
        """One step for each row of `batches`; the mean loss, which waits until all is done."""
        total = tf.zeros([])
        for rows in batches:
            total = total + self.step(images, labels, rows)
        return float(total) / len(batches)


def squares(digits: Digits) -> Any:
    """The images as (count, side, side, 1)."""
    return digits.images.reshape(-1, digits.side, digits.side, 1)


def train(name: str, training: Digits, held_out: Digits, options: argparse.Namespace) -> Trained:
    """Train one network; the first step, which traces and compiles, is not counted in its speed."""
    tf.random.set_seed(options.seed)
    rng = np.random.default_rng(options.seed)
    run = Training(NETWORKS[name](training.side), options.policy == "mixed_float16")
    images, labels = tf.constant(squares(training)), tf.constant(training.labels)
    count = len(training.labels)
    size = min(options.batch, count)
    seconds, seen = 0.0, 0
    for epoch in range(1, options.epochs + 1):
        batches = rng.permutation(count)[: count // size * size].reshape(-1, size)[: options.steps]
        if epoch == 1:
            run.epoch(images, labels, batches[:1])
        start = time.perf_counter()
        loss = run.epoch(images, labels, batches)
        took = time.perf_counter() - start
        seconds, seen = seconds + took, seen + batches.size
        print(f"{name:5}  epoch {epoch:2d}/{options.epochs}  loss {loss:.4f}  {batches.size / took:9,.0f} images/s")
    logits = run.model(squares(held_out))
    right = (tf.argmax(logits, axis=1).numpy() == held_out.labels).mean()
    return Trained(float(right), seen / seconds, logits.device)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train two networks on real handwritten digits, on a GPU or the CPU.")
    parser.add_argument("--network", choices=[*NETWORKS, "both"], default="both", help="which one (both)")
    parser.add_argument("--epochs", type=positive, default=3, help="times through the digits (3)")
    parser.add_argument("--batch", type=positive, default=128, help="digits per step (128)")
    parser.add_argument("--steps", type=positive, help="at most so many steps in each epoch")
    parser.add_argument("--policy", choices=POLICIES, default="float32", help="what is computed in (float32)")
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and of the order of digits (0)")
    parser.add_argument("--limit", type=positive, help="use only so many of the digits")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> dict[str, Trained]:
    """Train, print, and return what came of each network."""
    options = arguments(argv)
    training, held_out = split(read_digits(), options.limit)
    print(f"{len(training.labels):,} digits to train on, {len(held_out.labels):,} held out")
    before = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(options.policy)
    names = list(NETWORKS) if options.network == "both" else [options.network]
    try:
        found = {name: train(name, training, held_out, options) for name in names}
    finally:
        tf.keras.mixed_precision.set_global_policy(before)
    for name, result in found.items():
        print(
            f"{name}: held-out accuracy {result.accuracy:.2%}, {result.speed:,.0f} images/s in {options.policy} "
            f"on {result.device}"
        )
    return found


if __name__ == "__main__":
    main()
