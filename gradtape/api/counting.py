"""Counts: of non-zeros, of integers, of values in bins, of pairs of labels. Floor: api."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.api.arguments import host, integer
from gradtape.api.creation import ones
from gradtape.api.elementwise import (
    cast,
    clip_by_value,
    floor,
    logical_and,
    maximum,
    minimum,
    not_equal,
    where,
)
from gradtape.api.layout import concat
from gradtape.api.reductions import reduce_sum
from gradtape.ir.dtypes import as_dtype, bool_, float64, int32, int64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ops.indexing import GATHER, SCATTER_ADD
from gradtape.runtime.contract import reshape
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import binary
from gradtape.runtime.operators import operand
from gradtape.runtime.subscript import positions
from gradtape.runtime.tensor import SymbolicTensor, Tensor


def count_nonzero(
    input: Any, axis: Any = None, keepdims: bool | None = None, dtype: Any = int64, name: str | None = None
) -> Tensor:
    """How many elements over axes are not zero (not False, not the empty string).

    Args:
      input: a tensor of any dtype.
      axis: an axis or a list of axes; None counts over all of them.
      keepdims: whether counted axes stay, with size 1.
      dtype: of the result.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: an axis that does not exist.

    >>> import gradtape as tf
    >>> print(tf.math.count_nonzero([[0, 1], [2, 3]], axis=0).numpy())
    [1 2]
    """
    x = convert(input)
    is_some = x
    if x._aval.dtype is not bool_:
        is_some = not_equal(x, operand("" if x._aval.dtype.kind == "s" else 0, x._aval.dtype))
    return cast(reduce_sum(cast(is_some, int64), axis, bool(keepdims)), as_dtype(dtype))


def bincount(
    arr: Any,
    weights: Any = None,
    minlength: Any = None,
    maxlength: Any = None,
    dtype: Any = int32,
    name: str | None = None,
    axis: Any = None,
    binary_output: bool = False,
) -> Tensor:
    """How often each integer occurs, or the sum of the weights where it occurs; gradients flow to the weights.

    Args:
      arr: integers of 0 or more.
      weights: of the shape of `arr`; the result has their dtype.
      minlength, maxlength: bounds on the size of the result; integers of `maxlength` or more are not counted.
      dtype: of the counts, without weights.
      name: accepted for compatibility.
      axis: None or 0 counts over all elements, -1 for each row of a matrix.
      binary_output: say only whether an integer occurs, as 1 or 0.

    Returns:
      A vector, or a row of counts for each row.

    Raises:
      InvalidArgumentError: negative integers, or weights of another shape.
      ValueError: another axis, or `binary_output` with weights.

    >>> import gradtape as tf
    >>> print(tf.math.bincount([1, 1, 3]).numpy(), tf.math.bincount([1, 1], weights=[0.5, 2.0]).numpy())
    [0 2 0 1] [0.  2.5]
    """
    at = convert(arr)
    if not at._aval.dtype.is_integer:
        raise InvalidArgumentError(f"`bincount` wants integers, got a {at.dtype.cname} tensor.")
    if axis not in (None, 0, -1):
        raise ValueError(f"`bincount` counts over all elements (`axis` None or 0) or in rows (-1), got axis {axis}.")
    if binary_output and weights is not None:
        raise ValueError("`bincount` with `binary_output` takes no weights.")
    dims = at._aval.dims
    values = ones(dims, as_dtype(dtype)) if weights is None else convert(weights)
    if values._aval.dims != dims:
        raise InvalidArgumentError(f"`bincount` wants weights of shape {at.shape}, got {values.shape}.")
    by_row = axis == -1 and at.ndim == 2
    rows = dims[0] if by_row else 1
    if isinstance(at, SymbolicTensor) and minlength is not None and maxlength is not None:
        size = integer(maxlength, "maxlength")
        if integer(minlength, "minlength") >= size:
            return _finished(_counted_later(values, at, size, rows), by_row, binary_output, dtype)
    ids = host(at, "bincount", "Give equal `minlength` and `maxlength`: the size of the result.").astype(np.int64)
    if ids.size and ids.min() < 0:
        raise InvalidArgumentError(f"`bincount` wants integers of 0 or more, got {int(ids.min())}.")
    counts = _counted(values, ids, _size(ids, minlength, maxlength), rows)
    return _finished(counts, by_row, binary_output, dtype)


def _finished(counts: Tensor, by_row: bool, binary_output: bool, dtype: Any) -> Tensor:
    if binary_output:
        counts = cast(counts > 0, as_dtype(dtype))
    return counts if by_row else reshape(counts, (counts._aval.size,))


def _size(ids: Any, minlength: Any, maxlength: Any) -> int:
    size = int(ids.max()) + 1 if ids.size else 0
    if minlength is not None:
        size = max(size, integer(minlength, "minlength"))
    return size if maxlength is None else min(size, integer(maxlength, "maxlength"))


def _counted(values: Tensor, ids: Any, size: int, rows: int) -> Tensor:
    """Values added up by integer, one row after the other."""
    flat = ids.reshape(rows, -1 if ids.size else 0)
    place = (flat + np.arange(rows)[:, None] * size).reshape(-1)
    kept = np.flatnonzero(flat.reshape(-1) < size)
    v = reshape(values, (ids.size,))
    if len(kept) < ids.size:
        v, place = binary(GATHER.bind(axis=0, batch_dims=0), v, positions(kept)), place[kept]
    step = SCATTER_ADD.bind(shape=(rows * size,), axis=0, batch_dims=0)
    return reshape(binary(step, v, positions(place)), (rows, size))


def _counted_later(values: Tensor, at: Tensor, size: int, rows: int) -> Tensor:
    """The same by ops, for integers that are known later: what is too large goes to a column that is dropped, and the
    op refuses the place that negative ones get."""
    width = at._aval.size // rows if rows else 0
    ids = reshape(cast(at, int64), (rows, width))
    place = minimum(ids, size) + positions(np.arange(rows)[:, None] * (size + 1))
    place = reshape(where(ids >= 0, place, convert(-1, int64)), (rows * width,))
    step = SCATTER_ADD.bind(shape=(rows * (size + 1),), axis=0, batch_dims=0)
    counts = binary(step, reshape(values, (rows * width,)), place)
    return reshape(counts, (rows, size + 1))[:, :size]


def histogram_fixed_width(
    values: Any, value_range: Any, nbins: Any = 100, dtype: Any = int32, name: str | None = None
) -> Tensor:
    """How many values fall into each of `nbins` equal bins; those outside the range count in the outer bins.

    Raises:
      InvalidArgumentError: fewer than one bin, or a range that is empty.

    >>> import gradtape as tf
    >>> print(tf.histogram_fixed_width([-1.0, 0.0, 1.5, 2.0, 5.0, 15.0], [0.0, 5.0], nbins=5).numpy())
    [2 1 1 0 2]
    """
    bins = histogram_fixed_width_bins(values, value_range, nbins)
    return bincount(bins, minlength=nbins, maxlength=nbins, dtype=dtype)


def histogram_fixed_width_bins(
    values: Any, value_range: Any, nbins: Any = 100, dtype: Any = int32, name: str | None = None
) -> Tensor:
    """The bin of each value: `histogram_fixed_width` without counting.

    Raises:
      InvalidArgumentError: fewer than one bin, or a range that is empty.

    >>> import gradtape as tf
    >>> print(tf.histogram_fixed_width_bins([-1.0, 0.0, 1.5, 5.0], [0.0, 5.0], nbins=5).numpy())
    [0 0 1 4]
    """
    x, count = convert(values), integer(nbins, "nbins")
    instead = "Give a `value_range` that is a constant of that function."
    ends = host(convert(value_range), "histogram_fixed_width_bins", instead)
    if count < 1:
        raise InvalidArgumentError(f"`nbins` should be 1 or more, got {count}.")
    if ends.shape != (2,) or not ends[0] < ends[1]:
        raise InvalidArgumentError(f"`value_range` should be two rising numbers, got {ends.tolist()}.")
    low, high = ends.astype(np.float64)
    share = (cast(x, float64) - low) / (high - low)
    return cast(clip_by_value(floor(share * float(count)), 0.0, count - 1.0), as_dtype(dtype))


def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: Any = None,
    weights: Any = None,
    dtype: Any = int32,
    name: str | None = None,
) -> Tensor:
    """How often each label (row) was predicted as each class (column).

    Args:
      labels, predictions: vectors of classes, integers of 0 or more.
      num_classes: by default the largest class + 1.
      weights: what each pair counts; by default 1.
      dtype: of the result.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: classes that are negative or too large, or vectors of different sizes.

    >>> import gradtape as tf
    >>> print(tf.math.confusion_matrix([0, 1, 1], [0, 1, 0]).numpy())
    [[1 0]
     [1 1]]
    """
    want, got = (reshape(cast(t, int64), (t._aval.size,)) for t in map(convert, (labels, predictions)))
    k = want._aval.size
    if got._aval.size != k:
        raise InvalidArgumentError(f"`confusion_matrix` got {k} labels and {got._aval.size} predictions.")
    wide = ones([k], as_dtype(dtype)) if weights is None else cast(convert(weights), as_dtype(dtype))
    pairs = concat([want, got], axis=0)
    if num_classes is not None and isinstance(pairs, SymbolicTensor):
        n = integer(num_classes, "num_classes")
        exist = logical_and(minimum(want, got) >= 0, maximum(want, got) < n)
        return reshape(_counted_later(wide, where(exist, want * n + got, convert(-1, int64)), n * n, 1), (n, n))
    both = host(pairs, "confusion_matrix", "Give `num_classes`.")
    n = integer(num_classes, "num_classes") if num_classes is not None else int(both.max(initial=-1)) + 1
    if both.size and (both.min() < 0 or both.max() >= n):
        raise InvalidArgumentError(
            f"`confusion_matrix` wants classes in [0, {n}), got {int(both.min())} to {int(both.max())}."
        )
    return reshape(_counted(wide, both[:k] * n + both[k:], n * n, 1), (n, n))
