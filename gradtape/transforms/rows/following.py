"""The moves of a layout op, followed one after the other. Floor: transforms.

Positions may differ from row to row. No letter stands at such positions: what is moved is written out, and the row
axes become batch axes of the gather or scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradtape.ir.graph import Value
from gradtape.ir.index import Index
from gradtape.ops import moves as m
from gradtape.transforms.rows import moves
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.entering import free, lifted
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.terms import Item, Rows

Positions = Callable[[Index | Value], Index | Item]


def as_they_are(ids: Index | Value) -> Index | Item:
    """Positions that are the same for all rows."""
    return ids


def follow(b: Builder, x: Item, rows: Sequence[int], way: Sequence[m.Move], positions: Positions = as_they_are) -> Rows:
    """One operand moved. `positions`: what the positions that a move names are here."""
    for step in way:
        if isinstance(step, m.Gather | m.Scatter):
            x = _at_positions(b, x, rows, step, positions(step.ids))
        else:
            x = _rearranged(b, lifted(b, x, rows), step)
    return lifted(b, x, rows)


def _at_positions(b: Builder, x: Item, rows: Sequence[int], step: m.Gather | m.Scatter, ids: Index | Item) -> Rows:
    if isinstance(ids, Rows):
        if isinstance(step, m.Gather):
            return gathered_by_rows(b, x, step.axis, ids)
        return scattered_by_rows(b, x, step.axis, ids, step.n)
    if isinstance(step, m.Gather):
        return moves.gathered(b, lifted(b, x, rows), step.axis, ids, step.count)
    return moves.scattered(b, lifted(b, x, rows), step.axis, ids, step.n)


def _rearranged(b: Builder, v: Rows, step: m.Move) -> Rows:
    match step:
        case m.Reshape(shape):
            return moves.reshaped(b, v, shape)
        case m.Transpose(perm):
            return moves.transposed(b, v, perm)
        case m.Broadcast(shape):
            return moves.broadcast(b, v, shape)
        case m.Diagonal():
            return moves.diagonal(b, v)
        case m.Undiagonal():
            return moves.undiagonal(b, v)
    raise AssertionError(f"a move without positions, got {step!r}")


def gathered_by_rows(b: Builder, x: Item, axis: int, ids: Rows) -> Rows:
    """y[r, .., k, ..] = x[r, .., ids[r, k], ..]. One array for all rows is read where it lies, not repeated."""
    count, where = len(ids.rows), dense(b, ids)
    if isinstance(x, Rows):
        return free(b, b.emit("gather", dense(b, x), where, axis=count + axis, batch_dims=count), ids.rows)
    picked = b.emit("gather", x, where, axis=axis, batch_dims=0)
    lead = range(axis, axis + count)
    rest = [k for k in range(len(picked.aval.dims)) if k not in lead]
    return free(b, b.transpose(picked, [*lead, *rest]), ids.rows)


def scattered_by_rows(b: Builder, x: Item, axis: int, ids: Rows, n: int) -> Rows:
    """y[r, .., ids[r, k], ..] += x[r, .., k, ..] along an axis that gets size n."""
    count, wide = len(ids.rows), lifted(b, x, ids.rows)
    shape = (*ids.rows, *wide.shape[:axis], n, *wide.shape[axis + 1 :])
    placed = b.emit("scatter_add", dense(b, wide), dense(b, ids), shape=shape, axis=count + axis, batch_dims=count)
    return free(b, placed, ids.rows)
