"""Which arrays a loop may change by rows in their own memory, and in what order its body runs then. Floor: backends.

A carried array that a round only changes by `set_row`, one after the other, needs no copy: whatever else reads it comes
before the row is written, and gives an array of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gradtape.backends.program import may_alias
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.op import apply
from gradtape.ops.row_updates import GATHERS, SET_ROW, in_place


@dataclass(frozen=True)
class Chains:
    """The body of a loop in the order in which it runs, and the steps that change carried arrays in their own memory,
    by which of the carried values these are; none for one that is handed on as it is."""

    nodes: tuple[Node, ...]
    written: dict[int, list[Node]]


def chains_of(body: Graph, carried: int) -> Chains:
    """What of a loop's body can run in place."""
    nodes = body.nodes
    readers: dict[int, list[Node]] = {}
    for node in nodes:
        for v in node.inputs:
            readers.setdefault(id(v), []).append(node)
    found = {j: chain for j in range(carried) if (chain := _chain(body, j, readers)) is not None}
    while True:
        ordered = _in_order(nodes, [n for chain in found.values() for n in chain], readers)
        if ordered is not None:
            return Chains(tuple(ordered), found)
        found = {j: chain for j, chain in found.items() if not chain}


def rewritten(body: Graph, chains: Chains) -> Graph:
    """The body with those steps writing where they read."""
    over = {id(n) for chain in chains.written.values() for n in chain}
    if not over:
        return body
    new: dict[int, Value] = {id(v): v for v in body.inputs}
    made = []
    for node in chains.nodes:
        step = in_place(node.step) if id(node) in over else node.step
        results = apply(step, [new[id(v)] for v in node.inputs])
        new.update((id(v), r) for v, r in zip(node.outputs, results, strict=True))
        if results:
            assert results[0].node is not None
            made.append(results[0].node)
    return Graph(body.inputs, [new[id(v)] for v in body.outputs]).in_order(made)


def _chain(body: Graph, j: int, readers: dict[int, list[Node]]) -> list[Node] | None:
    """The steps that change a carried array, first to last; None where it may not be written over."""
    start, end = body.inputs[j], body.outputs[j]
    chain: list[Node] = []
    v = end
    while v is not start:
        if v.node is None or v.node.step.op is not SET_ROW or v.aval.size == 0:
            return None
        chain.append(v.node)
        v = v.node.inputs[0]
    values = [start, *(n.outputs[0] for n in reversed(chain))]
    places = sum(1 for out in body.outputs for w in values if out is w)
    others = [n for w in values for n in readers.get(id(w), ()) if n not in chain]
    taken = any(w is n.inputs[1] for n in chain for w in values)
    if places != 1 or taken or (chain and any(_may_hold(n) for n in others)):
        return None
    return chain[::-1]


def _may_hold(node: Node) -> bool:
    """Whether a result may be a view of an operand."""
    return node.step.op not in GATHERS and may_alias(node.step.op, node)


def _in_order(nodes: Sequence[Node], writing: Iterable[Node], readers: dict[int, list[Node]]) -> list[Node] | None:
    """The nodes with all that read an array before what writes over it; None where there is no such order."""
    own = set(map(id, nodes))
    before = {id(n): [r for r in readers[id(n.inputs[0])] if r is not n] for n in writing}
    is_done: dict[int, bool] = {}  # False: it waits for others
    ordered: list[Node] = []
    for last in nodes:
        stack = [last]
        while stack:
            node = stack[-1]
            needed = [v.node for v in node.inputs if v.node is not None and id(v.node) in own]
            waiting = [n for n in (*needed, *before.get(id(node), ())) if not is_done.get(id(n))]
            if any(id(n) in is_done for n in waiting):
                return None
            if waiting and id(node) not in is_done:
                is_done[id(node)] = False
                stack += waiting
                continue
            if not is_done.get(id(node)):
                is_done[id(node)] = True
                ordered.append(node)
            stack.pop()
    return ordered
