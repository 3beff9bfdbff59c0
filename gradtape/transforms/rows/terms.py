"""Terms and their normal form: what waits, what is summed, what is multiplied out. Floor: transforms.

A `Rows` stands for a dense array V[r, s] over row axes r and own axes s:

    V[r, s] = sum over terms, sum over letters of  prod_k F_k[letters] · prod_axes [axis position == index]

Two moves carry all rules: `relettered` (letters as functions of others) and `taken` (an array indexed by axes
becomes a factor over their letters)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import opt_einsum

from gradtape.ir.dtypes import DType
from gradtape.ir.graph import Value
from gradtape.ir.index import Index
from gradtape.ops.placement import Place, take
from gradtape.transforms.cost import NANOSECONDS_PER_ELEMENT, NANOSECONDS_PER_MULTIPLY_ADD
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.letters import Axis, Letter, Pair, chosen, divided, joined, pair, whole
from gradtape.transforms.rows.letters import extent as extent_of


@dataclass(frozen=True, eq=False)
class Factor:
    """A graph value whose axes are letters, each once."""

    value: Value
    letters: tuple[Letter, ...]


@dataclass(frozen=True, eq=False)
class Term:
    factors: tuple[Factor, ...]
    rows: tuple[Axis, ...]
    own: tuple[Axis, ...]


@dataclass(frozen=True, eq=False)
class Rows:
    """A value that depends on rows."""

    terms: tuple[Term, ...]
    rows: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: DType


Item = Value | Rows  # what an op is given: something that is one for all rows, or rows


def rows_of(terms: Iterable[Term | None], rows: Sequence[int], shape: Sequence[int], dtype: DType) -> Rows:
    """Terms that may have become empty (None: a letter of size 0)."""
    return Rows(tuple(t for t in terms if t is not None), tuple(rows), tuple(shape), dtype)


def seed(shape: Sequence[int], dtype: DType) -> Rows:
    """The identity over a shape: each row axis shares its letter with its own axis; no factor."""
    axes = tuple(whole(n) for n in shape)
    terms = [] if 0 in shape else [Term((), axes, axes)]
    return rows_of(terms, shape, shape, dtype)


def on_axes(t: Term) -> list[Letter]:
    """The letters that stand on an axis, rows first."""
    return list(dict.fromkeys(p.letter for a in (*t.rows, *t.own) for p in a))


def all_letters(t: Term) -> list[Letter]:
    return list(dict.fromkeys([*on_axes(t), *(c for f in t.factors for c in f.letters)]))


def size(letters: Iterable[Letter]) -> int:
    return math.prod(c.size for c in letters)


# ------------------------------------------------------------------ the two moves


def taken(b: Builder, v: Value, axes: Sequence[Axis]) -> Factor:
    """F[letters] = v[positions of the axes]."""
    letters = list(dict.fromkeys(p.letter for a in axes for p in a))
    vectors: list[Value] = []
    places = []
    for a in axes:
        spelled = []
        for p in a:
            index: Index | int | None
            if isinstance(p.where, Value):
                index = len(vectors)
                vectors.append(p.where)
            else:
                index = p.where
            spelled.append(Place(letters.index(p.letter), index, p.extent))
        places.append(tuple(spelled))
    key = (id(v), tuple(places), *map(id, vectors))
    if key not in b.taken:
        b.taken[key] = take(v, places, vectors)
    value, order = b.taken[key]
    return Factor(value, tuple(letters[k] for k in order))


def relettered(b: Builder, t: Term, new: Mapping[Letter, Axis]) -> Term:
    """Letters written as functions of other letters: `new` gives the axis that takes a letter's place."""

    def axis(a: Axis) -> Axis:
        return tuple(q for p in a for q in replaced(p))

    def replaced(p: Pair) -> Axis:
        if p.letter not in new:
            return (p,)
        if p.where is None:
            return new[p.letter]
        (q,) = new[p.letter]
        return (pair(q.letter, chosen(b, p, q.where), p.extent),)

    def factor(f: Factor) -> Factor:
        if not any(c in new for c in f.letters):
            return f
        return taken(b, f.value, [new.get(c, (Pair(c, None, c.size),)) for c in f.letters])

    return Term(tuple(map(factor, t.factors)), tuple(map(axis, t.rows)), tuple(map(axis, t.own)))


