"""Sums of rows: terms of equal structure merge, others stand side by side, as long as that pays. Floor: transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from gradtape.ir.aval import aval
from gradtape.ir.graph import Value
from gradtape.ir.index import Index
from gradtape.transforms.cost import NANOSECONDS_PER_ELEMENT
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.leaving import written_out, written_size
from gradtape.transforms.rows.letters import Letter, Pair, known, pair
from gradtape.transforms.rows.terms import (
    Factor,
    Rows,
    Term,
    absorbed,
    align,
    all_letters,
    each,
    effort,
    multiplied_out,
    on_axes,
    relettered,
    size,
)

MAX_TERMS = 16


def added(b: Builder, values: Sequence[Rows]) -> Rows:
    """The sum of rows of one shape."""
    first = values[0]
    terms = _gathered(b, (t for v in values for t in v.terms), first, _no_larger)
    return settled(b, replace(first, terms=terms))


def union(b: Builder, values: Sequence[Rows]) -> Rows:
    """Rows of which only the places count: terms of equal places once."""
    terms: list[Term] = []
    for t in (t for v in values for t in v.terms):
        if all(matched(b, s, t) is None for s in terms):
            terms.append(t)
    return replace(values[0], terms=tuple(terms))


def settled(b: Builder, v: Rows) -> Rows:
    """Written out where the terms stopped paying: too many of them, or more numbers than without them."""
    own = sum(f.value.aval.size for t in v.terms for f in t.factors if f.letters)
    if not v.terms or (len(v.terms) <= MAX_TERMS and own <= max(1, written_size(v))):
        return v
    return written_out(b, v)


def stored(v: Rows) -> int:
    """How many numbers the factors hold."""
    return sum(f.value.aval.size for t in v.terms for f in t.factors)


def _pairs(t: Term) -> list[Pair]:
    return [p for a in (*t.rows, *t.own) for p in a]


def matched(b: Builder, s: Term, t: Term) -> Term | None:
    """t in the letters of s so that all axes agree; None where they cannot. Letters agree up to name and order:
    what counts are the positions that a letter takes on all of its sub-axes together."""
    if [[p.extent for p in a] for a in (*s.rows, *s.own)] != [[p.extent for p in a] for a in (*t.rows, *t.own)]:
        return None
    ours, theirs = _pairs(s), _pairs(t)
    names: dict[Letter, Letter] = {}
    for p, q in zip(ours, theirs, strict=True):
        if names.setdefault(q.letter, p.letter) is not p.letter or p.letter.size != q.letter.size:
            return None
    if len(set(names.values())) < len(names):
        return None
    new = {}
    for other, mine in names.items():
        way = _renamed([x for x in ours if x.letter is mine], [x for x in theirs if x.letter is other], mine)
        if way is None:
            return None
        new[other] = (way,)
    return relettered(b, t, new)


def _renamed(ours: Sequence[Pair], theirs: Sequence[Pair], p: Letter) -> Pair | None:
    """How a letter of the other term runs over ours; None where they take different positions."""
    if all(_same_index(x, y) for x, y in zip(ours, theirs, strict=True)):
        return pair(p)
    mine, other = [known(x) for x in ours], [known(x) for x in theirs]
    if any(k is None for k in (*mine, *other)):
        return None
    a, c = (np.stack([k for k in lists if k is not None]) for lists in (mine, other))
    at_a, at_c = np.lexsort(a), np.lexsort(c)
    if not np.array_equal(a[:, at_a], c[:, at_c]):
        return None
    return pair(p, Index(at_c[np.argsort(at_a)]), p.size)


def _same_index(x: Pair, y: Pair) -> bool:
    return x.where is y.where or (isinstance(x.where, Index) and x.where == y.where)


def dropped(b: Builder, v: Rows, shape: Sequence[int], rule: Callable[[Term], Term]) -> Rows:
    """A rule on every term that takes axes off, whose letters are summed. What it multiplies and sums alike in two
    terms is done once, f·a + g·a = (f + g)·a, where that takes less time."""

    def pays(common: Sequence[Factor], mine: Sequence[Factor], theirs: Sequence[Factor], s: Term) -> bool:
        letters = _of(s, (*mine, *theirs))
        joint = Factor(Value(aval(tuple(c.size for c in letters), v.dtype)), tuple(letters))
        apart = sum(_effort(rule, replace(s, factors=(*common, *f))) for f in (mine, theirs))
        passes = max(0, len(mine) - 1) + max(0, len(theirs) - 1) + 1
        together = _effort(rule, replace(s, factors=(*common, joint)))
        return together + passes * NANOSECONDS_PER_ELEMENT * size(letters) < apart

    return each(b, replace(v, terms=_gathered(b, v.terms, v, pays)), shape, rule, drops=True)


def _effort(rule: Callable[[Term], Term], t: Term) -> float:
    return effort(rule(t), all_letters(t))


Pays = Callable[[Sequence[Factor], Sequence[Factor], Sequence[Factor], Term], bool]


def _no_larger(common: Sequence[Factor], mine: Sequence[Factor], theirs: Sequence[Factor], s: Term) -> bool:
    """The sum of what is not common has no more numbers than its parts."""
    return size(_of(s, (*mine, *theirs))) <= sum(f.value.aval.size for f in (*mine, *theirs)) + 1


def _of(s: Term, factors: Sequence[Factor]) -> list[Letter]:
    return [c for c in on_axes(s) if any(c in f.letters for f in factors)]


def _gathered(b: Builder, given: Iterable[Term], of: Rows, pays: Pays) -> tuple[Term, ...]:
    """Terms, those merged that agree where it pays."""
    terms: list[Term] = []
    for t in given:
        for i, s in enumerate(terms):
            merged = _merged(b, s, t, of, pays)
            if merged is not None:
                terms[i] = merged
                break
        else:
            terms.append(t)
    return tuple(terms)


def _merged(b: Builder, s: Term, other: Term, of: Rows, pays: Pays) -> Term | None:
    """s + t as one term where axes agree: common factors f are taken out, f·g + f·h = f·(g + h), and the rest is
    added if that pays. None: both stay."""
    t = matched(b, s, other)
    if t is None:
        return None
    theirs = list(t.factors)
    mine: list[Factor] = []
    common: list[Factor] = []
    for f in s.factors:
        twin = next((g for g in theirs if _same(f, g)), None)
        (mine if twin is None else common).append(f)
        if twin is not None:
            theirs.remove(twin)
    if not pays(common, mine, theirs, s):
        return None
    letters = _of(s, (*mine, *theirs))
    g, h = (multiplied_out(b, x, letters, of.dtype) for x in (mine, theirs))
    joint = Factor(_sum(b, g, h, letters), tuple(letters))
    return replace(s, factors=absorbed(b, [*common, joint]))


def _sum(b: Builder, g: Factor, h: Factor, letters: Sequence[Letter]) -> Value:
    total = b.emit("add", align(b, g, letters), align(b, h, letters))
    shape = tuple(c.size for c in letters)
    return total if total.aval.shape == shape else b.emit("broadcast_to", total, shape=shape)


def _same(f: Factor, g: Factor) -> bool:
    """The same node over the same letters (numbers are no common factors)."""
    return bool(f.letters) and f.value is g.value and f.letters == g.letters
