"""Sorting, the largest elements, places in sorted rows, distinct elements. Floor: api.

What is sorted is gathered by its positions, so that gradients of any order are those of a gather."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gradtape.api.arguments import integer, one_axis
from gradtape.api.elementwise import cast, is_finite, logical_and, where
from gradtape.api.reductions import reduce_sum
from gradtape.ir.dtypes import as_dtype, int32, int64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ops.indexing import GATHER
from gradtape.ops.layout import TRANSPOSE
from gradtape.ops.ordering import ARGSORT, SEARCHSORTED
from gradtape.runtime.contract import reshape
from gradtape.runtime.convert import convert, convert_all
from gradtape.runtime.dispatch import binary, unary
from gradtape.runtime.subscript import positions
from gradtape.runtime.tensor import Tensor, from_array


class TopKV2(NamedTuple):
    """The largest elements of each row, and where they are."""

    values: Tensor
    indices: Tensor


class Unique(NamedTuple):
    """The distinct elements, and for each element which of them it is."""

    y: Tensor
    idx: Tensor


class UniqueWithCounts(NamedTuple):
    """The distinct elements, for each element which of them it is, and how often each occurs."""

    y: Tensor
    idx: Tensor
    count: Tensor  # type: ignore[assignment]  # the name that TensorFlow gives it hides a method of tuples


def _order(x: Tensor, axis: Any, direction: str, name: str) -> tuple[Tensor, int]:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(f"`direction` should be 'ASCENDING' or 'DESCENDING', got {direction!r}.")
    if not x.ndim:
        raise InvalidArgumentError(f"`{name}` wants at least one axis, got a scalar.")
    k = one_axis(axis, x.ndim)
    step = ARGSORT.bind(axis=k, descending=direction == "DESCENDING", count=x._aval.dims[k])
    return unary(step, x), k


def _along_axis(x: Tensor, at: Tensor, axis: int) -> Tensor:
    """The elements of each row along an axis at that row's positions."""
    last = x.ndim - 1
    perm = (*(k for k in range(x.ndim) if k != axis), axis)
    if axis != last:
        x, at = (unary(TRANSPOSE.bind(perm=perm), t) for t in (x, at))
    found = binary(GATHER.bind(axis=last, batch_dims=last), x, at)
    if axis == last:
        return found
    return unary(TRANSPOSE.bind(perm=(*range(axis), last, *range(axis, last))), found)


