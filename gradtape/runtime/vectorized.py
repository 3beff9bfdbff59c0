"""Functions of one element run for all elements at once: `vectorized_map`. Floor: runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.bounded import Bounded
from gradtape.ir.graph import Graph, Value, structure
from gradtape.runtime.backward import CompiledGraph
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.trace import Tracer
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.entering import free, lifted
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.terms import Item, Rows
from gradtape.transforms.vectorize import vectorized

MAX_GRAPHS = 512


Finish = Callable[[Builder, Rows], Value]


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
    tracer = Tracer(avals)
    results = tracer.run(f, list(tracer.symbols))
    graph, captured = tracer.graph(results)
    compiled = _compiled(graph, tuple(shared), tuple(t._aval for t in elements), count, finish)
    return compiled([*elements, *captured])


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
