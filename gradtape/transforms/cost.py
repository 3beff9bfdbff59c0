"""What a graph costs to run: multiply-adds, elements written, and an estimate of time from both. Floor: transforms."""

from __future__ import annotations

from collections.abc import Iterable

from gradtape.ir.graph import Graph, Node
from gradtape.ir.shapes import size_of
from gradtape.ops.call import Call
from gradtape.ops.composite import Composite
from gradtape.ops.contraction import Contraction, parts
from gradtape.ops.control import Checkpoint, Cond, Region
from gradtape.ops.opaque import Opaque
from gradtape.ops.tiles import Tiles

NANOSECONDS_PER_MULTIPLY_ADD = 0.02
NANOSECONDS_PER_ELEMENT = 0.3
NANOSECONDS_PER_OPAQUE_ELEMENT = 1.0  # gathered or scattered, as a rule
NANOSECONDS_PER_NODE = 500.0
ENOUGH = 1e5  # nanoseconds of one thread that several may share
TRIPS = 16  # how often a loop is taken to run: it only says so when it does


def multiply_adds(node: Node) -> int:
    """The multiply-adds of a contraction, and of those that a graph or a composite op stands for."""
    op = node.step.op
    if isinstance(op, Call):
        return sum(multiply_adds(n) for n in node.step.params["graph"].nodes)
    if isinstance(op, Region):
        counts = [sum(map(multiply_adds, g.nodes)) for g in op.graphs(node.step)]
        return max(counts) if isinstance(op, Cond | Checkpoint) else TRIPS * sum(counts)
    if isinstance(op, Composite):
        body = op.expand(tuple(v.aval for v in node.inputs), **node.step.params)
        return sum(multiply_adds(n) for n in body.nodes)
    if not isinstance(op, Contraction):
        return 0
    left, right, _ = parts(node.step.params["subscripts"])
    sizes = dict(zip(left, node.inputs[0].aval.dims, strict=True))
    sizes |= dict(zip(right, node.inputs[1].aval.dims, strict=True))
    return size_of(sizes.values())


def elements(node: Node) -> int:
    """How many elements a node writes."""
    return sum(v.aval.size for v in node.outputs)


def cost(graph: Graph) -> float:
    """An estimate in nanoseconds, good enough to compare two graphs for the same result."""
    return cost_of(graph.nodes)


def cost_of(nodes: Iterable[Node]) -> float:
    """The same of some nodes."""
    return sum(
        NANOSECONDS_PER_NODE + NANOSECONDS_PER_MULTIPLY_ADD * multiply_adds(n) + _per_element(n) * elements(n)
        for n in nodes
    )


def is_for_our_threads(graph: Graph) -> bool:
    """Whether a program spends more time on elements, which threads of ours share, than on products for which BLAS has
    threads of its own; a tile is a share of the work, products and all."""
    products = touched = 0
    for node in graph.nodes:
        if any(not v.aval.is_known for v in node.outputs):
            continue
        if isinstance(node.step.op, Tiles):
            touched += node.step.params["count"] * sum(map(elements, node.step.params["graph"].nodes))
        elif isinstance(node.step.op, Contraction):
            products += multiply_adds(node)
        else:
            touched += elements(node)
    shared = touched * NANOSECONDS_PER_ELEMENT
    return shared >= ENOUGH and shared >= products * NANOSECONDS_PER_MULTIPLY_ADD


def _per_element(node: Node) -> float:
    return NANOSECONDS_PER_OPAQUE_ELEMENT if isinstance(node.step.op, Opaque) else NANOSECONDS_PER_ELEMENT
