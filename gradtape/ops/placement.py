"""Placement: products of factors written to where letters stand on the axes of a result. Floor: ops.

An axis is a product of places; a place (letter, where, extent) says that value l of the letter stands at
`where[l]` of a sub-axis of that extent (where None: at l). `assemble` is how an unevaluated einsum becomes an
array: zeros, except where all axes agree; what meets at one position adds up. `take` is its transpose."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import DType, int64
from gradtape.ir.graph import Node, Value
from gradtape.ir.index import Index
from gradtape.ops.op import Op, apply, constant, emit, lookup
from gradtape.ops.samples import Sample, Spec


class Place(NamedTuple):
    """Where a letter stands on an axis. `where`: None, positions known now, or the number of an operand."""

    letter: int
    where: Index | int | None
    extent: int


Axis = tuple[Place, ...]


class Product(NamedTuple):
    """One term: the sizes of its letters, the letters of each of its factors, and the result's axes."""

    sizes: tuple[int, ...]
    factors: tuple[tuple[int, ...], ...]
    axes: tuple[Axis, ...]


class Assemble(Op):
    """The sum of the terms; operands are all factors in order, then the index vectors known only when running."""

    kind = "assemble"

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        return (aval(params["shape"], params["dtype"] or avals[0].dtype),)

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        """A factor's cotangent: the result's, taken at the term's positions, times the other factors."""
        (g,) = cotangents
        if g is None:
            return [None] * len(node.inputs)
        pulled: list[Value | None] = []
        terms = node.step.params["terms"]
        first = 0
        vectors = node.inputs[sum(len(t.factors) for t in terms) :]
        for t in terms:
            own = node.inputs[first : first + len(t.factors)]
            taken = take(g, t.axes, vectors)
            pulled += [_of_factor(taken, t, own, k) if wanted[first + k] else None for k in range(len(own))]
            first += len(own)
        return [*pulled, *[None] * (len(node.inputs) - len(pulled))]


def _of_factor(taken: tuple[Value, tuple[int, ...]], t: Product, own: Sequence[Value], k: int) -> Value:
    value, letters = taken
    for j, factor in enumerate(own):
        if j != k:
            other = emit("conj", factor) if factor.aval.dtype.is_complex else factor
            union = tuple(dict.fromkeys(letters + t.factors[j]))
            value = emit(
                "multiply", aligned(value, letters, union, t.sizes), aligned(other, t.factors[j], union, t.sizes)
            )
            letters = union
    return summed_to(value, letters, t.factors[k], t.sizes)


def aligned(v: Value, letters: tuple[int, ...], over: tuple[int, ...], sizes: Sequence[int]) -> Value:
    """A factor with its axes in the order of `over`, and axes of size 1 for the letters that it lacks."""
    perm = tuple(letters.index(c) for c in over if c in letters)
    if perm != tuple(range(len(perm))):
        v = emit("transpose", v, perm=perm)
    shape = tuple(sizes[c] if c in letters else 1 for c in over)
    return v if v.aval.shape == shape else emit("reshape", v, shape=shape)


def summed_to(v: Value, letters: tuple[int, ...], wanted: tuple[int, ...], sizes: Sequence[int]) -> Value:
    """The sum over all letters but the wanted ones; letters that are wanted and not there are repeated."""
    gone = tuple(k for k, c in enumerate(letters) if c not in wanted)
    if gone:
        v = emit("reduce_sum", v, axes=gone, keepdims=False)
    v = aligned(v, tuple(c for c in letters if c in wanted), wanted, sizes)
    shape = tuple(sizes[c] for c in wanted)
    return v if v.aval.shape == shape else emit("broadcast_to", v, shape=shape)


# ------------------------------------------------------------------ taking: axes to letters


def take(v: Value, axes: Sequence[Axis], vectors: Sequence[Value] = ()) -> tuple[Value, tuple[int, ...]]:
    """F[letters] = v[position of axes[0], position of axes[1], ...], and the letters in their order."""
    places = [p for a in axes for p in a]
    shape = tuple(p.extent for p in places)
    if v.aval.shape != shape:
        v = emit("reshape", v, shape=shape)
    letters = [p.letter for p in places]
    for k, p in enumerate(places):
        if letters.count(p.letter) == 1:
            v = _picked(v, k, p, vectors)
    while len(set(letters)) < len(letters):
        c = next(c for c in letters if letters.count(c) > 1)
        at = [k for k, d in enumerate(letters) if d == c]
        v = _diagonal(v, at, [places[k] for k in at], vectors)
        rest = [k for k in range(len(letters)) if k not in at]
        letters = [letters[k] for k in rest] + [c]
        places = [places[k] for k in rest] + [Place(c, None, v.aval.dims[-1])]
    return v, tuple(letters)


def _picked(v: Value, axis: int, p: Place, vectors: Sequence[Value]) -> Value:
    if p.where is None:
        return v
    if isinstance(p.where, Index) and p.where.step not in (None, 0) and len(p.where):
        begin = emit("positions", value=(int(p.where.array[0]),))
        return emit("slice", v, begin, axes=(axis,), sizes=(len(p.where),), strides=(p.where.step,))
    return emit("gather", v, vector(p, vectors), axis=axis, batch_dims=0)


