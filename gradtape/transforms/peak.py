"""How much memory a graph's program holds at its worst moment. Floor: transforms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from gradtape.backends.program import Memory
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.index import Index
from gradtape.ir.shapes import size_of
from gradtape.kernels.memory import LARGE, SLACK
from gradtape.ops.assembling import placed
from gradtape.ops.composite import Composite
from gradtape.ops.contraction import Contraction, parts
from gradtape.ops.control import Region
from gradtape.ops.fused import Fused
from gradtape.ops.placement import Assemble, Product
from gradtape.ops.structural import Structural
from gradtape.ops.tiles import Tiles

POSITION = 8  # bytes


def peak_bytes(graph: Graph, again: bool = False) -> int:
    """The most memory that is held at one time while the nodes run in order, inputs not counted: the results that are
    still needed, what a node needs besides while it runs, and the blocks that the pool keeps for the next results.
    Views own nothing. `again`: the graph runs several times, and the pool holds what it left."""
    pool: list[int] = []
    highest = _peak(graph, pool)
    return max(highest, _peak(graph, pool)) if again else highest


def _peak(graph: Graph, pool: list[int]) -> int:
    nodes = graph.nodes
    last = {id(v): k for k, n in enumerate(nodes) for v in n.inputs}
    last.update((id(v), len(nodes)) for v in graph.outputs)
    live: dict[int, _Held] = {}
    memory = Memory(graph, nodes, {})
    highest = 0
    for k, node in enumerate(nodes):
        is_view = isinstance(node.step.op, Structural) and node.step.op.view
        over = memory.target(k)
        if over is not None:
            live[id(node.outputs[0])] = live.pop(id(over))._replace(until=last.get(id(node.outputs[0]), k))
        for v in node.outputs if over is None else ():
            pooled = not is_view and _is_pooled(node) and v.aval.nbytes >= LARGE
            size = 0 if is_view else _taken(pool, v.aval.nbytes) if pooled else v.aval.nbytes
            live[id(v)] = _Held(size, last.get(id(v), k), pooled)
        blocks = [_taken(pool, size) for size in _blocks(node)]
        held = sum(h.size for h in live.values()) + sum(pool)
        highest = max(highest, held + sum(blocks) + _scratch(node))
        pool += [size for size in blocks if size >= LARGE]
        if is_view:
            _extend(live, node.inputs, max(last.get(id(v), k) for v in node.outputs))
        pool += [h.size for h in live.values() if h.until <= k and h.pooled]
        live = {v: h for v, h in live.items() if h.until > k}
    pool += [h.size for h in live.values() if h.pooled]
    return highest


class _Held(NamedTuple):
    """The bytes of a value, the step that needs it last, and whether its block goes to the pool then."""

    size: int
    until: int
    pooled: bool


def _is_pooled(node: Node) -> bool:
    """Whether the results of a node lie in blocks of the pool."""
    return isinstance(node.step.op, Contraction | Assemble)


def _taken(pool: list[int], size: int) -> int:
    """The bytes of the block that an array gets: the last free one that fits, as the pool itself would choose."""
    for i in range(len(pool) - 1, -1, -1):
        if size <= pool[i] <= SLACK * size:
            return pool.pop(i)
    return size


# ------------------------------------------------------------------ what a node needs while it runs


def _blocks(node: Node) -> list[int]:
    """The bytes of each block that a function of the host takes besides its results; large ones come from the pool."""
    op, avals = node.step.op, [v.aval for v in node.inputs]
    if isinstance(op, Composite) and op.has_host(avals, node.step.params):
        return op.scratch(*avals, **node.step.params)
    return []


def _scratch(node: Node) -> int:
    op, avals = node.step.op, tuple(v.aval for v in node.inputs)
    match op:
        case Contraction():
            return copied_bytes(node)
        case Composite() if not op.has_host(avals, node.step.params):
            return max(0, peak_bytes(op.expand(avals, **node.step.params)) - sum(v.aval.nbytes for v in node.outputs))
        case Tiles():
            return peak_bytes(node.step.params["graph"])
        case Fused():  # op by op, as long as its kernel is not there
            return max(0, peak_bytes(node.step.params["graph"]) - sum(v.aval.nbytes for v in node.outputs))
        case Region():
            return max(map(peak_bytes, op.graphs(node.step)))
        case Assemble():
            return _written_by_index(node)
    return 0


def _written_by_index(node: Node) -> int:
    """Terms whose positions are not evenly spaced: their positions, their product, and what is added to."""
    terms, dims = node.step.params["terms"], node.outputs[0].aval.dims
    vectors = node.inputs[sum(len(t.factors) for t in terms) :]
    wide = node.outputs[0].aval.dtype.numpy_dtype.itemsize
    most = 0
    for t in terms:
        late = [vectors[p.where] for a in t.axes for p in a if isinstance(p.where, int)]
        if not all(map(_is_line, late)) or (not late and placed(t, dims, ()).part is None):
            count, copied = _condensed(t)
            most = max(most, copied * wide + count * (POSITION + 2 * wide))
    return most


def _condensed(t: Product) -> tuple[int, int]:
    """How many elements a term has once those that meet are added up along single letters, and how many it had, if
    that makes a copy."""
    sizes = list(t.sizes)
    for c in range(len(sizes)):
        places = [p.where for a in t.axes for p in a if p.letter == c]
        owners = [f for f in t.factors if c in f]
        if len(places) == 1 and len(owners) <= 1 and isinstance(places[0], Index):
            sizes[c] = len(np.unique(places[0].array))
    return size_of(sizes), 0 if sizes == list(t.sizes) else size_of(t.sizes)


def _is_line(vector: Value) -> bool:
    """Whether positions that are known when running are evenly spaced: a beginning and steps."""
    node = vector.node
    if node is None or node.step.name != "add":
        return False
    steps = [x.node.step.params["value"] for x in node.inputs if x.node and x.node.step.name == "positions"]
    return any(isinstance(s, Index) and s.step is not None for s in steps)


def copied_bytes(node: Node) -> int:
    """The bytes of a contraction's operands that are no matrices as they lie: BLAS is given copies."""
    left, right, out = parts(node.step.params["subscripts"])
    total = 0
    for own, other, v in ((left, right, node.inputs[0]), (right, left, node.inputs[1])):
        roles = ["batch" if c in other and c in out else "summed" if c in other else "free" for c in own]
        runs = [r for r, before in zip(roles, ["", *roles], strict=False) if r != before]
        if len(set(runs)) < len(runs) or "batch" in runs[1:]:
            total += v.aval.nbytes
    return total


def _extend(live: dict[int, _Held], values: Iterable[Value], until: int) -> None:
    """What a view shows lives as long as the view."""
    for v in values:
        if id(v) in live:
            held = live[id(v)]
            live[id(v)] = held._replace(until=max(held.until, until))
