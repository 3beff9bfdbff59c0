"""Every op that computes numbers one by one, or reduces them, has a spelling for CUDA in each dtype that it takes on
the CPU; so have its derivatives, and the ops that are composed of such."""

from __future__ import annotations

from collections.abc import Iterator

from gradtape.ir.dtypes import ALL, complex64, float16, float32
from gradtape.ir.graph import Graph
from gradtape.kernels.cuda_spelling import spells_cuda
from gradtape.ops.composite import Composite
from gradtape.ops.op import Op, Step
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.transforms.differentiate import vjp
from gradtape.transforms.fuse import fuse
from tests.op_table.cases import CASES, each_op

# Strings have no place on a device.
DTYPES = [d for d in ALL if d.kind != "s"]
SLOPES = (float16, float32, complex64)
# What gives an operand as it is needs no kernel.
NOTHING_TO_DO = frozenset({"identity", "stop_gradient"})


def is_own(op: Op) -> bool:
    """Whether the op is one that kernels are made of, or may be composed of such."""
    return isinstance(op, Pointwise | Reduction | Composite)


def asks_for_more(step: Step, graph: Graph) -> bool:
    """Whether a composition needs an op that is no pointwise op and no reduction: a library's product, a gather."""
    if not isinstance(step.op, Composite):
        return not is_own(step.op) and step.op.kind not in ("structural", "constant")
    expanded = step.op.expand(tuple(v.aval for v in graph.inputs), **step.params)
    return any(asks_for_more(n.step, Graph(n.inputs, n.outputs)) for n in expanded.nodes)


def unspelled(graph: Graph) -> list[str]:
    """The ops that a graph's clusters leave over."""
    left = [n for n in fuse(graph, spells_cuda, 1, siblings=True).nodes if is_own(n.step.op)]
    return [
        n.step.op.name
        for n in left
        if n.step.op.name not in NOTHING_TO_DO and not asks_for_more(n.step, Graph(n.inputs, n.outputs))
    ]


def graphs(op: Op) -> Iterator[tuple[str, Graph]]:
    """The op's samples in every dtype, and the derivatives of the first. Of pointwise ops, shapes alone say nothing."""
    seen = []
    for k, case in enumerate(CASES[op.name]):
        kind = (case.sample.params, [s.dtype for s in case.sample.specs])
        if isinstance(op, Pointwise) and kind in seen:
            continue
        seen.append(kind)
        for dtype in case.dtypes(DTYPES):
            graph = case.graph(dtype)
            yield f"{case!r} of {dtype.name}", graph
            if k == 0 and dtype in SLOPES:
                yield f"the derivative of {case!r} of {dtype.name}", vjp(graph)


@each_op(is_own)
def test_every_dtype(op: Op) -> None:
    tried = 0
    for about, graph in graphs(op):
        if all(v.aval.size for v in (*graph.inputs, *graph.outputs)):
            assert not unspelled(graph), f"{about} has no spelling in `kernels/cuda_spelling.py`"
            tried += 1
    assert tried
