"""Sums, means, products and extremes of the rows that share a segment id. Floor: api."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.api.arguments import host, integer
from gradtape.api.creation import ones
from gradtape.api.elementwise import cast, maximum, sqrt, where
from gradtape.api.layout import concat
from gradtape.ir.dtypes import float32, float64, int32, int64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import shape_text, size_of
from gradtape.ops.indexing import GATHER, SCATTER_ADD, SCATTER_MAX, SCATTER_MIN, in_range
from gradtape.ops.op import Op
from gradtape.runtime.contract import reshape
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import binary
from gradtape.runtime.subscript import positions
from gradtape.runtime.tensor import SymbolicTensor, Tensor, from_array


class Segments:
    """Rows, the segment of each, and how many segments there are."""

    def __init__(self, rows: Tensor, where_to: Tensor, count: int, dropped: int = 0) -> None:
        """`dropped`: how many segments before those of the result take in rows that belong to none."""
        self.rows, self.where_to, self.count, self.dropped = rows, where_to, count, dropped

    @property
    def inner(self) -> tuple[int, ...]:
        return self.rows._aval.dims[1:]

    def of(self, rows: Tensor) -> Segments:
        return Segments(rows, self.where_to, self.count, self.dropped)

    def kept(self, found: Tensor) -> Tensor:
        return found[self.dropped :] if self.dropped else found

    def added(self, rows: Tensor) -> Tensor:
        step = SCATTER_ADD.bind(shape=(self.dropped + self.count, *rows._aval.dims[1:]), axis=0, batch_dims=0)
        return self.kept(binary(step, rows, self.where_to))

    def sums(self) -> Tensor:
        return self.added(self.rows)

    def sizes(self) -> Tensor:
        """How many rows each segment has, of a shape that broadcasts against the result."""
        counted = self.added(ones([self.where_to._aval.size], int32))
        return reshape(counted, (self.count, *(1,) * len(self.inner)))

    def weights(self) -> Tensor:
        """The sizes, at least 1, as numbers to divide sums by."""
        dtype = self.rows._aval.dtype
        if dtype.is_half:
            dtype = float32  # a half has no numbers between 2048 and 2050
        return cast(maximum(self.sizes(), 1), float64 if dtype.is_integer else dtype)

    def divided(self, weights: Tensor) -> Tensor:
        """Sums by weights, in the weights' dtype until the end."""
        wide = self.of(cast(self.rows, weights._aval.dtype))
        return cast(wide.sums() / weights, self.rows._aval.dtype)

    def extremes(self, op: Op, empty: Any) -> Tensor:
        step = op.bind(size=self.dropped + self.count, axis=0, batch_dims=0)
        found = self.kept(binary(step, self.rows, self.where_to))
        return where(self.sizes() > 0, found, convert(empty, self.rows._aval.dtype))

    def products(self) -> Tensor:
        dtype = self.rows._aval.dtype
        if dtype.is_half:
            return cast(self.of(cast(self.rows, float32)).products(), dtype)
        ids = host(self.where_to, "unsorted_segment_prod", "Give ids that are constants of that function.")
        if not len(ids):
            return ones([self.count, *self.inner], dtype)
        order = np.argsort(ids, kind="stable")
        ends, found = _ends(ids[order])
        running = _running_products(_take(self.rows, order), ids[order])
        place = np.zeros(self.count, np.int64)
        place[found] = ends
        is_there = np.zeros((self.count, *(1,) * len(self.inner)), bool)
        is_there[found] = True
        return where(convert(is_there), _take(running, place), convert(1, dtype))


def _take(rows: Tensor, at: Any) -> Tensor:
    return binary(GATHER.bind(axis=0, batch_dims=0), rows, positions(at))


def _ends(ids: Any) -> tuple[Any, Any]:
    """Where each segment of sorted ids ends, and its id."""
    ends = np.flatnonzero(np.append(ids[1:] != ids[:-1], True))
    return ends, ids[ends]


def _running_products(rows: Tensor, ids: Any) -> Tensor:
    """Each row times those before it in its segment, by windows of 1, 2, 4, ... rows: nothing is divided, so that
    derivatives of any order are right where a factor is 0."""
    ends, _ = _ends(ids)
    longest = int(np.max(np.diff(ends, prepend=-1)))
    inner = rows._aval.dims[1:]
    step = 1
    while step < longest:
        same = np.zeros((len(ids), *(1,) * len(inner)), bool)
        same[step:, ...] = (ids[step:] == ids[:-step]).reshape(-1, *(1,) * len(inner))
        one = ones([step, *inner], rows._aval.dtype)
        before = concat([one, rows[:-step]], axis=0)
        rows = rows * where(convert(same), before, convert(1, rows._aval.dtype))
        step *= 2
    return rows


# ------------------------------------------------------------------ sorted ids


