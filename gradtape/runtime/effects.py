"""What the rule of a custom gradient does besides answering, such as to print and to assign: in a traced function it is
done when the gradient is computed. Floor: runtime."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from gradtape.ir.graph import Graph, Value, order
from gradtape.ops.arithmetic import ASSIGNED
from gradtape.ops.call import EFFECTFUL
from gradtape.ops.host import host_step
from gradtape.ops.op import Step, apply
from gradtape.runtime.compiled import CompiledGraph
from gradtape.runtime.tensor import SymbolicTensor, Tensor, wrap
from gradtape.runtime.trace import FunctionTracer, Tracer, outside, state_tracer
from gradtape.transforms.dependence import leaves
from gradtape.transforms.simplify import flattened, rebuild_from


class Apart:
    """What a part of a function reads and assigns, apart from the function: variables begin there as inputs.

    `variables`: by id, a variable (or other state) and its value at the beginning; `present`: its value at the end;
    `assigned`: those that are assigned."""

    def __init__(self) -> None:
        self.variables: dict[int, tuple[Any, Value]] = {}
        self.present: dict[int, Tensor] = {}
        self.assigned: dict[int, Any] = {}

    def taken_back(self, tracer: Tracer, function: FunctionTracer) -> list[tuple[Value, Tensor]]:
        """What a tracer inside the function came to use of the values of variables at the beginning, which it forgets;
        and the same of what they are in the function now."""
        starts = [start for _, start in self.variables.values()]
        found: list[tuple[Value, Tensor]] = []
        if not starts:
            return found
        now = [function.value_of(function.read(v)) for v, _ in self.variables.values()]
        for key, (t, value) in list(tracer.captured.items()):
            if isinstance(t, SymbolicTensor) and t._tracer is function and leaves([t._value], starts):
                graph, others = part_of_graph([t._value], starts)
                (settled,) = rebuild_from(graph, [*now, *others])
                del tracer.captured[key]
                found.append((value, function.symbol(settled)))
        return found

    def states(self, tracer: Tracer) -> list[tuple[Any, Value, Value]]:
        """What is assigned: the variable, its value at the beginning, and the one at the end."""
        ends = [tracer.value_of(self.present[k]) for k in self.assigned]
        return [(v, self.variables[k][1], _bare(end)) for (k, v), end in zip(self.assigned.items(), ends, strict=True)]


def part_of_graph(outputs: Sequence[Value], given: Sequence[Value]) -> tuple[Graph, list[Value]]:
    """The graph from given values to outputs, and what else it reads, behind them: values that do not depend on
    them."""
    varying = set(map(id, given))
    read: dict[int, Value] = {id(v): v for v in outputs}
    for node in order(outputs):
        if any(id(v) in varying for v in node.inputs):
            varying.update(map(id, node.outputs))
            read.update((id(v), v) for v in node.inputs)
    others = [v for v in read.values() if id(v) not in varying]
    return flattened(Graph([*given, *others], outputs)), others


def _bare(end: Value) -> Value:
    """The value that was assigned, not what stands for the variable to tapes around."""
    node = end.node
    return node.inputs[1] if node is not None and node.step.op is ASSIGNED else end


@contextlib.contextmanager
def apart(function: FunctionTracer | None, cotangents: Sequence[Value]) -> Iterator[Apart]:
    """A block whose reads and assignments are not the function's, nor those of a map in it: a rule, which is given
    cotangents."""
    block, keeper = Apart(), state_tracer()
    if keeper is not None and keeper is not function:
        slices, keeper.present = keeper.present, {}
        try:
            with _apart_of(function, cotangents, block):
                yield block
        finally:
            keeper.present = slices
        return
    with _apart_of(function, cotangents, block):
        yield block


@contextlib.contextmanager
def _apart_of(function: FunctionTracer | None, cotangents: Sequence[Value], block: Apart) -> Iterator[None]:
    if function is None:
        yield
        return
    variables, present, assigned = function.variables, function.present, function.assigned
    held, unknown = function.held, function.unknown
    function.variables, function.present, function.assigned = block.variables, block.present, block.assigned
    function.held, function.unknown = [*held, *variables.values()], [*unknown, *cotangents]
    try:
        yield
    finally:
        function.variables, function.present, function.assigned = variables, present, assigned
        function.held, function.unknown = held, unknown


class Effect:
    """A rule as a graph that is run with its effects.

    Args:
      graph: of what is given to the rule, then of the states as they are, to the rule's answers, then to the new
        states.
      states: variables and other state."""

    def __init__(self, graph: Graph, states: Sequence[Any]) -> None:
        self.compiled, self.states = CompiledGraph(graph), list(states)
        self.given = [v.aval for v in graph.inputs[: len(graph.inputs) - len(states)]]
        self.answers = len(graph.outputs) - len(states)

    def perform(self, given: Sequence[Tensor]) -> list[Tensor]:
        """The answers, and the states as they were; these are new then."""
        before = [s.read() for s in self.states]
        made = self.compiled([*given, *before])
        for state, new in zip(self.states, made[self.answers :], strict=True):
            state.assign(new)
        return [*made[: self.answers], *before]

    def on_arrays(self, *arrays: Any) -> Any:
        """The same for arrays, inside a graph that is no function's."""
        with outside():
            made = self.perform([wrap(a, v) for a, v in zip(arrays, self.given, strict=True)])
        results = tuple(t._array for t in made)
        return results[0] if len(results) == 1 else results


def effectful_step(graph: Graph, states: Sequence[Any]) -> Step:
    """The step of a rule with effects (`graph` and `states` as for `Effect`). For derivatives, and for all rows at
    once, it is a graph without them, which reads the states when it runs."""
    effect = Effect(graph, states)
    given = graph.inputs[: len(graph.inputs) - len(states)]
    now = [apply(reader_step(s), ())[0] for s in states]
    made = rebuild_from(graph, [*given, *now])[: effect.answers]
    return Step(EFFECTFUL, {"graph": Graph(given, [*made, *now]), "effect": effect})


def reader_step(x: Any) -> Step:
    """The step that reads a variable, other state or a tensor, as it is when it runs."""

    def read() -> Any:
        with outside():
            return (x if isinstance(x, Tensor) else x.read())._array

    return host_step(read, (x._aval,))
