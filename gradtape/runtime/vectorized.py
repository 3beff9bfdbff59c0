"""Functions of one element run for all elements at once: `vectorized_map`. Floor: runtime."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.bounded import Bounded
from gradtape.ir.graph import Graph, Value, structure
from gradtape.ops.layout import BROADCAST_TO
from gradtape.runtime.backward import CompiledGraph
from gradtape.runtime.dispatch import unary
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.trace import Tracer
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.entering import free, lifted
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.terms import Item, Rows
from gradtape.transforms.vectorize import vectorized

MAX_GRAPHS = 512


Finish = Callable[[Builder, Rows], Value]


class MapTracer(Tracer):
    """The graph of one of `count` slices. Beside the elements what it draws from may enter it."""

    keeps_states = True

    def __init__(self, inputs: Sequence[Aval], count: int) -> None:
        super().__init__(inputs)
        self.count = count
        self.entered: list[Tensor] = []  # over all slices
        self.present: dict[int, Tensor] = {}  # by id of what is drawn from: a slice's state now

    def read(self, drawn: Any) -> Tensor:
        """The state of what is drawn from, in a slice. Each slice's is its own, though they begin alike."""
        found = self.present.get(drawn._id)
        if found is None:
            found = self.present[drawn._id] = self.own(drawn.next)
        return found

    def own(self, make: Callable[[], Tensor]) -> Tensor:
        """A state that is made where the map is called, as a slice's."""
        with self.around():
            first = make()
            self.entered.append(unary(BROADCAST_TO.bind(shape=(self.count, *first._aval.dims)), first))
        self.inputs.append(Value(first._aval))
        return self.symbol(self.inputs[-1])

    def assign(self, drawn: Any, value: Tensor) -> None:
        """A slice's state from now on."""
        self.present[drawn._id] = value

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """A block that runs where the map is called."""
        held = STATE.tracers, STATE.recorders
        at = next(k for k, t in enumerate(STATE.tracers) if t is self)
        STATE.enter(STATE.tracers[:at], ())
        try:
            yield
        finally:
            STATE.enter(*held)


def map_elements(
    f: Callable[[list[Tensor]], list[Tensor]],
    elements: Sequence[Tensor],
    shared: Sequence[bool],
    count: int,
    finish: Finish = dense,
) -> list[Tensor]:
    """f on the slices along the first axis, for all of them at once. `shared`: elements that all slices see whole
    (a first axis of size 1, taken away). `finish`: what is made of the rows of a result."""
    avals = [aval(t._aval.dims[1:], t._aval.dtype) for t in elements]
    tracer = MapTracer(avals, count)
    results = tracer.run(f, list(tracer.symbols))
    graph, captured = tracer.graph(results)
    mapped = [*elements, *tracer.entered]
    seen_whole = (*shared, *(False for _ in tracer.entered))
    compiled = _compiled(graph, seen_whole, tuple(t._aval for t in mapped), count, finish)
    return compiled([*mapped, *captured])


_graphs: Bounded[Any, CompiledGraph] = Bounded(MAX_GRAPHS)


def _compiled(
    graph: Graph, shared: tuple[bool, ...], avals: tuple[Aval, ...], count: int, finish: Finish
) -> CompiledGraph:
    """The graph of all rows, made once per structure."""
    key = (structure(graph), shared, avals, count, finish)
    return _graphs.find(key, lambda: CompiledGraph(all_rows(graph, shared, avals, count, finish)))


def all_rows(graph: Graph, shared: tuple[bool, ...], avals: tuple[Aval, ...], count: int, finish: Finish) -> Graph:
    """The graph over whole arrays: elements first, then what the function captured."""
    b = Builder()
    whole = [Value(a) for a in avals]
    captured = list(graph.inputs[len(whole) :])
    items: list[Item] = [
        b.reshape(v, v.aval.dims[1:]) if s else free(b, v, (count,)) for v, s in zip(whole, shared, strict=True)
    ]
    results = vectorized(b, graph, [*items, *captured])
    return Graph([*whole, *captured], [finish(b, lifted(b, r, (count,))) for r in results])
