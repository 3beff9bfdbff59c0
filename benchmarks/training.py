"""One training step of the digits network, as each library's users write it: loss, gradients, Adam."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import gradtape
from benchmarks import places
from benchmarks.harness import OURS, Program
from benchmarks.places import Place
from benchmarks.sizes import pick
from benchmarks.workload import Race, Setting, Target

RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8
CHECKED = 3  # steps whose losses are compared


@dataclass(frozen=True)
class Task:
    """Inputs as sparse as digits are, their labels, and the weights and biases to begin with, in turns."""

    x: Any
    labels: Any
    start: list[Any]

    @property
    def widths(self) -> list[int]:
        return [w.shape[1] for w in self.start[::2]]


def task(setting: Setting) -> Task:
    wide = (784, 256, 128, 10)
    batch, sizes = pick(setting.size, (8, (12, 8, 6, 4)), (128, wide), (4096, wide))
    rng = np.random.default_rng(12)
    x = rng.random((batch, sizes[0])) * (rng.random((batch, sizes[0])) < 0.2)
    start: list[Any] = []
    for wide, narrow in itertools.pairwise(sizes):
        start.append((rng.standard_normal((wide, narrow)) * np.sqrt(2 / wide)).astype(np.float32))
        start.append((0.01 * rng.standard_normal(narrow)).astype(np.float32))
    return Task(x.astype(np.float32), rng.integers(0, sizes[-1], batch).astype(np.int64), start)


def losses(setting: Setting) -> list[list[Any]]:
    """The losses of the first steps, in float64 and by hand."""
    given = task(setting)
    x, rows = given.x.astype(np.float64), np.arange(len(given.labels))
    weights = [w.astype(np.float64) for w in given.start]
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    found = []
    for t in range(1, CHECKED + 1):
        layers = [x]
        for k in range(0, len(weights), 2):
            z = layers[-1] @ weights[k] + weights[k + 1]
            layers.append(z if k + 2 == len(weights) else np.maximum(z, 0))
        logits = layers.pop()
        logits = logits - logits.max(1, keepdims=True)
        logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        found.append([np.asarray(-logs[rows, given.labels].mean())])
        cotangent = np.exp(logs)
        cotangent[rows, given.labels] -= 1
        cotangent /= len(rows)
        gradients: list[Any] = []
        for k in reversed(range(0, len(weights), 2)):
            inner = layers[k // 2]
            gradients[:0] = [inner.T @ cotangent, cotangent.sum(0)]
            cotangent = (cotangent @ weights[k].T) * (inner > 0)
        for w, g, m, v in zip(weights, gradients, first, second):
            m += (1 - BETA1) * (g - m)
            v += (1 - BETA2) * (g * g - v)
            w -= RATE * (m / (1 - BETA1**t)) / (np.sqrt(v / (1 - BETA2**t)) + EPSILON)
    return found


def _keras(place: Place, peer: str, setting: Setting) -> list[Program]:
    """The program for TensorFlow's names: ours and TensorFlow's own are the same."""
    tf, given = place.module, task(setting)
    *hidden, last = given.widths
    layers = [tf.keras.layers.Dense(n, activation="relu") for n in hidden]
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(last)])
    x, labels = tf.constant(given.x), tf.constant(given.labels)
    model(x)
    cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer: Any = None

    def prepare() -> None:
        nonlocal optimizer
        for variable, value in zip(model.trainable_variables, given.start):
            variable.assign(value)
        optimizer = tf.keras.optimizers.Adam(learning_rate=RATE, beta_1=BETA1, beta_2=BETA2, epsilon=EPSILON)

    def call() -> Sequence[Any]:
        variables = model.trainable_variables
        with tf.GradientTape() as tape:
            loss = cross_entropy(labels, model(x, training=True))
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables))
        return [loss]

    return [place.program(peer, call, "eager", prepare, lambda loss: loss.numpy())]


def _torch(place: Place, setting: Setting, **options: Any) -> list[Program]:
    torch, given = place.module, task(setting)
    layers: list[Any] = []
    for weight in given.start[::2]:
        layers += [torch.nn.Linear(*weight.shape), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1]).to(place.device)
    x, labels = (torch.tensor(a, device=place.device) for a in (given.x, given.labels))
    optimizer: Any = None

    def prepare() -> None:
        nonlocal optimizer
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), given.start):
                parameter.copy_(torch.tensor(value.T))  # torch keeps a layer's weight with the outputs first
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=(BETA1, BETA2), eps=EPSILON, **options)

    def call() -> Sequence[Any]:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return [loss]

    return [place.program("torch", call, " ".join(["eager", *options]), prepare)]


WORKLOADS = [
    Race(
        "training",
        "one training step of the 784-256-128-10 digits network, relu, batch 128, cross-entropy, Adam",
        {
            OURS: lambda setting: _keras(places.ours(gradtape, setting), OURS, setting),
            "torch": lambda setting: _torch(places.of("torch", setting), setting),
            "tensorflow": lambda setting: _keras(places.of("tensorflow", setting), "tensorflow", setting),
        },
        losses,
        tolerance=1e-4,
        targets=(Target(1.0, "ratio", "torch"),),
        gpu="one training step of the 784-256-128-10 digits network, relu, batch 4,096, cross-entropy, Adam",
    ),
]
