"""Arguments and dtypes that are seldom used: each changes the result, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.api.calls import draw, function, positive
from tests.api.slopes import assert_derivatives
from tests.linalg.slopes import check_two_orders, numbers

INVALID = tf.errors.InvalidArgumentError


def gradient(f: Callable[..., Any], *arrays: Any) -> list[Any]:
    xs = [tf.constant(a) for a in arrays]
    with tf.GradientTape() as tape:
        tape.watch(xs)
        y = f(*xs)
    return [g.numpy() for g in tape.gradient(y, xs)]


# ------------------------------------------------------------------ positions that do not exist

BAD_AT, AT = [[1], [3], [0], [-1]], [[1], [0]]


def test_gather_nd_can_pass_over_bad_positions() -> None:
    x = draw(3, 2)
    got = tf.gather_nd(x, [[2, 1], [3, 0], [0, -1]], bad_indices_policy="IGNORE")
    assert got.numpy().tolist() == [x[2, 1], 0.0, 0.0]
    assert tf.gather_nd(x, BAD_AT, bad_indices_policy="IGNORE").numpy().tolist() == [
        x[1].tolist(),
        [0.0, 0.0],
        x[0].tolist(),
        [0.0, 0.0],
    ]
    assert_derivatives(lambda x: tf.gather_nd(x * x, BAD_AT, bad_indices_policy="IGNORE"), x)


@pytest.mark.parametrize("how", ["add", "sub", "max", "min"])
def test_scatters_can_pass_over_bad_positions(how: str) -> None:
    f = function(f"tensor_scatter_nd_{how}")
    x, updates = draw(3, 2), positive(4, 2)
    want = f(x, AT, updates[[0, 2]])
    assert f(x, BAD_AT, updates, bad_indices_policy="IGNORE").numpy().tolist() == want.numpy().tolist()
    assert_derivatives(lambda x, u: f(x, BAD_AT, u * u, bad_indices_policy="IGNORE"), x, updates)


def test_scatter_nd_can_pass_over_bad_positions() -> None:
    updates = positive(4, 2)
    want = tf.scatter_nd(AT, updates[[0, 2]], [3, 2]).numpy()
    assert tf.scatter_nd(BAD_AT, updates, [3, 2], "IGNORE").numpy().tolist() == want.tolist()
    assert_derivatives(lambda u: tf.scatter_nd(BAD_AT, u * u, [3, 2], bad_indices_policy="IGNORE"), updates)


def test_bad_positions_of_traced_calls() -> None:
    at = tf.constant(BAD_AT)
    f = tf.function(lambda x, at: tf.gather_nd(x, at, bad_indices_policy="IGNORE"))
    x = draw(3, 2)
    assert np.array_equal(f(x, at), tf.gather_nd(x, at, bad_indices_policy="IGNORE"))
    g = tf.function(lambda u, at: tf.scatter_nd(at, u, [3, 2], bad_indices_policy="IGNORE"))
    u = positive(4, 2)
    assert np.array_equal(g(u, at), tf.scatter_nd(at, u, [3, 2], bad_indices_policy="IGNORE"))


@pytest.mark.parametrize("policy", ["", "DEFAULT", "ERROR"])
def test_bad_positions_are_an_error_otherwise(policy: str) -> None:
    for f in (
        lambda: tf.gather_nd(draw(3, 2), BAD_AT, bad_indices_policy=policy),
        lambda: tf.scatter_nd(BAD_AT, positive(4, 2), [3, 2], policy),
        lambda: tf.tensor_scatter_nd_add(draw(3, 2), BAD_AT, positive(4, 2), policy),
        lambda: tf.tensor_scatter_nd_max(draw(3, 2), BAD_AT, positive(4, 2), policy),
    ):
        with pytest.raises(INVALID, match="do not index"):
            f()


def test_gather_reads_negative_batch_dims_as_given() -> None:
    x, at = draw(2, 3, 4), np.array([[0], [2]])
    assert np.array_equal(tf.gather(x, at, batch_dims=-1), np.take_along_axis(x, at[..., None], -1))
    assert np.array_equal(tf.gather(x, at, batch_dims=-1, axis=1), tf.gather(x, at, batch_dims=1))


# ------------------------------------------------------------------ losses and normalisation


@pytest.mark.parametrize("axis", [0, 1, -2])
def test_cross_entropy_along_any_axis(axis: int) -> None:
    y, x = positive(2, 3, 4), draw(2, 3, 4)
    want = -np.sum(y * (x - np.log(np.exp(x).sum(axis, keepdims=True))), axis)
    got = tf.nn.softmax_cross_entropy_with_logits(y, x, axis=axis)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    assert_derivatives(lambda y, x: tf.nn.softmax_cross_entropy_with_logits(y, x, axis=axis), y, x)


def test_labels_take_the_dtype_of_the_logits() -> None:
    for labels in (np.array([[0, 1]]), tf.constant([[0.0, 1.0]]), tf.constant([[False, True]])):
        got = tf.nn.softmax_cross_entropy_with_logits(labels, tf.constant([[0.0, 0.0]], tf.float64))
        assert (got.dtype, got.numpy().tolist()) == (tf.float64, [np.log(2.0)])


def test_l2_normalize_by_its_old_argument_and_of_complex_numbers() -> None:
    x = draw(2, 3)
    assert np.array_equal(tf.nn.l2_normalize(x, dim=1), tf.nn.l2_normalize(x, axis=1))
    with pytest.raises(ValueError, match="both"):
        tf.nn.l2_normalize(x, axis=1, dim=1)
    z = numbers(1, 2, 3, kind="complex")
    np.testing.assert_allclose(
        tf.nn.l2_normalize(z, 1), z / np.sqrt(np.sum(np.abs(z) ** 2, 1, keepdims=True)), rtol=1e-12
    )
    check_two_orders(lambda z: tf.nn.l2_normalize(z, 1), [z], tolerance=1e-6)


def test_batch_normalization_of_halves_by_wide_statistics() -> None:
    x = tf.constant([[1000.0, 2.0], [1001.0, 4.0]], tf.float16)
    mean, variance = tf.nn.moments(tf.cast(x, tf.float32), [0])
    got = tf.nn.batch_normalization(x, mean, variance, tf.ones(2), tf.constant([2.0, 3.0], tf.float16), 0.0)
    assert (got.dtype, got.numpy().tolist()) == (tf.float16, [[-1.0, -2.0], [3.0, 4.0]])


def test_clipping_where_bounds_cross_or_are_negative() -> None:
    assert tf.clip_by_value([-1.0, 0.0, 1.0], 0.5, -0.5).numpy().tolist() == [0.5, 0.5, 0.5]
    assert gradient(lambda x: tf.clip_by_value(x, -1.0, 1.0), np.array([-1.0, 0.0, 1.0, 2.0]))[0].tolist() == [
        1,
        1,
        1,
        0,
    ]
    assert tf.clip_by_norm([3.0, 4.0], -1.0).numpy().tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match=r"\(3,\).*\(2, 3\)"):
        tf.clip_by_value(tf.ones(3), tf.zeros((2, 3)), 1.0)


@pytest.mark.parametrize(
    "layout, good", [("NHWC", 2), ("NC", 2), ("NCW", 3), ("NWC", 2), ("bad", 0), ("", 0), ("CN", 0)]
)
def test_bias_add_reads_its_layout(layout: str, good: int) -> None:
    x = draw(1, 3, 2)
    if not good:
        with pytest.raises(ValueError, match="data_format"):
            tf.nn.bias_add(x, np.ones(2), data_format=layout)
        return
    n = {"NC": 3, "NCW": 3}.get(layout, 2)
    want = x + np.arange(n)[:, None] if n == 3 else x + np.arange(n)
    assert np.array_equal(tf.nn.bias_add(x, np.arange(n, dtype=float), data_format=layout), want)


# ------------------------------------------------------------------ dtypes


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_integers(dtype: str) -> None:
    a = np.array([3, 0, 7, 4], dtype)
    b = np.array([2, 0, 0, 4], dtype)
    quotient = "float32" if np.dtype(dtype).itemsize <= 2 else "float64"
    for got, want, kind in (
        (tf.math.conj(a), a, dtype),
        (tf.math.real(a), a, dtype),
        (tf.math.imag(a), 0 * a, dtype),
        (tf.nn.relu(a), a, dtype),
        (tf.nn.relu6(a), np.minimum(a, 6), dtype),
        (tf.nn.leaky_relu(a), a, "float32"),
        (tf.math.divide_no_nan(a, b), [1.5, 0.0, 0.0, 1.0], quotient),
        (tf.math.reduce_euclidean_norm(a), 8, dtype),
        (tf.reduce_mean(np.zeros(0, dtype)), 0, dtype),
        (tf.math.unsorted_segment_mean(a, [0, 0, 1, 1], 2), [1.5, 5.5], "float64"),
    ):
        assert (got.dtype, got.numpy().tolist()) == (kind, np.asarray(want).tolist())
    if dtype.startswith("i"):
        assert tf.nn.relu(-a).numpy().tolist() == [0] * 4
        assert tf.nn.leaky_relu(-a, 0.5).numpy().tolist() == [-1.5, 0.0, -3.5, -2.0]
        assert tf.nn.crelu(-a).numpy().tolist() == [0, 0, 0, 0, 3, 0, 7, 4]


@pytest.mark.parametrize("b", [[[3], [4]], np.array([[3.0], [4.0]]), np.array([[3], [4]])], ids=repr)
def test_the_second_matrix_takes_the_dtype_of_the_first(b: Any) -> None:
    for a in ([[1.0, 2.0]], tf.constant([[1.0, 2.0]])):
        found = tf.matmul(a, b)
        assert (found.dtype, found.numpy().tolist()) == (tf.float32, [[11.0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"int32.*float"):
        tf.matmul([[1, 2]], [[1.5], [2.5]])


def test_matmul_of_bytes_may_be_wide() -> None:
    a = np.full((1, 300), 100, "int8")
    assert tf.matmul(a, a, transpose_b=True, output_type=tf.int32).numpy().tolist() == [[3_000_000]]
    assert tf.matmul(a, a, transpose_b=True, output_type="int8").dtype == tf.int8
    assert tf.matmul([[1.0]], [[2.0]], grad_a=True, grad_b=True).numpy().tolist() == [[2.0]]
    with pytest.raises(INVALID, match="output_type"):
        tf.matmul([[1.0]], [[2.0]], output_type=tf.float64)


def test_complex_numbers() -> None:
    x, y = numbers(1, 3, kind="complex"), numbers(2, 3, kind="complex")
    np.testing.assert_allclose(tf.math.squared_difference(x, y), np.abs(x - y) ** 2 + 0j, rtol=1e-12)
    check_two_orders(lambda x, y: tf.math.squared_difference(x, y) * x, [x, y], tolerance=1e-6)
    np.testing.assert_allclose(tf.nn.silu(x, 2.0), x / (1 + np.exp(-2 * x)), rtol=1e-12)
    np.testing.assert_allclose(tf.nn.silu(x), x / (1 + np.exp(-x)), rtol=1e-12)
    check_two_orders(tf.nn.silu, [x], tolerance=1e-6)


@pytest.mark.parametrize(
    "call, error, says",
    [
        (lambda: tf.argmax([1.0], output_type=tf.float32), INVALID, "output_type"),
        (lambda: tf.nn.gelu([1]), ValueError, "floating point.*int32"),
        (lambda: tf.nn.sparse_softmax_cross_entropy_with_logits([0], tf.ones((2, 3))), ValueError, r"\(1,\).*\(2, 3\)"),
        (lambda: tf.nn.sparse_softmax_cross_entropy_with_logits([[0], [1]], tf.ones((2, 3))), ValueError, "last"),
        (lambda: tf.linalg.pinv(tf.ones(3)), ValueError, "matrices"),
        (lambda: tf.linalg.pinv([[1]]), TypeError, "int32"),
        (lambda: tf.linalg.matrix_rank(tf.ones(3)), ValueError, "matrices"),
        (lambda: tf.linalg.matrix_rank([[1]]), TypeError, "int32"),
        (lambda: tf.gather_nd(tf.ones((2, 3)), [[0], [2]], batch_dims=5), ValueError, "batch_dims"),
        (lambda: tf.gather_nd(tf.ones(2), [[0]], bad_indices_policy="skip"), INVALID, "'skip'"),
        (lambda: tf.scatter_nd([[0]], [1.0], [2], "skip"), INVALID, "'skip'"),
        (lambda: tf.divide(tf.ones(2), tf.ones(2, tf.float64)), TypeError, "float.*double"),
        (lambda: tf.math.divide_no_nan([True], [True]), TypeError, "bool"),
        (lambda: tf.pad([1.0], [[1]], "middle"), ValueError, "'middle'|MIDDLE"),
    ],
)
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
