"""What a boolean mask picks: `tf.boolean_mask`, and masks as subscripts. Floor: runtime."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import bool_, int64
from gradtape.ir.shapes import shape_text, size_of
from gradtape.ops.indexing import GATHER
from gradtape.runtime.contract import reshape
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import binary
from gradtape.runtime.tensor import SymbolicTensor, SymbolicTensorError, Tensor, wrap


def is_mask(key: Any) -> bool:
    """Whether a subscript is a mask: bools in a tensor, an array, or lists."""
    if isinstance(key, list):
        return bool(key) and all(isinstance(k, bool | np.bool_) or is_mask(k) for k in key)
    return isinstance(key, bool | np.bool_) or getattr(key, "dtype", None) == bool_


def masked(x: Tensor, mask: Any, axis: int) -> Tensor:
    """The elements or slices of `x` where a mask over axes from `axis` on holds.

    Raises:
      TypeError: a mask of numbers, or one whose values are not known yet.
      ValueError: a mask that is a scalar or does not fit the axes.
    """
    chosen = convert(mask)
    if chosen._aval.dtype is not bool_:
        raise TypeError(f"`boolean_mask` wants a bool mask, got a {chosen.dtype.cname} tensor.")
    dims, over = x._aval.dims, chosen.ndim
    if not over:
        raise ValueError("A mask cannot be scalar: it wants at least one axis. Use `tf.where` to choose by one bool.")
    if dims[axis : axis + over] != chosen._aval.dims:
        raise ValueError(
            f"Shapes {shape_text(dims[axis : axis + over])} and {chosen.shape} are incompatible: the mask must fit the "
            f"axes from {axis} of shape {shape_text(dims)}."
        )
    rows = reshape(x, (*dims[:axis], size_of(dims[axis : axis + over]), *dims[axis + over :]))
    at = np.flatnonzero(_known(chosen))
    return binary(GATHER.bind(axis=axis, batch_dims=0), rows, wrap(at, aval(at.shape, int64)))


def _known(mask: Tensor) -> Any:
    if isinstance(mask, SymbolicTensor):
        raise SymbolicTensorError(
            f"How many elements the mask {mask!r} picks is not known: the function that it belongs to runs for all of "
            "its inputs at once, and each would give another shape. Use `tf.where(mask, x, 0)`, which keeps the shape."
        )
    return np.asarray(mask)
