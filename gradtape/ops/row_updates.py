"""Declarations: one row of an array replaced at a position that is known when running. Floor: ops.

It is what a loop does to an array that it carries along. `over` is for who runs it: nobody else has the first operand,
which takes the row in its own memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.aval import Aval
from gradtape.ir.dtypes import int64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ir.index import Index
from gradtape.ops.indexing import GATHER, GATHER_ROWS, SCATTER_ADD, SCATTER_ROWS
from gradtape.ops.moves import Gather, Move, Reshape, Scatter, flat
from gradtape.ops.op import Step, constant, emit
from gradtape.ops.opaque import Opaque
from gradtape.ops.samples import BadSample, Sample, Spec

GATHERS = (GATHER, GATHER_ROWS)
SCATTERS = (SCATTER_ADD, SCATTER_ROWS)


def _infer(x: Aval, row: Aval, at: Aval, **params: Any) -> Sequence[Aval]:
    if not at.dtype.is_integer or at.shape not in ((), None):
        raise ValueError(f"wants a position that is an integer scalar, got {at!r}.")
    if row.dtype is not x.dtype:
        raise ValueError(
            f"wants operands of one dtype, got a {x.dtype.cname} and a {row.dtype.cname} tensor. Use `tf.cast`."
        )
    if x.shape is not None and row.shape is not None:
        if not x.shape or len(row.shape) != len(x.shape) - 1:
            raise ValueError(f"wants a row of what it changes, got {row!r} for {x!r}.")
        if any(m != n for m, n in zip(row.shape, x.shape[1:], strict=True) if m is not None and n is not None):
            raise ValueError(f"wants a row of what it changes, got {row!r} for {x!r}.")
    return [x]


def _value(xp: Any, x: Any, row: Any, at: Any, over: bool) -> Any:
    position = int(at)
    if not 0 <= position < len(x):
        raise InvalidArgumentError(f"`set_row` index {position} is not in [0, {len(x)}).")
    out = x if over else xp.array(x)
    out[position] = row
    return out


def _vjp(node: Node, g: Value) -> Sequence[Value | None]:
    _, row, at = node.inputs
    below = set_row(g, constant(0, g.aval.dtype, row.aval.dims), at)
    return [below, emit("gather", g, at, axis=0, batch_dims=0), None]


def _moves(node: Node) -> list[list[Move]]:
    """All other rows stay."""
    (x, _, at), n = node.inputs, node.inputs[0].aval.dims[0]
    placed: list[Move] = [Reshape((1, *x.aval.dims[1:])), Scatter(0, flat(at), n)]
    count = max(0, n - 1)
    line = emit("positions", value=Index(np.arange(count)))
    wide = at if at.aval.dtype is int64 else emit("cast", at, dtype=int64)
    others = emit("add", line, emit("cast", emit("greater_equal", line, wide), dtype=int64))
    return [[Gather(0, others, count), Scatter(0, others, n)], placed]


def set_row(x: Value, row: Value, at: Value) -> Value:
    """The node that replaces a row."""
    return emit("set_row", x, row, at, over=False)


def is_of_one_row(node: Node, ops: tuple[Opaque, ...]) -> bool:
    """Whether it is one of some gathers or scatters, of a single row along the first axis."""
    p = node.step.params
    return node.step.op in ops and not (p["axis"] or p["batch_dims"]) and node.inputs[1].aval.shape == ()


def is_of_rows(node: Node) -> bool:
    """Whether it reads or replaces a row, whatever the size of the array."""
    return node.step.op is SET_ROW or is_of_one_row(node, GATHERS)


def is_row_alone(node: Node) -> bool:
    """Whether it makes zeros that have a row."""
    return is_of_one_row(node, SCATTERS)


def in_place(step: Step) -> Step:
    """The step that changes its first operand itself."""
    return SET_ROW.bind(**step.params | {"over": True})


_PARAMS = {"over": False}
SET_ROW = Opaque(
    "set_row",
    _value,
    infer=_infer,
    vjp=_vjp,
    moves=_moves,
    signature="(n),(),()->(n)",
    samples=[
        Sample((Spec((3, 2)), Spec((2,)), Spec((), (0, 3), "int")), _PARAMS),
        Sample((Spec((4,)), Spec(()), Spec((), (0, 4), "int")), _PARAMS),
        Sample((Spec((2, 0)), Spec((0,)), Spec((), (0, 2), "int")), _PARAMS),
        Sample((Spec((1, 2, 2)), Spec((2, 2)), Spec((), (0, 1), "int")), _PARAMS, "the only row"),
    ],
    errors=[
        BadSample((((3, 2), "float32"), ((3,), "float32"), ((), "int32")), InvalidArgumentError, "row", _PARAMS),
        BadSample((((3,), "float32"), ((), "float32"), ((), "float32")), InvalidArgumentError, "integer", _PARAMS),
    ],
    doc="An array with another row at one position.",
)
