"""Elementwise kernels of one formula whose results leave the graph: one kernel for all of them. Floor: transforms.

So a step of an optimizer is one launch for all of its variables. What such a kernel reads waits until the last of it is
there; nothing in the graph waits for what it makes."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from gradtape.ir.cluster import Cluster
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.fused import FUSED, together_step
from gradtape.ops.op import apply

LITTLE = 1 << 16  # bytes that may wait for a kernel


def together(graph: Graph) -> Graph:
    """The same outputs of a fused graph."""
    read, kept = {id(v) for n in graph.nodes for v in n.inputs}, set(map(id, graph.outputs))
    found: dict[Hashable, list[Node]] = {}
    for n in graph.nodes:
        if n.step.op is FUSED and not any(id(v) in read for v in n.outputs) and _may_wait(n, kept):
            key = _formula(n.step.params["cluster"])
            if key is not None:
                found.setdefault(key, []).append(n)
    new: dict[int, Value] = {}
    for nodes in found.values():
        for group in _alike(nodes):
            if len(group) > 1:
                new.update(_one(group))
    return Graph(graph.inputs, [new.get(id(v), v) for v in graph.outputs]) if new else graph


def _may_wait(n: Node, kept: Collection[int]) -> bool:
    """Whether what other nodes made for it, and is not kept anyway, is little, or no more than what it makes itself."""
    waiting = {id(v): v.aval.nbytes for v in n.inputs if v.node is not None and id(v) not in kept}
    return sum(waiting.values()) <= max(LITTLE, sum(v.aval.nbytes for v in n.outputs))


def _formula(cluster: Cluster) -> Hashable | None:
    """The same for clusters that do the same along one loop, or for single numbers; None for others."""
    strides = [r.access.strides for r in cluster.reads]
    writes = [(w.source, w.access.dtype) for w in cluster.writes]
    plain = all(w.monoid is None and w.access.strides == (1,) * len(cluster.loops) for w in cluster.writes)
    if (
        not cluster.size
        or len(cluster.loops) > 1
        or cluster.reduced
        or not plain
        or not set(strides) <= {(), (0,), (1,)}
    ):
        return None
    code = tuple((e.op, e.args, e.dtype, repr(e.leaf)) for e in cluster.code)
    return code, tuple(r.access.dtype for r in cluster.reads), tuple(writes)


def _alike(nodes: Sequence[Node]) -> list[list[Node]]:
    """Nodes whose operands move along the loop alike; single numbers are like all."""
    groups: dict[Hashable, list[Node]] = {}
    numbers = []
    for n in nodes:
        cluster = n.step.params["cluster"]
        if cluster.loops:
            groups.setdefault(tuple(r.access.strides for r in cluster.reads), []).append(n)
        else:
            numbers.append(n)
    if not groups:
        return [numbers]
    first, *others = groups.values()
    return [[*first, *numbers], *others]


def _one(nodes: Sequence[Node]) -> dict[int, Value]:
    """The results of one node in the place of several, by what they replace."""
    inputs: list[Value] = []
    outputs: list[Value] = []
    members: list[tuple[Cluster, int, int]] = []
    for n in nodes:
        members.append((n.step.params["cluster"], len(inputs), len(outputs)))
        inputs += n.inputs
        outputs += n.outputs
    made = apply(together_step(tuple(members), tuple(v.aval for v in outputs)), inputs)
    return {id(v): m for v, m in zip(outputs, made, strict=True)}
