"""Combining rows at integer positions: the array function behind sums, maxima and minima of segments. Floor: ops.

Operands of every axis and number of batch axes are brought into one form, (batch, k, width) into (batch, n, width)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.ir.shapes import size_of
from gradtape.kernels import scatter as kernels

LARGE = 1 << 16  # elements from which a compiled loop pays, though Numba must be loaded for it

Shape = tuple[int, ...]


def combined(xp: Any, ufunc: str, start: Any, g: Any, positions: Any, shape: Shape, axis: int, batch_dims: int) -> Any:
    """An array of `shape` full of `start`, with the slices of g combined at positions along an axis."""
    inner = positions.ndim - batch_dims
    batch, before, after = shape[:batch_dims], shape[batch_dims:axis], shape[axis + 1 :]
    b, k, width = size_of(batch), size_of(positions.shape[batch_dims:]), size_of(before + after)
    here = tuple(range(batch_dims, axis))
    there = tuple(range(batch_dims + inner, axis + inner))
    rows = xp.moveaxis(g, here, there).reshape(b, k, width) if here else g.reshape(b, k, width)
    full = (b, shape[axis], width)
    out = xp.full(full, start, g.dtype) if start else xp.zeros(full, g.dtype)
    _combine(xp, ufunc)(out, positions.reshape(b, k).astype(xp.int64, copy=False), rows)
    out = out.reshape(*batch, shape[axis], *before, *after)
    return xp.moveaxis(out, batch_dims, axis) if here else out


def _combine(xp: Any, ufunc: str) -> Callable[[Any, Any, Any], None]:
    def combine(out: Any, positions: Any, rows: Any) -> None:
        if xp is np and rows.size >= LARGE:
            kernels.combine(ufunc, out, np.ascontiguousarray(positions), np.ascontiguousarray(rows))
        else:
            flat(xp, ufunc, out, positions, rows)

    return combine


def flat(xp: Any, ufunc: str, out: Any, positions: Any, rows: Any) -> None:
    """The same through one flat index, for which the array library has fast loops."""
    b, n, width = out.shape
    lead = xp.arange(b).reshape(b, 1) * n + positions
    index = lead[..., None] * width + xp.arange(width)
    getattr(xp, ufunc).at(out.reshape(-1), index.reshape(-1), rows.reshape(-1))