def _sorted(data: Any, segment_ids: Any, name: str) -> Segments:
    x, at = convert(data), convert(segment_ids)
    if at.ndim != 1 or x.ndim < 1 or at._aval.dims[0] != x._aval.dims[0]:
        raise InvalidArgumentError(
            f"`{name}`: segment_ids should be the same size as dimension 0 of input: got ids of shape {at.shape} for "
            f"data of shape {x.shape}."
        )
    _check_integers(at, name)
    instead = f"Use `tf.math.unsorted_{name}`, which is told the number of segments."
    ids = host(at, name, instead).astype(np.int64, copy=False)
    if len(ids) and ids[0] < 0:
        raise InvalidArgumentError(f"`{name}`: segment ids must be >= 0, got {int(ids[0])}.")
    if (ids[1:] < ids[:-1]).any():
        raise InvalidArgumentError(
            f"`{name}`: segment ids are not increasing. Sort the rows, or use `tf.math.unsorted_{name}`."
        )
    return Segments(x, from_array(ids), int(ids[-1]) + 1 if len(ids) else 0)


def _check_integers(ids: Tensor, name: str) -> None:
    if not ids._aval.dtype.is_integer:
        raise InvalidArgumentError(f"`{name}` wants integer segment ids, got a {ids.dtype.cname} tensor.")


def segment_sum(data: Any, segment_ids: Any, name: str | None = None) -> Tensor:
    """The sums of the rows of each segment; 0 for an id that does not occur.

    Args:
      data: a numeric tensor of shape (k, ...).
      segment_ids: k integers of 0 or more, not falling.
      name: accepted for compatibility.

    Returns:
      A tensor of shape (last id + 1, ...).

    Raises:
      InvalidArgumentError: ids that fall, are negative, or are not one per row.

    >>> import gradtape as tf
    >>> print(tf.math.segment_sum([1, 2, 3], [0, 0, 2]).numpy())
    [3 0 3]
    """
    return _sorted(data, segment_ids, "segment_sum").sums()


def segment_mean(data: Any, segment_ids: Any, name: str | None = None) -> Tensor:
    """The means of the rows of each segment; 0 for an id that does not occur. Arguments as for `segment_sum`.

    Raises:
      InvalidArgumentError: ids that fall, are negative, or are not one per row.

    >>> import gradtape as tf
    >>> print(tf.math.segment_mean([1.0, 2.0, 3.0], [0, 0, 2]).numpy())
    [1.5 0.  3. ]
    """
    s = _sorted(data, segment_ids, "segment_mean")
    return s.divided(s.weights())


def segment_prod(data: Any, segment_ids: Any, name: str | None = None) -> Tensor:
    """The products of the rows of each segment; 1 for an id that does not occur. Arguments as for `segment_sum`.

    Derivatives of any order are right where a factor is 0.

    Raises:
      InvalidArgumentError: ids that fall, are negative, or are not one per row.

    >>> import gradtape as tf
    >>> print(tf.math.segment_prod([2, 3, 4], [0, 0, 2]).numpy())
    [6 1 4]
    """
    return _sorted(data, segment_ids, "segment_prod").products()


def segment_max(data: Any, segment_ids: Any, name: str | None = None) -> Tensor:
    """The largest rows' elements of each segment; 0 for an id that does not occur. Arguments as for `segment_sum`.

    Equal maxima share the gradient evenly.

    Raises:
      InvalidArgumentError: ids that fall, are negative, or are not one per row.

    >>> import gradtape as tf
    >>> print(tf.math.segment_max([1, 2, 3], [0, 0, 2]).numpy())
    [2 0 3]
    """
    return _sorted(data, segment_ids, "segment_max").extremes(SCATTER_MAX, 0)


def segment_min(data: Any, segment_ids: Any, name: str | None = None) -> Tensor:
    """The smallest rows' elements of each segment; 0 for an id that does not occur. Arguments as for `segment_sum`.

    Equal minima share the gradient evenly.

    Raises:
      InvalidArgumentError: ids that fall, are negative, or are not one per row.

    >>> import gradtape as tf
    >>> print(tf.math.segment_min([1, 2, 3], [0, 0, 2]).numpy())
    [1 0 3]
    """
    return _sorted(data, segment_ids, "segment_min").extremes(SCATTER_MIN, 0)


# ------------------------------------------------------------------ ids in any order


