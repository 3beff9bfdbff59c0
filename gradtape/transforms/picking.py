"""One element of each row, picked or put by a position that only the device knows, as comparisons of positions. Floor:
transforms.

    gather(x, at)ᵢ = Σₖ (k = atᵢ ? xᵢₖ : 0)        scatter_add(g, at)ᵢₖ = (k = atᵢ ? gᵢ : 0)

So the logit of a label, and its part of a gradient, belong to the kernel that goes through the row anyway. Positions
that do not exist give 0, as they do in the kernels of these ops. The host says that they do not exist, as its own
function for a gather does; there a comparison for each element pays only in short rows."""

from __future__ import annotations

import functools

import numpy as np

from gradtape.ir.aval import Aval
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.index import Index
from gradtape.ops.host import host_step
from gradtape.ops.indexing import GATHER, SCATTER_ADD, checked
from gradtape.ops.layout import POSITIONS, RESHAPE
from gradtape.ops.op import Step, apply, constant, emit
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.transforms.views import walk_back

SHORT = 64  # elements of a row in which the host looks for one


def with_rows_picked(graph: Graph, on_host: bool = False) -> Graph:
    """The same outputs but for signs of zeros."""
    if not any(n.step.op in (GATHER, SCATTER_ADD) for n in graph.nodes):
        return graph
    swept = {id(walk_back(v).base) for n in graph.nodes if _is_scalar_work(n) for v in n.inputs}
    new = {id(v): v for v in graph.inputs}
    for node in graph.nodes:
        operands = [new[id(v)] for v in node.inputs]
        if node.step.op is GATHER and _is_one_of_each_row(node, swept) and not (on_host and _is_long(node)):
            x, at = operands
            results: tuple[Value, ...] = (_picked(node, x, _checked(at, x.aval.dims[-1]) if on_host else at),)
        elif node.step.op is SCATTER_ADD and not on_host and _has_one_position(node, node.outputs[0]):
            results = (_put(node, *operands),)
        else:
            same = all(a is b for a, b in zip(operands, node.inputs, strict=True))
            results = node.outputs if same else apply(node.step, operands)
        new.update((id(v), r) for v, r in zip(node.outputs, results, strict=True))
    return Graph(graph.inputs, [new[id(v)] for v in graph.outputs])


def _is_long(node: Node) -> bool:
    dims = node.inputs[0].aval.dims
    return len(dims) < 2 or not 0 < dims[-1] <= SHORT


def _checked(at: Value, size: int) -> Value:
    """Positions among so many, which exist; those that are reshaped are looked at before."""
    if at.node is not None and at.node.step.op is RESHAPE:
        return apply(at.node.step, [_checked(at.node.inputs[0], size)])[0]
    return apply(_check(at.aval, size), [at])[0]


@functools.lru_cache(4096)
def _check(of: Aval, size: int) -> Step:
    return host_step(lambda at: checked(np.asarray(at), size), [of], ours=True)


def _is_scalar_work(node: Node) -> bool:
    return isinstance(node.step.op, Pointwise | Reduction)


def _is_one_of_each_row(node: Node, swept: set[int]) -> bool:
    """Whether a gather takes one element of each row along the last axis, and kernels make or read the rows anyway."""
    x = node.inputs[0]
    if not x.aval.is_known or x.aval.dtype.is_bool:
        return False
    base = walk_back(x).base
    is_at_hand = id(base) in swept or (base.node is not None and _is_scalar_work(base.node))
    return node.step.params["axis"] == len(x.aval.dims) - 1 and is_at_hand and _has_one_position(node, x)


def _has_one_position(node: Node, whole: Value) -> bool:
    """Whether there is one position for each of the batch, which only runs show."""
    axis, batch_dims = node.step.params["axis"], node.step.params["batch_dims"]
    at = node.inputs[1]
    is_open = at.node is None or at.node.step.op is not POSITIONS
    return is_open and whole.aval.is_known and axis == batch_dims and at.aval.shape == (*whole.aval.dims[:axis], 1)


def _hits(at: Value, dims: tuple[int, ...], axis: int) -> Value:
    """Which elements of an axis are at the positions, with axes of size 1 behind it."""
    behind = (1,) * (len(dims) - axis - 1)
    line = emit("positions", value=Index(range(dims[axis])))
    place = at if at.aval.dtype is line.aval.dtype else emit("cast", at, dtype=line.aval.dtype)
    if behind:
        line = emit("reshape", line, shape=(dims[axis], *behind))
        place = emit("reshape", place, shape=(*place.aval.dims, *behind))
    return emit("equal", place, line)


def _picked(node: Node, x: Value, at: Value) -> Value:
    dims, axis = x.aval.dims, node.step.params["axis"]
    chosen = emit("select", _hits(at, dims, axis), x, constant(0, x.aval.dtype))
    return emit("reduce_sum", chosen, axes=(axis,), keepdims=True)


def _put(node: Node, g: Value, at: Value) -> Value:
    dims, axis = node.outputs[0].aval.dims, node.step.params["axis"]
    return emit("select", _hits(at, dims, axis), g, constant(0, g.aval.dtype))
