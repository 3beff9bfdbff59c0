"""Convolutions, their derivatives, and what cuDNN was called for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as tf
from tests.cuda_emulator.device import Device as EmulatedDevice


def used(device: EmulatedDevice) -> list[str]:
    """The kinds of convolutions that cuDNN was called for."""
    return [name.removeprefix("cudnn.conv_") for name in device.counts.library_calls if name.startswith("cudnn.")]


def numbers(*shape: int, seed: int = 0) -> Any:
    return tf.constant(np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32))


X, K = (2, 7, 6, 4), (3, 2, 2, 6)  # images, and filters of two groups


def derivatives(x: Any, k: Any, **options: Any) -> list[Any]:
    """A convolution, its gradients, and theirs."""
    options = {"strides": 2, "padding": "SAME"} | options
    with tf.GradientTape() as outer:
        outer.watch([x, k])
        with tf.GradientTape() as inner:
            inner.watch([x, k])
            y = tf.nn.conv2d(x, k, **options)
            loss = tf.reduce_sum(tf.sin(y))
        first = inner.gradient(loss, [x, k])
        again = tf.add_n([tf.reduce_sum(g * g) for g in first])
    return [y, *first, *outer.gradient(again, [x, k])]


def on_host(f: Callable[..., Any], *arrays: Any) -> list[Any]:
    with tf.device("/CPU:0"):
        return [np.asarray(a) for a in f(*(tf.constant(np.asarray(a)) for a in arrays))]
