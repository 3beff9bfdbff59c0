"""Random graphs for the tests of rows, with operands. `row_growth.py` says what they are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gradtape.ir.graph import Graph, Value
from gradtape.ops.op import emit
from tests.op_table.cases import sealed
from tests.transforms.row_growth import CURVED, EXACT, LARGEST, MOST, SIZES, Draft


@dataclass(frozen=True)
class Drawn:
    """A graph of one output over sources and other operands, and arrays for all of them."""

    graph: Graph
    sources: int
    arrays: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"{self.graph}\nsources: {self.sources}, arrays: {self.arrays}"


def small(d: Draft, v: Value, bound: float) -> tuple[Value, float]:
    """Few axes and elements."""
    while len(v.aval.dims) > 4 or v.aval.size > MOST:
        bound *= max(1, v.aval.dims[0])
        v = emit("reduce_sum", v, axes=(0,), keepdims=False)
    return v, bound


@st.composite
def drawn_graphs(draw: st.DrawFn, exact: bool = True, most: int = MOST, ops: int = 12) -> Drawn:
    d = Draft(draw, exact)
    shapes = st.lists(st.sampled_from(SIZES), max_size=3).map(tuple).filter(lambda s: math.prod(s) <= most)
    for _ in range(draw(st.sampled_from([1, 1, 2]))):
        d.source(draw(shapes))
    for grow in draw(st.lists(st.sampled_from(EXACT if exact else CURVED), min_size=3, max_size=ops)):
        made = grow(d)
        if made is None:
            continue
        v, bound = small(d, *made)
        if bound <= LARGEST and v.aval.size <= most:
            d.add(v, bound)
        elif not exact and v.aval.size <= most:
            d.add(emit("tanh", v), 1.0)
    graph = Graph([*d.sources, *(v for v, _ in d.others)], [d.values[-1]])
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    arrays = [sealed(_operand(rng, v.aval.dims, exact)) for v in d.sources]
    return Drawn(graph, len(d.sources), (*arrays, *(a for _, a in d.others)))


def _operand(rng: np.random.Generator, shape: tuple[int, ...], exact: bool) -> Any:
    if exact:
        return rng.integers(-2, 3, shape).astype(np.float64)
    return rng.uniform(-1.5, 1.5, shape)
