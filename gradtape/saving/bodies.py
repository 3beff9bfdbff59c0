"""What a trace does, as JSON: its graph, the state and constants that it reads, and the structure it gives. Floor:
saving."""

from __future__ import annotations

import functools
import itertools
import json
from typing import Any, Protocol

import optree

from gradtape.ir.dtypes import bool_
from gradtape.ir.graph import Graph, Value
from gradtape.runtime.tensor import Tensor
from gradtape.saving.graphs import write_graph
from gradtape.saving.lifting import Lifter
from gradtape.saving.structures import write_structure
from gradtape.tracing.concrete import Trace


class Tables(Protocol):
    """Where variables and constants go, which are written once however often they are used."""

    def state(self, x: Any) -> Any:
        """A variable, or other state, as the file names it."""

    def constant(self, t: Tensor) -> int:
        """The number of a constant."""


class Body:
    """A trace taken apart: `text`, which holds no arrays, and `constants`, the tensors that the graph is given, then
    those for what Python asked."""

    @functools.cached_property
    def outline(self) -> Any:
        """What has to be alike in bodies that differ in numbers alone."""
        return len(self.constants), json.dumps(_without_numbers(self.text))

    def __init__(self, trace: Trace, tables: Tables, lifter: Lifter | None = None) -> None:
        graph, constants = _used(trace.compiled.graph, trace.captured)
        states = {id(s): k for k, s in enumerate(trace.variables)}
        asked, given, answers = (Graph([], []), [], []) if lifter is None else lifter.questions()
        self.constants, self.asked_from = [*constants, *given], len(constants)
        self.text: dict[str, Any] = {
            "graph": write_graph(graph),
            "state": [tables.state(s) for s in trace.variables],
            "assigned": [states[id(s)] for s in trace.assigned],
            "results": _results(trace),
            "asked": {"graph": write_graph(asked), "answers": answers},
        }
        self.seen = [] if lifter is None else lifter.seen
        self.truths = [tuple(a) for v, a in zip(asked.outputs, answers, strict=True) if v.aval.dtype is bool_]


def _without_numbers(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {k: _without_numbers(v) for k, v in tree.items()}
    if isinstance(tree, list):
        row = len(tree) > 4 and all(type(n) is int for n in tree)
        return "row" if row else [_without_numbers(v) for v in tree]
    return 0 if type(tree) in (int, float) else tree


def _used(graph: Graph, captured: list[Tensor]) -> tuple[Graph, list[Tensor]]:
    """The graph without those of its last inputs that nothing reads, and the tensors for the others."""
    read = {id(v) for n in graph.nodes for v in n.inputs} | {id(v) for v in graph.outputs}
    count = len(graph.inputs) - len(captured)
    held: list[tuple[Value, Tensor]] = [
        (v, t) for v, t in zip(graph.inputs[count:], captured, strict=True) if id(v) in read
    ]
    return Graph([*graph.inputs[:count], *(v for v, _ in held)], graph.outputs), [t for _, t in held]


def _results(trace: Trace) -> dict[str, Any]:
    """The structure that a call gives, with the number of a tensor, or null, at each leaf."""
    numbers = itertools.count()
    leaves = [next(numbers) if held else None for held in trace.results.held]
    spec = trace.results.spec
    return write_structure(leaves[0] if spec is None else optree.tree_unflatten(spec, leaves), lambda leaf: leaf)
