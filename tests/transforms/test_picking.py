"""One element of each row by its position: a comparison in the kernel of the row, where a device cannot look anyway."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, float16, float32, int32, int64, uint8
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Graph, Value
from gradtape.ir.index import Index
from gradtape.kernels.cuda_spelling import spells_cuda
from gradtape.kernels.spelling import spells
from gradtape.ops.op import emit
from gradtape.transforms.fuse import fuse, fused_nodes
from gradtape.transforms.picking import SHORT, with_rows_picked
from tests.kernels.cuda.running import Emulated
from tests.kernels.steps import given_of
from tests.kernels.test_render import by_kernels
from tests.op_table.running import node_by_node


def names(graph: Graph) -> list[str]:
    return [n.step.name for n in graph.nodes]


def picked(shape: tuple[int, ...], at: DType, dtype: DType = float32) -> Graph:
    """Rows less their largest element, and the one at a position."""
    x, k = Value(aval(shape, dtype)), Value(aval((*shape[:-1], 1), at))
    axis = len(shape) - 1
    low = emit("subtract", x, emit("reduce_max", x, axes=(axis,), keepdims=True))
    return Graph([x, k], [emit("gather", low, k, axis=axis, batch_dims=axis)])


def put(shape: tuple[int, ...], axis: int, at: DType) -> Graph:
    """Numbers at positions of an axis, times two."""
    g = Value(aval((*shape[:axis], 1, *shape[axis + 1 :]), float32))
    k = Value(aval((*shape[:axis], 1), at))
    whole = emit("scatter_add", g, k, shape=shape, axis=axis, batch_dims=axis)
    return Graph([g, k], [emit("add", whole, whole)])


GRAPHS: dict[str, Graph] = {
    "a row": picked((7,), int64),
    "rows": picked((6, 7), int32),
    "many axes": picked((2, 3, 5), uint8),
    "halves": picked((6, 7), int32, float16),
    "put in rows": put((6, 7), 1, int32),
    "put in the middle": put((4, 5, 3), 1, int64),
    "put in front": put((5, 3), 0, int32),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_positions_are_compared(name: str) -> None:
    graph = GRAPHS[name]
    fused = fuse(graph, spells_cuda, 1, siblings=True)
    assert set(names(fused)) <= {"fused", "reshape"}
    rng = np.random.default_rng(0)
    x, at = (v.aval for v in graph.inputs)
    size = graph.outputs[0].aval.dims[len(at.dims) - 1] if "put" in name else x.dims[-1]
    arrays = [
        rng.normal(size=x.dims).astype(x.dtype.numpy_dtype),
        rng.integers(0, size, at.dims).astype(at.dtype.numpy_dtype),
    ]
    (found,), (wanted,) = Emulated().graph(fused, arrays), node_by_node(graph, arrays)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("at", [int32, int64], ids=str)
def test_positions_that_do_not_exist_give_zeros(at: DType) -> None:
    where = np.array([[0], [-1], [7], [6], [np.iinfo(at.numpy_dtype).max], [np.iinfo(at.numpy_dtype).min]])
    where = where.astype(at.numpy_dtype)
    inside = (where >= 0) & (where < 7)
    x = np.random.default_rng(0).normal(size=(6, 7)).astype(np.float32)
    low = x - x.max(1, keepdims=True)
    for graph, operand in ((picked((6, 7), at), x), (put((6, 7), 1, at), x[:, :1])):
        (found,) = Emulated().graph(fuse(graph, spells_cuda, 1, siblings=True), [operand, where])
        if found.shape == (6, 1):
            wanted = np.where(inside, np.take_along_axis(low, np.where(inside, where, 0), 1), 0)
        else:
            wanted = np.where(where == np.arange(7), 2 * operand, 0)
        np.testing.assert_array_equal(found, wanted)


def gathered(*shape: int, axis: int, batch_dims: int, at: Callable[[], Value]) -> Graph:
    (x,) = given_of(shape, dtype=float32)
    k = at()
    y = emit("exp", x)
    return Graph([x, *([k] if k.node is None else [])], [emit("gather", y, k, axis=axis, batch_dims=batch_dims)])


LEFT: dict[str, Graph] = {
    "several of a row": gathered(3, 4, axis=1, batch_dims=1, at=lambda: Value(aval((3, 2), int32))),
    "rows of a matrix": gathered(3, 4, axis=0, batch_dims=0, at=lambda: Value(aval((1,), int32))),
    "known positions": gathered(4, axis=0, batch_dims=0, at=lambda: emit("positions", value=Index([2]))),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_stays_a_gather(name: str) -> None:
    assert with_rows_picked(LEFT[name]) is LEFT[name] or "gather" in names(with_rows_picked(LEFT[name]))


def test_rows_that_nothing_goes_through_are_not_read_for_one_element() -> None:
    x, k = Value(aval((3, 4), float32)), Value(aval((3, 1), int32))
    graph = Graph([x, k], [emit("exp", emit("gather", x, k, axis=1, batch_dims=1))])
    assert "gather" in names(fuse(graph, spells_cuda, 1, siblings=True))


def test_the_host_looks_at_positions() -> None:
    """In short rows kernels pick the element; in long ones, or where there are no rows, NumPy does."""
    graph = GRAPHS["rows"]
    fused = fuse(graph, spells)
    assert set(names(fused)) == {"host", "fused"}
    x, at = np.random.default_rng(0).normal(size=(6, 7)).astype(np.float32), np.array([[0], [6], [2], [3], [1], [5]])
    (found,), (wanted,) = by_kernels(fused, [x, at.astype(np.int32)], 2), node_by_node(graph, [x, at])
    np.testing.assert_array_equal(found, wanted)
    for bad in (-1, 7, -(2**31)):
        with pytest.raises(InvalidArgumentError, match=rf"index {bad} is not in \[0, 7\)"):
            by_kernels(fused, [x, np.where(at == 3, bad, at).astype(np.int32)], 2)
    for kept in (GRAPHS["a row"], picked((6, SHORT + 1), int32), GRAPHS["put in rows"]):
        assert {"gather", "scatter_add"} & set(names(fuse(kept, spells)))


# ------------------------------------------------------------------ positions that count are not read


def counting(shape: tuple[int, ...], axis: int, reduced: tuple[int, ...]) -> Graph:
    """Elements whose positions along an axis are given ones, reduced over some axes."""
    x, k = Value(aval(shape, float32)), Value(aval(shape, int64))
    line = emit("positions", value=Index(range(shape[axis])))
    line = emit("reshape", line, shape=tuple(n if k == axis else 1 for k, n in enumerate(shape)))
    y = emit("select", emit("less", k, line), x, emit("negative", x))
    if not reduced:
        return Graph([x, k], [emit("add", y, x)])
    low = emit("subtract", y, emit("reduce_max", y, axes=reduced, keepdims=True))
    return Graph([x, k], [low, emit("reduce_sum", y, axes=reduced, keepdims=False)])


COUNTING = {
    f"{shape} along {axis} over {reduced}": counting(shape, axis, reduced)
    for shape in ((5, 6), (3, 4, 5), (700, 3), (2, 1200))
    for axis in range(len(shape))
    for reduced in ((), (0,), (len(shape) - 1,))
}


@pytest.mark.parametrize("name", COUNTING)
def test_positions_that_count_are_computed(name: str) -> None:
    """On both targets, whatever the loops are."""
    graph = COUNTING[name]
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-8, 8, v.aval.dims).astype(v.aval.dtype.numpy_dtype) for v in graph.inputs]
    wanted = node_by_node(graph, arrays)
    for fused in (fuse(graph, spells), fuse(graph, spells_cuda, 1, siblings=True)):
        assert all(len(n.inputs) == 2 for n in fused_nodes(fused)) and "positions" not in names(fused)
    found = Emulated().graph(fuse(graph, spells_cuda, 1, siblings=True), arrays)
    for results in (found, by_kernels(fuse(graph, spells), arrays, 2)):
        for a, b in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(a, b)
