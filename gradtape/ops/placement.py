"""Placement: products of factors written to where letters stand on the axes of a result. Floor: ops.

An axis is a product of places; a place (letter, where, extent) says that value l of the letter stands at
`where[l]` of a sub-axis of that extent (where None: at l). `assemble` is how an unevaluated einsum becomes an
array: zeros, except where all axes agree; what meets at one position adds up. `take` is its transpose."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtape.ir.aval import Aval, aval
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


# ------------------------------------------------------------------ the value


def assemble_arrays(
    xp: Any,
    empty: Callable[..., Any],
    arrays: Sequence[Any],
    shape: tuple[int, ...],
    dtype: Any,
    terms: Sequence[Product],
) -> Any:
    """Each term is one broadcast product, written once: strided into zeros where positions are evenly spaced,
    else by index; duplicates add up. `empty`: makes the result where its first term writes all of it."""
    vectors = arrays[sum(len(t.factors) for t in terms) :]
    own = dtype.numpy_dtype if dtype else arrays[0].dtype
    full = bool(terms) and math.prod(terms[0].sizes) == math.prod(shape) and _is_even(terms[0], vectors)
    out = empty(shape, own) if full else xp.zeros(shape, own)
    first = 0
    for number, t in enumerate(terms):
        factors = [_spread(xp, a, f, t) for a, f in zip(arrays[first:], t.factors, strict=False)]
        first += len(factors)
        _write(xp, out, t, factors, vectors, number == 0)
    return out


def _is_even(t: Product, vectors: Sequence[Any]) -> bool:
    """Whether a term's positions are evenly spaced and distinct."""
    places = [(p, Index(vectors[p.where]) if isinstance(p.where, int) else p.where) for a in t.axes for p in a]
    if any(w is not None and w.step is None for _, w in places):
        return False
    moving = {p.letter for p, w in places if w is None or w.step != 0}
    return all(c in moving or n == 1 for c, n in enumerate(t.sizes))


def _spread(xp: Any, array: Any, letters: tuple[int, ...], t: Product) -> Any:
    """A factor broadcastable over all letters of its term."""
    over = tuple(range(len(t.sizes)))
    moved = array.transpose([letters.index(c) for c in over if c in letters])
    return moved.reshape([t.sizes[c] if c in letters else 1 for c in over])


def _write(xp: Any, out: Any, t: Product, factors: list[Any], vectors: Sequence[Any], empty: bool) -> None:
    if out.size == 0 or 0 in t.sizes:
        return
    view = strided_view(out, t, vectors)
    if view is None:
        _write_by_index(xp, out, t, factors, vectors)
    elif empty and len(factors) > 1:
        xp.multiply(factors[0], factors[1], out=view)
        for f in factors[2:]:
            view *= f
    elif empty:
        view[...] = factors[0] if factors else 1
    else:
        view += math.prod(factors[1:], start=factors[0]) if factors else 1


def strided_view(out: Any, t: Product, vectors: Sequence[Any]) -> Any:
    """The result's elements that a term writes, one axis per letter; None where they are not evenly spaced, or
    where two of them are one element."""
    if not _is_even(t, vectors):
        return None
    start, steps = 0, [0] * len(t.sizes)
    for axis, stride in zip(t.axes, out.strides, strict=True):
        for p in reversed(axis):
            where = Index(vectors[p.where]) if isinstance(p.where, int) else p.where
            if where is not None:
                start += int(where.array[0]) * stride
            if t.sizes[p.letter] > 1:
                steps[p.letter] += (1 if where is None else where.step or 0) * stride
            stride *= p.extent
    return as_strided(out, start, t.sizes, steps)


def as_strided(out: Any, start: int, shape: tuple[int, ...], steps: Sequence[int]) -> Any:
    """A writable view of an array's memory, from a byte on."""
    flat = out.reshape(-1)[start // out.itemsize :]
    return np.lib.stride_tricks.as_strided(flat, shape, steps)


def _write_by_index(xp: Any, out: Any, t: Product, factors: list[Any], vectors: Sequence[Any]) -> None:
    at = xp.zeros((1,) * len(t.sizes), np.int64)
    for axis, stride in zip(t.axes, out.strides, strict=True):
        for p in reversed(axis):
            where = np.arange(t.sizes[p.letter]) if p.where is None else _positions(p, vectors)
            place = [1] * len(t.sizes)
            place[p.letter] = -1
            at = at + (where * (stride // out.itemsize)).reshape(place)
            stride *= p.extent
    product = factors[0] if factors else xp.ones((), out.dtype)
    for f in factors[1:]:
        product = product * f
    at, product = xp.broadcast_arrays(at, product)
    xp.add.at(out.reshape(-1), at, product)


def _positions(p: Place, vectors: Sequence[Any]) -> Any:
    return vectors[p.where] if isinstance(p.where, int) else p.where.array if p.where is not None else None
