"""Graphs that are one cluster, their operands, and the steps that run them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.backends.clusters import FusedKernel
from gradtape.backends.cpu import lower
from gradtape.backends.program import compile_graph
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, float32, float64
from gradtape.ir.graph import Graph, Value
from gradtape.kernels.spelling import spells
from gradtape.ops.op import emit
from gradtape.transforms.fuse import fuse, fused_nodes


def given_of(*shapes: tuple[int, ...], dtype: DType = float64) -> list[Value]:
    return [Value(aval(s, dtype)) for s in shapes]


def kernels_of(graph: Graph) -> list[FusedKernel]:
    """The fused steps of a graph as they run."""
    return [FusedKernel(n.step, compile_graph(n.step.params["graph"], lower)) for n in fused_nodes(fuse(graph, spells))]


def kernel_of(graph: Graph) -> FusedKernel:
    (found,) = kernels_of(graph)
    return found


def drawn(graph: Graph, seed: int = 0, odd: bool = False) -> list[Any]:
    rng = np.random.default_rng(seed)
    arrays = [np.asarray(rng.normal(size=v.aval.dims)).astype(v.aval.dtype.numpy_dtype) for v in graph.inputs]
    if odd:
        for a in arrays:
            a.reshape(-1)[::11] = np.inf
            a.reshape(-1)[5::13] = -np.inf
            a.reshape(-1)[7::17] = np.nan
    return arrays


def wide(shape: tuple[int, ...]) -> dict[str, Graph]:
    x, b = given_of(shape, shape[1:], dtype=float32)
    y = emit("tanh", emit("add", x, b))
    low = emit("subtract", y, emit("reduce_max", y, axes=(1,), keepdims=True))
    return {
        "rows": Graph([x, b], [emit("exp", low)]),
        "pointwise": Graph([x, b], [y]),
        "columns": Graph([x, b], [emit("subtract", y, emit("reduce_mean", y, axes=(0,), keepdims=True))]),
        "sinks": Graph([x, b], [emit("exp", low), emit("reduce_sum", emit("exp", low), axes=(0,), keepdims=False)]),
    }
