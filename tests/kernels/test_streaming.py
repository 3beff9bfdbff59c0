"""Large results past the cache: the same bits, and no vector that a line of the cache does not hold."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from gradtape.backends import clusters
from gradtape.backends.clusters import POLICY, FusedKernel
from gradtape.backends.cpu import lower
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, float16, float32, float64, int32
from gradtape.ir.graph import Graph, Value
from gradtape.ir.index import Index
from gradtape.kernels import loops, memory, outer, streaming
from gradtape.kernels.arguments import INTEGER, Array
from gradtape.kernels.compiled import OPTIONS
from gradtape.kernels.memory import LINE, POOL
from gradtape.kernels.objects import optimized
from gradtape.kernels.requests import TextRequest
from gradtape.kernels.spelling import spells
from gradtape.kernels.streaming import is_streamed, past_the_cache
from gradtape.ops.op import emit
from gradtape.transforms.fuse import fuse, fused_nodes

pytestmark = pytest.mark.host("kernels of the host")

ROWS, COLUMNS = 1 << 11, 1 << 10  # of float32: as many bytes as a large result has


def slopes(n: int, dtype: DType) -> Graph:
    """Two elementwise results."""
    x, y = Value(aval((n,), dtype)), Value(aval((n,), dtype))
    z = emit("multiply", emit("subtract", emit("square", x), y), x)
    return Graph([x, y], [z, emit("add", emit("multiply", z, z), y)])


def kernel_of(graph: Graph) -> FusedKernel:
    (node,) = fused_nodes(fuse(graph, spells, 1))
    found: FusedKernel = lower(node.step)
    return found


def given(graph: Graph) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=v.aval.dims).astype(v.aval.dtype.numpy_dtype) for v in graph.inputs]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("n", [3, 16, 63, 64, 1000, 4099])
def test_the_same_bits(n: int, dtype: DType, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the pool has a block that does not begin with a line, and from one call to the next."""
    monkeypatch.setattr(POLICY, "asked", "now")
    monkeypatch.setattr(memory, "LARGE", 256)
    for module in (clusters, loops):
        monkeypatch.setattr(module, "SHARE", 64)
    monkeypatch.setattr(loops, "threads", lambda: threads)
    graph = slopes(n, dtype)
    arrays = given(graph)
    plain = kernel_of(graph)
    wanted = plain(*arrays)
    monkeypatch.setattr(streaming, "LARGE", 0)
    streamed = kernel_of(slopes(n, dtype))
    assert streamed.streamed and not plain.streamed
    POOL.clear()
    whole = np.empty(n * dtype.numpy_dtype.itemsize + 2 * LINE, np.uint8)
    start = -whole.ctypes.data % LINE + dtype.numpy_dtype.itemsize
    POOL.give(whole[start : start + n * dtype.numpy_dtype.itemsize])
    for _ in range(3):
        results = streamed(*arrays)
        for a, b in zip(results, wanted, strict=True):
            assert a.ctypes.data % LINE == 0
            np.testing.assert_array_equal(a, b)
        del results, a
    POOL.clear()


def test_vectors_go_past_the_cache_from_their_own_beginnings_on() -> None:
    kernel, _ = kernel_of(slopes(ROWS * COLUMNS, float32)).ask(False)
    source = clusters.KernelSource(kernel, (float32, float32), True)
    text = kernel.text.replace("@(", "_streamed(")
    request = TextRequest(
        "kernel_streamed", text, source.parameters, source.answer, source.vectors, source.streamed, OPTIONS
    )
    module, _ = optimized(request.function(), request.name, request.parameters, request.answer, request.options)
    before, after = str(module), str(past_the_cache(module))
    stores = re.findall(r"store <(\d+) x float> .*?, align (\d+).*?(?:, !nontemporal !\d+)?$", after, re.MULTILINE)
    assert stores and "nontemporal" not in before
    assert all(int(align) == min(LINE, 4 * int(count)) for count, align in stores)
    assert after.count("!nontemporal") == len(stores)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lines", [1, 2, 3, 4, 5, 8, 9, 17, 33])
def test_outer_products_of_whole_lines_go_past_the_cache(
    lines: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Innermost loops of any number of lines, of which vectors may be several or the compiler's remainder."""
    used: list[bool] = []

    def soon(dtype: Any, streamed: bool) -> Any:
        used.append(streamed)
        return outer._outer.of(dtype, streamed)

    monkeypatch.setattr(outer._outer, "soon", soon)
    monkeypatch.setattr(outer, "PAYS", 1)
    monkeypatch.setattr(outer, "LARGE", 1)
    rng = np.random.default_rng(lines)
    width = lines * LINE // np.dtype(dtype).itemsize
    a, b = rng.normal(size=(3, 1, width)).astype(dtype), rng.normal(size=(3, 5, 1)).astype(dtype)
    whole = memory.fresh(15 * width * a.itemsize + LINE)
    for begin in (0, a.itemsize):
        out = whole[begin : begin + 15 * width * a.itemsize].view(dtype).reshape(3, 5, width)
        out[...] = np.nan
        assert outer.outer(out, a, b)
        np.testing.assert_array_equal(out, a * b)
    assert used == [True, False]
    out = np.empty((3, 5, width - 1), dtype)
    assert outer.outer(out, a[..., 1:], b) and used[-1] is False
    np.testing.assert_array_equal(out, a[..., 1:] * b)


def test_stores_of_the_outer_product_are_all_known_to_begin_with_a_vector() -> None:
    parameters = [Array(np.dtype(np.float32), 4, written=True), *(Array(np.dtype(np.float32), k) for k in (3, 2))]
    module, _ = optimized(outer._outer.function, "outer_streamed", [*parameters, INTEGER, INTEGER], None, loops.OPTIONS)
    stores = re.findall(r"store <\d+ x float>.*", str(past_the_cache(module)))
    assert stores and all("!nontemporal" in s for s in stores)


def _counted(n: int) -> Graph:
    x = Value(aval((n,), float32))
    line = emit("cast", emit("positions", value=Index(range(n))), dtype=float32)
    return Graph([x], [emit("multiply", emit("add", x, line), x)])


def _of_rows(reduced: bool) -> Graph:
    x, y = Value(aval((ROWS, COLUMNS), float32)), Value(aval((COLUMNS,), float32))
    z = emit("multiply", emit("square", x), y)
    return Graph([x, y], [z, emit("reduce_sum", z, axes=(0, 1), keepdims=False)] if reduced else [z])


ORDINARY = {
    "small": slopes(ROWS * COLUMNS - 1, float32),
    "halves": slopes(2 * ROWS * COLUMNS, float16),
    "integers": slopes(ROWS * COLUMNS, int32),
    "positions that count": _counted(ROWS * COLUMNS),
    "several loops": _of_rows(reduced=False),
    "a sum beside": _of_rows(reduced=True),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_others_are_written_as_usual(name: str) -> None:
    assert not is_streamed(kernel_of(ORDINARY[name]).cluster)


def test_results_over_operands_are_written_as_usual() -> None:
    plain = kernel_of(slopes(ROWS * COLUMNS, float32))
    assert plain.streamed and not plain.writing_over([(0, 0)]).streamed
