"""Two graphs on the same numbers: whether one computes what the other does. Floor: saving."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.aval import Aval
from gradtape.ir.graph import Graph
from gradtape.runtime.tensor import from_array
from gradtape.runtime.trace import outside
from gradtape.saving.damage import Damaged
from gradtape.saving.graphs import read_graph
from gradtape.saving.replay import replayed

MAX_ELEMENTS = 1 << 21  # of what a step gives
TOLERANCE = 1e-3  # of the largest element


def has_same_values(text: Any, constants: Sequence[Any], other: Any, of_other: Sequence[Any]) -> bool:
    """Whether graphs that differ (a function may compute in another way what is larger) give the same results for some
    inputs; each has constants of its own."""
    try:
        graphs = [read_graph(text), read_graph(other)]
    except Damaged:
        return False
    counts = [len(g.inputs) - len(c) for g, c in zip(graphs, (constants, of_other), strict=True)]
    avals = [[v.aval for v in g.inputs[:n]] for g, n in zip(graphs, counts, strict=True)]
    sizes = (v.aval.size for g in graphs for n in g.nodes for v in n.outputs)
    if avals[0] != avals[1] or any(a.dtype.kind == "s" for a in avals[0]) or max(sizes, default=0) > MAX_ELEMENTS:
        return False
    return all(_agree(graphs, (constants, of_other), avals[0], low) for low in (0.1, -1.0))


def _agree(graphs: Sequence[Graph], constants: Sequence[Sequence[Any]], avals: Sequence[Aval], low: float) -> bool:
    """Whether graphs give the same results for numbers between `low` and 1."""
    rng = np.random.default_rng(0)
    given = [_drawn(a, low, rng) for a in avals]
    try:
        with outside():
            made, wanted = (
                replayed(g, [from_array(x) for x in (*given, *own)]) for g, own in zip(graphs, constants, strict=True)
            )
    except Exception:  # noqa: BLE001 - numbers that one of them does not take show nothing
        return False
    return [t._aval for t in made] == [t._aval for t in wanted] and all(
        _close(np.asarray(a), np.asarray(b)) for a, b in zip(made, wanted, strict=True)
    )


def _drawn(a: Aval, low: float, rng: Any) -> Any:
    """Numbers of a dtype; whole ones are 0 and 1."""
    drawn = rng.uniform(low, 1.0, a.dims) if a.dtype.kind in "fc" else rng.integers(0, 2, a.dims)
    return np.asarray(drawn).astype(a.dtype.numpy_dtype)


def _close(a: Any, b: Any) -> bool:
    if a.dtype.hasobject:
        return bool(a.tolist() == b.tolist())
    if a.dtype.itemsize < 4 or a.dtype.kind in "biu":
        a, b = a.astype(np.float64), b.astype(np.float64)
    largest = float(np.abs(b)[np.isfinite(b)].max(initial=0.0))
    return bool(np.allclose(a, b, 0.0, TOLERANCE * largest, equal_nan=True))
