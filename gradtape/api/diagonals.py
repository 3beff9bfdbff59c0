"""Matrices and their diagonals, bands and transposes. Floor: api."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.api.arguments import integer
from gradtape.api.bands import Band, band_around, band_of
from gradtape.api.elementwise import conj, where
from gradtape.api.reductions import reduce_sum
from gradtape.ir.dtypes import bool_
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import shape_text, size_of
from gradtape.ops.indexing import GATHER
from gradtape.ops.layout import DIAGONAL, PAD, TRANSPOSE, UNDIAGONAL
from gradtape.runtime.contract import reshape
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import binary, unary
from gradtape.runtime.operators import operand
from gradtape.runtime.subscript import positions
from gradtape.runtime.tensor import Tensor


def _matrices(x: Any, name: str) -> Tensor:
    t = convert(x)
    if t.ndim < 2:
        raise InvalidArgumentError(f"`{name}` wants matrices (..., m, n), got shape {shape_text(t._aval.shape)}.")
    return t


def _offsets(rows: int, columns: int) -> Any:
    """How far right of the main diagonal each element lies."""
    return np.arange(columns) - np.arange(rows)[:, None]


def matrix_transpose(a: Any, name: str = "matrix_transpose", conjugate: bool = False) -> Tensor:
    """The last two axes exchanged, and conjugated if asked for.

    Raises:
      ValueError: fewer than two axes.

    >>> import gradtape as tf
    >>> print(tf.linalg.matrix_transpose([[1.0, 2.0], [3.0, 4.0]]).numpy())
    [[1. 3.]
     [2. 4.]]
    """
    x = convert(a)
    n = x.ndim
    if n < 2:
        raise ValueError(f"`matrix_transpose` wants two axes or more, got shape {shape_text(x._aval.shape)}.")
    turned = unary(TRANSPOSE.bind(perm=(*range(n - 2), n - 1, n - 2)), x)
    return conj(turned) if conjugate else turned


def adjoint(matrix: Any, name: str | None = None) -> Tensor:
    """The conjugate transposes of matrices (..., m, n).

    >>> import gradtape as tf
    >>> print(tf.linalg.adjoint([[1 + 2j, 3.0]]).numpy())
    [[1.-2.j]
     [3.-0.j]]
    """
    return matrix_transpose(matrix, conjugate=True)


def diag_part(
    input: Any, name: str = "diag_part", k: Any = 0, padding_value: Any = 0, align: str = "RIGHT_LEFT"
) -> Tensor:
    """A diagonal of matrices, or a band of diagonals as rows.

    Args:
      input: matrices (..., m, n).
      name: accepted for compatibility.
      k: which diagonal: 0 is the main one, positive ones lie above it, negative ones below. A pair is the lowest and
        the highest of a band.
      padding_value: what fills up the rows of shorter diagonals of a band.
      align: on which side of their rows the diagonals of a band stand, those above the main one and those below it:
        "RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT" or "RIGHT_RIGHT".

    Returns:
      The elements (..., length of the diagonal); of a band (..., number of diagonals, length of the longest), the
      highest diagonal first.

    Raises:
      InvalidArgumentError: there is no such diagonal.

    >>> import gradtape as tf
    >>> print(tf.linalg.diag_part([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], k=1).numpy())
    [2. 6.]
    >>> print(tf.linalg.diag_part([[1.0, 2.0], [3.0, 4.0]], k=(-1, 0), padding_value=9.0).numpy())
    [[1. 4.]
     [3. 9.]]
    """
    x = _matrices(input, "diag_part")
    rows, columns = x._aval.dims[-2:]
    band = band_of(k, rows, columns, align, "diag_part")
    if band.count == 1:
        return _one_diagonal(x, band)
    flat = reshape(x, (*x._aval.dims[:-2], rows * columns))
    at = band.elements()
    picked = binary(GATHER.bind(axis=flat.ndim - 1, batch_dims=0), flat, positions(np.maximum(at, 0)))
    return where(convert(at >= 0), picked, _padding(padding_value, x)) if (at < 0).any() else picked


def _one_diagonal(x: Tensor, band: Band) -> Tensor:
    top, left, n = max(-band.low, 0), max(band.low, 0), band.length
    return unary(DIAGONAL.bind(), x if band.rows == band.columns == n else x[..., top : top + n, left : left + n])


def _padding(value: Any, of: Tensor) -> Tensor:
    """A number as one of a tensor's dtype."""
    dtype = of._aval.dtype
    return convert(bool(value)) if dtype is bool_ and not isinstance(value, Tensor) else operand(value, dtype)


