"""A graph done again, step by step, as a program that is traced: so that a scope's gradients act on it. Floor:
saving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.ir.graph import Graph, Node
from gradtape.ops.control import Checkpoint, Cond, Region, While
from gradtape.runtime import control
from gradtape.runtime.dispatch import execute
from gradtape.runtime.state import replaced_gradients
from gradtape.runtime.tensor import Tensor


def replayed(graph: Graph, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The results of a graph's steps."""
    made: dict[int, Tensor] = {id(v): t for v, t in zip(graph.inputs, inputs, strict=True)}
    for node in graph.nodes:
        results = _results(node, [made[id(v)] for v in node.inputs])
        made.update((id(v), t) for v, t in zip(node.outputs, results, strict=True))
    return [made[id(v)] for v in graph.outputs]


def _results(node: Node, inputs: list[Tensor]) -> Sequence[Tensor]:
    """The results of one step. In a scope of other gradients, branches and loops are gone through too."""
    op = node.step.op
    if replaced_gradients() is not None and isinstance(op, Region) and type(op) in REGIONS:
        found = REGIONS[type(op)](node, inputs)
        if found is not None:
            return found
    result = execute(node.step, inputs)
    return result if isinstance(result, tuple) else (result,)


def _cond(node: Node, inputs: list[Tensor]) -> Sequence[Tensor]:
    true, false = (node.step.params[k] for k in ("true", "false"))
    return control.cond(inputs[0], lambda _: replayed(true, inputs[1:]), lambda _: replayed(false, inputs[1:]))


def _while(node: Node, inputs: list[Tensor]) -> Sequence[Tensor] | None:
    """A loop that keeps nothing for a gradient; one that does belongs to a gradient already. Its last result, how often
    it ran, is carried too."""
    test, body, n = node.step.params["test"], node.step.params["body"], node.step.params["carried"]
    if len(body.outputs) > n:
        return None
    constants = inputs[n:]

    def again(now: list[Tensor]) -> list[Tensor]:
        return [*replayed(body, [*now[:-1], *constants]), now[-1] + 1]

    count = control.zeros_of_aval(node.outputs[-1].aval)
    return control.while_loop(lambda now: replayed(test, [*now[:-1], *constants]), again, [*inputs[:n], count])


def _checkpoint(node: Node, inputs: list[Tensor]) -> Sequence[Tensor]:
    graph = node.step.params["graph"]
    block = control.Traced(lambda now: replayed(graph, now), [t._aval for t in inputs], inputs)
    needs, _, outputs = control.of_one(block)
    again = Graph([*block.tracer.inputs, *needs.inputs(block)], outputs)
    step = node.step.op.bind(**node.step.params | {"graph": again})
    result = execute(step, [*inputs, *needs.operands()])
    return result if isinstance(result, tuple) else (result,)


REGIONS: dict[type, Callable[[Node, list[Tensor]], Any]] = {Cond: _cond, While: _while, Checkpoint: _checkpoint}
