"""Custom rules as graphs: traced for one row, then put in place of the host steps. Floor: runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradtape.ir.aval import Aval
from gradtape.ir.bounded import Bounded
from gradtape.ir.graph import Graph, Node, Value, order, structure
from gradtape.ops.call import HostRule, bent
from gradtape.ops.op import Step
from gradtape.runtime.compiled import CompiledGraph
from gradtape.runtime.effects import apart
from gradtape.runtime.pushing import pushed_by, transposed
from gradtape.runtime.record import Path, Rule
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.trace import Tracer, function_tracer, traced
from gradtape.runtime.trie import TrieNode
from gradtape.runtime.vectorized import MAX_GRAPHS
from gradtape.transforms.differentiate import zeros
from gradtape.transforms.linearity import is_linear
from gradtape.transforms.simplify import flattened, rebuild_from


@dataclass
class TracedRule:
    """A rule as a graph from cotangents to the operands' cotangents; what it captured; where it answered None; whether
    it is linear in its cotangents."""

    name: str
    graph: Graph
    captured: list[tuple[Value, Tensor]]
    absent: tuple[int, ...]
    linear: bool


class RuleTracer(Tracer):
    """The graph of a rule in which what is computed of some tensors with values is part of it, too."""

    def __init__(self, inputs: Sequence[Aval], follows: Callable[[Tensor], bool]) -> None:
        super().__init__(inputs)
        self.follows = follows

    def take(self, step: Step, inputs: Sequence[Tensor]) -> Any:
        return traced(step, inputs, self) if any(map(self.follows, inputs)) else super().take(step, inputs)


def traced_rule(
    rule: Rule, end: TrieNode, ordinal: int, forward: bool = False, follows: Callable[[Tensor], bool] | None = None
) -> TracedRule:
    """Run a rule on symbolic cotangents; or, for forward mode, its JVP on symbolic tangents, where it has one, which is
    then transposed. `follows`: by which tensors the rule will be differentiated."""
    node = next(n for n in Path(end, {}).nodes if n.step.params.get("ordinal") == ordinal)
    if forward and rule.push is not None:
        return _traced_push(rule, node)
    cotangents = [v.aval for v in node.outputs if v.aval.dtype.is_differentiable]
    tracer = Tracer(cotangents) if follows is None else RuleTracer(cotangents, follows)
    function = function_tracer()
    with apart(function, tracer.inputs) as block:  # what is done for rows has no effects
        found = tracer.run(lambda: rule(*tracer.symbols))
    answers = [None if a is None else tracer.value_of(a) for a in found]
    if function is not None:
        tracer.captured.update((t._id, (t, v)) for v, t in block.taken_back(tracer, function))
    return _traced(rule, node, tracer, tracer.inputs, answers)


def _traced_push(rule: Rule, node: Node) -> TracedRule:
    tracer = Tracer([v.aval for v in node.inputs if v.aval.dtype.is_differentiable])
    pushed = tracer.run(pushed_by, rule, tracer.symbols, [v.aval for v in node.outputs])
    values = [None if p is None else tracer.value_of(p) for p in pushed]
    others = [v for _, v in tracer.captured.values()]
    cotangents, found = transposed(rule.name, values, tracer.inputs, others, [v.aval for v in node.outputs])
    answers = iter(found)
    every = [next(answers) if v.aval.dtype.is_differentiable else None for v in node.inputs]
    return _traced(rule, node, tracer, cotangents, every)


def _traced(
    rule: Rule, node: Node, tracer: Tracer, cotangents: Sequence[Value], answers: Sequence[Value | None]
) -> TracedRule:
    outputs = [zeros(v.aval) if a is None else a for a, v in zip(answers, node.inputs, strict=True)]
    captured = [(v, t) for t, v in tracer.captured.values()]
    absent = tuple(i for i, a in enumerate(answers) if a is None)
    graph = flattened(Graph([*cotangents, *(v for v, _ in captured)], outputs))
    linear = is_linear(graph, [k < len(cotangents) for k in range(len(graph.inputs))])
    return TracedRule(rule.name, graph, captured, absent, linear)


def inlined(
    outputs: Sequence[Value | None], rules: Mapping[int, TracedRule], given: Sequence[Value]
) -> list[Value | None]:
    """Values with every host rule replaced by its graph; what a rule captured are further inputs."""
    present = [v for v in outputs if v is not None]
    new: dict[int, Value] = {id(v): v for v in given}
    for node in order(present, given):
        operands = [new[id(v)] for v in node.inputs]
        if isinstance(node.step.op, HostRule):
            rule = rules[node.step.params["ordinal"]]
            results = rebuild_from(rule.graph, [*operands, *rule.graph.inputs[len(operands) :]])
            if not rule.linear:
                results = [bent(r, operands, rule.name) for r in results]
        else:
            results = rebuild_from(Graph(node.inputs, node.outputs), operands)
        new.update((id(v), r) for v, r in zip(node.outputs, results, strict=True))
    return [None if v is None else new[id(v)] for v in outputs]


_graphs: Bounded[Any, CompiledGraph] = Bounded(MAX_GRAPHS)


def by_structure(graph: Graph) -> CompiledGraph:
    """The compiled form of a graph that was made anew, shared with all graphs of its structure."""
    return _graphs.find(structure(graph), lambda: CompiledGraph(graph))