def diag(
    diagonal: Any,
    name: str = "diag",
    k: Any = 0,
    num_rows: Any = -1,
    num_cols: Any = -1,
    padding_value: Any = 0,
    align: str = "RIGHT_LEFT",
) -> Tensor:
    """Matrices with a given diagonal, or a given band of diagonals.

    Args:
      diagonal: the elements (..., n); of a band (..., number of diagonals, n), the highest diagonal first.
      name: accepted for compatibility.
      k: which diagonal: 0 is the main one, positive ones lie above it, negative ones below. A pair is the lowest and
        the highest of a band.
      num_rows, num_cols: the size of the matrices; -1 for the smallest that the diagonals fit, in square matrices
        where neither is given.
      padding_value: what stands everywhere else.
      align: on which side of their rows shorter diagonals of a band stand, those above the main one and those below
        it: "RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT" or "RIGHT_RIGHT".

    Raises:
      InvalidArgumentError: matrices of which this is no whole diagonal, or another number of rows than diagonals.

    >>> import gradtape as tf
    >>> print(tf.linalg.diag([1.0], k=1, padding_value=9.0).numpy())
    [[9. 1.]
     [9. 9.]]
    >>> print(tf.linalg.diag([[1.0, 2.0], [3.0, 0.0]], k=(-1, 0)).numpy())
    [[1. 0.]
     [3. 2.]]
    """
    d = convert(diagonal)
    if d.ndim < 1:
        raise InvalidArgumentError("`diag` wants diagonals (..., n), got a scalar.")
    size = (integer(num_rows, "num_rows"), integer(num_cols, "num_cols"))
    band = band_around(k, d._aval.dims, size, align)
    out = _with_diagonal(d, band) if band.count == 1 else _with_band(d, band)
    if isinstance(padding_value, int | float) and padding_value == 0:
        return out
    return where(convert(band.inside()), out, _padding(padding_value, d))


def _with_diagonal(d: Tensor, band: Band) -> Tensor:
    out, n = unary(UNDIAGONAL.bind(), d), band.length
    if (band.rows, band.columns) == (n, n):
        return out
    lead, top, left = (0,) * (d.ndim - 1), max(-band.low, 0), max(band.low, 0)
    return unary(
        PAD.bind(low=(*lead, top, left), high=(*lead, band.rows - n - top, band.columns - n - left)),
        out,
    )


def _with_band(d: Tensor, band: Band) -> Tensor:
    """All elements in a line with a zero behind them, which what lies outside the band picks."""
    lead, size = d._aval.dims[:-2], band.count * band.length
    none = (0,) * len(lead)
    line = unary(PAD.bind(low=(*none, 0), high=(*none, 1)), reshape(d, (*lead, size)))
    at = band.places()
    return binary(GATHER.bind(axis=len(lead), batch_dims=0), line, positions(np.where(at < 0, size, at)))


