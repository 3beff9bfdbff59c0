"""Segments: values by loops over rows, empty segments, dropped ids, ties, zeros among factors, errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.api.slopes import assert_derivatives

# By the name after `segment_` and `unsorted_segment_`: of the rows of a segment; empty in sorted and in unsorted form.
KINDS: dict[str, tuple[Callable[[list[Any]], Any], Any, Any]] = {
    "sum": (sum, 0, 0),
    "mean": (lambda rows: sum(rows) / len(rows), 0, 0),
    "prod": (lambda rows: functools.reduce(np.multiply, rows), 1, 1),
    "max": (lambda rows: functools.reduce(np.maximum, rows), 0, np.finfo(np.float64).min),
    "min": (lambda rows: functools.reduce(np.minimum, rows), 0, np.finfo(np.float64).max),
}
DATA = np.random.default_rng(0).normal(size=(6, 2))


def expected(name: str, data: Any, ids: list[int], count: int, empty: Any) -> Any:
    combine = KINDS[name][0]
    rows: list[list[Any]] = [[r for r, k in zip(data, ids, strict=True) if k == s] for s in range(count)]
    return np.array([combine(r) if r else np.full(data.shape[1:], empty) for r in rows])


@pytest.mark.parametrize("name", KINDS)
def test_sorted(name: str) -> None:
    f, ids = getattr(tf.math, f"segment_{name}"), [0, 0, 0, 2, 5, 5]
    want = expected(name, DATA, ids, 6, KINDS[name][1])
    np.testing.assert_allclose(f(DATA, ids), want)
    assert f(DATA.astype(np.float32), tf.constant(ids, tf.int64)).dtype == "float32"
    assert f(DATA[:0], np.zeros(0, int)).shape == (0, 2)
    assert_derivatives(lambda x: tf.gather(f(x, ids), [0, 2, 5]), DATA)


@pytest.mark.parametrize("name", KINDS)
def test_unsorted(name: str) -> None:
    f, ids = getattr(tf.math, f"unsorted_segment_{name}"), [3, 0, -1, 3, 0, 3]
    want = expected(name, DATA, ids, 5, KINDS[name][2])
    np.testing.assert_allclose(f(DATA, ids, 5), want)
    np.testing.assert_allclose(f(DATA, tf.constant(ids, tf.int64), tf.constant(5)), want)
    assert f(DATA, [-1] * 6, 0).shape == (0, 2)
    assert_derivatives(lambda x: tf.gather(f(x, ids, 5), [0, 3]), DATA)


def test_ids_of_several_axes() -> None:
    ids = np.array([[0, 1], [1, 1], [-3, 0]])
    got = tf.math.unsorted_segment_sum(DATA.reshape(3, 2, 2), ids, 3)
    np.testing.assert_allclose(got, expected("sum", DATA, ids.reshape(-1).tolist(), 3, 0))
    one = tf.math.unsorted_segment_sum(DATA, 1, 3)
    np.testing.assert_allclose(one, np.stack([0 * DATA, DATA, 0 * DATA]))


def test_sqrt_n() -> None:
    ids = [1, 1, 1, 1, 3, -1]
    want = expected("sum", DATA, ids, 4, 0) / np.sqrt([1, 4, 1, 1])[:, None]
    np.testing.assert_allclose(tf.math.unsorted_segment_sqrt_n(DATA, ids, 4), want)
    assert_derivatives(lambda x: tf.math.unsorted_segment_sqrt_n(x, ids, 4), DATA)


@pytest.mark.parametrize("zeros", [[0], [0, 2], [0, 1, 2], [3]])
def test_products_with_zeros(zeros: list[int]) -> None:
    """Segments of one, two and three zero factors, to second order."""
    data = DATA[:, :1].copy()
    data[zeros] = 0
    assert_derivatives(lambda x: tf.math.segment_prod(x, [0, 0, 0, 1, 1, 1]), data)
    assert_derivatives(lambda x: tf.math.unsorted_segment_prod(x, [1, 0, 1, 0, 1, 1], 2), data)


def test_ties_share_one_unit() -> None:
    x = tf.constant([2.0, 5.0, 5.0, 1.0, 5.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.math.unsorted_segment_max(x, [0, 0, 0, 1, 0], 2)
    np.testing.assert_allclose(tape.gradient(y, x), [0, 1 / 3, 1 / 3, 1, 1 / 3], rtol=1e-6)


def test_halves_are_added_in_float32() -> None:
    ones, ids = tf.ones([70_000], tf.float16), np.zeros(70_000, int)
    assert float(tf.math.segment_mean(ones, ids)[0]) == 1.0
    assert float(tf.math.unsorted_segment_sum(ones * 0.5, ids, 1)[0]) == 35_008.0  # 35000 to the nearest half
    assert tf.math.unsorted_segment_max(ones, ids, 2).dtype == tf.float16


def test_integers() -> None:
    assert tf.math.segment_prod([2, 3, 4], [0, 0, 2]).numpy().tolist() == [6, 1, 4]
    assert tf.math.segment_mean([1, 2, -4], [0, 0, 1]).numpy().tolist() == [1, -4]
    assert tf.math.unsorted_segment_max([1], [1], 2).numpy().tolist() == [tf.int32.min, 1]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: tf.math.segment_sum([1.0, 2.0], [1, 0]), "not increasing"),
        (lambda: tf.math.segment_sum([1.0], [-1]), ">= 0"),
        (lambda: tf.math.segment_sum([1.0, 2.0], [0]), "same size as dimension 0"),
        (lambda: tf.math.segment_sum([1.0], [0.0]), "integer segment ids"),
        (lambda: tf.math.unsorted_segment_sum([1.0], [3], 3), "out of range"),
        (lambda: tf.math.unsorted_segment_sum([1.0], [[0]], 3), "begins that of data"),
        (lambda: tf.math.unsorted_segment_sum([1.0], [0], -1), "num_segments"),
    ],
)
def test_errors(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=says):
        call()