def vector(p: Place, vectors: Sequence[Value], size: int = 0) -> Value:
    """The positions of a place as a graph value."""
    if isinstance(p.where, int):
        return vectors[p.where]
    return emit("positions", value=p.where if p.where is not None else Index(np.arange(size or p.extent)))


def _diagonal(v: Value, at: list[int], places: list[Place], vectors: Sequence[Value]) -> Value:
    """The axes `at`, which one letter runs along together, as one last axis."""
    rest = [k for k in range(len(v.aval.dims)) if k not in at]
    v = emit("transpose", v, perm=(*rest, *at))
    lead = tuple(v.aval.dims[: len(rest)])
    if len(at) == 2 and all(p.where is None for p in places) and places[0].extent == places[1].extent:
        return emit("diagonal", v)
    size = next((len(p.where) for p in places if isinstance(p.where, Index)), 0)
    size = size or next((vectors[p.where].aval.dims[0] for p in places if isinstance(p.where, int)), places[0].extent)
    flat: Value | None = None
    known = np.zeros(size, np.int64)
    for p in places:
        if flat is None and not isinstance(p.where, int):
            known = known * p.extent + (np.arange(size) if p.where is None else p.where.array)
            continue
        so_far = flat if flat is not None else emit("positions", value=Index(known))
        scaled = emit("multiply", so_far, constant(p.extent, so_far.aval.dtype))
        flat = emit("add", scaled, vector(p, vectors, size))
    where = flat if flat is not None else emit("positions", value=Index(known))
    return emit(
        "gather",
        emit("reshape", v, shape=(*lead, math.prod(p.extent for p in places))),
        where,
        axis=len(lead),
        batch_dims=0,
    )


ASSEMBLE = Assemble(
    "assemble",
    doc="A sum of products of factors, each written to where its letters stand on the result's axes.",
    samples=[
        Sample(
            (Spec((3,)),),
            {
                "shape": (3, 3),
                "dtype": None,
                "terms": (Product((3,), ((0,),), ((Place(0, None, 3),), (Place(0, None, 3),))),),
            },
            "a diagonal",
        ),
        Sample(
            (Spec((3,)), Spec((2, 3))),
            {
                "shape": (2, 3),
                "dtype": None,
                "terms": (Product((2, 3), ((1,), (0, 1)), ((Place(0, None, 2),), (Place(1, None, 3),))),),
            },
            "a product of factors",
        ),
        Sample(
            (Spec((2,)), Spec((3, 2))),
            {
                "shape": (5, 6),
                "dtype": None,
                "terms": (
                    Product((2,), ((0,),), ((Place(0, Index([4, 1]), 5),), (Place(0, None, 2), Place(0, None, 3)))),
                    Product((2, 3), ((1, 0),), ((Place(0, Index([2, 4]), 5),), (Place(1, Index([5, 0, 5]), 6),))),
                ),
            },
            "two terms, a merged axis, positions that meet",
        ),
        Sample(
            (Spec((3,)), Spec((3,), (0, 4), "int")),
            {
                "shape": (3, 4),
                "dtype": None,
                "terms": (Product((3,), ((0,),), ((Place(0, None, 3),), (Place(0, 0, 4),))),),
            },
            "positions known when running",
        ),
        Sample(
            (Spec((0,)),),
            {"shape": (2, 1), "dtype": None, "terms": (Product((0,), ((0,),), ((Place(0, Index([]), 2),), ())),)},
            "nothing to write",
        ),
    ],
)


def assemble(
    terms: Sequence[Product], factors: Sequence[Value], vectors: Sequence[Value], shape: tuple[int, ...], dtype: Any
) -> Value:
    """The node that writes terms out."""
    step = lookup("assemble").bind(shape=shape, dtype=dtype, terms=tuple(terms))
    return apply(step, (*factors, *vectors))[0]


def assemble_by_scatter(
    terms: Sequence[Product], factors: Sequence[Value], vectors: Sequence[Value], shape: tuple[int, ...], dtype: DType
) -> Value:
    """The same result from products, positions and sums as ordinary ops, for whoever follows those and not letters."""
    parts, first, size = [], 0, math.prod(shape)
    for t in terms:
        over = tuple(range(len(t.sizes)))
        value = constant(1, dtype, t.sizes)
        for factor, letters in zip(factors[first:], t.factors, strict=False):
            value = emit("multiply", value, aligned(factor, letters, over, t.sizes))
        first += len(t.factors)
        flat = emit("reshape", value, shape=(math.prod(t.sizes),))
        parts.append(emit("scatter_add", flat, _positions_in(t, vectors, shape), shape=(size,), axis=0, batch_dims=0))
    total = functools.reduce(lambda x, y: emit("add", x, y), parts) if parts else constant(0, dtype, (size,))
    return emit("reshape", total, shape=shape)


def _positions_in(t: Product, vectors: Sequence[Value], shape: tuple[int, ...]) -> Value:
    """Where each value of a term's letters stands in the flat result."""
    at, stride = constant(0, int64, t.sizes), 1
    for axis in reversed(t.axes):
        for p in reversed(axis):
            where = vector(p, vectors, t.sizes[p.letter])
            where = where if where.aval.dtype is int64 else emit("cast", where, dtype=int64)
            line = aligned(where, (p.letter,), tuple(range(len(t.sizes))), t.sizes)
            at = emit("add", at, emit("multiply", line, constant(stride, int64)))
            stride *= p.extent
    return emit("reshape", at, shape=(math.prod(t.sizes),))