def sort(values: Any, axis: Any = -1, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    """The elements along an axis in order; each gradient goes to where its element came from.

    Args:
      values: a tensor of real numbers; NaN counts as the largest.
      axis: along which to sort.
      direction: "ASCENDING" or "DESCENDING".
      name: accepted for compatibility.

    Returns:
      A tensor of the same shape and dtype.

    Raises:
      ValueError: another direction.
      InvalidArgumentError: a scalar, an axis that does not exist, or a dtype without an order.

    >>> import gradtape as tf
    >>> print(tf.sort([3, 1, 2]).numpy(), tf.sort([3, 1, 2], direction="DESCENDING").numpy())
    [1 2 3] [3 2 1]
    """
    x = convert(values)
    order, k = _order(x, axis, direction, "sort")
    return _along_axis(x, order, k)


def argsort(
    values: Any, axis: Any = -1, direction: str = "ASCENDING", stable: bool = False, name: str | None = None
) -> Tensor:
    """The positions that sort a tensor along an axis, as int32. Equal elements always stay in their order.

    Args:
      values: a tensor of real numbers; NaN counts as the largest.
      axis: along which to sort.
      direction: "ASCENDING" or "DESCENDING".
      stable: accepted for compatibility; the order is always stable.
      name: accepted for compatibility.

    Raises:
      ValueError: another direction.
      InvalidArgumentError: a scalar, an axis that does not exist, or a dtype without an order.

    >>> import gradtape as tf
    >>> print(tf.argsort([3, 1, 2]).numpy())
    [1 2 0]
    """
    return _order(convert(values), axis, direction, "argsort")[0]


def top_k(input: Any, k: Any = 1, sorted: bool = True, index_type: Any = int32, name: str | None = None) -> TopKV2:
    """The k largest elements of each row along the last axis, the largest first, and their positions.

    Args:
      input: a tensor of real numbers with at least one axis; NaN counts as the largest.
      k: how many.
      sorted: accepted for compatibility; results are always sorted.
      index_type: dtype of the positions.
      name: accepted for compatibility.

    Returns:
      `values` and `indices`. Of equal elements the one at the lower position comes first.

    Raises:
      InvalidArgumentError: rows with fewer than k elements.

    >>> import gradtape as tf
    >>> values, indices = tf.math.top_k([1.0, 9.0, 3.0, 9.0], k=3)
    >>> print(values.numpy(), indices.numpy())
    [9. 9. 3.] [1 3 2]
    """
    x = convert(input)
    count = integer(k, "k")
    if not x.ndim or not 0 <= count <= x._aval.dims[-1]:
        raise InvalidArgumentError(
            f"`top_k`: input must have at least k columns, got k={count} for an input of shape {x.shape}."
        )
    at = unary(ARGSORT.bind(axis=x.ndim - 1, descending=True, count=count), x)
    return TopKV2(_along_axis(x, at, x.ndim - 1), cast(at, as_dtype(index_type)))


def in_top_k(targets: Any, predictions: Any, k: Any, name: str | None = None) -> Tensor:
    """Whether the prediction for each target is among the k largest of its row; equal ones count as the larger.

    Args:
      targets: one class per row; classes that do not exist, or whose prediction is not finite, are not in it.
      predictions: a floating matrix, one row per target.
      k: how many are looked at.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: not one target per row.

    >>> import gradtape as tf
    >>> print(tf.math.in_top_k([1, 0], [[0.1, 0.8, 0.1], [0.2, 0.5, 0.3]], k=1).numpy())
    [ True False]
    """
    at, rows = cast(convert(targets), int64), convert(predictions)
    if rows.ndim != 2 or at._aval.dims != rows._aval.dims[:1]:
        raise InvalidArgumentError(
            f"`in_top_k` wants one target per row of predictions, got targets of shape {at.shape} and predictions of "
            f"shape {rows.shape}."
        )
    n, classes = rows._aval.dims
    if not classes:
        return from_array(np.zeros(n, bool))
    exists = logical_and(at >= 0, at < classes)
    own = binary(GATHER.bind(axis=1, batch_dims=1), rows, reshape(where(exists, at, convert(0, int64)), (n, 1)))
    above = reduce_sum(cast(rows > own, int64), axis=1)
    # other predictions of the row that are NaN do not matter
    return logical_and(above < integer(k, "k"), logical_and(exists, is_finite(own)[:, 0]))


def searchsorted(
    sorted_sequence: Any, values: Any, side: str = "left", out_type: Any = int32, name: str | None = None
) -> Tensor:
    """Where values would go into sorted rows, along the last axis.

    Args:
      sorted_sequence: a tensor of real numbers whose last axis is sorted.
      values: a tensor of the same dtype and leading axes.
      side: before ("left") or after ("right") elements equal to the value.
      out_type: int32 or int64.
      name: accepted for compatibility.

    Returns:
      A tensor of the shape of `values`.

    Raises:
      ValueError: another side.
      InvalidArgumentError: different leading axes or dtypes.

    >>> import gradtape as tf
    >>> print(tf.searchsorted([1.0, 3.0, 5.0], [3.0, 4.0]).numpy())
    [1 2]
    """
    if side not in ("left", "right"):
        raise ValueError(f"`side` should be 'left' or 'right', got {side!r}.")
    rows, wanted = convert_all([sorted_sequence, values])
    return binary(SEARCHSORTED.bind(right=side == "right", dtype=as_dtype(out_type)), rows, wanted)


# ------------------------------------------------------------------ distinct elements, permutations


def _distinct(x: Tensor, out_type: Any, name: str) -> UniqueWithCounts:
    if x.ndim != 1:
        raise InvalidArgumentError(f"`{name}` expects a 1D vector, got shape {x.shape}. Use `tf.reshape(x, [-1])`.")
    values = np.asarray(x)
    comparable = values.astype(np.float32) if x._aval.dtype.is_half else values
    _, first, which, counts = np.unique(
        comparable, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    order = np.argsort(first, kind="stable")  # in the order in which they occur
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    wanted = as_dtype(out_type).numpy_dtype
    y = binary(GATHER.bind(axis=0, batch_dims=0), x, positions(first[order]))
    return UniqueWithCounts(
        y, from_array(rank[which.reshape(-1)].astype(wanted)), from_array(counts[order].astype(wanted))
    )


def unique(x: Any, out_idx: Any = int32, name: str | None = None) -> Unique:
    """The distinct elements of a vector in the order in which they first occur.

    Args:
      x: a vector.
      out_idx: dtype of the positions: int32 or int64.
      name: accepted for compatibility.

    Returns:
      `y`, the distinct elements, and `idx`, with `x[i] == y[idx[i]]`.

    Raises:
      InvalidArgumentError: a tensor that is no vector.

    >>> import gradtape as tf
    >>> y, idx = tf.unique([7, 3, 7])
    >>> print(y.numpy(), idx.numpy())
    [7 3] [0 1 0]
    """
    found = _distinct(convert(x), out_idx, "unique")
    return Unique(found.y, found.idx)


def unique_with_counts(x: Any, out_idx: Any = int32, name: str | None = None) -> UniqueWithCounts:
    """The distinct elements of a vector, as `unique`, and how often each occurs.

    Raises:
      InvalidArgumentError: a tensor that is no vector.

    >>> import gradtape as tf
    >>> y, idx, count = tf.unique_with_counts([7, 3, 7])
    >>> print(y.numpy(), idx.numpy(), count.numpy())
    [7 3] [0 1 0] [2 1]
    """
    return _distinct(convert(x), out_idx, "unique_with_counts")


def invert_permutation(x: Any, name: str | None = None) -> Tensor:
    """The permutation that undoes x: `y[x[i]] == i`.

    Args:
      x: a vector that holds each of 0, 1, ... once.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: a vector that is no permutation.

    >>> import gradtape as tf
    >>> print(tf.math.invert_permutation([2, 0, 1]).numpy())
    [1 2 0]
    """
    t = convert(x)
    values = np.asarray(t)
    if values.ndim != 1 or t._aval.dtype not in (int32, int64):
        raise InvalidArgumentError(f"`invert_permutation` expects a vector of int32 or int64, got {t._aval!r}.")
    if not np.array_equal(np.sort(values), np.arange(len(values))):
        raise InvalidArgumentError(f"`invert_permutation` expects each of 0 to {len(values) - 1} once, got {values}.")
    out = np.empty_like(values)
    out[values] = np.arange(len(values))
    return from_array(out)
