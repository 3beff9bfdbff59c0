"""How much memory a graph's program holds at its worst moment. Floor: transforms."""

from __future__ import annotations

from collections.abc import Iterable

from gradtape.ir.graph import Graph, Value
from gradtape.ops.contraction import Contraction
from gradtape.ops.structural import Structural


def peak_bytes(graph: Graph) -> int:
    """The largest sum of the results that exist at one time while the nodes run in order, inputs not counted.
    Views own nothing; a contraction of rearranged operands may copy one of them."""
    nodes = graph.nodes
    last = {id(v): k for k, n in enumerate(nodes) for v in n.inputs}
    last.update((id(v), len(nodes)) for v in graph.outputs)
    live: dict[int, tuple[int, int]] = {}  # by value: bytes, and the step that needs it last
    highest = 0
    for k, node in enumerate(nodes):
        op = node.step.op
        is_view = isinstance(op, Structural) and op.view
        made = 0 if is_view else sum(v.aval.nbytes for v in node.outputs)
        copied = max((v.aval.nbytes for v in node.inputs), default=0) if isinstance(op, Contraction) else 0
        held = sum(b for b, _ in live.values())
        highest = max(highest, held + made + copied)
        for v in node.outputs:
            live[id(v)] = (0 if is_view else v.aval.nbytes, last.get(id(v), k))
        if is_view:
            _extend(live, node.inputs, max(last.get(id(v), k) for v in node.outputs))
        live = {v: (b, until) for v, (b, until) in live.items() if until > k}
    return highest


def _extend(live: dict[int, tuple[int, int]], values: Iterable[Value], until: int) -> None:
    """What a view shows lives as long as the view."""
    for v in values:
        if id(v) in live:
            size, before = live[id(v)]
            live[id(v)] = (size, max(before, until))
