"""Graphs of small arrays, loops of Python written out among them, as one compiled function. Floor: runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.backends.cpu import lower
from gradtape.backends.small import Packed, SmallProgram, is_packable
from gradtape.ir.graph import Graph, Value
from gradtape.kernels.spelling import spells_small
from gradtape.ops.call import call_step
from gradtape.ops.structural import Structural
from gradtape.transforms.cost import multiply_adds
from gradtape.transforms.fuse import fuse

ELEMENTS = 1 << 12  # of a small array
PRODUCTS = 1 << 14  # multiply-adds of a small contraction
STEPS = 3  # clusters from which one function is worth more than a kernel each

Run = Callable[..., Any]


def in_one(graph: Graph, program: Run) -> Run:
    """`program`, which runs a graph, or what runs it as one function when that is compiled."""
    return SmallProgram(graph, program, _packed) if _is_small(graph) else program


def _packed(graph: Graph) -> tuple[Packed, Run] | None:
    """A graph laid out as one function of what its outputs show, and what makes the outputs from that; None where a
    step is none that kernels do, or where there are too few of them."""
    fused = fuse(graph, spells_small, alone=1, sinks=False)
    if not is_packable(fused) or sum(n.step.op.kind == "fused" for n in fused.nodes) < STEPS:
        return None
    bases = _bases(fused)
    return Packed(fused, bases), lower(call_step(Graph(bases, fused.outputs)))


def _is_small(graph: Graph) -> bool:
    nodes = graph.nodes
    return (
        len(nodes) >= STEPS
        and all(v.aval.is_known and 0 < v.aval.size <= ELEMENTS for n in nodes for v in (*n.inputs, *n.outputs))
        and all(multiply_adds(n) <= PRODUCTS for n in nodes)
    )


def _bases(graph: Graph) -> list[Value]:
    """What the outputs show, through views: what clusters make, and inputs."""
    found: dict[int, Value] = {}
    for v in graph.outputs:
        while v.node is not None and isinstance(v.node.step.op, Structural):
            v = v.node.inputs[0]
        if v.node is None or v.node.step.op.kind != "constant":
            found[id(v)] = v
    return list(found.values())