def fused(b: Builder, t: Term, k: int) -> Term:
    """Own axis k as exactly one pair: a product of letters becomes one letter that runs over the product."""
    axis = t.own[k]
    if len(axis) == 1:
        return t
    letters = list(dict.fromkeys(p.letter for p in axis))
    sizes = [c.size for c in letters]
    m = Letter(math.prod(sizes))
    unravelled = np.unravel_index(np.arange(m.size), sizes) if letters else ()
    parts: dict[Letter, Index | None] = {c: Index(u) for c, u in zip(letters, unravelled, strict=True)}
    position = joined(b, axis, parts, m.size)
    full = extent_of(axis)
    t = relettered(b, t, {c: (pair(m, parts[c], c.size),) for c in letters})
    return with_own(t, k, ((pair(m, position, full),),))


def cut(b: Builder, t: Term, k: int, a: int) -> Term:
    """Own axis k (one pair of extent a · c) as two own axes. A letter that is the identity everywhere becomes two
    letters; any other stands on both axes."""
    (p,) = t.own[k]
    c = p.extent // a
    if all(q.where is None for x in (*t.rows, *t.own) for q in x if q.letter is p.letter):
        left, right = pair(Letter(a)), pair(Letter(c))
        t = relettered(b, t, {p.letter: (left, right)})
        return with_own(t, k, ((left,), (right,)))
    quotient, remainder = divided(b, p, c)
    return with_own(t, k, ((pair(p.letter, quotient, a),), (pair(p.letter, remainder, c),)))


def with_own(t: Term, k: int, axes: Sequence[Axis]) -> Term:
    return replace(t, own=(*t.own[:k], *axes, *t.own[k + 1 :]))


# ------------------------------------------------------------------ products


def align(b: Builder, f: Factor, letters: Sequence[Letter]) -> Value:
    """A factor broadcastable over letters in this order."""
    have = [c for c in letters if c in f.letters]
    v = b.transpose(f.value, [f.letters.index(c) for c in have])
    return b.reshape(v, [c.size if c in f.letters else 1 for c in letters])


def spread(b: Builder, f: Factor, letters: Sequence[Letter]) -> Value:
    """A factor repeated over all of the letters."""
    v = align(b, f, letters)
    shape = tuple(c.size for c in letters)
    return v if v.aval.shape == shape else b.emit("broadcast_to", v, shape=shape)


def product(b: Builder, f: Factor, g: Factor, keep: Sequence[Letter]) -> Factor:
    """One pairwise step: letters outside `keep` are summed in a contraction, else a broadcast product. `keep` is
    ordered, row letters first."""
    union = list(dict.fromkeys(f.letters + g.letters))
    out = [c for c in keep if c in union]
    if not any(c in f.letters and c in g.letters and c not in keep for c in union):
        value = b.emit("multiply", align(b, f, out), align(b, g, out))
        return Factor(value, tuple(out))
    spell = dict(zip(union, opt_einsum_letters(len(union)), strict=True))
    left, right, result = ("".join(spell[c] for c in letters) for letters in (f.letters, g.letters, out))
    return Factor(b.emit("contract", f.value, g.value, subscripts=f"{left},{right}->{result}"), tuple(out))


def opt_einsum_letters(n: int) -> list[str]:
    return [opt_einsum.get_symbol(i) for i in range(n)]


def summed(b: Builder, f: Factor, keep: Sequence[Letter], other: Factor | None) -> Factor:
    """The sum over letters of f that neither `keep` nor the other factor has; of truth values, whether any holds."""
    gone = tuple(k for k, c in enumerate(f.letters) if c not in keep and (other is None or c not in other.letters))
    if not gone:
        return f
    op = "reduce_any" if f.value.aval.dtype.is_bool else "reduce_sum"
    value = b.emit(op, f.value, axes=gone, keepdims=False)
    return Factor(value, tuple(c for k, c in enumerate(f.letters) if k not in gone))


def multiplied_out(b: Builder, factors: Sequence[Factor], keep: Sequence[Letter], dtype: DType) -> Factor:
    """All factors as one, over those letters of `keep` that they have; the order is opt_einsum's."""
    left = list(factors)
    if not left:
        return number(b, 1, dtype)
    names = list(dict.fromkeys(c for f in left for c in f.letters))
    final = [c for c in keep if c in names]
    for step in _path(left, names, final):
        picked = [left[i] for i in step]
        left = [f for i, f in enumerate(left) if i not in step]
        out = picked[0]
        for n, g in enumerate(picked[1:], 2):
            later = {c for f in (*left, *picked[n:]) for c in f.letters}
            wanted = [*final, *(c for c in names if c in later and c not in final)]
            out = product(b, summed(b, out, wanted, g), summed(b, g, wanted, out), wanted)
        left.append(out)
    return summed(b, left[0], final, None)


