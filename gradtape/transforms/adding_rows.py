"""A graph whose loops add to rows of what they carry, not arrays of zeros with those rows. Floor: transforms."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Graph, Value
from gradtape.ops.arithmetic import ADD
from gradtape.ops.control import Region
from gradtape.ops.op import Step, apply, emit
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.row_updates import is_row_alone, set_row
from gradtape.transforms.simplify import rebuild


def with_rows_added(graph: Graph) -> Graph:
    """The same outputs: what pulls back `x[i]` in a loop costs as much as the row, whatever the size of x."""
    if not any(isinstance(n.step.op, Region) for n in graph.nodes):
        return graph
    new: dict[int, Value] = {id(v): v for v in graph.inputs}
    for node in graph.nodes:
        step, operands = node.step, [new[id(v)] for v in node.inputs]
        if isinstance(step.op, Region):
            if "rows" not in step.cache:
                step.cache["rows"] = step.op.remade(step, _inside)
            step = step.cache["rows"]
        same = step is node.step and all(a is b for a, b in zip(operands, node.inputs, strict=True))
        results = node.outputs if same else apply(step, operands)
        new.update((id(v), r) for v, r in zip(node.outputs, results, strict=True))
    return Graph(graph.inputs, [new[id(v)] for v in graph.outputs])


def _inside(graph: Graph) -> Graph:
    return with_rows_added(rebuild(graph, _added, Pointwise))


def _added(step: Step, operands: Sequence[Value]) -> Value | None:
    """x with rows added, for the sum of x and zeros that have them."""
    if step.op is not ADD or operands[0].aval is not operands[1].aval:
        return None
    for x, zeros in (operands, operands[::-1]):
        rows = _rows(zeros)
        if rows is not None and _rows(x) is None:
            for row, at in rows:
                x = set_row(x, emit("add", emit("gather", x, at, axis=0, batch_dims=0), row), at)
            return x
    return None


def _rows(v: Value) -> list[tuple[Value, Value]] | None:
    """The rows, with their positions, of which a value is the sum, among zeros; None: it is no such sum."""
    if v.node is None:
        return None
    if is_row_alone(v.node):
        row, at = v.node.inputs
        return [(row, at)]
    if v.node.step.op is not ADD or v.node.inputs[0].aval is not v.node.inputs[1].aval:
        return None
    parts = [_rows(x) for x in v.node.inputs]
    return None if None in parts else [r for part in parts if part is not None for r in part]
