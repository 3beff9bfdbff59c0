"""Custom rules as graphs: traced for one row, then put in place of the host steps. Floor: runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradtape.ir.bounded import Bounded
from gradtape.ir.graph import Graph, Value, order, structure
from gradtape.ops.call import HostRule, bent
from gradtape.runtime.backward import CompiledGraph
from gradtape.runtime.record import Path, TrieNode
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.trace import Tracer
from gradtape.runtime.vectorized import MAX_GRAPHS
from gradtape.transforms.differentiate import zeros
from gradtape.transforms.linearity import is_linear
from gradtape.transforms.simplify import flattened, rebuild_from


@dataclass
class TracedRule:
    """A rule as a graph from cotangents to the operands' cotangents; what it captured; where it answered None."""

    graph: Graph
    captured: list[tuple[Value, Tensor]]
    absent: tuple[int, ...]


def traced_rule(rule: Callable[..., Sequence[Tensor | None]], end: TrieNode, ordinal: int) -> TracedRule:
    """Run a rule on symbolic cotangents."""
    node = next(n for n in Path(end, {}).nodes if n.step.params.get("ordinal") == ordinal)
    tracer = Tracer([v.aval for v in node.outputs if v.aval.dtype.is_differentiable])
    answers = tracer.run(lambda: rule(*tracer.symbols))
    outputs = [zeros(v.aval) if a is None else tracer.value_of(a) for a, v in zip(answers, node.inputs, strict=True)]
    captured = [(v, t) for t, v in tracer.captured.values()]
    absent = tuple(i for i, a in enumerate(answers) if a is None)
    graph = flattened(Graph([*tracer.inputs, *(v for v, _ in captured)], outputs))
    return TracedRule(graph, captured, absent)


def inlined(outputs: Sequence[Value | None], rules: Mapping[int, Graph], given: Sequence[Value]) -> list[Value | None]:
    """Values with every host rule replaced by its graph; what a rule captured are further inputs."""
    present = [v for v in outputs if v is not None]
    new: dict[int, Value] = {id(v): v for v in given}
    for node in order(present, given):
        operands = [new[id(v)] for v in node.inputs]
        if isinstance(node.step.op, HostRule):
            graph = rules[node.step.params["ordinal"]]
            results = rebuild_from(graph, [*operands, *graph.inputs[len(operands) :]])
            if not is_linear(graph, [k < len(operands) for k in range(len(graph.inputs))]):
                results = [bent(r, operands) for r in results]
        else:
            results = rebuild_from(Graph(node.inputs, node.outputs), operands)
        new.update((id(v), r) for v, r in zip(node.outputs, results, strict=True))
    return [None if v is None else new[id(v)] for v in outputs]


_graphs: Bounded[Any, CompiledGraph] = Bounded(MAX_GRAPHS)


def by_structure(graph: Graph) -> CompiledGraph:
    """The compiled form of a graph that was made anew, shared with all graphs of its structure."""
    return _graphs.find(structure(graph), lambda: CompiledGraph(graph))
