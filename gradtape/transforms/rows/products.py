"""What a structured Jacobian answers without being written out. Floor: transforms.

A Jacobian is a `Rows` whose rows are the target's axes and whose own axes are the source's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.index import Index
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.letters import Array, Axis, Letter, known
from gradtape.transforms.rows.moves import diagonal, transposed
from gradtape.transforms.rows.terms import Factor, Rows, Term, all_letters, each, on_axes, rows_of, taken
from gradtape.transforms.rows.terms import opt_einsum_letters as letters_of


def times_vector(b: Builder, v: Rows, vector: Value) -> Value:
    """J @ vector, the vector in the source's shape: one more factor, and every own axis summed."""

    def rule(t: Term) -> Term:
        squeezed = b.reshape(vector, [n for n in v.shape if n != 1])
        factor = taken(b, squeezed, [a for a, n in zip(t.own, v.shape, strict=True) if n != 1])
        return Term((*t.factors, factor), t.rows, ())

    return dense(b, each(b, v, (), rule, drops=True))


def diagonal_of(b: Builder, v: Rows) -> Value:
    """J[i, i] where target and source have one shape."""
    n = len(v.shape)
    joined = rows_of((Term(t.factors, (), (*t.rows, *t.own)) for t in v.terms), (), v.rows + v.shape, v.dtype)
    for k in range(n):
        # axes so far: rows k.., own k.., then the diagonals made
        rest = len(joined.shape) - 2 * (n - k)
        order = [*range(1, n - k), *range(n - k + 1, 2 * (n - k)), *range(2 * (n - k), 2 * (n - k) + rest), 0, n - k]
        joined = diagonal(b, transposed(b, joined, order))
    return dense(b, joined)


def batch_blocks(b: Builder, v: Rows) -> Value:
    """J[i, ..., i, ...] for a common first axis of target and source: (batch, rest of target, rest of source)."""
    lead = len(v.rows)
    joined = rows_of((Term(t.factors, (), (*t.rows, *t.own)) for t in v.terms), (), v.rows + v.shape, v.dtype)
    order = [*range(1, lead), *range(lead + 1, len(joined.shape)), 0, lead]
    blocks = diagonal(b, transposed(b, joined, order))
    last = len(blocks.shape) - 1
    return dense(b, transposed(b, blocks, [last, *range(last)]))


def row_squares(b: Builder, v: Rows) -> Value:
    """The sum of |entry|² over each row: of each factor by itself where one term sets each entry at most once."""
    real = v.dtype.real_dtype
    if len(v.terms) != 1 or not _sets_once(v.terms[0]):
        whole = _squared(b, dense(b, v))
        axes = tuple(range(len(v.rows), len(whole.aval.dims)))
        return b.emit("reduce_sum", whole, axes=axes, keepdims=False)

    def rule(t: Term) -> Term:
        return replace(t, factors=tuple(Factor(_squared(b, f.value), f.letters) for f in t.factors), own=())

    return dense(b, each(b, replace(v, dtype=real), (), rule, drops=True))


def _squared(b: Builder, v: Value) -> Value:
    return b.emit("square", b.emit("complex_abs", v) if v.aval.dtype.is_complex else v)


def _sets_once(t: Term) -> bool:
    """Whether no two values of the letters stand at one entry: each letter is told by its position on some axis."""
    pairs = [p for a in (*t.rows, *t.own) for p in a]
    told = {p.letter for p in pairs if p.where is None or (isinstance(p.where, Index) and p.where.distinct)}
    return told >= set(on_axes(t))


def nonzeros(v: Rows) -> int:
    """How many entries the terms can set: an upper bound on the entries that are not zero."""
    return sum(math.prod(c.size for c in all_letters(t)) for t in v.terms)


def running(v: Rows) -> list[Value]:
    """The index vectors that are known only when running."""
    places = [p.where for t in v.terms for a in (*t.rows, *t.own) for p in a]
    return list({id(w): w for w in places if isinstance(w, Value)}.values())


def pattern(v: Rows, vectors: Sequence[Array] = ()) -> tuple[Array, Array]:
    """Row and column numbers of the entries that terms set, term by term. `vectors`: the numbers of `running(v)`."""
    found = {id(w): a for w, a in zip(running(v), vectors, strict=True)}
    rows, columns = [], []
    for t in v.terms:
        letters = on_axes(t)
        places = (_flat(t.rows, v.rows, letters, found), _flat(t.own, v.shape, letters, found))
        first, second = (np.broadcast_to(p, [c.size for c in letters]) for p in places)
        rows.append(first.reshape(-1))
        columns.append(second.reshape(-1))
    none = np.zeros(0, np.int64)
    return np.concatenate(rows or [none]), np.concatenate(columns or [none])


def _flat(axes: Sequence[Axis], shape: tuple[int, ...], letters: list[Letter], found: Mapping[int, Array]) -> Array:
    """The row-major position of some axes as a function of letters."""
    at = np.zeros((1,) * len(letters), np.int64)
    for axis, n in zip(axes, shape, strict=True):
        part = np.zeros((1,) * len(letters), np.int64)
        for p in axis:
            numbers = known(p)
            line = [1] * len(letters)
            line[letters.index(p.letter)] = -1
            part = part * p.extent + (found[id(p.where)] if numbers is None else numbers).reshape(line)
        at = at * n + part
    return at


def entries(b: Builder, v: Rows) -> list[Value]:
    """The values that terms set, each term as one array over its letters on axes."""
    found = []
    for t in v.terms:
        found.append(_product(b, t, on_axes(t), v))
    return found


def _product(b: Builder, t: Term, letters: list[Letter], v: Rows) -> Value:
    shape = tuple(c.size for c in letters)
    value = b.constant(1, v.dtype)
    for f in t.factors:
        order = [f.letters.index(c) for c in letters if c in f.letters]
        part = b.reshape(b.transpose(f.value, order), [c.size if c in f.letters else 1 for c in letters])
        value = part if f is t.factors[0] else b.emit("multiply", value, part)
    return value if value.aval.shape == shape else b.emit("broadcast_to", value, shape=shape)


def described(v: Rows) -> str:
    """The structure as text, a term a line: `rows | own : factors`. A letter on a row axis and on an own axis says
    that the entries are zero unless both indices agree; `a*` stands at positions of an index vector, 1 on an axis
    of size 1."""
    lines = []
    for t in v.terms:
        names = dict(zip(on_axes(t), letters_of(len(on_axes(t))), strict=True))

        def axis(a: Axis, names: dict[Letter, str] = names) -> str:
            return "".join(names[p.letter] + ("*" if p.where is not None else "") for p in a) or "1"

        factors = " x ".join("(" + "".join(names[c] for c in f.letters) + ")" for f in t.factors) or "1"
        lines.append(f"{' '.join(map(axis, t.rows))} | {' '.join(map(axis, t.own))} : {factors}")
    return "\n".join(lines) or "0"
