"""Rows around and beyond 48 KB, which a block has of shared memory: longer ones are read again in each sweep. They are
compared with the host's in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as tf
from tools.gpu_check.comparing import agree
from tools.gpu_check.outcome import Found
from tools.gpu_check.setting import Setting

# Just 48 KB with what lies beyond the end, which is too much beside a kernel's own memory; 48 KB and a float; more than
# any block can have; far more.
WIDTHS = (12_000, 12_289, 60_000, 250_000)
TOLERANCE = 5e-5


def _slope(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def slope(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return tape.gradient(y, x)

    return slope


def _normalized(x: Any) -> Any:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.square((x - mean) * tf.math.rsqrt(variance + 1e-5)) * tf.tanh(x)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "softmax": tf.nn.softmax,
    "slope of softmax": _slope(lambda x: tf.nn.softmax(x) * tf.sin(x)),
    "slope of layer norm": _slope(_normalized),
    "logsumexp": lambda x: tf.reduce_logsumexp(x, axis=1),
    "cumsum": lambda x: tf.cumsum(tf.sin(x), axis=1),
    "sort": tf.sort,
    "argmax": lambda x: tf.argmax(x, axis=1),
}


def run(s: Setting) -> Found:
    rng, count, widths = np.random.default_rng(6), s.size(64, 1), WIDTHS[:1] if s.emulated else WIDTHS
    worst = {}
    for width in widths:
        x = (2 * rng.standard_normal((count, width))).astype(np.float32)
        for name, program in PROGRAMS.items():
            with tf.device("/GPU:0"):
                found = program(tf.constant(x)).numpy()
            with tf.device("/CPU:0"):
                wanted = program(tf.constant(x.astype(np.float64))).numpy().astype(found.dtype)
            exact = name in ("sort", "argmax")
            worst[f"{name} of {width}"] = agree(f"{name} of rows of {width}", found, wanted, 0 if exact else TOLERANCE)
    text = f"{len(worst)} results of rows of up to {max(widths):,} floats are the host's"
    return Found(text, {"apart": worst})
