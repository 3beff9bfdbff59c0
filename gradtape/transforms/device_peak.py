"""How much of a device's memory a graph's program holds at its worst moment. Floor: transforms."""

from __future__ import annotations

from collections.abc import Callable

from gradtape.backends.cuda.table import OPS
from gradtape.ir.graph import Graph, Node
from gradtape.ops.contraction import Contraction, parts
from gradtape.ops.control import Region
from gradtape.ops.fused import Fused, Together
from gradtape.ops.layout import Positions
from gradtape.ops.placement import Assemble
from gradtape.ops.structural import Structural
from gradtape.transforms.peak import copied_bytes


def device_peak_bytes(graph: Graph, assembled: Callable[[Node], int]) -> int:
    """The most memory that is held at one time while the nodes of a graph run in order, as they do on a device: inputs
    not counted, each result from its node to the last that reads it or a view of it. What is let go of is free for
    whatever is asked for next, and no result is written over an operand. `assembled`: what a node that assembles terms
    needs besides its result."""
    last = {id(v): k for k, n in enumerate(graph.nodes) for v in n.inputs}
    last.update((id(v), len(graph.nodes)) for v in graph.outputs)
    for k in reversed(range(len(graph.nodes))):
        node = graph.nodes[k]
        if _is_view(node):
            shown = id(node.inputs[0])
            last[shown] = max(last[shown], *(last.get(id(v), k) for v in node.outputs))
    held = highest = 0
    bent: set[int] = set()  # values whose elements are not in C order
    until: dict[int, int] = {}  # by step, the bytes that it needs last
    for k, node in enumerate(graph.nodes):
        bent.update(id(v) for v in node.outputs if _is_bent(node, bent))
        if not _is_view(node) and not isinstance(node.step.op, Positions):
            for v in node.outputs:
                held += v.aval.nbytes
                end = last.get(id(v), k)
                until[end] = until.get(end, 0) + v.aval.nbytes
        highest = max(highest, held + _in_order(node, bent) + _scratch(node, assembled))
        held -= until.pop(k, 0)
    return highest


def _is_view(node: Node) -> bool:
    op = node.step.op
    return isinstance(op, Structural) and op.view and op.name not in OPS


def _is_bent(node: Node, bent: set[int]) -> bool:
    """Whether the elements of a result may be in another order than C's."""
    if isinstance(node.step.op, Contraction):
        left, right, out = parts(node.step.params["subscripts"])
        both, rows = (([c for c in out if c in left and (c in right) == shared]) for shared in (True, False))
        return [*both, *rows, *(c for c in out if c not in left)] != list(out)
    return _is_view(node) and (node.step.name != "reshape" or id(node.inputs[0]) in bent)


def _in_order(node: Node, bent: set[int]) -> int:
    """The bytes of operands that are copied for the node's kernels, which take them in C order; those of clusters and
    products do not."""
    if _is_view(node) or isinstance(node.step.op, Fused | Together | Contraction):
        return 0
    return sum(v.aval.nbytes for v in node.inputs if id(v) in bent)


def _scratch(node: Node, assembled: Callable[[Node], int]) -> int:
    """What a node needs besides its results while it runs."""
    op = node.step.op
    if isinstance(op, Contraction):
        return copied_bytes(node)
    if isinstance(op, Assemble):
        return assembled(node)
    if isinstance(op, Region):
        return max(device_peak_bytes(graph, assembled) for graph in op.graphs(node.step))
    return 0
