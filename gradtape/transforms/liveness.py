"""A graph whose branches and loops make, carry and push only what something reads. Floor: transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.control import Cond, Region, Scan, While
from gradtape.ops.op import Step, apply
from gradtape.transforms.dependence import leaves

Reads = set[int]  # which inputs of a graph its outputs depend on


@dataclass(frozen=True)
class _Fewer:
    """A step that does less: which of the operands it is given, and which of the results it makes."""

    step: Step
    operands: tuple[int, ...]
    results: tuple[int, ...]


def without_unread(graph: Graph) -> Graph:
    """The same outputs. What a loop carries is read if its result is, or if the test or something that is read needs
    it; stacks that nothing reads are not made."""
    nodes = graph.nodes
    if not any(isinstance(n.step.op, Region) for n in nodes):
        return graph
    read = set(map(id, graph.outputs))
    fewer: dict[int, _Fewer] = {}
    for node in reversed(nodes):
        wanted = tuple(k for k, v in enumerate(node.outputs) if id(v) in read)
        if not wanted:
            continue
        found = _fewer(node.step, wanted)
        if found is None:
            read.update(map(id, node.inputs))
        else:
            fewer[id(node)] = found
            read.update(id(node.inputs[k]) for k in found.operands)
    return _made_anew(graph, nodes, read, fewer)


def _made_anew(graph: Graph, nodes: Sequence[Node], read: set[int], fewer: dict[int, _Fewer]) -> Graph:
    new: dict[int, Value] = {id(v): v for v in graph.inputs}
    for node in nodes:
        if not any(id(v) in read for v in node.outputs):
            continue
        found = fewer.get(id(node))
        if found is not None:
            made = apply(found.step, [new[id(node.inputs[k])] for k in found.operands])
            new.update((id(node.outputs[k]), r) for k, r in zip(found.results, made, strict=True))
            continue
        operands = [new[id(v)] for v in node.inputs]
        same = all(a is b for a, b in zip(operands, node.inputs, strict=True))
        new.update(
            (id(v), r) for v, r in zip(node.outputs, node.outputs if same else apply(node.step, operands), strict=True)
        )
    return Graph(graph.inputs, [new[id(v)] for v in graph.outputs])


def _fewer(step: Step, wanted: tuple[int, ...]) -> _Fewer | None:
    """What makes these results of a branch or a loop alone; None where that is the step itself."""
    rule = _RULES.get(type(step.op))
    if rule is None:
        return None
    key = ("read", wanted)
    if key not in step.cache:
        step.cache[key] = rule(step, wanted)
    found: _Fewer | None = step.cache[key]
    return found


def _part(graph: Graph, outputs: Sequence[int]) -> tuple[Graph, Reads]:
    """The graph of some outputs, and what it reads."""
    part = without_unread(Graph(graph.inputs, [graph.outputs[k] for k in outputs]))
    used = set(map(id, leaves(part.outputs, part.inputs)))
    return part, {k for k, v in enumerate(part.inputs) if id(v) in used}


def _of_inputs(graph: Graph, kept: Sequence[int]) -> Graph:
    return Graph([graph.inputs[k] for k in kept], graph.outputs)


def _cond(step: Step, wanted: tuple[int, ...]) -> _Fewer | None:
    true, reads = _part(step.params["true"], wanted)
    false, others = _part(step.params["false"], wanted)
    kept = sorted(reads | others)
    if len(kept) == len(true.inputs) and len(wanted) == len(step.params["true"].outputs):
        return None
    made = step.op.bind(true=_of_inputs(true, kept), false=_of_inputs(false, kept))
    return _Fewer(made, (0, *(k + 1 for k in kept)), wanted)


def _loop(step: Step, wanted: tuple[int, ...]) -> _Fewer | None:
    """For a loop that tests, and for one over stacks."""
    params, n = step.params, step.params["carried"]
    body: Graph = params["body"]
    count = len(body.outputs)
    pushed = [k for k in wanted if n <= k < count]
    tested: Reads = _part(params["test"], [0])[1] if isinstance(step.op, While) else set()
    live = {k for k in (*wanted, *tested) if k < n}
    while True:
        carried = sorted(live)
        part, reads = _part(body, [*carried, *pushed])
        if all(k in live for k in reads if k < n):
            break
        live |= {k for k in reads if k < n}
    kept = [*carried, *sorted(k for k in reads | tested if k >= n)]
    results = (*carried, *pushed)
    if len(kept) == len(body.inputs) and len(results) == count:
        return None
    changed: dict[str, Any] = {"body": _of_inputs(part, kept), "carried": len(carried)}
    if isinstance(step.op, While):
        changed["test"] = _of_inputs(params["test"], kept)
        return _Fewer(step.op.bind(**params | changed), tuple(kept), (*results, count))
    changed["constants"] = sum(n <= k < n + params["constants"] for k in kept)
    return _Fewer(step.op.bind(**params | changed), (0, *(k + 1 for k in kept)), results)


_RULES: dict[type, Callable[[Step, tuple[int, ...]], _Fewer | None]] = {Cond: _cond, While: _loop, Scan: _loop}
