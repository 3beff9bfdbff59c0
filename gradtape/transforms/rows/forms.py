"""What enters the graphs of branches and loops for all rows, and in which form rows leave them. Floor: transforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gradtape.ir.aval import Aval, aval
from gradtape.ir.graph import Value
from gradtape.ir.shapes import size_of
from gradtape.ops.control import is_stack, unstacked
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.entering import free, lifted
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.letters import Axis, Letter, Pair
from gradtape.transforms.rows.sums import MAX_TERMS, matched
from gradtape.transforms.rows.terms import (
    Factor,
    Item,
    Rows,
    Term,
    all_letters,
    multiplied_out,
    on_axes,
    rows_of,
    size,
    spread,
)


@dataclass(frozen=True, eq=False)
class StackOfRows(Rows):
    """A stack whose elements depend on rows: they have the row axes first."""

    value: Value | None = None


def stack_of_rows(value: Value, rows: tuple[int, ...]) -> StackOfRows:
    shape = value.aval.dims[len(rows) :]
    return StackOfRows((), rows, shape, value.aval.dtype, value)


# ------------------------------------------------------------------ entering a graph


@dataclass
class Doors:
    """What a graph inside is given: values outside, and those that stand for them inside."""

    outside: list[Value] = field(default_factory=list)
    inside: list[Value] = field(default_factory=list)
    known: dict[int, Value] = field(default_factory=dict)

    def value(self, v: Value, of: Aval | None = None) -> Value:
        if id(v) not in self.known:
            self.outside.append(v)
            self.inside.append(Value(of or v.aval))
            self.known[id(v)] = self.inside[-1]
        return self.known[id(v)]

    def item(self, x: Item) -> Item:
        """The same inside."""
        if isinstance(x, Value):
            return self.value(x)
        if isinstance(x, StackOfRows):
            assert x.value is not None
            return stack_of_rows(self.value(x.value), x.rows)
        return replace(x, terms=tuple(self._term(t) for t in x.terms))

    def element(self, b: Builder, x: Item) -> Item:
        """An element of a stack, inside."""
        if isinstance(x, Value):
            return self.value(x, unstacked(x.aval))
        assert isinstance(x, StackOfRows) and x.value is not None
        v = self.value(x.value, unstacked(x.value.aval))
        return stack_of_rows(v, x.rows) if is_stack(v.aval.dtype) else free(b, v, x.rows)

    def _term(self, t: Term) -> Term:
        factors = tuple(Factor(self.value(f.value), f.letters) for f in t.factors)
        return Term(factors, *(tuple(map(self._axis, axes)) for axes in (t.rows, t.own)))

    def _axis(self, axis: Axis) -> Axis:
        return tuple(
            Pair(p.letter, self.value(p.where) if isinstance(p.where, Value) else p.where, p.extent) for p in axis
        )


# ------------------------------------------------------------------ what holds two structures


@dataclass
class Form:
    """How a value that depends on rows is passed on: terms of one factor each, over letters. None: written out."""

    rows: tuple[int, ...]
    shape: tuple[int, ...]
    aval: Aval
    terms: list[tuple[Term, tuple[Letter, ...]]] | None

    def values(self, b: Builder, x: Item) -> list[Value]:
        """The factors of a value in this form."""
        if self.terms is None:
            return [written(b, x, self.rows)]
        left = list(lifted(b, x, self.rows).terms)
        found = []
        for term, letters in self.terms:
            at = next(((k, m) for k, t in enumerate(left) if (m := matched(b, term, t)) is not None), None)
            if at is None:
                found.append(b.constant(0, self.aval.dtype, tuple(c.size for c in letters)))
                continue
            left.pop(at[0])
            one = multiplied_out(b, at[1].factors, letters, self.aval.dtype)
            found.append(spread(b, one, letters))
        assert not left, "a form holds all terms of its values"
        return found

    def item(self, b: Builder, values: Sequence[Value]) -> Rows:
        """The value whose factors these are."""
        if self.terms is None:
            return free(b, values[0], self.rows)
        terms = [Term((Factor(v, letters),), t.rows, t.own) for v, (t, letters) in zip(values, self.terms, strict=True)]
        return rows_of(terms, self.rows, self.shape, self.aval.dtype)

    @property
    def count(self) -> int:
        return 1 if self.terms is None else len(self.terms)

    def avals(self) -> list[Aval]:
        if self.terms is None:
            return [aval((*self.rows, *self.shape), self.aval.dtype)]
        return [aval(tuple(c.size for c in letters), self.aval.dtype) for _, letters in self.terms]

    def equals(self, other: Form) -> bool:
        if self.terms is None or other.terms is None:
            return self.terms is other.terms
        return [letters for _, letters in self.terms] == [letters for _, letters in other.terms]


def joint(b: Builder, rows: tuple[int, ...], of: Aval, items: Sequence[Item]) -> Form:
    """The least form that holds all of the items; index vectors that are only known when running have none."""
    shape = of.dims
    written = Form(rows, shape, of, None)
    if not of.dtype.is_differentiable:
        return written
    terms: list[tuple[Term, tuple[Letter, ...]]] = []
    for x in items:
        taken: set[int] = set()
        for t in lifted(b, x, rows).terms:
            if any(isinstance(p.where, Value) for a in (*t.rows, *t.own) for p in a):
                return written
            _take_in(b, terms, taken, t)
    stored = sum(size(letters) for _, letters in terms)
    if len(terms) > MAX_TERMS or stored > max(1, size_of((*rows, *shape))):
        return written
    return Form(rows, shape, of, terms)


def _take_in(b: Builder, terms: list[tuple[Term, tuple[Letter, ...]]], taken: set[int], t: Term) -> None:
    """One more term of a value; `taken` are those that its other terms need."""
    for k, (term, letters) in enumerate(terms):
        if k not in taken and (same := matched(b, term, t)) is not None:
            used = {c for f in same.factors for c in f.letters} | set(letters)
            terms[k] = (term, tuple(c for c in on_axes(term) if c in used))
            taken.add(k)
            return
    letters = tuple(c for c in on_axes(t) if any(c in f.letters for f in t.factors))
    assert set(all_letters(t)) == set(on_axes(t)), "in normal form nothing is left to sum"
    taken.add(len(terms))
    terms.append((Term((), t.rows, t.own), letters))


def written(b: Builder, x: Item, rows: tuple[int, ...]) -> Value:
    """A value with the row axes first."""
    if isinstance(x, StackOfRows):
        assert x.value is not None
        return x.value
    if isinstance(x, Rows):
        return dense(b, x)
    return b.emit("broadcast_to", x, shape=(*rows, *x.aval.dims))