def _unsorted(data: Any, segment_ids: Any, num_segments: Any, name: str) -> Segments:
    """Rows with negative ids are dropped."""
    x, at = convert(data), convert(segment_ids)
    _check_integers(at, name)
    lead = at._aval.dims
    dims = x._aval.dims
    if dims[: len(lead)] != lead:
        raise InvalidArgumentError(
            f"`{name}` wants segment_ids whose shape begins that of data: got {shape_text(lead)} and "
            f"{shape_text(dims)}."
        )
    count = integer(num_segments, "num_segments")
    if count < 0:
        raise InvalidArgumentError(f"`{name}` wants `num_segments` of 0 or more, got {count}.")
    rows = reshape(x, (size_of(lead), *dims[len(lead) :]))
    if isinstance(at, SymbolicTensor):  # segment 0 takes the rows to drop; the op refuses ids that are too large
        shifted = maximum(reshape(cast(at, int64), (size_of(lead),)), -1) + 1
        return Segments(rows, shifted, count, dropped=1)
    ids = np.asarray(at).reshape(-1).astype(np.int64, copy=False)
    if not len(ids) or in_range(ids, count):
        return Segments(rows, from_array(ids), count)
    if ids.max() >= count:
        raise InvalidArgumentError(f"`{name}`: segment id {int(ids.max())} is out of range [0, {count}).")
    kept = np.flatnonzero(ids >= 0)
    return Segments(_take(rows, kept), from_array(ids[kept]), count)


def unsorted_segment_sum(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Tensor:
    """The sums of the rows (or elements) of each segment, whose ids may stand in any order; 0 where there are none.

    Args:
      data: a numeric tensor.
      segment_ids: integers below `num_segments`, of a shape that begins the shape of data; rows with negative
        ids are dropped.
      num_segments: how many segments the result has.
      name: accepted for compatibility.

    Returns:
      A tensor of shape (num_segments, ...), where the axes of `segment_ids` have become one.

    Raises:
      InvalidArgumentError: ids that are too large, no integers, or of a shape that does not fit.

    >>> import gradtape as tf
    >>> print(tf.math.unsorted_segment_sum([1, 2, 3], [2, 0, 2], 4).numpy())
    [2 0 4 0]
    """
    return _unsorted(data, segment_ids, num_segments, "unsorted_segment_sum").sums()


def unsorted_segment_mean(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Tensor:
    """The means of the rows of each segment; 0 where there are none. Arguments as for `unsorted_segment_sum`.

    Returns:
      A tensor of shape (num_segments, ...); of integers a float64 one.

    Raises:
      InvalidArgumentError: ids that are too large, no integers, or of a shape that does not fit.

    >>> import gradtape as tf
    >>> print(tf.math.unsorted_segment_mean([1.0, 2.0, 3.0], [2, 0, 2], 3).numpy())
    [2. 0. 2.]
    """
    s = _unsorted(data, segment_ids, num_segments, "unsorted_segment_mean")
    if s.rows._aval.dtype.is_integer:
        s = s.of(cast(s.rows, float64))
    return s.divided(s.weights())


def unsorted_segment_sqrt_n(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Tensor:
    """The sums of each segment by the root of its size; 0 where it is empty. Arguments as for
    `unsorted_segment_sum`.

    Raises:
      InvalidArgumentError: ids that are too large, no integers, or of a shape that does not fit.

    >>> import gradtape as tf
    >>> print(tf.math.unsorted_segment_sqrt_n([1.0, 1.0, 1.0, 1.0], [1, 1, 1, 1], 2).numpy())
    [0. 2.]
    """
    s = _unsorted(data, segment_ids, num_segments, "unsorted_segment_sqrt_n")
    return s.divided(sqrt(s.weights()))


def unsorted_segment_prod(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Tensor:
    """The products of each segment; 1 where it is empty. Arguments as for `unsorted_segment_sum`.

    Derivatives of any order are right where a factor is 0.

    Raises:
      InvalidArgumentError: ids that are too large, no integers, or of a shape that does not fit.

    >>> import gradtape as tf
    >>> print(tf.math.unsorted_segment_prod([2, 3, 4], [1, 0, 1], 3).numpy())
    [3 8 1]
    """
    return _unsorted(data, segment_ids, num_segments, "unsorted_segment_prod").products()


def unsorted_segment_max(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Tensor:
    """The largest elements of each segment; the dtype's lowest number where it is empty. Arguments as for
    `unsorted_segment_sum`. Equal maxima share the gradient evenly.

    Raises:
      InvalidArgumentError: ids that are too large, no integers, or of a shape that does not fit.

    >>> import gradtape as tf
    >>> print(tf.math.unsorted_segment_max([1, 5, 3], [1, 0, 1], 2).numpy())
    [5 3]
    """
    s = _unsorted(data, segment_ids, num_segments, "unsorted_segment_max")
    return s.extremes(SCATTER_MAX, s.rows._aval.dtype.min)


def unsorted_segment_min(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Tensor:
    """The smallest elements of each segment; the dtype's highest number where it is empty. Arguments as for
    `unsorted_segment_sum`. Equal minima share the gradient evenly.

    Raises:
      InvalidArgumentError: ids that are too large, no integers, or of a shape that does not fit.

    >>> import gradtape as tf
    >>> print(tf.math.unsorted_segment_min([1, 5, 3], [1, 0, 1], 2).numpy())
    [5 1]
    """
    s = _unsorted(data, segment_ids, num_segments, "unsorted_segment_min")
    return s.extremes(SCATTER_MIN, s.rows._aval.dtype.max)
