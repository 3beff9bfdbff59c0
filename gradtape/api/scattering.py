"""A tensor with updates subtracted from, or compared with, its slices at rows of positions. Floor: api."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.api.indexing import (
    flat_positions,
    gather,
    gather_nd,
    ignores,
    index_depth,
    scatter_nd,
    tensor_scatter_nd_add,
    tensor_scatter_nd_update,
)
from gradtape.api.layout import concat
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import shape_text, size_of
from gradtape.ops.indexing import SCATTER_MAX, SCATTER_MIN
from gradtape.ops.op import Op
from gradtape.runtime.assigning_rows import AT_POSITIONS
from gradtape.runtime.contract import reshape
from gradtape.runtime.convert import convert, convert_all
from gradtape.runtime.dispatch import binary
from gradtape.runtime.subscript import positions
from gradtape.runtime.tensor import Tensor


def tensor_scatter_nd_sub(
    tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = "", name: str | None = None
) -> Tensor:
    """The tensor with updates subtracted at rows of positions; what meets at one place adds up first.

    Args:
      tensor: a numeric tensor.
      indices: the last axis holds one position per leading axis of the tensor.
      updates: one element or slice per row of positions.
      bad_indices_policy: "ERROR", the default, or "IGNORE", which leaves out updates at positions that do not exist.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: positions that do not exist, or updates of another shape.

    >>> import gradtape as tf
    >>> print(tf.tensor_scatter_nd_sub([1.0, 1.0], [[1], [1]], [2.0, 3.0]).numpy())
    [ 1. -4.]
    """
    x, values = convert_all([tensor, updates])
    return x - scatter_nd(indices, values, x._aval.dims, bad_indices_policy)


def tensor_scatter_nd_max(
    tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = "", name: str | None = None
) -> Tensor:
    """The tensor, raised to the updates at rows of positions. Arguments as for `tensor_scatter_nd_sub`.

    Equal maxima, that of the tensor among them, share the gradient evenly.

    Raises:
      InvalidArgumentError: positions that do not exist, or updates of another shape.

    >>> import gradtape as tf
    >>> print(tf.tensor_scatter_nd_max([1.0, 9.0], [[0], [1]], [5.0, 5.0]).numpy())
    [5. 9.]
    """
    return _extreme(SCATTER_MAX, tensor, indices, updates, bad_indices_policy, "tensor_scatter_nd_max")


def tensor_scatter_nd_min(
    tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = "", name: str | None = None
) -> Tensor:
    """The tensor, lowered to the updates at rows of positions. Arguments as for `tensor_scatter_nd_sub`.

    Equal minima, that of the tensor among them, share the gradient evenly.

    Raises:
      InvalidArgumentError: positions that do not exist, or updates of another shape.

    >>> import gradtape as tf
    >>> print(tf.tensor_scatter_nd_min([1.0, 9.0], [[0], [1]], [5.0, 5.0]).numpy())
    [1. 5.]
    """
    return _extreme(SCATTER_MIN, tensor, indices, updates, bad_indices_policy, "tensor_scatter_nd_min")


def _extreme(op: Op, tensor: Any, indices: Any, updates: Any, policy: str, name: str) -> Tensor:
    """The extremes of the tensor's own slices, each at its place, and the updates."""
    x, values = convert_all([tensor, updates])
    at, dims = convert(indices), x._aval.dims
    depth = index_depth(at, dims, name)
    inner, count = dims[depth:], size_of(dims[:depth])
    wanted = at._aval.dims[:-1] + inner
    if values._aval.dims != wanted:
        raise InvalidArgumentError(f"`{name}` wants updates of shape {shape_text(wanted)}, got {values.shape}.")
    ignore = ignores(policy, name)
    flat = flat_positions(at, dims[:depth], name, ignore)
    k = flat._aval.size
    rows = concat([reshape(x, (count, *inner)), reshape(values, (k, *inner))], axis=0)
    where_to = concat([positions(np.arange(count)), reshape(flat, (k,))], axis=0)
    found = binary(op.bind(size=count + ignore, axis=0, batch_dims=0), rows, where_to)
    return reshape(found[:count] if ignore else found, dims)


AT_POSITIONS.update(
    {
        "add": tensor_scatter_nd_add,
        "subtract": tensor_scatter_nd_sub,
        "assign": tensor_scatter_nd_update,
        "maximum": tensor_scatter_nd_max,
        "minimum": tensor_scatter_nd_min,
        "gather": gather,
        "gather_nd": gather_nd,
    }
)
