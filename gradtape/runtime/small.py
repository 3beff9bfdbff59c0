"""Graphs of small arrays, with their branches and loops, as one compiled function. Floor: runtime."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradtape.backends.clusters import PER_CALL
from gradtape.backends.cpu import lower
from gradtape.backends.packed import Packed, is_packable, is_view
from gradtape.backends.small import MANY, Holder, SmallProgram
from gradtape.backends.stepping import stepping
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.show import show
from gradtape.kernels.spelling import spells_small
from gradtape.ops.call import call_step
from gradtape.ops.control import Cond, Region, While, is_stack
from gradtape.ops.op import Step
from gradtape.ops.row_updates import is_of_rows
from gradtape.runtime.listing import plan_text
from gradtape.transforms.cost import TRIPS, multiply_adds
from gradtape.transforms.fuse import fuse
from gradtape.transforms.hoist import hoisted
from gradtape.transforms.settle import settled
from gradtape.transforms.simplify import rebuild_from

ELEMENTS = 1 << 12  # of a small array
HELD = 1 << 18  # of one of which only rows are read or replaced
PRODUCTS = 1 << 14  # multiply-adds of a small contraction
STEPS = 3  # clusters from which one function is worth more than a kernel each

Run = Callable[..., Any]


def in_one(holder: Holder, make: Callable[[], Run]) -> Run:
    """What `make` makes, which runs a graph, or what runs it as one function when that is compiled. One of very many
    steps runs as it is until then: it would be fused for nothing."""
    graph = holder.graph
    if (len(graph.nodes) < STEPS and not _regions(graph.nodes)) or not _is_small(graph):
        return make()
    first = functools.partial(_as_it_is, holder) if len(graph.nodes) > MANY else make
    return SmallProgram(holder, first, make, PER_CALL * _count(graph), packed)


def _as_it_is(holder: Holder) -> Run:
    show("plan", "what runs until it is one function", lambda: plan_text(holder.graph))
    return stepping(holder.graph, lower)


def packed(graph: Graph) -> tuple[Packed, Run] | None:
    """A graph laid out as one function of what its outputs show, and what makes the outputs from that; None where a
    step is none that kernels do, or where there are too few of them."""
    inside = _Inside()
    fused = inside.fused(hoisted(graph))
    if not is_packable(fused, inside):
        return None
    if sum(n.step.op.kind == "fused" for n in fused.nodes) < STEPS and not _regions(fused.nodes):
        return None
    bases = _bases(fused)
    return Packed(fused, bases, inside), lower(call_step(Graph(bases, fused.outputs)))


class _Inside:
    """The graphs that branches and loops run, in clusters."""

    def __init__(self) -> None:
        self.found: dict[Step, list[Graph]] = {}

    def fused(self, graph: Graph, whole: bool = True) -> Graph:
        return settled(fuse(graph, spells_small, alone=1, sinks=False), whole)

    def __call__(self, step: Step) -> Sequence[Graph]:
        if step not in self.found:
            self.found[step] = [self.fused(g, whole=False) for g in _graphs(step)]
        return self.found[step]


def _graphs(step: Step) -> list[Graph]:
    """The graphs of a branch or a loop; the body of a loop that tests also makes the next test."""
    if not isinstance(step.op, Region):
        raise TypeError(step.op)
    if not isinstance(step.op, While):
        return step.op.graphs(step)
    test, body, n = step.params["test"], step.params["body"], step.params["carried"]
    (says,) = rebuild_from(test, [*body.outputs[:n], *body.inputs[n:]])
    return [test, Graph(body.inputs, [*body.outputs, says])]


def _regions(nodes: Iterable[Node]) -> list[Node]:
    return [n for n in nodes if isinstance(n.step.op, Region)]


def _is_small(graph: Graph) -> bool:
    def fits(node: Node) -> bool:
        op = node.step.op
        holds = isinstance(op, Region) or is_of_rows(node)
        for v in (*node.inputs, *node.outputs):
            if not v.aval.is_known or not 0 < v.aval.size <= (
                HELD if holds and not is_stack(v.aval.dtype) else ELEMENTS
            ):
                return False
        return all(map(_is_small, op.graphs(node.step))) if isinstance(op, Region) else multiply_adds(node) <= PRODUCTS

    return all(map(fits, graph.nodes))


def _count(graph: Graph) -> int:
    """Nodes that run, in so many rounds of a loop as one expects."""
    total = len(graph.nodes)
    for node in _regions(graph.nodes):
        op = node.step.op
        assert isinstance(op, Region)
        total += (1 if isinstance(op, Cond) else TRIPS) * sum(map(_count, op.graphs(node.step)))
    return total


def _bases(graph: Graph) -> list[Value]:
    """What the outputs show, through views: what clusters make, and inputs."""
    found: dict[int, Value] = {}
    for v in graph.outputs:
        while v.node is not None and is_view(v.node):
            v = v.node.inputs[0]
        if v.node is None or v.node.step.op.kind != "constant":
            found[id(v)] = v
    return list(found.values())
