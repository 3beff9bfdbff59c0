"""Letters, and where they stand on axes. Floor: transforms.

A letter is a summation index. An axis is a product of pairs (letter, where, extent) in row-major order: value l
of the letter stands at `where[l]` of a sub-axis of that extent. An index is None (at l itself), an `Index`
(positions known while the graph is made) or a graph value (positions known when it runs). An axis of size 1 is
the empty product; no position points nowhere: what a slice drops leaves the letter's range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.index import Index
from gradtape.transforms.rows.builder import Builder

Array = np.ndarray[Any, Any]
Positions = Index | Value | None


class Letter:
    """A summation index of a size; compared by identity."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = int(size)

    def __repr__(self) -> str:
        return f"<letter {self.size}>"


class Pair(NamedTuple):
    """A letter on an axis, or on a part of one."""

    letter: Letter
    where: Positions
    extent: int


Axis = tuple[Pair, ...]


def pair(letter: Letter, where: Positions = None, extent: int | None = None) -> Pair:
    """A pair; positions that say l stands at l are None."""
    extent = letter.size if extent is None else extent
    if isinstance(where, Index) and extent == letter.size and np.array_equal(where.array, np.arange(extent)):
        where = None
    return Pair(letter, where, extent)


def whole(size: int) -> Axis:
    """An axis of its own: one fresh letter, none for size 1."""
    return () if size == 1 else (pair(Letter(size)),)


def extent(axis: Sequence[Pair]) -> int:
    return math.prod(p.extent for p in axis)


def known(p: Pair) -> Array | None:
    """The positions of a pair as numbers, if they are known now."""
    if p.where is None:
        return np.arange(p.letter.size)
    return p.where.array if isinstance(p.where, Index) else None


def at(b: Builder, p: Pair) -> Value:
    """The positions of a pair as a graph value."""
    if isinstance(p.where, Value):
        return p.where
    return b.emit("positions", value=p.where if p.where is not None else Index(np.arange(p.letter.size)))


def chosen(b: Builder, p: Pair, by: Positions) -> Positions:
    """The positions of a pair at the values `by` of its letter."""
    if by is None:
        return p.where
    if p.where is None:
        return by
    if isinstance(p.where, Index) and isinstance(by, Index):
        return Index(p.where.array[by.array])
    where = by if isinstance(by, Value) else b.emit("positions", value=by)
    return b.emit("gather", at(b, p), where, axis=0, batch_dims=0)


def joined(b: Builder, pairs: Sequence[Pair], parts: dict[Letter, Index | None], size: int) -> Positions:
    """The row-major position over several pairs, whose letters are functions of one index of a size."""
    total: Positions = Index(np.zeros(size, np.int64))
    for p in pairs:
        total = plus(b, scaled(b, total, p.extent), chosen(b, p, parts[p.letter]), size)
    return total


def scaled(b: Builder, index: Positions, by: int) -> Positions:
    if isinstance(index, Value):
        return b.emit("multiply", index, b.constant(by, index.aval.dtype))
    return Index(index.array * by) if index is not None else None


def plus(b: Builder, x: Positions, y: Positions, size: int) -> Positions:
    """The sum of two index vectors of one size."""
    if not isinstance(x, Value) and not isinstance(y, Value):
        first, second = (np.arange(size) if i is None else i.array for i in (x, y))
        return Index(first + second)
    if isinstance(x, Index) and not x.array.any():
        return y
    return b.emit("add", *(_value(b, i, size) for i in (x, y)))


def divided(b: Builder, p: Pair, by: int) -> tuple[Positions, Positions]:
    """Quotient and remainder of a pair's positions."""
    numbers = known(p)
    if numbers is not None:
        return Index(numbers // by), Index(numbers % by)
    where = at(b, p)
    size = b.constant(by, where.aval.dtype)
    return b.emit("floordiv", where, size), b.emit("floormod", where, size)


def _value(b: Builder, index: Positions, size: int) -> Value:
    if isinstance(index, Value):
        return index
    return b.emit("positions", value=index if index is not None else Index(np.arange(size)))


def matches(a: Array, b: Array) -> tuple[Array, Array]:
    """All (i, j) with a[i] == b[j]."""
    by_value = np.argsort(b, kind="stable")
    low = np.searchsorted(b[by_value], a, "left")
    hits = np.searchsorted(b[by_value], a, "right") - low
    i = np.repeat(np.arange(len(a)), hits)
    nth = np.arange(len(i)) - np.repeat(np.cumsum(hits) - hits, hits)
    return i, by_value[np.repeat(low, hits) + nth]
