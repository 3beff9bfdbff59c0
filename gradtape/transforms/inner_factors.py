"""Factors of sums to one number become factors of what is summed, so that the sum is the last of its kernel. Floor:
transforms.

    c · Σ x = Σ c · x

A kernel that adds up by the way has its sums only when it ends: what is done to them would be a kernel of its own."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.dtypes import float32, float64
from gradtape.ir.graph import Graph, Value
from gradtape.ops.op import Constant, Step, apply
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reductions import REDUCE_SUM
from gradtape.transforms.simplify import rebuild

SMALLEST, LARGEST = 2.0**-20, 2.0**30  # sizes of factors


def with_inner_factors(graph: Graph) -> Graph:
    """The same outputs but for roundings; means are sums of what is divided."""
    return rebuild(graph, _moved_in)


def _moved_in(step: Step, operands: Sequence[Value]) -> Value | None:
    op = step.op
    if not isinstance(op, Pointwise):
        return None
    for k, total in enumerate(operands):
        others = [v for j, v in enumerate(operands) if j != k]
        if (k,) in op.linear and _is_sum_to_one(total) and all(map(_is_factor, others)):
            assert total.node is not None
            (summed,) = total.node.inputs
            scaled = apply(step, [summed if j == k else v for j, v in enumerate(operands)])[0]
            result = apply(total.node.step, [scaled])[0]
            same = (
                result.aval == step.infer(tuple(v.aval for v in operands))[0] and scaled.aval.dims == summed.aval.dims
            )
            return result if same else None
    return None


def _is_sum_to_one(v: Value) -> bool:
    if v.node is None or v.node.step.op is not REDUCE_SUM or v.aval.dtype not in (float32, float64):
        return False
    (x,) = v.node.inputs
    return x.aval.is_known and v.aval.size == 1 and x.aval.size > 1


def _is_factor(v: Value) -> bool:
    """Whether it is a number of such a size that products with it neither overflow nor vanish before their sum does."""
    if v.node is None or not isinstance(v.node.step.op, Constant) or v.aval.size != 1:
        return False
    return bool(SMALLEST <= abs(v.node.step.params["value"]) <= LARGEST)
