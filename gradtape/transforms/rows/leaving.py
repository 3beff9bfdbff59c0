"""Leaving the structure: one axis written out, all of them, or the dense result. Floor: transforms."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

from gradtape.ir.dtypes import bool_
from gradtape.ir.graph import Value
from gradtape.ir.index import Index
from gradtape.ops.placement import Place, Product, assemble
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.letters import Axis, Letter, Pair, at, pair, whole
from gradtape.transforms.rows.terms import (
    Factor,
    Rows,
    Term,
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


def written_out(b: Builder, v: Rows) -> Rows:
    """One term of one factor: axes that all terms tie in the same way keep one letter, all others are written out."""
    kept = ties(v)
    tied = {k for tie in kept for k in tie}
    dims = v.rows + v.shape
    axes = [() if k in tied else whole(n) for k, n in enumerate(dims)]
    used = []
    for tie in kept:
        letter = Letter(dims[tie[0]])
        for k in tie:
            axes[k] = (pair(letter),)
        if any(_axes(t)[tie[0]][0].letter in f.letters for t in v.terms for f in t.factors):
            used.append(tie[0])
    open_axes = [*used, *(k for k in range(len(dims)) if k not in tied)]
    factor = taken(b, _assembled(b, v, open_axes), [axes[k] for k in open_axes])
    lead = len(v.rows)
    term = Term((factor,), tuple(axes[:lead]), tuple(axes[lead:]))
    return rows_of([normal(b, term, v.dtype)], v.rows, v.shape, v.dtype)


def written_size(v: Rows) -> int:
    """How many numbers `written_out` stores."""
    dims, kept = v.rows + v.shape, ties(v)
    tied = {k for tie in kept for k in tie}
    shared = [t for t in kept if any(_axes(u)[t[0]][0].letter in f.letters for u in v.terms for f in u.factors)]
    return math.prod(n for k, n in enumerate(dims) if k not in tied) * math.prod(dims[t[0]] for t in shared)


def ties(v: Rows) -> list[tuple[int, ...]]:
    """Groups of axes (rows, then own) on which, in every term, one letter stands at its own positions and nowhere
    else; single axes among them where no factor has the letter."""
    found: set[tuple[int, ...]] | None = None
    for t in v.terms:
        groups: dict[Letter, list[int]] = {}
        bent = set()
        for k, axis in enumerate(_axes(t)):
            for p in axis:
                groups.setdefault(p.letter, []).append(k)
                if len(axis) > 1 or p.where is not None or p.extent != p.letter.size:
                    bent.add(p.letter)
        in_factors = {c for f in t.factors for c in f.letters}
        own = {tuple(g) for c, g in groups.items() if c not in bent and (len(g) > 1 or c not in in_factors)}
        found = own if found is None else found & own
    return sorted(found or ())


def _axes(t: Term) -> tuple[Axis, ...]:
    return (*t.rows, *t.own)


def dense(b: Builder, v: Rows) -> Value:
    """The array: rows, then own axes. In normal form nothing is left to sum."""
    shape = v.rows + v.shape
    plain = _plain(b, v, shape)
    return _assembled(b, v, range(len(shape))) if plain is None else plain


def _assembled(b: Builder, v: Rows, axes: Sequence[int]) -> Value:
    """An array over some axes (rows, then own); a letter on none of them is not summed."""
    dims = v.rows + v.shape
    products: list[Product] = []
    factors: list[Value] = []
    vectors: list[Value] = []
    for t in v.terms:
        places = [_axes(t)[k] for k in axes]
        letters = list(
            dict.fromkeys([*(p.letter for a in places for p in a), *(c for f in t.factors for c in f.letters)])
        )
        products.append(
            Product(
                tuple(c.size for c in letters),
                tuple(tuple(letters.index(c) for c in f.letters) for f in t.factors),
                tuple(_places(a, letters, vectors) for a in places),
            )
        )
        factors += [f.value for f in t.factors]
    return assemble(products, factors, vectors, tuple(dims[k] for k in axes), v.dtype)


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
    """A single factor whose letters each stand alone on an axis is the array already, up to the order of axes and to
    numbers."""
    if len(v.terms) != 1 or not v.terms[0].factors:
        return None
    (t,) = v.terms
    f, *numbers = sorted(t.factors, key=lambda f: -len(f.letters))
    if any(n.letters for n in numbers) or (numbers and v.dtype is bool_):
        return None
    pairs = [p for a in (*t.rows, *t.own) for p in a]
    if any(p.where is not None for p in pairs) or len({p.letter for p in pairs}) != len(pairs):
        return None
    if set(f.letters) != set(on_axes(t)):
        return None
    order = [f.letters.index(p.letter) for p in pairs]
    value = functools.reduce(lambda x, n: b.scaled(x, n.value), numbers, f.value)
    return b.reshape(b.transpose(value, order), shape)
