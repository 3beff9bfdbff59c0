"""Norms of vectors and matrices: orders and axes, slopes to second order, singular points, complex numbers, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.linalg.slopes import check_two_orders, numbers
from tests.op_table.running import assert_near

KINDS = [
    ("euclidean", None),
    ("fro", (0, 2)),
    (2, (0, 2)),
    (2, (2, 1)),
    (1, (0, 1)),
    (np.inf, (0, 1)),
    (1, 1),
    (2, 1),
    (3, 1),
    (2.5, None),
    (0.5, 0),
    (np.inf, 0),
]


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("order, axis", KINDS)
def test_values_and_two_orders(order: Any, axis: Any, kind: str) -> None:
    x = numbers(3, 2, 3, 2, kind=kind)
    as_numpy = None if order in ("euclidean", "fro") else order
    flat = x.reshape(-1) if axis is None else x
    want = np.linalg.norm(flat, as_numpy, None if axis is None else axis)
    got = tf.norm(x, order, axis)
    squares = order in ("euclidean", "fro") or (order == 2 and isinstance(axis, int))
    assert got.dtype == (x.dtype if squares else tf.float64)
    assert_near(got.numpy(), want, "norm", 1e-13)
    kept = tf.norm(x, order, axis, keepdims=True)
    assert kept.shape == np.sum(x, axis=axis, keepdims=True).shape
    assert kept.numpy().ravel().tolist() == got.numpy().ravel().tolist()
    check_two_orders(lambda a: tf.norm(a, order, axis), [x], tolerance=1e-6)


@pytest.mark.parametrize("order, axis", [k for k in KINDS if k[0] != 0.5])
def test_no_slope_at_zero_in_either_order(order: Any, axis: Any) -> None:
    x = tf.Variable(np.zeros((2, 3, 2)))
    with tf.GradientTape() as outer:
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(tf.norm(x, order, axis))
        g = tape.gradient(y, x)
    h = outer.gradient(g, x, unconnected_gradients="zero")
    assert float(y) == 0.0
    if order != np.inf and not (order == 1 and isinstance(axis, tuple)):
        assert not g.numpy().any() and not h.numpy().any()
    assert np.isfinite(g).all() and np.isfinite(h).all()


@pytest.mark.parametrize("axis", [None, 0, (0, 1)])
def test_what_is_not_finite_shows(axis: Any) -> None:
    x = np.array([[1.0, np.nan], [2.0, 3.0]])
    for order in ("euclidean", 1, 2, np.inf, *(() if isinstance(axis, tuple) else (3,))):
        assert np.isnan(tf.norm(x, order, axis).numpy()).any(), order


def test_equal_singular_values_share_the_slope() -> None:
    x = tf.constant(np.eye(2) * 3)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.norm(x, 2, [0, 1])
    assert_near(tape.gradient(y, x).numpy(), np.eye(2) / 2, "slope", 1e-15)


def test_halves_and_integers() -> None:
    assert tf.norm(tf.constant([[3.0, 0.0], [0.0, 4.0]], tf.float16), 2, [0, 1]).dtype == tf.float16
    assert tf.norm([3, -4], 1).numpy() == 7 and tf.norm([3, -4], np.inf).numpy() == 4
    with pytest.raises(tf.errors.InvalidArgumentError, match="int32"):
        tf.norm([3, 4])


@pytest.mark.parametrize(
    "options, says",
    [
        ({"ord": "fro"}, "vectors"),
        ({"ord": "fro", "axis": 0}, "vectors"),
        ({"ord": "nuc", "axis": [0, 1]}, "matrices"),
        ({"ord": 3, "axis": [0, 1]}, "matrices"),
        ({"ord": 0}, "positive"),
        ({"ord": -1.0}, "positive"),
        ({"ord": 2j}, "positive"),
        ({"axis": [0]}, "two different"),
        ({"axis": [0, 0]}, "two different"),
        ({"axis": [0, 1, 1]}, "two different"),
        ({"axis": ()}, "two different"),
        ({"axis": 1.0}, "two different"),
    ],
)
def test_what_does_not_exist_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        tf.norm(tf.ones((2, 3)), **options)


@pytest.mark.parametrize("axis", [5, [0, 5], [0, -2]])
def test_axes_that_are_not_there(axis: Any) -> None:
    for order in ("euclidean", 1, 2):
        with pytest.raises(tf.errors.InvalidArgumentError, match="axis"):
            tf.norm(tf.ones((2, 3)), order, axis)