def _path(factors: Sequence[Factor], names: Sequence[Letter], final: Sequence[Letter]) -> list[tuple[int, ...]]:
    if len(factors) < 3:
        return [(0, 1)] * (len(factors) - 1)
    spell = dict(zip(names, opt_einsum_letters(len(names)), strict=True))
    text = ",".join("".join(spell[c] for c in f.letters) for f in factors)
    result = "".join(spell[c] for c in final)
    shapes = [f.value.aval.dims for f in factors]
    return list(opt_einsum.contract_path(f"{text}->{result}", *shapes, shapes=True)[0])


def effort(t: Term, before: Sequence[Letter]) -> float:
    """An estimate of the time in nanoseconds that the sums of the normal form take; `before` as there."""
    keep = on_axes(t)
    hidden = [c for c in dict.fromkeys([*before, *all_letters(t)]) if c not in keep]
    groups, _ = _connected(t.factors, hidden)
    return sum(_group_effort(g, keep) for g in groups)


def _group_effort(factors: Sequence[Factor], keep: Sequence[Letter]) -> float:
    names = list(dict.fromkeys(c for f in factors for c in f.letters))
    final = [c for c in keep if c in names]
    left = [set(f.letters) for f in factors]
    if len(left) == 1:
        return NANOSECONDS_PER_ELEMENT * size(left[0])
    total = 0.0
    for step in _path(factors, names, final):
        union = set().union(*(left[i] for i in step))
        left = [s for i, s in enumerate(left) if i not in step]
        made = union & set(final).union(*left)
        if made < union:
            total += NANOSECONDS_PER_MULTIPLY_ADD * size(union)
        total += NANOSECONDS_PER_ELEMENT * size(made)
        left.append(made)
    return total


def number(b: Builder, value: float, dtype: DType) -> Factor:
    return Factor(b.constant(value, dtype), ())


# ------------------------------------------------------------------ the normal form


def normal(b: Builder, t: Term, dtype: DType, before: Sequence[Letter] = ()) -> Term | None:
    """1. Axes without sub-axes of extent 1, neighbours of one letter joined. 2. Letters on no axis are summed,
    each group of factors that they connect by itself; other factors stay aside. 3. A factor whose letters another
    one has is multiplied into it. `before`: letters that a rule took off the axes just now."""
    letters = list(dict.fromkeys([*before, *all_letters(t)]))
    if any(c.size == 0 for c in letters):
        return None
    t = Term(t.factors, tuple(_tidy(b, a) for a in t.rows), tuple(_tidy(b, a) for a in t.own))
    keep = on_axes(t)
    hidden = [c for c in letters if c not in keep]
    groups, aside = _connected(t.factors, hidden)
    sums = [multiplied_out(b, g, keep, dtype) for g in groups]
    lone = [number(b, c.size, dtype) for c in hidden if not any(c in f.letters for f in t.factors)]
    return replace(t, factors=absorbed(b, [*aside, *sums, *lone]))


def _connected(factors: Sequence[Factor], hidden: Sequence[Letter]) -> tuple[list[list[Factor]], list[Factor]]:
    """Groups of factors that summed letters connect, and those that no such letter touches."""
    left, groups = list(factors), []
    for c in hidden:
        group: list[Factor] = []
        links = {c}
        while more := [f for f in left if links & set(f.letters)]:
            group += more
            left = [f for f in left if f not in more]
            links |= {m for f in more for m in f.letters if m in hidden}
        if group:
            groups.append(group)
    return groups, left


def _tidy(b: Builder, axis: Axis) -> Axis:
    out: list[Pair] = []
    for p in axis:
        if p.extent == 1:
            continue
        if out and out[-1].letter is p.letter:
            q = out.pop()
            both = joined(b, [q, p], {p.letter: None}, p.letter.size)
            p = pair(p.letter, both, q.extent * p.extent)
        out.append(p)
    return tuple(out)


def absorbed(b: Builder, factors: Sequence[Factor]) -> tuple[Factor, ...]:
    """A factor goes into the last one that has all of its letters; numbers only join numbers, so that factors
    kept aside stay the values they are and sums can recognise them."""
    left = list(factors)
    for i in range(len(left) - 1, -1, -1):
        f = left[i]
        hosts = [
            j
            for j, g in enumerate(left)
            if j != i and set(f.letters) <= set(g.letters) and bool(f.letters) == bool(g.letters)
        ]
        if hosts:
            g = left[hosts[-1]]
            left[hosts[-1]] = product(b, g, f, g.letters)
            del left[i]
    return tuple(left)


def each(b: Builder, v: Rows, shape: Sequence[int], rule: Callable[[Term], Term], drops: bool = False) -> Rows:
    """A rule on every term. `drops`: it takes axes off, and their letters are summed."""
    terms = [normal(b, rule(t), v.dtype, all_letters(t) if drops else ()) for t in v.terms]
    return rows_of(terms, v.rows, shape, v.dtype)
