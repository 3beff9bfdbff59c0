"""Leaving the structure: one axis written out, all of them, or the dense result. Floor: transforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradtape.ir.graph import Value
from gradtape.ir.index import Index
from gradtape.ops.placement import Place, Product, assemble
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.letters import Letter, Pair, at, pair, whole
from gradtape.transforms.rows.terms import (
    Factor,
    Rows,
    Term,
    all_letters,
    each,
    fused,
    normal,
    on_axes,
    rows_of,
    taken,
    with_own,
)


def expanded(b: Builder, v: Rows, axis: int) -> Rows:
    """Own axis `axis` of every term as a letter of its own. Letters that it shared stay where else they stand, and
    a one-hot factor ties them to the new one: the identity written out."""

    def rule(t: Term) -> Term:
        others = {p.letter for k, a in enumerate((*t.rows, *t.own)) if k != len(t.rows) + axis for p in a}
        if all(p.where is None and p.letter not in others for p in t.own[axis]):
            return fused(b, t, axis)
        t = fused(b, t, axis)
        (p,) = t.own[axis]
        e = Letter(p.extent)
        hot = Factor(one_hot(b, p, v), (p.letter, e))
        return with_own(replace(t, factors=(*t.factors, hot)), axis, ((pair(e),),))

    return each(b, v, v.shape, rule)


def one_hot(b: Builder, p: Pair, v: Rows) -> Value:
    """Ones where a letter's value meets its position: (letter, position)."""
    column = b.reshape(at(b, p), (p.letter.size, 1))
    line = b.emit("positions", value=Index(range(p.extent)))
    return b.emit("cast", b.emit("equal", column, b.reshape(line, (1, p.extent))), dtype=v.dtype)


def expanded_fully(b: Builder, v: Rows) -> Rows:
    """One term, one factor, every axis a letter of its own."""
    rows, own = (tuple(whole(n) for n in s) for s in (v.rows, v.shape))
    factor = taken(b, dense(b, v), (*rows, *own))
    return rows_of([normal(b, Term((factor,), rows, own), v.dtype)], v.rows, v.shape, v.dtype)


def dense(b: Builder, v: Rows) -> Value:
    """The array: rows, then own axes. In normal form nothing is left to sum."""
    shape = v.rows + v.shape
    plain = _plain(b, v, shape)
    if plain is not None:
        return plain
    products: list[Product] = []
    factors: list[Value] = []
    vectors: list[Value] = []
    for t in v.terms:
        letters = all_letters(t)
        products.append(
            Product(
                tuple(c.size for c in letters),
                tuple(tuple(letters.index(c) for c in f.letters) for f in t.factors),
                tuple(_places(a, letters, vectors) for a in (*t.rows, *t.own)),
            )
        )
        factors += [f.value for f in t.factors]
    return assemble(products, factors, vectors, shape, v.dtype)


def _places(axis: Sequence[Pair], letters: Sequence[Letter], vectors: list[Value]) -> tuple[Place, ...]:
    places = []
    for p in axis:
        index: Index | int | None
        if isinstance(p.where, Value):
            index = len(vectors)
            vectors.append(p.where)
        else:
            index = p.where
        places.append(Place(letters.index(p.letter), index, p.extent))
    return tuple(places)


def _plain(b: Builder, v: Rows, shape: tuple[int, ...]) -> Value | None:
    """A single factor whose letters each stand alone on an axis is the array already, up to the order of axes."""
    if len(v.terms) != 1 or len(v.terms[0].factors) != 1:
        return None
    (t,) = v.terms
    (f,) = t.factors
    pairs = [p for a in (*t.rows, *t.own) for p in a]
    if any(p.where is not None for p in pairs) or len({p.letter for p in pairs}) != len(pairs):
        return None
    if set(f.letters) != set(on_axes(t)):
        return None
    order = [f.letters.index(p.letter) for p in pairs]
    return b.reshape(b.transpose(f.value, order), shape)
