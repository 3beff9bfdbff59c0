"""70,000 batches, more than one axis of a grid takes: results on the device against the host's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as tf
from tools.gpu_check.comparing import agree
from tools.gpu_check.outcome import Found
from tools.gpu_check.setting import Setting

BATCHES = 70_000
TOLERANCE = 1e-5
OF_MATRICES = 2e-4  # of 3 by 3, whose condition is up to a hundred


def _positive(a: Any) -> Any:
    return tf.matmul(a, a, transpose_b=True) + 3.0 * tf.eye(3, dtype=a.dtype)


def _network(x: Any, w: Any) -> Any:
    return tf.tanh(tf.matmul(x, w))


def _blocks(x: Any, w: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = _network(x, w)
    return tape.batch_jacobian(y, x)


def _each(x: Any, w: Any) -> Any:
    return tf.per_example_gradients(lambda x: tf.reduce_sum(_network(x[None], w)), [w], x)[0]


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "matmul": lambda a, w: tf.matmul(a, a, transpose_a=True),
    "matmul with one matrix": lambda a, w: tf.matmul(a, w),
    "transpose": lambda a, w: tf.transpose(a, [0, 2, 1]),
    "sum in each": lambda a, w: tf.reduce_sum(a, axis=[1, 2]),
    "sum over all": lambda a, w: tf.reduce_mean(a, axis=0),
    "softmax": lambda a, w: tf.nn.softmax(a),
    "cumsum": lambda a, w: tf.cumsum(a, axis=1),
    "sort": lambda a, w: tf.sort(a),
    "cholesky": lambda a, w: tf.linalg.cholesky(_positive(a)),
    "solve": lambda a, w: tf.linalg.solve(_positive(a), a),
    "eigvalsh": lambda a, w: tf.linalg.eigvalsh(_positive(a)),
    "batch Jacobian": lambda a, w: _blocks(a[:, 0], w),
    "gradient of each example": lambda a, w: _each(a[:, 0], w),
}

MATRICES = ("cholesky", "solve", "eigvalsh")


def run(s: Setting) -> Found:
    n, rng = s.size(BATCHES, 7), np.random.default_rng(5)
    arrays = [rng.standard_normal((n, 3, 3)).astype(np.float32), rng.standard_normal((3, 3)).astype(np.float32)]
    worst = {}
    for name, program in PROGRAMS.items():
        with tf.device("/GPU:0"):
            found = program(*map(tf.constant, arrays)).numpy()
        with tf.device("/CPU:0"):
            wanted = program(*map(tf.constant, arrays)).numpy()
        worst[name] = agree(name, found, wanted, OF_MATRICES if name in MATRICES else TOLERANCE)
    return Found(f"{len(worst)} programs of {n:,} batches give the host's results", {"apart": worst})
