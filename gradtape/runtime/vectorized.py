"""Functions of one element run for all elements at once: `vectorized_map`. Floor: runtime."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gradtape.backends.cpu import lower
from gradtape.backends.program import compile_graph
from gradtape.ir.aval import Aval, aval
from gradtape.ir.bounded import Bounded
from gradtape.ir.graph import Graph, Value, structure
from gradtape.ops.layout import BROADCAST_TO
from gradtape.runtime.compiled import CompiledGraph
from gradtape.runtime.dispatch import unary
from gradtape.runtime.hosted import ORDER
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import SymbolicTensor, Tensor
from gradtape.runtime.trace import Tracer, outside
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.entering import free, lifted
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.terms import Item, Rows
from gradtape.transforms.vectorize import vectorized

MAX_GRAPHS = 512


Finish = Callable[[Builder, Rows], Value]


class MapTracer(Tracer):
    """The graph of one of `count` slices. Beside the elements what it draws from may enter it."""

    is_map = keeps_states = True

    def __init__(self, elements: Sequence[Tensor], count: int) -> None:
        super().__init__([aval(t._aval.dims[1:], t._aval.dtype) for t in elements])
        self.elements, self.count = elements, count
        self.entered: list[Tensor] = []  # over all slices
        self.present: dict[int, Tensor] = {}  # states now, by id

    def read(self, state: Any) -> Tensor:
        """A state in a slice: of what it draws from, or the order of effects."""
        found = self.present.get(state._id)
        if found is None:
            found = self.present[state._id] = state.in_map(self)
        return found

    def own(self, make: Callable[[], Tensor]) -> Tensor:
        """A state that is made where the map is called, as a slice's. Slices' states are no common one, though they
        begin alike."""
        with self.around():
            first = make()
            self.entered.append(unary(BROADCAST_TO.bind(shape=(self.count, *first._aval.dims)), first))
        self.inputs.append(Value(first._aval))
        return self.symbol(self.inputs[-1])

    def assign(self, state: Any, value: Tensor) -> None:
        """A state from now on."""
        self.present[state._id] = value

    def evaluated(self, t: SymbolicTensor) -> Any:
        """The array of a symbolic tensor, for the first slice."""
        if not self.count:
            return super().evaluated(t)
        captured = list(self.captured.values())
        inputs = [*self.inputs, *(v for _, v in captured)]
        with outside():
            firsts = [_array(x)[0] for x in (*self.elements, *self.entered)]
            run = compile_graph(Graph(inputs, [t._value]), lower)
            (array,) = STATE.run(run, *firsts, *(_array(c) for c, _ in captured))
        return array

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
    tracer = MapTracer(elements, count)
    results = tracer.run(f, list(tracer.symbols))
    order = [tracer.present[ORDER._id]] if ORDER._id in tracer.present else []
    graph, captured = tracer.graph([*results, *order])
    mapped = [*elements, *tracer.entered]
    seen_whole = (*shared, *(False for _ in tracer.entered))
    compiled = _compiled(graph, seen_whole, tuple(t._aval for t in mapped), count, finish, len(order))
    made = compiled([*mapped, *captured])
    for last in made[len(results) :]:
        ORDER.assign(last)
    return made[: len(results)]


def _array(t: Tensor) -> Any:
    return t._tracer.evaluated(t) if isinstance(t, SymbolicTensor) else t._array


_graphs: Bounded[Any, CompiledGraph] = Bounded(MAX_GRAPHS)


def _compiled(
    graph: Graph, shared: tuple[bool, ...], avals: tuple[Aval, ...], count: int, finish: Finish, common: int
) -> CompiledGraph:
    """The graph of all rows, made once per structure."""
    key = (structure(graph), shared, avals, count, finish, common)
    return _graphs.find(key, lambda: CompiledGraph(all_rows(graph, shared, avals, count, finish, common)))


def all_rows(
    graph: Graph, shared: tuple[bool, ...], avals: tuple[Aval, ...], count: int, finish: Finish, common: int = 0
) -> Graph:
    """The graph over whole arrays: elements first, then what the function captured. So many of the last results are
    `common`, one for all slices."""
    b = Builder()
    whole = [Value(a) for a in avals]
    captured = list(graph.inputs[len(whole) :])
    items: list[Item] = [
        b.reshape(v, v.aval.dims[1:]) if s else free(b, v, (count,)) for v, s in zip(whole, shared, strict=True)
    ]
    results = vectorized(b, graph, [*items, *captured])
    own = len(results) - common
    one = [r for r in results[own:] if isinstance(r, Value)]
    return Graph([*whole, *captured], [*(finish(b, lifted(b, r, (count,))) for r in results[:own]), *one])
