"""`tf.norm`: norms of vectors and of matrices. Floor: api."""

from __future__ import annotations

import math
from typing import Any

from gradtape.api.arguments import axes as axes_of
from gradtape.api.arguments import integer, one_axis
from gradtape.api.elementwise import abs, where
from gradtape.api.layout import transpose
from gradtape.api.reductions import reduce_euclidean_norm, reduce_max, reduce_sum
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ops.decompositions import SINGULAR_VALUES
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import unary
from gradtape.runtime.operators import operand
from gradtape.runtime.tensor import Tensor

OF_MATRICES = ("euclidean", "fro", 1, 2, math.inf)


def norm(
    tensor: Any, ord: Any = "euclidean", axis: Any = None, keepdims: bool | None = None, name: str | None = None
) -> Tensor:
    """A norm of vectors (`axis` None or one axis) or of matrices (two axes).

    Args:
      tensor: a floating or complex tensor; of integers only sums and maxima, the orders 1 and infinity.
      ord: of vectors "euclidean", 1, infinity, or another positive number p, for sum(|x|ᵖ)^(1/p); of matrices
        "euclidean" or "fro" for the root of the sum of squares, 1 and infinity for the largest sum of sizes in a
        column or in a row, 2 for the largest singular value.
      axis: None for all elements as one vector, one axis, or a pair of axes for the rows and columns of matrices.
      keepdims: whether reduced axes stay, with size 1.
      name: accepted for compatibility.

    Returns:
      The norms; their gradient where everything is 0 is 0. Of complex tensors they are real, but for the root of the
      sum of squares, which is of the tensor's dtype, as in TensorFlow.

    Raises:
      ValueError: an order that does not exist for these axes, or axes that are neither one nor two.
      InvalidArgumentError: an axis that the tensor does not have.

    >>> import gradtape as tf
    >>> print(tf.norm([[3.0, 4.0], [0.0, 0.0]], axis=1).numpy())
    [5. 0.]
    >>> print(tf.norm([[3.0, 4.0], [0.0, 0.0]], ord=2, axis=[0, 1]).numpy())
    5.0
    """
    picked = _axes(axis)
    pair = picked is not None and len(picked) == 2
    order = _order(ord, pair)
    x, kept = convert(tensor), bool(keepdims)
    if order in ("euclidean", "fro") or (order == 2 and not pair):
        if not x._aval.dtype.is_differentiable:
            raise InvalidArgumentError(f"`norm` wants a floating or complex tensor, got {x.dtype.name}. Use `tf.cast`.")
        return reduce_euclidean_norm(x, picked, kept)
    if picked is not None and pair:
        axes_of(picked, x.ndim)  # they exist, and are two
        return _of_matrices(x, order, (one_axis(picked[0], x.ndim), one_axis(picked[1], x.ndim)), kept)
    return _of_vectors(abs(x), order, picked, kept)


def _axes(axis: Any) -> list[int] | None:
    """The axes that were asked for: none, one or two."""
    if axis is None:
        return None
    listed = isinstance(axis, list | tuple)
    try:
        picked = [integer(k, "axis") for k in (axis if listed else [axis])]
    except TypeError:
        picked = []
    if len(picked) != (2 if listed else 1) or len(set(picked)) < len(picked):
        raise ValueError(f"`axis` should be None, an integer, or two different integers for matrices, got {axis!r}.")
    return picked


def _order(ord: Any, pair: bool) -> Any:
    if pair:
        if ord in OF_MATRICES:
            return ord
        raise ValueError(f"A norm of matrices has an `ord` of {', '.join(map(repr, OF_MATRICES))}, got {ord!r}.")
    if ord == "euclidean" or (isinstance(ord, int | float) and ord > 0):
        return ord
    raise ValueError(
        f"A norm of vectors has 'euclidean' or a positive number as `ord`, got {ord!r}. Give two axes for norms of "
        "matrices."
    )


def _of_vectors(size: Tensor, ord: float, axis: list[int] | None, keepdims: bool) -> Tensor:
    if ord == 1:
        return reduce_sum(size, axis, keepdims)
    if ord == math.inf:
        return reduce_max(size, axis, keepdims)
    total = reduce_sum(size**ord, axis, keepdims)
    return _zero_where_zero(total, total ** (1.0 / ord))


def _of_matrices(x: Tensor, ord: Any, axis: tuple[int, int], keepdims: bool) -> Tensor:
    rows, columns = axis
    if ord == 2:
        rest = [k for k in range(x.ndim) if k not in (rows, columns)]
        values = unary(SINGULAR_VALUES.bind(), transpose(x, [*rest, rows, columns]))
        size = reduce_max(values, axis=-1)
        result = _zero_where_zero(size, size)
        kept = tuple(None if k in (rows, columns) else slice(None) for k in range(x.ndim))
        return result[kept] if keepdims else result
    summed, other = (rows, columns) if ord == 1 else (columns, rows)
    result = reduce_max(reduce_sum(abs(x), summed, True), other, True)
    return result if keepdims else reduce_sum(result, [rows, columns])


def _zero_where_zero(size: Tensor, result: Tensor) -> Tensor:
    """The result, with no gradient where the size is 0: there all slopes of a norm are equally right."""
    return where(size == 0, operand(0.0, result._aval.dtype), result)
