"""Graphs of every op that a cluster may hold: samples of the op table, forward and with their derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import ALL, DType, float32, float64
from gradtape.ir.graph import Graph, Node, Value
from gradtape.kernels.cuda_spelling import KINDS, spells_cuda
from gradtape.ops.op import Op, all_ops, apply, emit
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.transforms.differentiate import vjp
from gradtape.transforms.fuse import fuse, fused_nodes
from tests.op_table.cases import CASES
from tests.op_table.running import noise


@dataclass(frozen=True)
class Entry:
    """A graph, operands for it, and what it is about."""

    graph: Graph
    arrays: list[Any]
    about: str

    @property
    def fused(self) -> Graph:
        return fuse(self.graph, spells_cuda, 1)


def held() -> list[Op]:
    """The ops that clusters may hold."""
    return [op for op in all_ops() if isinstance(op, Pointwise) or (isinstance(op, Reduction) and op.value is not None)]


def dtypes_of(op: Op) -> tuple[DType, ...]:
    """Those in which an op is tried: of functions of floats both precisions, since halves are computed in one of them;
    of what takes other numbers too, all."""
    several = isinstance(op, Reduction) or KINDS.get(op.name, "f") != "f"
    return tuple(d for d in ALL if d.kind != "s") if several else (float32, float64)


def entries(op: Op) -> Iterator[Entry]:
    """The op's first sample (of a reduction, all), and its derivatives where it has any."""
    for case in CASES[op.name][: None if isinstance(op, Reduction) else 1]:
        for dtype in case.dtypes(dtypes_of(op)):
            graph, arrays = case.graph(dtype), case.draw(dtype)
            if all(v.aval.size for v in (*graph.inputs, *graph.outputs)):
                yield Entry(graph, arrays, f"{case!r} {dtype.name}")
            if dtype is float32 and graph.outputs[0].aval.size:
                slope = vjp(graph)
                cotangents = noise([v.aval for v in slope.inputs[len(arrays) :]], 1)
                yield Entry(slope, [*arrays, *cotangents], f"derivatives of {case!r} {dtype.name}")


def kernels(graph: Graph) -> list[Node]:
    """The nodes of a fused graph that are kernels."""
    return list(fused_nodes(graph))


# What gives no number of its operands' dtype, or is another test's matter: its length alone fills a kernel.
NOT_JOINT = frozenset({"bitcast", "complex", "nextafter", "polygamma", "zeta"})
LAYOUTS = ("plain", "broadcast", "transposed", "repeated")


def joint(dtype: DType, layout: str = "plain", names: frozenset[str] | None = None) -> Graph:
    """The sum of all pointwise ops of two operands, or of some: few kernels that have every function in them."""
    shapes = {
        "plain": ((64, 48), (64, 48)),
        "broadcast": ((64, 48), (48,)),
        "transposed": ((64, 48), (48, 64)),
        "repeated": ((64, 1, 48), (1, 32, 48)),
    }
    inputs = [Value(aval(shape, dtype)) for shape in shapes[layout]]
    x, y = inputs
    if layout == "transposed":
        y = emit("transpose", y, perm=(1, 0))
    total = x
    for op in held():
        wanted = op.name not in NOT_JOINT if names is None else op.name in names
        if isinstance(op, Pointwise) and wanted and (dtype.kind in op.accepts or op.condition):
            total = emit("add", total, _applied(op, x, y))
    return Graph(inputs, [total])


def _applied(op: Pointwise, x: Value, y: Value) -> Value:
    """The op of two operands (or of one, or with a mask), in their dtype."""
    numbers = [x, y] if len(op.operands) > 1 else [x]
    if op.condition:
        numbers = [emit("not_equal", x, y), x, y]
    result = apply(op.bind(**op.samples[0].params), numbers)[0]
    return result if result.aval.dtype is x.aval.dtype else emit("cast", result, dtype=x.aval.dtype)
