"""Sorting, largest elements, searching, distinct elements: order, ties, NaN, rows, dtypes, gradients, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.api.slopes import assert_derivatives

RNG = np.random.default_rng(2)
X = RNG.normal(size=(3, 4, 2))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("direction", ["ASCENDING", "DESCENDING"])
def test_sort_along_each_axis(axis: int, direction: str) -> None:
    want = np.sort(X, axis)
    if direction == "DESCENDING":
        want = np.flip(want, axis)
    assert np.array_equal(tf.sort(X, axis, direction), want)
    order = tf.argsort(X, axis, direction)
    assert order.dtype == tf.int32
    assert np.array_equal(np.take_along_axis(X, order.numpy(), axis), want)
    assert_derivatives(lambda x: tf.sort(x, axis, direction) ** 2, X[:2, :3])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int64", "uint64"])
def test_equal_elements_stay_in_their_order(dtype: str) -> None:
    x = tf.cast(tf.constant([[3, 1, 3, 2, 1, 3], [0, 0, 0, 0, 0, 0]]), dtype)
    assert tf.argsort(x).numpy().tolist() == [[1, 4, 3, 0, 2, 5], [0, 1, 2, 3, 4, 5]]
    assert tf.argsort(x, direction="DESCENDING").numpy().tolist() == [[0, 2, 5, 3, 1, 4], [0, 1, 2, 3, 4, 5]]
    values, at = tf.math.top_k(x, 2)
    assert at.numpy().tolist() == [[0, 2], [0, 1]] and values.dtype == dtype


def test_nan_is_the_largest() -> None:
    x = [1.0, np.nan, np.inf, -np.inf]
    assert tf.argsort(x).numpy().tolist() == [3, 0, 2, 1]
    assert tf.math.top_k(x * 10, 3).indices.numpy().tolist() == [1, 5, 9]


@pytest.mark.parametrize("k", [0, 1, 3, 7])
@pytest.mark.parametrize("levels", [3, 1000])
def test_top_k_of_long_rows(k: int, levels: int) -> None:
    """The first few of many, found without sorting: with and without elements equal to the last of them."""
    x = RNG.integers(0, levels, (20, 100)).astype(np.float32)
    values, at = tf.math.top_k(x, k)
    for row, v, i in zip(x, values.numpy(), at.numpy(), strict=True):
        want = sorted(range(100), key=lambda j: (-row[j], j))[:k]
        assert i.tolist() == want and v.tolist() == row[want].tolist()


def test_top_k_results() -> None:
    found = tf.math.top_k(X[0, 0], k=2, sorted=False, index_type=tf.int64)
    assert found.values is found[0] and found.indices is found[1] and found.indices.dtype == tf.int64
    assert tf.nn.top_k([1.0, 3.0]).values.numpy().tolist() == [3.0]
    assert_derivatives(lambda x: tf.math.top_k(x, 2).values ** 3, X[:, :, 0])


def test_in_top_k() -> None:
    p = [[0.1, 0.8, 0.1], [0.5, 0.5, 0.0], [np.nan, 1.0, 2.0], [np.inf, 1.0, 0.0]]
    assert tf.math.in_top_k([1, 1, 0, 0], p, k=1).numpy().tolist() == [True, True, False, False]
    assert tf.nn.in_top_k([0, 2, 1, 1], p, k=2).numpy().tolist() == [True, False, True, True]
    assert tf.math.in_top_k([-1, 3], p[:2], k=3).numpy().tolist() == [False, False]


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_in_rows(side: Any) -> None:
    rows = np.sort(RNG.integers(0, 6, (2, 5, 9)), axis=-1)
    values = RNG.integers(-1, 8, (2, 5, 4))
    want = [[np.searchsorted(r, v, side) for r, v in zip(a, b, strict=True)] for a, b in zip(rows, values, strict=True)]
    got = tf.searchsorted(rows, values, side, out_type=tf.int64)
    assert got.dtype == tf.int64 and np.array_equal(got, want)
    assert np.array_equal(tf.searchsorted(rows[0, 0], values[0, 0], side), want[0][0])


def test_unique() -> None:
    y, idx, count = tf.unique_with_counts([5, 1, 5, 9, 1, 5])
    assert (y.numpy().tolist(), idx.numpy().tolist(), count.numpy().tolist()) == (
        [5, 1, 9],
        [0, 1, 0, 2, 1, 0],
        [3, 2, 1],
    )
    found = tf.unique(tf.constant(["b", "a", "b"]), out_idx=tf.int64)
    assert found.y.numpy().tolist() == [b"b", b"a"] and found.idx.dtype == tf.int64
    assert tf.unique(tf.zeros([0])).y.shape == (0,)


def test_invert_permutation() -> None:
    p = RNG.permutation(7)
    assert np.array_equal(tf.gather(tf.math.invert_permutation(p), p), np.arange(7))


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: tf.sort(1.0), tf.errors.InvalidArgumentError, "scalar"),
        (lambda: tf.sort([1.0], direction="UP"), ValueError, "ASCENDING"),
        (lambda: tf.sort([1.0], axis=3), tf.errors.InvalidArgumentError, "does not exist"),
        (lambda: tf.sort(["a"]), tf.errors.InvalidArgumentError, "string"),
        (lambda: tf.math.top_k([1.0], 2), tf.errors.InvalidArgumentError, "at least k columns"),
        (lambda: tf.math.in_top_k([0, 1], [[1.0]], 1), tf.errors.InvalidArgumentError, "one target per row"),
        (lambda: tf.searchsorted([1.0], [2.0], side="up"), ValueError, "left"),
        (lambda: tf.searchsorted([[1.0]], [[2.0], [1.0]]), tf.errors.InvalidArgumentError, "one row"),
        (lambda: tf.unique([[1]]), tf.errors.InvalidArgumentError, "1D vector"),
        (lambda: tf.math.invert_permutation([0, 0]), tf.errors.InvalidArgumentError, "once"),
        (lambda: tf.math.invert_permutation([0.0]), tf.errors.InvalidArgumentError, "int32 or int64"),
    ],
)
def test_errors(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