def set_diag(input: Any, diagonal: Any, name: str = "set_diag", k: Any = 0, align: str = "RIGHT_LEFT") -> Tensor:
    """Matrices with another diagonal or band of diagonals; what stood there receives no gradient.

    Args:
      input: matrices (..., m, n).
      diagonal: the new elements (..., length of the diagonal); of a band (..., number of diagonals, length of the
        longest), the highest diagonal first.
      name: accepted for compatibility.
      k: which diagonal: 0 is the main one, positive ones lie above it, negative ones below. A pair is the lowest and
        the highest of a band.
      align: on which side of their rows shorter diagonals of a band stand, those above the main one and those below
        it: "RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT" or "RIGHT_RIGHT".

    Raises:
      InvalidArgumentError: there is no such diagonal, or it has another length.

    >>> import gradtape as tf
    >>> print(tf.linalg.set_diag([[1.0, 2.0], [3.0, 4.0]], [0.0, 9.0]).numpy())
    [[0. 2.]
     [3. 9.]]
    """
    x = _matrices(input, "set_diag")
    d = operand(diagonal, x._aval.dtype)
    rows, columns = x._aval.dims[-2:]
    band = band_of(k, rows, columns, align, "set_diag")
    wanted = (*x._aval.dims[:-2], *band.shape)
    if d._aval.dims != wanted:
        raise InvalidArgumentError(
            f"`set_diag` wants diagonals of shape {shape_text(wanted)} for matrices of shape "
            f"{shape_text(x._aval.shape)} and `k` = {k}, got {shape_text(d._aval.shape)}."
        )
    return where(convert(band.inside()), diag(d, k=k, num_rows=rows, num_cols=columns, align=align), x)


def band_part(input: Any, num_lower: Any, num_upper: Any, name: str | None = None) -> Tensor:
    """Matrices with zeros everywhere but in a band around the main diagonal.

    Args:
      input: matrices (..., m, n).
      num_lower: how many diagonals below the main one stay; all for a negative number.
      num_upper: how many above it stay; all for a negative number.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: fewer than two axes.

    >>> import gradtape as tf
    >>> print(tf.linalg.band_part([[1.0, 2.0], [3.0, 4.0]], -1, 0).numpy())
    [[1. 0.]
     [3. 4.]]
    """
    x = _matrices(input, "band_part")
    below, above = integer(num_lower, "num_lower"), integer(num_upper, "num_upper")
    offsets = _offsets(*x._aval.dims[-2:])
    kept = np.ones(offsets.shape, bool)
    if below >= 0:
        kept &= offsets >= -below
    if above >= 0:
        kept &= offsets <= above
    return x if kept.all() else where(convert(kept), x, operand(0, x._aval.dtype))


def trace(x: Any, name: str | None = None) -> Tensor:
    """The sums of the main diagonals of matrices (..., m, n).

    >>> import gradtape as tf
    >>> print(tf.linalg.trace([[1.0, 2.0], [3.0, 4.0]]).numpy())
    5.0
    """
    return reduce_sum(diag_part(x), axis=-1)


def tensor_diag(diagonal: Any, name: str | None = None) -> Tensor:
    """A tensor (s₁, …, s_k, s₁, …, s_k) that is zero but where both halves of the position agree.

    Args:
      diagonal: the elements there, of shape (s₁, …, s_k).
      name: accepted for compatibility.

    >>> import gradtape as tf
    >>> print(tf.linalg.tensor_diag([1.0, 2.0]).numpy())
    [[1. 0.]
     [0. 2.]]
    """
    d = convert(diagonal)
    shape = d._aval.dims
    return reshape(unary(UNDIAGONAL.bind(), reshape(d, (size_of(shape),))), (*shape, *shape))


def tensor_diag_part(input: Any, name: str | None = None) -> Tensor:
    """The elements of a tensor (s₁, …, s_k, s₁, …, s_k) where both halves of the position agree.

    Raises:
      InvalidArgumentError: the two halves of the shape are not the same.

    >>> import gradtape as tf
    >>> print(tf.linalg.tensor_diag_part([[1.0, 2.0], [3.0, 4.0]]).numpy())
    [1. 4.]
    """
    x = convert(input)
    shape = x._aval.dims
    half = shape[: len(shape) // 2]
    if not shape or shape != half + half:
        raise InvalidArgumentError(
            f"`tensor_diag_part` wants a shape whose halves are the same, got {shape_text(x._aval.shape)}."
        )
    n = size_of(half)
    return reshape(unary(DIAGONAL.bind(), reshape(x, (n, n))), half)
