"""Taking rows apart by number and putting them together again. Floor: api."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.api.arguments import host, integer
from gradtape.api.creation import zeros
from gradtape.api.elementwise import where
from gradtape.api.layout import concat
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import size_of
from gradtape.ops.indexing import GATHER
from gradtape.runtime.contract import reshape
from gradtape.runtime.convert import convert, convert_all
from gradtape.runtime.dispatch import binary
from gradtape.runtime.subscript import positions
from gradtape.runtime.tensor import Tensor


def dynamic_partition(data: Any, partitions: Any, num_partitions: Any, name: str | None = None) -> list[Tensor]:
    """The rows (or elements) of data in as many parts as there are numbers, in their order.

    Args:
      data: a tensor.
      partitions: which part each row goes to: integers of a shape that begins the shape of data.
      num_partitions: how many parts there are.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: a number that is out of range, or a shape that does not fit.

    >>> import gradtape as tf
    >>> [p.numpy().tolist() for p in tf.dynamic_partition([10, 20, 30], [1, 0, 1], 2)]
    [[20], [10, 30]]
    """
    instead = "Give partitions that are constants of that function, or use `tf.where`."
    x, which = convert(data), host(convert(partitions), "dynamic_partition", instead)
    count = integer(num_partitions, "num_partitions")
    lead = which.shape
    if x._aval.dims[: len(lead)] != lead:
        raise InvalidArgumentError(
            f"`dynamic_partition`: data.shape must start with partitions.shape, got {x.shape} and {lead}."
        )
    if which.size and (which.min() < 0 or which.max() >= count):
        bad = which[(which < 0) | (which >= count)]
        raise InvalidArgumentError(f"`dynamic_partition`: partition {int(bad.ravel()[0])} is not in [0, {count}).")
    rows = reshape(x, (size_of(lead), *x._aval.dims[len(lead) :]))
    step = GATHER.bind(axis=0, batch_dims=0)
    return [binary(step, rows, positions(np.flatnonzero(which.reshape(-1) == k))) for k in range(count)]


def dynamic_stitch(indices: Any, data: Any, name: str | None = None) -> Tensor:
    """Rows from several tensors in one, each at its position; of several for one position the last one counts.

    Args:
      indices: a list of integer tensors: the positions of the rows of each tensor of `data`.
      data: a list of tensors; the shape of each begins with the shape of its indices.
      name: accepted for compatibility.

    Returns:
      A tensor with largest position + 1 rows; rows at no position are zeros.

    Raises:
      InvalidArgumentError: shapes that do not fit, or negative positions.

    >>> import gradtape as tf
    >>> print(tf.dynamic_stitch([[2, 0], [1]], [[30, 10], [20]]).numpy())
    [10 20 30]
    """
    instead = "Give indices that are constants of that function, or use `tf.tensor_scatter_nd_update`."
    where_to = [host(convert(i), "dynamic_stitch", instead) for i in indices]
    parts = convert_all(list(data))
    if len(where_to) != len(parts) or not parts:
        raise InvalidArgumentError(
            f"`dynamic_stitch` wants one tensor of indices per tensor of data, got {len(where_to)} and {len(parts)}."
        )
    inner = parts[0]._aval.dims[where_to[0].ndim :]
    rows = []
    for at, part in zip(where_to, parts, strict=True):
        if part._aval.dims != at.shape + inner:
            raise InvalidArgumentError(
                f"`dynamic_stitch` wants data of shape {at.shape + inner} for indices of shape {at.shape}, "
                f"got {part.shape}."
            )
        rows.append(reshape(part, (at.size, *inner)))
    places = np.concatenate([at.reshape(-1) for at in where_to]).astype(np.int64)
    if places.size and places.min() < 0:
        raise InvalidArgumentError(f"`dynamic_stitch`: position {int(places.min())} is negative.")
    return _stitched(concat(rows, axis=0), places, inner)


def _stitched(rows: Tensor, places: Any, inner: tuple[int, ...]) -> Tensor:
    count = int(places.max()) + 1 if places.size else 0
    if not count:
        return rows
    source = np.full(count, -1)
    source[places] = np.arange(len(places))
    hit = source >= 0
    found = binary(GATHER.bind(axis=0, batch_dims=0), rows, positions(np.where(hit, source, 0)))
    if hit.all():
        return found
    return where(convert(hit.reshape(-1, *(1,) * len(inner))), found, zeros([], rows._aval.dtype))
