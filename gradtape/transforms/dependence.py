"""Which values depend on which, from the nodes between them. Floor: transforms."""

from __future__ import annotations

from collections.abc import Iterable

from gradtape.ir.graph import Node, Value, order


def dependent(nodes: Iterable[Node], sources: Iterable[Value]) -> set[int]:
    """The ids of the values that gradients can flow back from: differentiable ones that depend on a source."""
    active = {id(s) for s in sources if s.aval.dtype.is_differentiable}
    for node in nodes:
        if any(id(v) in active for v in node.inputs):
            active.update(id(v) for v in node.outputs if v.aval.dtype.is_differentiable)
    return active


def leaves(outputs: Iterable[Value], among: Iterable[Value]) -> list[Value]:
    """The values of `among` that `outputs` refer to, in the order of `among`."""
    candidates, wanted = list(among), list(outputs)
    used = {id(v) for v in wanted}
    used.update(id(v) for node in order(wanted, candidates) for v in node.inputs)
    return [v for v in candidates if id(v) in used]
