"""Diagonals, bands and transposes against NumPy's, with every diagonal of matrices of several shapes; both orders
against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.linalg.slopes import check_two_orders, gradients, numbers, values
from tests.op_table.running import assert_near

L = tf.linalg
SHAPES = [(3, 3), (2, 3, 4), (2, 4, 3), (1, 3), (3, 1)]
DTYPES = ["float32", "int32", "bool", "complex128", "float16"]


def each_diagonal() -> Any:
    return [(shape, k) for shape in SHAPES for k in range(1 - shape[-2], shape[-1])]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, k", each_diagonal())
def test_values(shape: tuple[int, ...], k: int, dtype: str) -> None:
    x = (numbers(1, *shape) * 5).astype(dtype)
    d = np.diagonal(x, k, -2, -1)
    assert L.diag_part(x, k=k).numpy().tolist() == d.tolist()
    rows, columns = shape[-2:]
    only = np.where(np.eye(rows, columns, k) > 0, x, np.zeros((), dtype))
    assert L.diag(d, k=k, num_rows=rows, num_cols=columns).numpy().tolist() == only.tolist()
    ones = np.ones(d.shape, dtype)
    changed = np.where(np.eye(rows, columns, k) > 0, np.ones((), dtype), x)
    result = L.set_diag(x, ones, k=k)
    assert result.numpy().tolist() == changed.tolist() and result.dtype == dtype


@pytest.mark.parametrize("n, k", [(3, 0), (3, 2), (3, -1), (0, 0), (0, 2), (1, 0)])
def test_diag_alone_is_square(n: int, k: int) -> None:
    d = np.arange(1.0, n + 1)
    assert L.diag(d, k=k).numpy().tolist() == np.diag(d, k).tolist()
    full = np.where(np.eye(n + abs(k), k=k) > 0, np.diag(d, k), 7.0)
    assert L.diag(d, k=k, padding_value=7).numpy().tolist() == full.tolist()


ALIGNS = ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")


def in_rows(x: Any, low: int, high: int, align: str, padding: float) -> Any:
    """The diagonals of one matrix, from the highest down, each at its side of a row."""
    above, below = align.split("_")
    found = [np.diagonal(x, k) for k in range(high, low - 1, -1)]
    longest = max(map(len, found))
    rows = []
    for k, d in zip(range(high, low - 1, -1), found, strict=True):
        rest = np.full(longest - len(d), padding)
        rows.append(np.concatenate([rest, d] if (above if k > 0 else below) == "RIGHT" else [d, rest]))
    return np.array(rows)


def each_band() -> Any:
    return [
        (shape, low, high)
        for shape in [(3, 3), (2, 4), (4, 2), (1, 3)]
        for low in range(1 - shape[0], shape[1])
        for high in range(low + 1, shape[1])
    ]


@pytest.mark.parametrize("align", ALIGNS)
@pytest.mark.parametrize("shape, low, high", each_band())
def test_bands(shape: tuple[int, int], low: int, high: int, align: str) -> None:
    x = numbers(1, 2, *shape)
    rows = np.stack([in_rows(a, low, high, align, 7.0) for a in x])
    assert L.diag_part(x, k=(low, high), padding_value=7.0, align=align).numpy().tolist() == rows.tolist()
    offsets = np.arange(shape[1]) - np.arange(shape[0])[:, None]
    inside = (low <= offsets) & (offsets <= high)
    sizes = {"num_rows": shape[0], "num_cols": shape[1], "align": align, "k": tf.constant([low, high])}
    assert L.diag(rows, **sizes).numpy().tolist() == np.where(inside, x, 0.0).tolist()
    assert L.diag(rows, padding_value=9.0, **sizes).numpy().tolist() == np.where(inside, x, 9.0).tolist()
    changed = L.set_diag(np.full((2, *shape), np.nan), rows, k=(low, high), align=align)
    assert np.array_equal(changed, np.where(inside, x, np.nan), equal_nan=True)


def test_what_pads_a_band_has_no_gradient_and_what_is_padded_in_none_of_its_own() -> None:
    x = np.arange(1.0, 10.0).reshape(3, 3)
    (g,) = gradients(lambda x: L.diag_part(x, k=(0, 1), padding_value=np.nan), [x], [np.arange(1.0, 7.0).reshape(2, 3)])
    assert g.tolist() == [[4.0, 2.0, 0.0], [0.0, 5.0, 3.0], [0.0, 0.0, 6.0]]
    d = np.array([[np.nan, 1.0, 2.0], [3.0, 4.0, 5.0]])
    (g,) = gradients(lambda d: L.diag(d, k=(0, 1)), [d], [np.arange(1.0, 10.0).reshape(3, 3)])
    assert g.tolist() == [[0.0, 2.0, 6.0], [1.0, 5.0, 9.0]]


@pytest.mark.parametrize(
    "shape, k, options, size",
    [
        ((2, 0), (0, 1), {}, (0, 0)),
        ((2, 0), (0, 1), {"num_rows": 3}, (3, 0)),
        ((2, 2), (1, 2), {}, (3, 3)),
        ((2, 2), (-2, -1), {}, (3, 3)),
        ((2, 2), (-2, -1), {"num_cols": 5}, (3, 5)),
        ((3, 2), (-1, 1), {"num_rows": 2}, (2, 2)),
    ],
)
def test_sizes_of_matrices_around_a_band(shape: Any, k: Any, options: dict[str, int], size: Any) -> None:
    assert L.diag(tf.ones(shape), k=k, **options).shape == size


def test_bands_of_other_dtypes() -> None:
    x = np.array([[True, False], [False, True]])
    assert L.diag_part(x, k=(0, 1)).numpy().tolist() == [[False, False], [True, True]]
    assert L.diag_part(x, k=(0, 1), padding_value=True).numpy().tolist() == [[True, False], [True, True]]
    assert L.diag(np.array([[0, 1], [2, 3]], "int32"), k=(0, 1)).numpy().tolist() == [[2, 1], [0, 3]]


def test_rows_of_bands() -> None:
    x = tf.constant(numbers(1, 3, 4))
    for f in (
        lambda x: L.diag_part(x * x, k=(-1, 1)),
        lambda x: L.diag(x, k=(-1, 1)),
        lambda x: L.set_diag(x, x[:2, :3], k=(0, 1)),
    ):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(x)
        assert np.array_equal(tape.jacobian(y, x), tape.jacobian(y, x, experimental_use_pfor=False))


@pytest.mark.parametrize("shape", SHAPES)
def test_band_part(shape: tuple[int, ...]) -> None:
    x = numbers(1, *shape)
    for below in range(-1, shape[-2] + 1):
        for above in range(-1, shape[-1] + 1):
            kept = x if below < 0 else np.triu(x, -below)
            kept = kept if above < 0 else np.tril(kept, above)
            assert L.band_part(x, below, tf.constant(above)).numpy().tolist() == kept.tolist()


def test_band_part_removes_what_is_not_finite() -> None:
    x = tf.constant([[1.0, np.nan], [np.inf, 2.0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = L.band_part(x, 0, 0)
    assert y.numpy().tolist() == [[1.0, 0.0], [0.0, 2.0]]
    assert tape.gradient(y, x).numpy().tolist() == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize(
    "f, shapes",
    [
        (lambda x: L.diag_part(x * x, k=1), [(2, 3, 4)]),
        (lambda d: L.diag(d * d, k=-1, num_cols=5), [(2, 3)]),
        (lambda x, d: L.set_diag(x * x, d * d), [(2, 3, 3), (2, 3)]),
        (lambda x: L.diag_part(x * x, k=(-1, 2)), [(2, 3, 4)]),
        (lambda d: L.diag(d * d, k=(-1, 1), num_cols=4), [(2, 3, 3)]),
        (lambda x, d: L.set_diag(x * x, d * d, k=(0, 1), align="LEFT_LEFT"), [(2, 3, 3), (2, 2, 3)]),
        (lambda x: L.band_part(x * x, 1, 0), [(2, 3, 4)]),
        (lambda x: L.trace(x * x), [(2, 3, 4)]),
        (lambda x: L.matrix_transpose(x * x), [(2, 3, 4)]),
        (lambda x: L.adjoint(x * x), [(2, 3, 4)]),
        (lambda d: L.tensor_diag(d * d), [(2, 3)]),
        (lambda x: L.tensor_diag_part(x * x), [(2, 3, 2, 3)]),
        (lambda x, y: L.cross(x * x, y), [(2, 3), (2, 3)]),
        (lambda x: tuple(L.normalize(x, axis=1)), [(2, 3)]),
    ],
)
def test_two_orders(f: Callable[..., Any], shapes: list[tuple[int, ...]], kind: str) -> None:
    check_two_orders(f, [numbers(k, *s, kind=kind) for k, s in enumerate(shapes)], tolerance=1e-6)


def test_what_is_replaced_receives_no_gradient() -> None:
    x, d = np.full((2, 2), np.nan), np.array([1.0, 2.0])
    g, h = gradients(L.set_diag, [x, d], [np.array([[1.0, 2.0], [3.0, 4.0]])])
    assert g.tolist() == [[0.0, 2.0], [3.0, 0.0]] and h.tolist() == [1.0, 4.0]


def test_trace_of_what_is_not_square() -> None:
    x = numbers(1, 2, 3, 4)
    assert_near(values(L.trace, [x])[0], np.trace(x, axis1=-2, axis2=-1), "trace", 1e-15)


def test_tensor_diagonals() -> None:
    d = numbers(1, 2, 3)
    whole = L.tensor_diag(d).numpy()
    assert whole.shape == (2, 3, 2, 3)
    assert_near(np.einsum("ijij->ij", whole), d, "diagonal", 0.0)
    assert np.count_nonzero(whole) == 6
    assert L.tensor_diag_part(whole).numpy().tolist() == d.tolist()


def test_normalize_along_axes() -> None:
    x = numbers(1, 2, 3)
    unit, size = L.normalize(x, ord=1, axis=0)
    assert_near(size.numpy(), np.abs(x).sum(axis=0, keepdims=True), "size", 1e-15)
    assert_near(unit.numpy(), x / np.abs(x).sum(axis=0, keepdims=True), "unit", 1e-15)
    assert L.normalize(numbers(1, 3, kind="complex"))[1].dtype == tf.complex128


@pytest.mark.parametrize(
    "call, error, says",
    [
        (lambda: L.diag_part(tf.ones(3)), tf.errors.InvalidArgumentError, "matrices"),
        (lambda: L.diag_part(tf.ones((2, 3)), k=3), tf.errors.InvalidArgumentError, "diagonals -1 to 2"),
        (lambda: L.diag_part(tf.ones((2, 3)), k=(1, 0)), tf.errors.InvalidArgumentError, "lowest and the highest"),
        (lambda: L.diag_part(tf.ones((2, 3)), k=(0, 1, 2)), tf.errors.InvalidArgumentError, "lowest and the highest"),
        (lambda: L.diag_part(tf.ones((2, 3)), k=(0, 3)), tf.errors.InvalidArgumentError, "diagonals -1 to 2"),
        (lambda: L.diag_part(tf.ones((2, 3)), k=(0, 1), align="LEFT"), tf.errors.InvalidArgumentError, "RIGHT_LEFT"),
        (lambda: L.diag(tf.ones((3, 2)), k=(0, 1)), tf.errors.InvalidArgumentError, "one row for each of the 2"),
        (lambda: L.diag(tf.ones(2), k=(0, 1)), tf.errors.InvalidArgumentError, "one row for each of the 2"),
        (lambda: L.diag(tf.ones((2, 3)), k=(0, 1), num_rows=2), tf.errors.InvalidArgumentError, "no whole diagonal"),
        (lambda: L.set_diag(tf.ones((3, 3)), tf.ones((2, 2)), k=(0, 1)), tf.errors.InvalidArgumentError, r"\(2, 3\)"),
        (lambda: L.diag(tf.constant(1.0)), tf.errors.InvalidArgumentError, "scalar"),
        (lambda: L.diag(tf.ones(3), num_rows=2), tf.errors.InvalidArgumentError, "no whole diagonal"),
        (lambda: L.diag(tf.ones(3), num_rows=4, num_cols=4), tf.errors.InvalidArgumentError, "no whole diagonal"),
        (lambda: L.set_diag(tf.ones((2, 3)), tf.ones(3)), tf.errors.InvalidArgumentError, r"\(2,\)"),
        (lambda: L.set_diag(tf.ones((2, 3)), tf.ones(1), k=-2), tf.errors.InvalidArgumentError, "diagonals"),
        (lambda: L.band_part(tf.ones(3), 0, 0), tf.errors.InvalidArgumentError, "matrices"),
        (lambda: L.tensor_diag_part(tf.ones((2, 3))), tf.errors.InvalidArgumentError, "halves"),
        (lambda: L.matrix_transpose(tf.ones(3)), ValueError, "two axes"),
    ],
)
def test_what_does_not_fit(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
