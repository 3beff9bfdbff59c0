"""A graph in clusters whose branches, loops and rows are given and give arrays, not views. Floor: transforms."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.cluster import Access, Cluster, Loop, Operation, Read, Write, collapsed
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.control import Region
from gradtape.ops.fused import fused_step
from gradtape.ops.layout import CONCAT, PAD, RESHAPE, SLICE, UNSLICE
from gradtape.ops.op import apply
from gradtape.ops.row_updates import is_of_rows, is_row_alone
from gradtape.transforms.fuse import strides_of
from gradtape.transforms.views import walk_back


def settled(graph: Graph, whole: bool) -> Graph:
    """The graph with clusters that copy where a branch or a loop reads a view; its outputs stay views if it is the
    `whole`, else they are arrays too."""
    if whole and not any(map(_wants_arrays, graph.nodes)):
        return graph
    new: dict[int, Value] = {id(v): v for v in graph.inputs}
    arrays: dict[int, Value] = {}
    for node in graph.nodes:
        operands = [new[id(v)] for v in node.inputs]
        if _wants_arrays(node):
            operands = [_as_array(v, arrays) for v in operands]
        same = all(a is b for a, b in zip(operands, node.inputs, strict=True))
        results = node.outputs if same else apply(node.step, operands)
        new.update((id(v), r) for v, r in zip(node.outputs, results, strict=True))
    outputs = [new[id(v)] for v in graph.outputs]
    return Graph(graph.inputs, outputs if whole else [_as_array(v, arrays) for v in outputs])


def _wants_arrays(node: Node) -> bool:
    op = node.step.op
    return isinstance(op, Region) or is_of_rows(node) or is_row_alone(node) or op in (SLICE, UNSLICE, PAD, CONCAT)


def _as_array(v: Value, arrays: dict[int, Value]) -> Value:
    """What a view shows, copied; a value that is no view of these kinds is itself."""
    if id(v) not in arrays:
        arrays[id(v)] = _copied(v, arrays)
    return arrays[id(v)]


def _copied(v: Value, arrays: dict[int, Value]) -> Value:
    walk = walk_back(v)
    if walk.base is not v:
        dims = v.aval.dims
        place = [k if n != 1 else None for k, n in enumerate(dims)]
        read = strides_of(walk.base.aval.dims, [None if a is None else place[a] for a in walk.axes], len(dims))
        return _copy(v, walk.base, arrays, dims, read, strides_of(dims, place, len(dims)))
    if v.node is not None and v.node.step.op is RESHAPE and v.aval.is_known:
        return _copy(v, v.node.inputs[0], arrays, (v.aval.size,), (1,), (1,))
    return v


def _copy(
    v: Value,
    shown: Value,
    arrays: dict[int, Value],
    extents: Sequence[int],
    read: tuple[int, ...],
    write: tuple[int, ...],
) -> Value:
    """A cluster that writes the elements of a view of a value in their order, by loops of these extents."""
    dtype = v.aval.dtype
    cluster = Cluster(
        tuple(Loop(n, False) for n in extents),
        (Read(0, Access(dtype, read)),),
        (Operation("read", (), dtype, 0),),
        (Write(0, Access(dtype, write), (True,) * len(extents)),),
    )
    step = fused_step(Graph([shown], [v]), collapsed(cluster))
    return apply(step, [_as_array(shown, arrays)])[0]
