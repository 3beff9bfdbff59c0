"""`tf.debugging`: each assertion holds for what it should, and fails with the right error and words for the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as tf

d = tf.debugging
HOLDS = {
    "equal": [(1, 1)],
    "none_equal": [(1, 2), (2, 1)],
    "less": [(1, 2)],
    "less_equal": [(1, 2), (1, 1)],
    "greater": [(2, 1)],
    "greater_equal": [(2, 1), (1, 1)],
}
PAIRS = [(1, 1), (1, 2), (2, 1)]


@pytest.mark.parametrize("name", HOLDS)
def test_comparisons(name: str) -> None:
    check = getattr(d, f"assert_{name}")
    for x, y in PAIRS:
        if (x, y) in HOLDS[name]:
            check(x, y)
            check([[x], [x]], tf.constant([y, y, y]))
        else:
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"batch 7 Condition .* did not hold.*First x = "):
                check([x, x], [y, y], message="batch 7")
    check([], [])


@pytest.mark.parametrize(
    ("name", "numbers"),
    [("positive", [1]), ("negative", [-1]), ("non_negative", [0, 1]), ("non_positive", [0, -1])],
)
def test_signs(name: str, numbers: list[int]) -> None:
    check = getattr(d, f"assert_{name}")
    for n in (-1, 0, 1):
        if n in numbers:
            check([n, n])
        else:
            with pytest.raises(tf.errors.InvalidArgumentError, match="did not hold"):
                check([numbers[0], n])
    with pytest.raises(tf.errors.InvalidArgumentError):
        check([np.nan])


def test_near() -> None:
    d.assert_near([1.0, 0.0], [1.000001, 1e-6])
    d.assert_near(tf.constant([1.0], tf.float16), tf.constant([1.005], tf.float16))
    d.assert_near([1.0], [1.5], rtol=0.5)
    for bad in ([1.001], [np.nan]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="did not hold"):
            d.assert_near([1.0], bad)


def test_ranks() -> None:
    x = tf.zeros([2, 3])
    d.assert_rank(x, 2)
    d.assert_rank_at_least(x, 1)
    d.assert_rank_in(x, (0, 2))
    assert float(d.assert_scalar(2.0)) == 2.0
    for call in (
        lambda: d.assert_rank(x, 1),
        lambda: d.assert_rank_at_least(x, 3),
        lambda: d.assert_rank_in(x, [0, 1]),
        lambda: d.assert_scalar(x),
    ):
        with pytest.raises(ValueError, match=r"\(2, 3\)"):
            call()


def test_shapes() -> None:
    x, y = tf.zeros([2, 3, 4]), tf.zeros([4, 2])
    for fits in (
        [(x, ("N", "Q", "D")), (y, ("D", "N"))],
        [(x, "NQD"), (y, "DN")],
        [(x, (2, None, ".")), (y, ("...", 2))],
        [(x, ("N", "...")), (y, ("*", "N"))],
        [(x, "...D"), (y, "D..."), (tf.constant(1.0), ())],
    ):
        d.assert_shapes(fits)
    for bad, says in (
        ([(x, "NQD"), (y, "DQ")], "size 3 in dimension 1"),
        ([(x, (2, 4, 4))], "size 4 in dimension 1"),
        ([(x, "ND")], "rank 2"),
        ([(y, ("A", "B", "C", "..."))], "at least"),
    ):
        with pytest.raises(ValueError, match=says):
            d.assert_shapes(bad)


def test_dtypes_and_order() -> None:
    d.assert_type(1.0, tf.float32)
    d.assert_integer(1)
    assert d.assert_same_float_dtype([tf.constant(1.0, tf.float64)]) is tf.float64
    assert d.assert_same_float_dtype() is tf.float32
    assert d.is_numeric_tensor(tf.constant(1)) and not d.is_numeric_tensor(1)
    assert bool(d.is_non_decreasing([[1, 1], [2, 3]])) and not bool(d.is_non_decreasing([2, 1]))
    assert bool(d.is_strictly_increasing([])) and not bool(d.is_strictly_increasing([1, 1]))
    bad: list[tuple[Any, type[Exception]]] = [
        (lambda: d.assert_type(1.0, tf.int32), TypeError),
        (lambda: d.assert_integer(1.0), TypeError),
        (lambda: d.assert_same_float_dtype([tf.constant(1.0), tf.constant(1.0, tf.float64)]), ValueError),
        (lambda: d.assert_same_float_dtype([tf.constant(1)]), ValueError),
    ]
    for call, error in bad:
        with pytest.raises(error):
            call()
