"""Compiled kernels as programs call them: in a straight line where one thread does the work, else shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradtape.backends import clusters
from gradtape.backends.clusters import POLICY, FusedKernel
from gradtape.backends.cpu import lower
from gradtape.backends.program import compile_graph
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, float16, float32, float64
from gradtape.ir.graph import Graph, Value
from gradtape.kernels import loops
from gradtape.kernels.spelling import spells
from gradtape.ops.op import emit
from gradtape.transforms.fuse import fuse
from tests.op_table.running import node_by_node

pytestmark = pytest.mark.host("kernels of the host")


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POLICY, "asked", "now")


def slope(shape: tuple[int, ...], dtype: DType) -> Graph:
    """A gradient like that of a layer: an array, its sums along rows and columns, and a number."""
    x, y = Value(aval(shape, dtype)), Value(aval(shape, dtype))
    z = emit("multiply", emit("tanh", x), y)
    sums = [emit("reduce_sum", z, axes=axes, keepdims=False) for axes in ((0,), (1,), (0, 1))]
    return Graph([x, y], [z, *sums])


def given(graph: Graph) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=v.aval.dims).astype(v.aval.dtype.numpy_dtype) for v in graph.inputs]


def assert_close(found: Any, wanted: Any) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        tolerance = 2e-2 if a.dtype == np.float16 else 1e-4
        np.testing.assert_allclose(np.float64(a), np.float64(b), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [float16, float32, float64], ids=str)
@pytest.mark.parametrize("shape", [(3, 5), (64, 70), (0, 4)], ids=str)
def test_results_are_those_of_numpy(
    shape: tuple[int, ...], dtype: DType, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "SHARE", 64)
    monkeypatch.setattr(loops, "SHARE", 64)
    monkeypatch.setattr(loops, "threads", lambda: threads)
    graph = slope(shape, dtype)
    arrays = given(graph)
    before = [a.copy() for a in arrays]
    program = compile_graph(fuse(graph, spells, 1), lower)
    for _ in range(2):
        assert_close(program(*arrays), node_by_node(graph, arrays))
    for a, b in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("threads", [1, 2])
def test_results_over_operands(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "SHARE", 64)
    monkeypatch.setattr(loops, "SHARE", 64)
    monkeypatch.setattr(loops, "threads", lambda: threads)
    graph = slope((40, 50), float32)
    (node,) = fuse(graph, spells, 1, sinks=True).nodes
    kernel = lower(node.step).writing_over([(0, 1)])
    arrays = given(graph)
    wanted = node_by_node(graph, arrays)
    operands = [arrays[graph.inputs.index(v)] for v in node.inputs]
    over = kernel.over[0]
    results = kernel(*operands)
    assert results[0] is operands[over]
    assert_close(results, wanted)


def test_a_kernel_takes_its_place_in_each_program_once_it_is_there() -> None:
    graph = slope((3, 5), float32)
    fused = fuse(graph, spells, 1)
    programs = [compile_graph(fused, lower) for _ in range(2)]
    held = [[n for n, f in p.__globals__.items() if isinstance(f, FusedKernel)] for p in programs]
    assert all(held)
    arrays = given(graph)
    assert_close(programs[0](*arrays), node_by_node(graph, arrays))
    for p, names in zip(programs, held, strict=True):
        assert not any(isinstance(p.__globals__[n], FusedKernel) for n in names)
        assert_close(p(*arrays), node_by_node(graph, arrays))
    later = compile_graph(fused, lower)
    assert not any(isinstance(f, FusedKernel) for f in later.__globals__.values())
