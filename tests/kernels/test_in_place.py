"""Kernels that write results over operands which nothing else needs: the same results, in less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradtape.backends import clusters, program
from gradtape.backends.clusters import FusedKernel
from gradtape.backends.cpu import lower
from gradtape.backends.program import compile_graph
from gradtape.ir.aval import aval
from gradtape.ir.cluster import by_the_way, may_be_over, with_overs
from gradtape.ir.dtypes import DType, bfloat16, float32, float64
from gradtape.ir.graph import Graph, Value
from gradtape.kernels.compiled import Compiler
from gradtape.kernels.render import render
from gradtape.kernels.spelling import spells
from gradtape.ops.fused import Fused
from gradtape.ops.op import emit
from gradtape.transforms.fuse import fuse, fused_nodes
from tests.kernels import interpreted
from tests.kernels.programs import graphs
from tests.kernels.steps import given_of, kernel_of
from tests.op_table.running import node_by_node, results_of

SHAPE = (6, 5)


def blend(x: Value, y: Value) -> Value:
    return emit("add", emit("multiply", x, x), emit("exp", y))


def pairs_of(graph: Graph) -> set[tuple[int, int]]:
    (node,) = fused_nodes(fuse(graph, spells))
    cluster = by_the_way(node.step.params["cluster"])
    return {(j, k) for j in range(len(cluster.writes)) for k in range(len(node.inputs)) if may_be_over(cluster, j, k)}


def two(f: Callable[[Value, Value], list[Value]], *shapes: tuple[int, ...]) -> Graph:
    x, y = given_of(*(shapes or (SHAPE, SHAPE)))
    return Graph([x, y], f(x, y))


def transposed(v: Value) -> Value:
    return emit("transpose", v, perm=(1, 0))


CASES: dict[str, tuple[Graph, set[tuple[int, int]]]] = {
    "either operand": (two(lambda x, y: [blend(x, y)]), {(0, 0), (0, 1)}),
    "two results": (two(lambda x, y: [blend(x, y), emit("tanh", blend(x, y))]), {(0, 0), (0, 1), (1, 0), (1, 1)}),
    "a row, which every round reads": (two(lambda x, y: [blend(x, y)], SHAPE, (5,)), {(0, 0)}),
    "an operand read in two orders": (
        two(lambda x, y: [emit("add", blend(x, y), transposed(x))], (5, 5), (5, 5)),
        {(0, 1)},
    ),
    "an operand in another order": (two(lambda x, y: [blend(transposed(x), y)], (5, 6), SHAPE), {(0, 1)}),
    "sums, which need a row for each element": (
        two(lambda x, y: [emit("divide", blend(x, y), emit("reduce_sum", x, axes=(1,), keepdims=True))]),
        set(),
    ),
    "a sum by the way": (
        two(lambda x, y: [blend(x, y), emit("reduce_sum", blend(x, y), axes=(0,), keepdims=False)]),
        {(0, 0), (0, 1)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_which_results_may_be_over_which_operands(name: str) -> None:
    graph, pairs = CASES[name]
    assert pairs_of(graph) == pairs


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(graphs(), st.integers(0, 5))
def test_results_are_the_same_bit_for_bit(drawn: tuple[Graph, list[Any]], pick: int) -> None:
    graph, arrays = drawn
    fused = fuse(graph, spells)
    values = dict(zip(map(id, fused.inputs), arrays, strict=True))
    for node in fused.nodes:
        operands = [values[id(v)] for v in node.inputs]
        found = results_of(node.step, operands)
        values.update((id(v), np.asarray(a)) for v, a in zip(node.outputs, found, strict=True))
        if not isinstance(node.step.op, Fused):
            continue
        cluster = by_the_way(node.step.params["cluster"])
        same = [(j, k) for j, r in enumerate(node.outputs) for k, v in enumerate(node.inputs) if v.aval is r.aval]
        pairs = [(j, k) for j, k in same if may_be_over(cluster, j, k)]
        if not pairs:
            continue
        j, k = pairs[pick % len(pairs)]
        kernel, shapes = render(with_overs(cluster, {j: k})), [v.aval.dims for v in node.outputs]
        found = interpreted.run(kernel, cluster, operands, shapes, 2, {j: k})
        for a, v in zip(found, node.outputs, strict=True):
            wanted = values[id(v)].astype(np.float32) if v.aval.dtype.is_half else values[id(v)]
            assert np.array_equal(a.astype(wanted.dtype), wanted, equal_nan=wanted.dtype.kind == "f")


@pytest.mark.parametrize("dtype", [float32, float64, bfloat16])
def test_the_kernel_writes_into_the_operand(fast: Compiler, dtype: DType) -> None:
    shape = (300, 7)
    x, y = given_of(shape, shape, dtype=dtype)
    plain = kernel_of(Graph([x, y], [blend(x, y), emit("negative", blend(x, y))]))
    kernel = plain.writing_over([(0, 1), (1, 1), (1, 0)])
    assert kernel.over == {0: 1, 1: 0}
    arrays = [np.random.default_rng(k).normal(size=shape).astype(dtype.numpy_dtype) for k in range(2)]
    wanted = plain(*arrays)
    operands = [a.copy() for a in arrays]
    found = kernel(*operands)
    assert found[0] is operands[1] and found[1] is operands[0]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a.astype(np.float32), b.astype(np.float32))


def test_arrays_in_another_order_or_read_only_are_copied(fast: Compiler) -> None:
    x, y = given_of(SHAPE, SHAPE, dtype=float64)
    kernel = kernel_of(Graph([x, y], [blend(x, y)])).writing_over([(0, 0)])
    rng = np.random.default_rng(0)
    bent, other = rng.normal(size=SHAPE[::-1]).T, rng.normal(size=SHAPE)
    sealed = np.ascontiguousarray(bent)
    sealed.flags.writeable = False
    for operand in (bent, sealed):
        before = operand.copy()
        (found,) = kernel(operand, other)
        np.testing.assert_allclose(found, before * before + np.exp(other), 1e-12)
        np.testing.assert_array_equal(operand, before)


def test_a_kernel_that_may_run_again_keeps_its_operands() -> None:
    x, y = given_of(SHAPE, SHAPE)
    kernel = kernel_of(Graph([x, y], [emit("sin", blend(x, y))]))
    assert kernel.writing_over([(0, 0)]) is kernel


# ------------------------------------------------------------------ in programs


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, fast: Compiler) -> list[tuple[int, ...]]:
    """The shapes of the arrays that kernels make; small ones count too."""
    found: list[tuple[int, ...]] = []
    empty = clusters.empty

    def counted(shape: tuple[int, ...], dtype: Any) -> Any:
        found.append(shape)
        return empty(shape, dtype)

    monkeypatch.setattr(program, "OVER", 1)
    monkeypatch.setattr(clusters, "empty", counted)
    monkeypatch.setattr(FusedKernel, "__call__", lambda self, *arrays: _shared(self, arrays))
    return found


def _shared(kernel: FusedKernel, arrays: Any) -> Any:
    """The kernel as it runs on large arrays."""
    if kernel.native is None:
        kernel._look()
    assert kernel.native is not None
    return kernel.native.shared(*arrays)


def step(matrix: Value, m: Value) -> tuple[Value, Value]:
    """The update of a mean by a product of matrices, and another number of it."""
    g = emit("contract", matrix, matrix, subscripts="ij,jk->ik")
    new = emit("add", m, emit("multiply", emit("subtract", g, m), emit("tanh", g)))
    return g, new


def run(graph: Graph) -> list[Any]:
    fused = fuse(graph, spells)
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=v.aval.dims) for v in graph.inputs]
    before = [a.copy() for a in arrays]
    found = compile_graph(fused, lower)(*arrays)
    for a, b in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(found, node_by_node(graph, before), strict=True):
        np.testing.assert_allclose(a, b, 1e-12, 1e-12)
    return list(found)


def test_a_product_that_ends_in_a_kernel_is_written_over(made: list[tuple[int, ...]]) -> None:
    matrix, m = given_of((5, 5), (5, 5))
    _, new = step(matrix, m)
    run(Graph([matrix, m], [new]))
    assert made == []


def test_operands_of_the_program_and_its_results_are_not(made: list[tuple[int, ...]]) -> None:
    matrix, m = given_of((5, 5), (5, 5))
    g, new = step(matrix, m)
    run(Graph([matrix, m], [new, g]))
    assert made == [(5, 5)]
    run(Graph([matrix, m], [emit("tanh", blend(matrix, m))]))
    assert made == [(5, 5)] * 2


def test_what_a_later_step_needs_is_not(made: list[tuple[int, ...]]) -> None:
    matrix, m = given_of((5, 5), (5, 5))
    g, new = step(matrix, m)
    later = emit("contract", g, new, subscripts="ij,jk->ik")
    run(Graph([matrix, m], [later]))
    assert made == [(5, 5)]


def test_what_a_view_shows_is_not(made: list[tuple[int, ...]]) -> None:
    """The same product as it lies, and its rows from the last on: two operands in one memory."""
    matrix, m = given_of((4, 4), (4, 4))
    g, new = step(matrix, m)
    rows = emit("slice", g, emit("positions", value=(3,)), axes=(0,), sizes=(4,), strides=(-1,))
    run(Graph([matrix, m], [emit("add", new, emit("exp", rows))]))
    assert made and set(made) == {(4, 4)}


def test_a_value_that_passes_through_a_kernel_is_not(made: list[tuple[int, ...]]) -> None:
    """Op by op, what `stop_gradient` makes is its operand."""
    x, y = given_of((5, 5), (5, 5))
    through = emit("stop_gradient", x)
    first = emit("reduce_sum", emit("multiply", emit("exp", through), y), axes=(0, 1), keepdims=False)
    graph = Graph([x, y], [emit("exp", emit("multiply", through, first)), first])
    arrays = [np.random.default_rng(k).normal(size=(5, 5)) for k in range(2)]
    before = arrays[0].copy()
    compile_graph(fuse(graph, spells), lower)(*arrays)
    np.testing.assert_array_equal(arrays[0], before)


def test_small_arrays_are_left_alone() -> None:
    x = Value(aval((4, 4), float64))
    g = emit("contract", x, x, subscripts="ij,jk->ik")
    memory = program.Memory(graph := fuse(Graph([x], [emit("exp", emit("negative", g))]), spells), graph.nodes, {})
    assert [memory.pairs(at) for at, n in enumerate(graph.nodes) if isinstance(n.step.op, Fused)] == [[]]
