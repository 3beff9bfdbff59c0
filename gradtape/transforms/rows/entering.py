"""Entering the structure: ordinary values as rows. Floor: transforms."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Value
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.letters import whole
from gradtape.transforms.rows.terms import Item, Rows, Term, normal, rows_of, taken


def lifted(b: Builder, x: Item, rows: Sequence[int]) -> Rows:
    """A value as rows that are all the same: a letter on each row axis that nothing else has. Zeros have no term."""
    if isinstance(x, Rows):
        return x
    if id(x) in b.zeros:
        return rows_of([], rows, x.aval.dims, x.aval.dtype)
    own = tuple(whole(n) for n in x.aval.dims)
    term = Term((taken(b, x, own),), tuple(whole(n) for n in rows), own)
    return rows_of([normal(b, term, x.aval.dtype)], rows, x.aval.dims, x.aval.dtype)


def free(b: Builder, value: Value, rows: tuple[int, ...]) -> Rows:
    """Rows from an array that has the row axes first."""
    shape = value.aval.dims[len(rows) :]
    axes = tuple(whole(n) for n in value.aval.dims)
    term = Term((taken(b, value, axes),), axes[: len(rows)], axes[len(rows) :])
    return rows_of([normal(b, term, value.aval.dtype)], rows, shape, value.aval.dtype)
