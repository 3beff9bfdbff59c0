"""Which results of a backward pass are sums of scattered rows and nothing else. Floor: runtime."""

from __future__ import annotations

from typing import NamedTuple

from gradtape.ir.dtypes import int64
from gradtape.ir.graph import Node, Value
from gradtape.ops.op import emit
from gradtape.ops.opaque import Opaque
from gradtape.ops.pointwise import Pointwise


class Rows(NamedTuple):
    """A value as rows and their positions along its first axis."""

    values: Value
    indices: Value
    shape: tuple[int, ...]


def as_rows(v: Value) -> Rows | None:
    """The rows that add up to a value: the operands of the scatters that it is the sum of, one after the other, those
    first that were recorded first. None where anything else is added."""
    scatters = _scatters(v)
    if not scatters:
        return None
    scatters.reverse()
    inner = v.aval.dims[1:]
    values = [_reshaped(n.inputs[0], (n.inputs[1].aval.size, *inner)) for n in scatters]
    indices = [_reshaped(n.inputs[1], (n.inputs[1].aval.size,)) for n in scatters]
    if len({i.aval.dtype for i in indices}) > 1:
        indices = [emit("cast", i, dtype=int64) for i in indices]
    return Rows(_joined(values), _joined(indices), v.aval.dims)


def _scatters(v: Value) -> list[Node] | None:
    """The scatters whose sum a value is, in order; None where something else is in the sum, or one sum twice: rows
    would be repeated then."""
    found: list[Node] = []
    sums: set[int] = set()
    stack = [v]
    while stack:
        node = stack.pop().node
        if node is None or id(node) in sums:
            return None
        op, params = node.step.op, node.step.params
        if isinstance(op, Opaque) and op.as_slices and params["axis"] == 0 and params["batch_dims"] == 0:
            found.append(node)
        elif isinstance(op, Pointwise) and op.partials == (1, 1) and all(x.aval is v.aval for x in node.inputs):
            sums.add(id(node))
            stack += reversed(node.inputs)
        else:
            return None
    return found


def _reshaped(v: Value, shape: tuple[int, ...]) -> Value:
    return v if v.aval.shape == shape else emit("reshape", v, shape=shape)


def _joined(parts: list[Value]) -> Value:
    return parts[0] if len(parts) == 1 else emit("concat", *parts, axis=0)
