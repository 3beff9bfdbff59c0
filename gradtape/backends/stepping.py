"""A graph run step by step from a list: a little slower than the function that `compile_graph` writes, and made in a
fraction of its time and memory; for very many steps that run so only a few times. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.ir.graph import Graph, Node
from gradtape.ops.call import Call
from gradtape.ops.fused import Fused

Lower = Callable[[Any], Callable[..., Any]]


def stepping(graph: Graph, lower: Lower) -> Callable[..., tuple[Any, ...]]:
    """The function (*arrays) -> tuple of arrays of a graph; `lower` gives the function of a step."""
    places = _Places(graph)
    once: dict[Any, Any] = {}  # what a loop of Python wrote out is often the same
    steps = [once.setdefault(s, s) for s in ((lower(n.step), *places.of(at, n)) for at, n in enumerate(graph.nodes))]
    results = [places.place[id(v)] for v in graph.outputs]
    more = [None] * (places.count - len(graph.inputs))

    def run(*arrays: Any) -> tuple[Any, ...]:
        held = [*arrays, *more]
        for function, reads, write, writes in steps:
            made = function(*[held[k] for k in reads])
            if write is not None:
                held[write] = made
            else:
                for k, a in zip(writes, made, strict=True):
                    held[k] = a
        return tuple([held[k] for k in results])

    return run


class _Places:
    """Where the arrays lie during a call, by the ids of values. A place is free again behind the step that reads its
    array last."""

    def __init__(self, graph: Graph) -> None:
        self.place = {id(v): k for k, v in enumerate(graph.inputs)}
        self.count = len(self.place)
        self.last = {id(v): at for at, n in enumerate(graph.nodes) for v in n.inputs}
        self.last.update((id(v), len(graph.nodes)) for v in graph.outputs)
        self.free: list[int] = []

    def of(self, at: int, node: Node) -> tuple[tuple[int, ...], int | None, tuple[int, ...]]:
        """The places that a step reads, and the one that it writes, or those of which it answers with a tuple; it is
        asked of one step after the other."""
        reads = tuple([self.place[id(v)] for v in node.inputs])
        self.free += {self.place[id(v)] for v in node.inputs if self.last[id(v)] == at}
        writes = tuple([self._next() for _ in node.outputs])
        self.place.update(zip(map(id, node.outputs), writes, strict=True))
        self.free += [self.place[id(v)] for v in node.outputs if id(v) not in self.last]
        if len(writes) == 1 and not isinstance(node.step.op, Call | Fused):  # the results of a program are a tuple
            return reads, writes[0], ()
        return reads, None, writes

    def _next(self) -> int:
        if self.free:
            return self.free.pop()
        self.count += 1
        return self.count - 1
