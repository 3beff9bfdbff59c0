"""Products with a large transposed matrix are made turned, as the transpose of what BLAS computes faster. Floor:
transforms.

    G Wᵀ = (W Gᵀ)ᵀ

BLAS copies operands into an order of its own first, and the one with the result's columns slowly where the summed index
runs along its rows. On the right side that is the small matrix. The kernel that reads the result goes through it
transposed."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.dtypes import float32, float64
from gradtape.ir.graph import Graph, Value
from gradtape.ops.contraction import Contraction, parts
from gradtape.ops.op import Step, apply, emit
from gradtape.ops.pointwise import Pointwise

LARGE = 1 << 22  # multiply-adds of a product that is worth a look
TIMES = 4  # so much larger than the result is a matrix whose copying costs more than reading the result transposed


def with_products_turned(graph: Graph) -> Graph:
    """The same outputs but for roundings."""
    held = {id(v) for v in graph.outputs}
    for n in graph.nodes:
        if not isinstance(n.step.op, Pointwise):
            held.update(map(id, n.inputs))
    asked = [n for n in graph.nodes if isinstance(n.step.op, Contraction) and id(n.outputs[0]) not in held]
    slow = {id(n) for n in asked if _is_slow(n.step, n.inputs, n.outputs[0])}
    if not slow:
        return graph
    new = {id(v): v for v in graph.inputs}
    for n in graph.nodes:
        operands = [new[id(v)] for v in n.inputs]
        same = all(a is b for a, b in zip(operands, n.inputs, strict=True))
        results = (_turned(n.step, operands),) if id(n) in slow else n.outputs if same else apply(n.step, operands)
        new.update((id(v), r) for v, r in zip(n.outputs, results, strict=True))
    return Graph(graph.inputs, [new[id(v)] for v in graph.outputs])


def _is_slow(step: Step, operands: Sequence[Value], result: Value) -> bool:
    """Whether a product copies a large second matrix against its order."""
    a, b = (v.aval for v in operands)
    left, right, out = parts(step.params["subscripts"])
    if not (a.is_known and b.is_known) or a.dtype not in (float32, float64) or len(left) != 2 or len(right) != 2:
        return False
    summed = {*left} & {*right}
    if len(out) != 2 or len(summed) != 1 or not summed.isdisjoint(out) or out[1] != right[0]:
        return False
    return result.aval.size * b.dims[1] >= LARGE and b.size >= TIMES * result.aval.size


def _turned(step: Step, operands: Sequence[Value]) -> Value:
    left, right, out = parts(step.params["subscripts"])
    made = emit(step.op.name, *operands, subscripts=f"{left},{right}->{out[::-1]}")
    return emit("transpose", made, perm=(1, 0))
