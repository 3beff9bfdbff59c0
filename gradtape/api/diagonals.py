"""Matrices and their diagonals, bands and transposes. Floor: api."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.api.arguments import integer, integers
from gradtape.api.elementwise import conj, where
from gradtape.api.reductions import reduce_sum
from gradtape.ir.errors import InvalidArgumentError, UnimplementedError
from gradtape.ir.shapes import shape_text, size_of
from gradtape.ops.layout import DIAGONAL, PAD, TRANSPOSE, UNDIAGONAL
from gradtape.runtime.contract import reshape
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import unary
from gradtape.runtime.operators import operand
from gradtape.runtime.tensor import Tensor


def _matrices(x: Any, name: str) -> Tensor:
    t = convert(x)
    if t.ndim < 2:
        raise InvalidArgumentError(f"`{name}` wants matrices (..., m, n), got shape {shape_text(t._aval.shape)}.")
    return t


def _one(k: Any, name: str) -> int:
    """The number of a diagonal."""
    numbers = integers(k, "k")
    if len(set(numbers)) != 1:
        raise UnimplementedError(
            f"`{name}` takes one diagonal `k`, got a band {list(numbers)}. Take its diagonals one by one, or use "
            "`tf.linalg.band_part`."
        )
    return numbers[0]


def _inside(k: int, rows: int, columns: int, name: str) -> None:
    if not -rows < k < columns and (k or (rows and columns)):
        raise InvalidArgumentError(
            f"`{name}` got `k` = {k}; matrices of shape ({rows}, {columns}) have diagonals {1 - rows} to {columns - 1}."
        )


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
    """A diagonal of matrices.

    Args:
      input: matrices (..., m, n).
      name: accepted for compatibility.
      k: which diagonal: 0 is the main one, positive ones lie above it, negative ones below.
      padding_value, align: accepted for compatibility; one diagonal needs no padding.

    Returns:
      The elements (..., length of the diagonal).

    Raises:
      InvalidArgumentError: there is no such diagonal.
      UnimplementedError: `k` is a band of diagonals.

    >>> import gradtape as tf
    >>> print(tf.linalg.diag_part([[1.0, 2.0], [3.0, 4.0]]).numpy())
    [1. 4.]
    >>> print(tf.linalg.diag_part([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], k=1).numpy())
    [2. 6.]
    """
    x, k = _matrices(input, "diag_part"), _one(k, "diag_part")
    rows, columns = x._aval.dims[-2:]
    _inside(k, rows, columns, "diag_part")
    top, left = max(-k, 0), max(k, 0)
    length = min(rows - top, columns - left)
    square = x if rows == columns == length else x[..., top : top + length, left : left + length]
    return unary(DIAGONAL.bind(), square)


def diag(
    diagonal: Any,
    name: str = "diag",
    k: Any = 0,
    num_rows: Any = -1,
    num_cols: Any = -1,
    padding_value: Any = 0,
    align: str = "RIGHT_LEFT",
) -> Tensor:
    """Matrices with a given diagonal.

    Args:
      diagonal: the elements (..., n).
      name: accepted for compatibility.
      k: which diagonal: 0 is the main one, positive ones lie above it, negative ones below.
      num_rows, num_cols: the size of the matrices; -1 for the smallest that the diagonal fits, in square matrices
        where neither is given.
      padding_value: what stands everywhere else.
      align: accepted for compatibility.

    Raises:
      InvalidArgumentError: matrices of which this is no whole diagonal.
      UnimplementedError: `k` is a band of diagonals.

    >>> import gradtape as tf
    >>> print(tf.linalg.diag([1.0, 2.0]).numpy())
    [[1. 0.]
     [0. 2.]]
    >>> print(tf.linalg.diag([1.0], k=1, padding_value=9.0).numpy())
    [[9. 1.]
     [9. 9.]]
    """
    d, k = convert(diagonal), _one(k, "diag")
    if d.ndim < 1:
        raise InvalidArgumentError("`diag` wants diagonals (..., n), got a scalar.")
    n = d._aval.dims[-1]
    rows, columns = _size((integer(num_rows, "num_rows"), integer(num_cols, "num_cols")), k, n)
    out = unary(UNDIAGONAL.bind(), d)
    if (rows, columns) != (n, n):
        lead, top, left = (0,) * (d.ndim - 1), max(-k, 0), max(k, 0)
        out = unary(PAD.bind(low=(*lead, top, left), high=(*lead, rows - n - top, columns - n - left)), out)
    if isinstance(padding_value, int | float) and padding_value == 0:
        return out
    return where(convert(_offsets(rows, columns) == k), out, operand(padding_value, d._aval.dtype))


def _size(given: tuple[int, int], k: int, n: int) -> tuple[int, int]:
    """The rows and columns of matrices whose k-th diagonal has n elements."""
    top, left = max(-k, 0), max(k, 0)
    least = (n + abs(k),) * 2 if given == (-1, -1) else (n + top, n + left)
    rows, columns = (usual if m == -1 else m for m, usual in zip(given, least, strict=True))
    if rows < n + top or columns < n + left or min(rows - top, columns - left) != n:
        raise InvalidArgumentError(
            f"`diag` got {n} elements for `k` = {k}, which are no whole diagonal of matrices of shape "
            f"({rows}, {columns})."
        )
    return rows, columns


def set_diag(input: Any, diagonal: Any, name: str = "set_diag", k: Any = 0, align: str = "RIGHT_LEFT") -> Tensor:
    """Matrices with another diagonal; what stood there receives no gradient.

    Args:
      input: matrices (..., m, n).
      diagonal: the new elements (..., length of the diagonal).
      name: accepted for compatibility.
      k: which diagonal: 0 is the main one, positive ones lie above it, negative ones below.
      align: accepted for compatibility.

    Raises:
      InvalidArgumentError: there is no such diagonal, or it has another length.
      UnimplementedError: `k` is a band of diagonals.

    >>> import gradtape as tf
    >>> print(tf.linalg.set_diag([[1.0, 2.0], [3.0, 4.0]], [0.0, 9.0]).numpy())
    [[0. 2.]
     [3. 9.]]
    """
    x, k = _matrices(input, "set_diag"), _one(k, "set_diag")
    d = operand(diagonal, x._aval.dtype)
    rows, columns = x._aval.dims[-2:]
    _inside(k, rows, columns, "set_diag")
    wanted = (*x._aval.dims[:-2], min(rows - max(-k, 0), columns - max(k, 0)))
    if d._aval.dims != wanted:
        raise InvalidArgumentError(
            f"`set_diag` wants a diagonal of shape {shape_text(wanted)} for matrices of shape "
            f"{shape_text(x._aval.shape)} and `k` = {k}, got {shape_text(d._aval.shape)}."
        )
    return where(convert(_offsets(rows, columns) == k), diag(d, k=k, num_rows=rows, num_cols=columns), x)


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
