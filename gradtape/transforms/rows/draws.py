"""Random numbers for all rows at once. Floor: transforms.

A state that differs between rows is that of rows which draw by themselves: the slices of `vectorized_map`. One draw
serves them all, from a state that is made of theirs. Rows whose state is one draw the same numbers."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.dtypes import uint64
from gradtape.ir.errors import NotVectorizable
from gradtape.ir.graph import Node, Value
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.entering import free
from gradtape.transforms.rows.items import common_rows, shape_of
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.terms import Item

MULTIPLIERS = 0x726F7773  # the key and the counter from which the multipliers of states are drawn
TURNED = 24  # bits by which words are turned: what one call draws counts in the high bits


def drawn(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    """Numbers for each row, with those of all others."""
    rows, (state, *parameters) = common_rows(operands), operands
    if isinstance(state, Value):
        raise NotVectorizable(
            node.step.name,
            "its numbers are the same for all slices, and their parameters are not. Draw with a seed "
            "of each slice's own by `tf.map_fn`, or without one.",
        )
    shape = (*rows, *node.step.params["shape"])
    given = [_parameter(b, x, rows, len(shape)) for x in parameters]
    step = node.step.op.bind(**node.step.params | {"shape": shape})
    return [free(b, v, rows) for v in b.apply(step, [_of_all(b, dense(b, state), rows), *given])]


def seeded(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    """Numbers that depend on a seed of each row's own are no part of one draw."""
    raise NotVectorizable(
        node.step.name, "seeds differ between slices. Draw one slice after the other, by `tf.map_fn`."
    )


def _parameter(b: Builder, x: Item, rows: tuple[int, ...], rank: int) -> Value:
    """A parameter whose own axes stand last among as many as the numbers have."""
    if isinstance(x, Value):
        return x
    own = shape_of(x)
    return b.reshape(dense(b, x), (*rows, *(1,) * (rank - len(rows) - len(own)), *own))


def _of_all(b: Builder, states: Value, rows: tuple[int, ...]) -> Value:
    """One state made of all: it is another one as soon as one of them is, since each word has a multiplier of its own
    in the sum (odd ones: no word is lost)."""
    source = b.constant(MULTIPLIERS, uint64, (2,))
    shape = (*rows, 2)
    words = b.emit("random_integers", source, shape=shape, low=0, span=1 << 64, dtype=uint64)
    odd = b.emit("bitwise_or", words, b.constant(1, uint64))
    up, down = (b.constant(n, uint64) for n in (TURNED, 64 - TURNED))
    turned = b.emit("bitwise_xor", b.emit("left_shift", states, up), b.emit("right_shift", states, down))
    summed = b.emit("multiply", turned, odd)
    return b.emit("reduce_sum", summed, axes=tuple(range(len(rows))), keepdims=False)
