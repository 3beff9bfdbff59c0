"""A trial of gradtape where its tensors live: a second of work, in a process of its own. Floor: top.

python -m gradtape.doctor.trial"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

import gradtape as tf

TOLERANCE = 2e-2  # of the largest number; products may run in TF32
COLUMNS = 3


def wrong(name: str, found: tf.Tensor, wanted: np.ndarray[Any, Any]) -> str | None:
    """How far a result is from what it should be, if it is too far."""
    error = float(np.abs(found.numpy() - wanted).max() / np.abs(wanted).max())
    return None if error < TOLERANCE else f"{name} is wrong by {error:.1e} of its largest number"


def run() -> tuple[str, list[str]]:
    """Where the results are, and what is wrong with them: a gradient, a traced step, the blocks of a Jacobian."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(32, 16)).astype(np.float32), rng.normal(size=(16, COLUMNS)).astype(np.float32)
    slope = 1 - np.tanh(x @ w) ** 2
    inputs, kernel = tf.constant(x), tf.Variable(w)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(inputs)
        y = tf.tanh(inputs @ kernel)
        total = tf.reduce_sum(y)
    step = tf.function(lambda: kernel.assign_sub(0.5 * tape_gradient(inputs, kernel)))
    results = [
        wrong("a gradient", tape.gradient(total, kernel), x.T @ slope),
        wrong("a batch Jacobian", tape.batch_jacobian(y, inputs), np.einsum("no,io->noi", slope, w)),
    ]
    step()
    results.append(wrong("a traced step", kernel.read_value(), w - 0.5 * x.T @ slope))
    return str(y.device), [r for r in results if r]


def tape_gradient(inputs: tf.Tensor, kernel: tf.Variable) -> tf.Tensor:
    """The gradient of the same sum, to be traced."""
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(tf.tanh(inputs @ kernel))
    return tape.gradient(total, kernel)


def main() -> None:
    start = time.perf_counter()
    device, faults = run()
    print(json.dumps({"device": device, "faults": faults, "seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main()
