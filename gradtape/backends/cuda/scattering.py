"""Slices combined at integer positions, always in the same order: positions are sorted once, many of them by the
library, and what they bring together is combined by two kernels, however many are equal. Floor: backends.

Positions that do not exist cannot be refused without waiting for them; what belongs there is left out, as in
TensorFlow on a GPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.backends.cuda.device import Cuda, Known, as_given
from gradtape.backends.cuda.moves import alignment, on_device
from gradtape.ir.dtypes import DType, of_numpy
from gradtape.kernels import cuda_scatter, cuda_sorting
from gradtape.kernels.cuda_scatter import Slices
from gradtape.ops.indexing import FAR

Array = Any
Sizes = tuple[int, ...]


def sorted_keys(cuda: Cuda, positions: Array, at: Slices) -> Array:
    """The keys of positions in order; they are distinct, so that no sort needs to be stable."""
    program = cuda.once(
        ("keys", at, positions.dtype),
        lambda: cuda.program(cuda_scatter.keys(at, of_numpy(positions.dtype)), [((at.size,), "int64")]),
    )
    if cuda_scatter.are_sorted(at):
        return program(positions)[0]
    cuda.needs_host(f"more than {cuda_sorting.SHORT} positions are sorted by a library")
    return cuda.xp.sort(program(positions)[0])


def combine(cuda: Cuda, monoid: str, out: Array, keys: Array, x: Array, at: Slices) -> None:
    """Write those rows of a result that have keys; `x`: slices that are (batches, before, count, inner) in C order."""
    dtype = of_numpy(x.dtype)
    width = cuda_scatter.width_of(at, dtype, alignment(x))
    program = cuda.once(
        ("scatter", at, monoid, x.dtype, width),
        lambda: cuda.program(cuda_scatter.scatter(at, monoid, dtype, width), [(out.shape, out.dtype)]),
    )
    program(keys, x, into=[out])


def _scattered(cuda: Cuda, monoid: str, x: Array, indices: Array, out: Array, axis: int, batch_dims: int) -> Array:
    count = math.prod(indices.shape[batch_dims:])
    shape = out.shape
    batches, before = math.prod(shape[:batch_dims]), math.prod(shape[batch_dims:axis])
    at = Slices(batches, before, count, shape[axis], math.prod(shape[axis + 1 :]))
    positions = on_device(cuda, indices, at.n)
    if x.size and out.size:
        combine(cuda, monoid, out, sorted_keys(cuda, positions, at), x, at)
    return out


class RowAdder:
    """Elements of an axis of arrays of a shape added up at positions; those that are known are sorted once, here."""

    def __init__(self, cuda: Cuda, shape: Sizes, axis: int, count: int, positions: Any = None) -> None:
        self.cuda, self.shape = cuda, (*shape[:axis], count, *shape[axis + 1 :])
        self.at = Slices(1, math.prod(shape[:axis]), shape[axis], count, math.prod(shape[axis + 1 :]))
        self.keys: Any = None
        if positions is not None:
            keys = np.asarray(positions, np.int64).reshape(-1) << self.at.bits | np.arange(shape[axis])
            self.keys = np.sort(keys).view(Known)

    def __call__(self, x: Array, positions: Array = None) -> Array:
        out = self.cuda.zeros(self.shape, x.dtype)
        if x.size and out.size:
            keys = sorted_keys(self.cuda, positions, self.at) if self.keys is None else self.keys
            combine(self.cuda, "sum", out, keys, x, self.at)
        return out


@as_given(1)
def scatter_add(cuda: Cuda, g: Array, indices: Array, shape: Sizes, axis: int, batch_dims: int) -> Array:
    return _scattered(cuda, "sum", g, indices, cuda.zeros(shape, g.dtype), axis, batch_dims)


@as_given(2)
def set_row(cuda: Cuda, x: Array, row: Array, at: Array, over: bool) -> Array:
    """What is written at a position is the sum of one row."""
    out = x if over else cuda.xp.array(x)
    return _scattered(cuda, "sum", row, at, out, 0, 0)


def _extreme(cuda: Cuda, x: Array, indices: Array, size: int, axis: int, batch_dims: int, monoid: str) -> Array:
    shape = (*x.shape[:axis], size, *x.shape[axis + indices.ndim - batch_dims :])
    far: Callable[[DType], Any] = FAR[monoid]
    out = cuda.filled(shape, far(of_numpy(x.dtype)), x.dtype)
    return _scattered(cuda, monoid, x, indices, out, axis, batch_dims)


OPS: dict[str, Callable[..., Any]] = {
    "scatter_add": scatter_add,
    "scatter_rows": scatter_add,
    "set_row": set_row,
    "scatter_max": as_given(1)(functools.partial(_extreme, monoid="max")),
    "scatter_min": as_given(1)(functools.partial(_extreme, monoid="min")),
}
