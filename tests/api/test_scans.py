"""Running products and logsumexp: exclusive and reverse, zeros, infinities, derivatives to second order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.api.slopes import assert_derivatives

X = np.random.default_rng(1).normal(size=(3, 4))
BOTH = [(e, r) for e in (False, True) for r in (False, True)]


def by_loops(combine: Callable[[list[float]], float], x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    """Each element from the list of those that it runs over."""
    out = np.empty_like(x)
    for at in np.ndindex(*x.shape):
        line = list(x[(*at[:axis], slice(None), *at[axis + 1 :])])
        k = at[axis]
        out[at] = combine(line[k + exclusive :] if reverse else line[: k + 1 - exclusive])
    return out


def product(xs: list[float]) -> float:
    return float(np.prod(xs))


@pytest.mark.parametrize(("exclusive", "reverse"), BOTH)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cumprod(axis: int, exclusive: bool, reverse: bool) -> None:
    got = tf.math.cumprod(X, axis, exclusive, reverse)
    np.testing.assert_allclose(got, by_loops(product, X, axis % 2, exclusive, reverse), rtol=1e-12)
    assert_derivatives(lambda x: tf.math.cumprod(x, axis, exclusive, reverse), X[:, :3])


@pytest.mark.parametrize("zeros", [[0], [3], [1, 2], [0, 1, 2, 3]])
@pytest.mark.parametrize(("exclusive", "reverse"), BOTH)
def test_cumprod_with_zeros(zeros: list[int], exclusive: bool, reverse: bool) -> None:
    x = X[0].copy()
    x[zeros] = 0
    assert_derivatives(lambda v: tf.math.cumprod(v, 0, exclusive, reverse), x)


def test_cumprod_of_other_dtypes() -> None:
    assert tf.math.cumprod([2, 3, 4], reverse=True).numpy().tolist() == [24, 12, 4]
    z = np.array([1 + 1j, 2 - 1j, -1j])
    np.testing.assert_allclose(tf.math.cumprod(z), np.cumprod(z))
    halves = tf.math.cumprod(tf.fill([64], tf.constant(1.01, tf.float16)))
    np.testing.assert_allclose(float(halves[-1]), float(np.float16(1.01)) ** 64, rtol=1e-3)
    assert tf.math.cumprod(tf.zeros([2, 0]), axis=1, exclusive=True).shape == (2, 0)


@pytest.mark.parametrize("reverse", [False, True])
def test_cumulative_logsumexp(reverse: bool) -> None:
    def logsumexp(xs: list[float]) -> float:
        return float(np.log(np.sum(np.exp(xs))))

    for axis in (0, 1):
        got = tf.math.cumulative_logsumexp(X, axis, reverse=reverse)
        np.testing.assert_allclose(got, by_loops(logsumexp, X, axis, False, reverse), rtol=1e-12)
        assert_derivatives(lambda x, k=axis: tf.math.cumulative_logsumexp(x, k, reverse=reverse), X[:, :3])
    last = tf.math.cumulative_logsumexp(X, 1, exclusive=True, reverse=reverse)
    assert float(last[0, -1 if reverse else 0]) == -np.inf
    np.testing.assert_allclose(
        last[:, :-1] if reverse else last[:, 1:],
        tf.math.cumulative_logsumexp(X, 1, reverse=reverse)[:, 1:]
        if reverse
        else tf.math.cumulative_logsumexp(X, 1)[:, :-1],
    )


def test_logsumexp_neither_overflows_nor_vanishes() -> None:
    x = tf.constant([1000.0, 1000.0, -1000.0, 1001.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.math.cumulative_logsumexp(x)
    np.testing.assert_allclose(y, [1000, 1000.6931, 1000.6931, 1001.5514], rtol=1e-6)
    e = np.exp(-1.0)
    np.testing.assert_allclose(
        tape.gradient(y, x), [2 + e / (1 + 2 * e), 1 + e / (1 + 2 * e), 0, 1 / (1 + 2 * e)], rtol=1e-4
    )


def test_logsumexp_of_masked_elements() -> None:
    """-inf has no weight; where there is nothing else the gradient is 0, and never NaN."""
    for values, want in (
        ([-np.inf, 0.0, -np.inf], [0.0, 2.0, 0.0]),
        ([-np.inf] * 3, [0.0] * 3),
        ([0.0, -np.inf, 0.0], [2.5, 0.0, 0.5]),
    ):
        x = tf.constant(values)
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.math.cumulative_logsumexp(x)
            g = inner.gradient(y, x)
        np.testing.assert_allclose(g, want, rtol=1e-6)
        assert np.all(np.isfinite(outer.gradient(g, x)))


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16, tf.float32, tf.float64])
@pytest.mark.parametrize("reverse", [False, True])
def test_logsumexp_of_large_numbers_keeps_the_weights(dtype: tf.DType, reverse: bool) -> None:
    """Two equal numbers share evenly, however much the rounded logarithm has lost of log 2; to second order."""
    large = 1e3 if dtype.size == 2 else 1e8 if dtype is tf.float32 else 1e17
    last = 0 if reverse else 1
    for f in (tf.reduce_logsumexp, lambda v: tf.math.cumulative_logsumexp(v, reverse=reverse)[last]):
        x = tf.constant([large, large], dtype)
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = f(x)
            g = inner.gradient(y, x)
        assert np.asarray(tf.cast(g, tf.float64)).tolist() == [0.5, 0.5]
        second = tf.cast(outer.jacobian(g, x), tf.float64)
        assert np.asarray(second).tolist() == [[0.25, -0.25], [-0.25, 0.25]]


def test_errors() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="does not exist"):
        tf.math.cumprod([1.0], axis=1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="int32"):
        tf.math.cumulative_logsumexp([1, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="string"):
        tf.math.cumprod(["a"])
