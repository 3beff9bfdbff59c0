"""How much memory a graph's program holds at its worst moment. Floor: transforms."""

from __future__ import annotations

from collections.abc import Iterable

from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.contraction import Contraction, parts
from gradtape.ops.control import Region
from gradtape.ops.structural import Structural
from gradtape.ops.tiles import Tiles


def peak_bytes(graph: Graph) -> int:
    """The largest sum of the results that exist at one time while the nodes run in order, inputs not counted.
    Views own nothing; a contraction copies operands whose letters do not stand in the order of a matrix product."""
    nodes = graph.nodes
    last = {id(v): k for k, n in enumerate(nodes) for v in n.inputs}
    last.update((id(v), len(nodes)) for v in graph.outputs)
    live: dict[int, tuple[int, int]] = {}  # by value: bytes, and the step that needs it last
    highest = 0
    for k, node in enumerate(nodes):
        op = node.step.op
        is_view = isinstance(op, Structural) and op.view
        made = 0 if is_view else sum(v.aval.nbytes for v in node.outputs)
        copied = _copied(node) if isinstance(op, Contraction) else 0
        if isinstance(op, Tiles):
            copied = peak_bytes(node.step.params["graph"])
        if isinstance(op, Region):
            copied = max(map(peak_bytes, op.graphs(node.step)))
        held = sum(b for b, _ in live.values())
        highest = max(highest, held + made + copied)
        for v in node.outputs:
            live[id(v)] = (0 if is_view else v.aval.nbytes, last.get(id(v), k))
        if is_view:
            _extend(live, node.inputs, max(last.get(id(v), k) for v in node.outputs))
        live = {v: (b, until) for v, (b, until) in live.items() if until > k}
    return highest


def _copied(node: Node) -> int:
    """The bytes of a contraction's operands that are no matrices as they lie."""
    left, right, out = parts(node.step.params["subscripts"])
    total = 0
    for own, other, v in ((left, right, node.inputs[0]), (right, left, node.inputs[1])):
        roles = ["batch" if c in other and c in out else "summed" if c in other else "free" for c in own]
        runs = [r for r, before in zip(roles, ["", *roles], strict=False) if r != before]
        if len(set(runs)) < len(runs) or "batch" in runs[1:]:
            total += v.aval.nbytes
    return total


def _extend(live: dict[int, tuple[int, int]], values: Iterable[Value], until: int) -> None:
    """What a view shows lives as long as the view."""
    for v in values:
        if id(v) in live:
            size, before = live[id(v)]
            live[id(v)] = (size, max(before, until))
