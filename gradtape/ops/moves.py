"""Moves: what a layout op does to the positions of its operand, said once for everything that follows letters.
Floor: ops.

A structural op, or a gather or scatter, lists for each operand that it moves the steps that bring its elements to
their places in the result; the result is the sum over operands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradtape.ir.dtypes import int64
from gradtape.ir.graph import Node, Value
from gradtape.ir.index import Index
from gradtape.ir.shapes import size_of
from gradtape.ops.op import emit


@dataclass(frozen=True)
class Reshape:
    """The same elements in row-major order under another shape."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Transpose:
    """The axes in another order."""

    perm: tuple[int, ...]


@dataclass(frozen=True)
class Broadcast:
    """Repeated along new axes and along axes of size 1."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Gather:
    """y[.., k, ..] = x[.., ids[k], ..] along an axis, for `count` values of k."""

    axis: int
    ids: Index | Value
    count: int


@dataclass(frozen=True)
class Scatter:
    """y[.., ids[k], ..] += x[.., k, ..] along an axis that gets size n."""

    axis: int
    ids: Index | Value
    n: int


@dataclass(frozen=True)
class Diagonal:
    """The elements at equal positions of the last two axes."""


@dataclass(frozen=True)
class Undiagonal:
    """The last axis on the diagonal of two."""


Move = Reshape | Transpose | Broadcast | Gather | Scatter | Diagonal | Undiagonal


def line(begin: Value, which: int, size: int, stride: int) -> Index | Value:
    """The positions begin[which] + stride · l of a slice: numbers where the beginning is known now."""
    if begin.node is not None and begin.node.step.name == "positions":
        first = list(begin.node.step.params["value"])[which]
        return Index(first + stride * np.arange(size))
    start = begin
    if begin.aval.dims != (1,):
        at = emit("positions", value=(which,))
        start = emit("slice", begin, at, axes=(0,), sizes=(1,), strides=(1,))
    steps = emit("positions", value=Index(stride * np.arange(size)))
    wide = start if start.aval.dtype is int64 else emit("cast", start, dtype=int64)
    return emit("add", wide, steps) if size else emit("positions", value=Index(np.zeros(0)))


def flat(indices: Value, offsets: Value | None = None) -> Value:
    """Positions of any shape as one vector of int64, with offsets added."""
    wide = indices if indices.aval.dtype is int64 else emit("cast", indices, dtype=int64)
    if offsets is not None:
        wide = emit("add", wide, offsets)
    return emit("reshape", wide, shape=(wide.aval.size,))


def of_gather(node: Node) -> list[list[Move]]:
    """A gather: batch axes and the axis become one, along which positions are offset by batch."""
    (x, indices), p = node.inputs, node.step.params
    dims, axis, batch = x.aval.dims, p["axis"], p["batch_dims"]
    count = indices.aval.size
    if not batch:
        picked = Gather(axis, flat(indices), count)
        return [[picked, Reshape(node.outputs[0].aval.dims)]]
    order, _ = _batch_order(len(dims), axis, batch)
    rows, inner = size_of(dims[:batch]), indices.aval.dims[batch:]
    merged = (rows * dims[axis], *(dims[k] for k in order[batch + 1 :]))
    rest = [dims[k] for k in order[batch + 1 :]]
    spread = (*dims[:batch], *inner, *rest)
    back = (*range(batch), *(batch + len(inner) + k for k in range(axis - batch)), *range(batch, batch + len(inner)))
    tail = range(len(back), len(spread))
    return [
        [
            Transpose(order),
            Reshape(merged),
            Gather(0, flat(indices, _offsets(indices, batch, dims[axis])), count),
            Reshape(spread),
            Transpose((*back, *tail)),
        ]
    ]


def of_scatter(node: Node) -> list[list[Move]]:
    """A scatter: the moves of the gather backwards."""
    (g, indices), p = node.inputs, node.step.params
    shape, axis, batch = p["shape"], p["axis"], p["batch_dims"]
    count = indices.aval.size
    if not batch:
        wide = (*shape[:axis], count, *shape[axis + 1 :])
        return [[Reshape(wide), Scatter(axis, flat(indices), shape[axis])]]
    order, inverse = _batch_order(len(shape), axis, batch)
    rows, inner = size_of(shape[:batch]), len(indices.aval.dims) - batch
    first = (*range(batch), *range(axis, axis + inner), *range(batch, axis), *range(axis + inner, len(g.aval.dims)))
    rest = tuple(shape[k] for k in order[batch + 1 :])
    return [
        [
            Transpose(first),
            Reshape((count, *rest)),
            Scatter(0, flat(indices, _offsets(indices, batch, shape[axis])), rows * shape[axis]),
            Reshape((*shape[:batch], shape[axis], *rest)),
            Transpose(inverse),
        ]
    ]


def _batch_order(rank: int, axis: int, batch: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The order that puts an axis right behind the batch axes, and the order that undoes it."""
    order = (*range(batch), axis, *(k for k in range(batch, rank) if k != axis))
    return order, tuple(order.index(k) for k in range(rank))


def _offsets(indices: Value, batch: int, size: int) -> Value:
    """Where the rows of each batch entry begin."""
    dims = indices.aval.dims
    starts = emit("positions", value=Index(np.arange(size_of(dims[:batch])) * size))
    return emit("reshape", starts, shape=(*dims[:batch], *(1,) * (len(dims) - batch)))
