"""A graph whose loops find what does not change from round to round made before they begin. Floor: transforms."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Graph, Value
from gradtape.ops.control import Region, Scan, While
from gradtape.ops.op import Step, apply
from gradtape.transforms.control import Loop
from gradtape.transforms.simplify import rebuild_from
from gradtape.transforms.views import walk_back


def hoisted(graph: Graph) -> Graph:
    """The same outputs. What the body of a loop makes of constants alone is a constant more; branches and loops stay
    where they are, since they might never run, and views, which cost nothing. It is made even if the loop has no round:
    that is for what is cheap and cannot fail."""
    if not any(isinstance(n.step.op, Region) for n in graph.nodes):
        return graph
    new: dict[int, Value] = {id(v): v for v in graph.inputs}
    for node in graph.nodes:
        step, operands = node.step, [new[id(v)] for v in node.inputs]
        if isinstance(step.op, Region):
            if "hoisted" not in step.cache:
                step.cache["hoisted"] = step.op.remade(step, hoisted)
            step = step.cache["hoisted"]
        if isinstance(step.op, While | Scan):
            step, operands = _with_more_constants(step, operands)
        same = step is node.step and all(a is b for a, b in zip(operands, node.inputs, strict=True))
        results = node.outputs if same else apply(step, operands)
        new.update((id(v), r) for v, r in zip(node.outputs, results, strict=True))
    return Graph(graph.inputs, [new[id(v)] for v in graph.outputs])


def _with_more_constants(step: Step, operands: list[Value]) -> tuple[Step, list[Value]]:
    """The loop with what its body makes of constants as constants, and its operands."""
    loop = Loop(step)
    first, last = loop.carried, loop.carried + loop.constants
    inputs = loop.body.inputs
    moved = _same_in_each_round(loop.body, inputs[first:last])
    if not moved:
        return step, operands
    made = rebuild_from(Graph(inputs[first:last], moved), operands[loop.lead + first : loop.lead + last])
    body = Graph([*inputs[:last], *moved, *inputs[last:]], loop.body.outputs)
    params = step.params | {"body": body}
    if isinstance(step.op, While):
        test = step.params["test"]
        params["test"] = Graph([*test.inputs, *(Value(v.aval) for v in moved)], test.outputs)
    else:
        params["constants"] = loop.constants + len(moved)
    at = loop.lead + last
    return step.op.bind(**params), [*operands[:at], *made, *operands[at:]]


def _same_in_each_round(body: Graph, constants: Sequence[Value]) -> list[Value]:
    """What a body makes of constants and numbers, where something that changes needs it; of views, what they show."""
    fixed = set(map(id, constants))
    given = set(map(id, body.inputs))
    found: dict[int, Value] = {}

    def note(v: Value) -> None:
        base = walk_back(v).base
        if id(v) in fixed and id(base) not in given and base.node is not None and not _is_number(base):
            found[id(base)] = base

    for node in body.nodes:
        if not isinstance(node.step.op, Region) and all(id(v) in fixed for v in node.inputs):
            fixed.update(map(id, node.outputs))
        else:
            for v in node.inputs:
                note(v)
    for v in body.outputs:
        note(v)
    return list(found.values())


def _is_number(v: Value) -> bool:
    return v.node is not None and v.node.step.op.kind == "constant"
