"""Composed elementwise functions of large arrays run as kernels, with the numbers that small ones have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends.clusters import POLICY
from gradtape.runtime.eager import LARGE

FUNCTIONS = [tf.sigmoid, tf.nn.softplus, tf.nn.silu, tf.nn.gelu, tf.nn.elu, tf.nn.selu, tf.nn.relu6, tf.nn.softsign]
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e30, 88.0, -104.0]


@pytest.fixture(autouse=True)
def compiled_now() -> Iterator[None]:
    before, POLICY.compile = POLICY.compile, "now"
    yield
    POLICY.compile = before


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_large_arrays_have_the_numbers_of_small_ones(f: Any, dtype: str) -> None:
    x = np.random.default_rng(0).normal(scale=4, size=LARGE)
    x[: len(EDGES)] = EDGES
    with np.errstate(over="ignore"):
        x = x.astype(dtype)
    large = f(tf.constant(x)).numpy()
    small = np.concatenate([f(tf.constant(part)).numpy() for part in np.split(x, 4)])
    assert large.dtype == x.dtype
    np.testing.assert_allclose(large, small, rtol=8 * np.finfo(x.dtype).eps, atol=np.finfo(x.dtype).tiny)


def test_gradients_and_other_layouts() -> None:
    x = tf.constant(np.random.default_rng(1).normal(size=(400, 300)))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.sigmoid(tf.transpose(x))
    out = 1 / (1 + np.exp(-x.numpy()))
    np.testing.assert_allclose(y.numpy(), out.T, rtol=1e-14)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), out * (1 - out), rtol=1e-12)
