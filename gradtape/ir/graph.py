"""Graphs: values produced by nodes, each node one bound op applied to values. Floor: ir.

A graph is its inputs and its outputs; the nodes between them are found by walking back, so that what
nothing uses is not there. Nodes are never changed after they were made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from gradtape.ir.aval import Aval


class BoundOp(Protocol):
    """An op with its static parameters: all that a graph needs to know of it."""

    @property
    def name(self) -> str: ...

    @property
    def params(self) -> dict[str, Any]: ...

    def infer(self, avals: tuple[Aval, ...]) -> tuple[Aval, ...]: ...


class Value:
    """One result of a node, or (node None) something a graph is given."""

    __slots__ = ("aval", "index", "node")

    def __init__(self, aval: Aval, node: Node | None = None, index: int = 0) -> None:
        self.aval, self.node, self.index = aval, node, index

    def __repr__(self) -> str:
        made = "input" if self.node is None else self.node.step.name
        return f"<{made} {self.aval!r}>"


class Node:
    """A bound op applied to values."""

    __slots__ = ("inputs", "outputs", "step")

    def __init__(self, step: Any, inputs: tuple[Value, ...], avals: tuple[Aval, ...]) -> None:
        self.step = step
        self.inputs = inputs
        self.outputs = tuple(Value(a, self, i) for i, a in enumerate(avals))


class Graph:
    """Outputs as a function of inputs."""

    __slots__ = ("__weakref__", "_nodes", "inputs", "outputs")

    def __init__(self, inputs: Iterable[Value], outputs: Iterable[Value]) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._nodes: tuple[Node, ...] | None = None

    @property
    def nodes(self) -> list[Node]:
        """All nodes, operands before what uses them."""
        if self._nodes is None:
            self._nodes = tuple(order(self.outputs, self.inputs))
        return list(self._nodes)

    def in_order(self, nodes: Iterable[Node]) -> Graph:
        """The same graph, whose nodes are listed and run in this order."""
        found = Graph(self.inputs, self.outputs)
        found._nodes = tuple(nodes)
        return found

    def __repr__(self) -> str:
        return text(self)


def order(outputs: Sequence[Value], stop: Iterable[Value] = ()) -> list[Node]:
    """The nodes that `outputs` need, operands first, walking back no further than the values in `stop`."""
    given = set(stop)
    done: set[Node] = set()
    result: list[Node] = []
    stack: list[Any] = [v.node for v in reversed(outputs) if v.node is not None and v not in given]
    while stack:
        node = stack.pop()
        if node is None:  # what the node below needs is there
            result.append(stack.pop())
        elif node not in done:
            done.add(node)
            stack += (node, None)
            for v in node.inputs[::-1]:
                maker = v.node
                if maker is not None and maker not in done and v not in given:
                    stack.append(maker)
    return result


def structure(graph: Graph) -> tuple[Any, ...]:
    """A graph as a hashable key: equal for graphs with the same steps on the same wires."""
    place = {id(v): i for i, v in enumerate(graph.inputs)}
    count = len(graph.inputs)
    nodes = []
    for node in graph.nodes:
        nodes.append((node.step, *(place[id(v)] for v in node.inputs)))
        for v in node.outputs:
            place[id(v)] = count
            count += 1
    return (tuple(v.aval for v in graph.inputs), tuple(nodes), tuple(place[id(v)] for v in graph.outputs))


def check(graph: Graph) -> None:
    """The spec of a graph: every operand is an input or made by a node of the graph, and every shape and
    dtype is what the op infers.

    Raises:
      ValueError: naming the node that breaks it.
    """
    made = set(map(id, graph.inputs))
    for node in graph.nodes:
        for inner in node.step.params.values():
            if isinstance(inner, Graph):
                check(inner)
        for v in node.inputs:
            if id(v) not in made:
                raise ValueError(f"`{node.step.name}` uses {v!r}, which the graph neither is given nor makes.")
        inferred = node.step.infer(tuple(v.aval for v in node.inputs))
        if inferred != tuple(v.aval for v in node.outputs):
            raise ValueError(f"`{node.step.name}` infers {inferred}, its outputs say {node.outputs}.")
        made.update(map(id, node.outputs))
    for v in graph.outputs:
        if id(v) not in made:
            raise ValueError(f"The output {v!r} is neither given nor made.")


def text(graph: Graph) -> str:
    """A graph as text, one node a line, for people; the graphs that a node runs are below it, indented."""
    names: dict[int, str] = {id(v): f"x{i}" for i, v in enumerate(graph.inputs)}
    lines = [f"{names[id(v)]} = input {v.aval!r}" for v in graph.inputs]
    for node in graph.nodes:
        for v in node.outputs:
            names[id(v)] = f"t{len(names) - len(graph.inputs)}"
        inner = {k: v for k, v in node.step.params.items() if isinstance(v, Graph)}
        params = (f"{k}={v!r}" for k, v in node.step.params.items() if k not in inner)
        left = ", ".join(names[id(v)] for v in node.outputs)
        args = ", ".join([*(names[id(v)] for v in node.inputs), *params])
        made = ", ".join(repr(v.aval) for v in node.outputs)
        lines.append(f"{left} = {node.step.name}({args}) {made}")
        for k, g in inner.items():
            lines += [f"    {k}:", *(f"        {line}" for line in text(g).splitlines())]
    return "\n".join([*lines, "return " + ", ".join(names[id(v)] for v in graph.outputs)])
