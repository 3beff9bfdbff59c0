"""Tangents that are not finite, times a slope that is zero. Floor: transforms.

In reverse mode a cotangent that is zero stays zero where a rule says so, as at the square root of zero. Forward mode
comes to such a place first, with a tangent that is no zero, and later to the slopes that would have made the cotangent
zero: there zero has to win, and both modes have the same derivative."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Value, order
from gradtape.ops.arithmetic import MULTIPLY
from gradtape.ops.op import apply, emit
from gradtape.ops.pointwise import Pointwise
from gradtape.transforms.dependence import dependent


def guarded(pushed: Value, tangents: Sequence[Value], given: Sequence[Value]) -> Value:
    """What is pushed forward along tangents, zero wherever reverse mode has zero cotangents for a rule that keeps
    them."""
    nodes = order([pushed], [*given, *tangents])
    reached = dependent(nodes, tangents)
    behind: set[int] = set()  # what depends on tangents through such a rule
    new = {id(v): v for v in (*given, *tangents)}
    for node in nodes:
        op, operands = node.step.op, [new[id(v)] for v in node.inputs]
        hit = [k for k, v in enumerate(node.inputs) if id(v) in reached]
        late = any(id(v) in behind for v in node.inputs)
        if late and op is MULTIPLY and len(hit) == 1:
            results: Sequence[Value] = [emit("multiply_no_nan", operands[hit[0]], operands[1 - hit[0]])]
        elif all(a is b for a, b in zip(operands, node.inputs, strict=True)):
            results = node.outputs
        else:
            results = apply(node.step, operands)
        if late or (hit and isinstance(op, Pointwise) and op.linear_at_zero):
            behind.update(map(id, node.outputs))
        new.update((id(v), r) for v, r in zip(node.outputs, results, strict=True))
    return new[id(pushed)]
