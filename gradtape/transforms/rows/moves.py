"""Layout ops on rows: no number moves, letters do. Floor: transforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gradtape.ir.index import Index
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.leaving import expanded
from gradtape.transforms.rows.letters import Letter, Positions, chosen, extent, known, matches, pair, whole
from gradtape.transforms.rows.sums import dropped
from gradtape.transforms.rows.terms import Rows, Term, cut, each, fused, relettered, with_own


def transposed(b: Builder, v: Rows, order: Sequence[int]) -> Rows:
    """Own axes in another order; axes left out are summed, which is free where their letter stays on a row axis."""
    if list(order) == list(range(len(v.shape))):
        return v
    shape = [v.shape[k] for k in order]
    return dropped(b, v, shape, lambda t: replace(t, own=tuple(t.own[k] for k in order)))


def broadcast(b: Builder, v: Rows, shape: Sequence[int]) -> Rows:
    """Repeated along new axes, and along axes of size 1."""
    if v.shape == tuple(shape):
        return v
    lead = len(shape) - len(v.shape)
    old = (1,) * lead + v.shape

    def rule(t: Term) -> Term:
        axes = ((),) * lead + t.own
        own = tuple(whole(m) if n == 1 and m != 1 else a for n, m, a in zip(old, shape, axes, strict=True))
        return replace(t, own=own)

    return each(b, v, shape, rule)


def reshaped(b: Builder, v: Rows, shape: Sequence[int]) -> Rows:
    """Axes merged and split: pairs are grouped anew, cut (or fused) where a border falls inside one."""
    if v.shape == tuple(shape):
        return v

    def rule(t: Term) -> Term:
        t = replace(t, own=tuple((p,) for a in t.own for p in a if p.extent != 1))
        groups, k = [], 0
        for n in shape:
            first = k
            while n > 1:
                t, n, k = _fill(b, t, n, k)
            groups.append((first, k))
        return replace(t, own=tuple(tuple(p for a in t.own[i:j] for p in a) for i, j in groups))

    if 0 in v.shape:
        return Rows((), v.rows, tuple(shape), v.dtype)
    return each(b, v, shape, rule)


def _fill(b: Builder, t: Term, n: int, k: int) -> tuple[Term, int, int]:
    """Take own axis k into a result axis of which n is still to be filled."""
    e = extent(t.own[k])
    if n % e == 0:
        return t, n // e, k + 1
    if e % n == 0:
        return cut(b, fused(b, t, k), k, n), 1, k + 1
    merged = replace(t, own=(*t.own[:k], t.own[k] + t.own[k + 1], *t.own[k + 2 :]))
    return fused(b, merged, k), n, k


def gathered(b: Builder, v: Rows, axis: int, ids: Positions, count: int) -> Rows:
    """y[.., k, ..] = v[.., ids[k], ..]: k joins the letter where positions are equal."""
    shape = (*v.shape[:axis], count, *v.shape[axis + 1 :])
    if not isinstance(ids, Index) and any(not _identity(t, axis) for t in v.terms):
        v = expanded(b, v, axis)  # how many positions match would only be known when running

    def rule(t: Term) -> Term:
        t = fused(b, t, axis)
        (p,) = t.own[axis]
        numbers = known(p)
        if p.where is None:
            k: Positions = None
            where: Positions = ids
            m = Letter(count)
        elif numbers is not None and isinstance(ids, Index):
            first, second = matches(ids.array, numbers)
            k, where, m = Index(first), Index(second), Letter(len(first))
        else:
            raise AssertionError("positions known only when running stand on expanded axes")
        t = relettered(b, t, {p.letter: (pair(m, where, p.letter.size),)})
        return with_own(t, axis, ((pair(m, k, count),),))

    if any(_runtime(t, axis) for t in v.terms):
        v = expanded(b, v, axis)
    return each(b, v, shape, rule)


def _identity(t: Term, axis: int) -> bool:
    pairs = t.own[axis]
    return len({p.letter for p in pairs}) == len(pairs) and all(
        p.where is None and p.extent == p.letter.size for p in pairs
    )


def _runtime(t: Term, axis: int) -> bool:
    return any(p.where is not None and not isinstance(p.where, Index) for p in t.own[axis])


def scattered(b: Builder, v: Rows, axis: int, ids: Positions, n: int) -> Rows:
    """y[.., ids[k], ..] += v[.., k, ..]: positions are mapped; what meets adds up when it is written out."""
    shape = (*v.shape[:axis], n, *v.shape[axis + 1 :])

    def rule(t: Term) -> Term:
        t = fused(b, t, axis)
        (p,) = t.own[axis]
        line = pair(Letter(v.shape[axis]), ids, n)
        where = line.where if p.where is None else chosen(b, line, p.where)
        return with_own(t, axis, ((pair(p.letter, where, n),),))

    return each(b, v, shape, rule)


def diagonal(b: Builder, v: Rows) -> Rows:
    """The elements at equal positions of the last two own axes, as one last axis."""
    n = len(v.shape)
    if any(_runtime(t, k) for t in v.terms for k in (n - 1, n - 2)):
        v = expanded(b, expanded(b, v, n - 1), n - 2)

    def rule(t: Term) -> Term:
        t = fused(b, fused(b, t, n - 2), n - 1)
        (p,), (q,) = t.own[n - 2], t.own[n - 1]
        first, second = known(p), known(q)
        assert first is not None and second is not None
        if p.letter is q.letter:
            i = j = np.nonzero(first == second)[0]
            m = Letter(len(i))
            t = relettered(b, t, {p.letter: (pair(m, Index(i), p.letter.size),)})
            place = pair(m, Index(first[i]), v.shape[-1])
        else:
            i, j = matches(first, second)
            m = Letter(len(i))
            ways = {p.letter: (pair(m, Index(i), p.letter.size),), q.letter: (pair(m, Index(j), q.letter.size),)}
            t = relettered(b, t, ways)
            place = pair(m, Index(first[i]), v.shape[-1])
        return replace(t, own=(*t.own[: n - 2], (place,)))

    return each(b, v, v.shape[:-1], rule)


def undiagonal(b: Builder, v: Rows) -> Rows:
    """The last own axis on the diagonal of two."""
    return each(b, v, (*v.shape, v.shape[-1]), lambda t: replace(t, own=(*t.own, t.own[-1])))
