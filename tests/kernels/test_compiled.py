"""Kernels compiled by Numba: the numbers of programs op by op, memory that is never left, vector code, and threads."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gradtape.backends import clusters
from gradtape.backends.clusters import FusedKernel, Native
from gradtape.backends.formula import HALF
from gradtape.ir.cluster import by_the_way
from gradtape.ir.dtypes import DType, float32, float64, int64
from gradtape.ir.graph import Graph
from gradtape.kernels.compiled import Compiler, KernelSource, Ticket, request_of
from gradtape.kernels.memory import POOL, empty
from gradtape.kernels.objects import optimized
from gradtape.kernels.render import render
from gradtape.kernels.spelling import spells
from gradtape.ops.op import constant, emit
from gradtape.runtime.state import STATE
from gradtape.transforms.differentiate import vjp
from gradtape.transforms.fuse import fuse, fused_nodes
from tests.kernels import compiled as assembler
from tests.kernels.programs import graphs
from tests.kernels.steps import drawn, given_of, kernel_of, wide
from tests.op_table.running import node_by_node

pytestmark = pytest.mark.usefixtures("strict")


def both(kernel: FusedKernel, arrays: list[Any]) -> tuple[Any, Any]:
    """What the compiled kernel gives, and NumPy op by op."""
    with np.errstate(all="ignore"):
        wanted = STATE.run(kernel.program, *arrays)
    found = STATE.run(kernel, *arrays)
    assert isinstance(kernel.native, Native)
    return found, wanted


# ------------------------------------------------------------------ the same numbers


def softmax_and_its_slope(dtype: DType) -> Graph:
    logits, labels = given_of((5, 37), (5, 37), dtype=dtype)
    low = emit("subtract", logits, emit("reduce_max", logits, axes=(1,), keepdims=True))
    total = emit("log", emit("reduce_sum", emit("exp", low), axes=(1,), keepdims=True))
    loss = emit("reduce_sum", emit("multiply", labels, emit("subtract", total, low)), axes=(1,), keepdims=False)
    return vjp(Graph([logits, labels], [loss]))


def layer_norm_and_its_slope(dtype: DType) -> Graph:
    x, scale, shift = given_of((6, 33), (33,), (33,), dtype=dtype)
    mean = emit("reduce_mean", x, axes=(1,), keepdims=True)
    centred = emit("subtract", x, mean)
    variance = emit("reduce_mean", emit("square", centred), axes=(1,), keepdims=True)
    inverse = emit("rsqrt", emit("add", variance, constant(1e-3, dtype)))
    return vjp(
        Graph([x, scale, shift], [emit("add", emit("multiply", emit("multiply", centred, inverse), scale), shift)])
    )


def batch_norm_and_its_slope(dtype: DType) -> Graph:
    x, scale = given_of((40, 7), (7,), dtype=dtype)
    centred = emit("subtract", x, emit("reduce_mean", x, axes=(0,), keepdims=False))
    variance = emit("reduce_mean", emit("square", centred), axes=(0,), keepdims=False)
    inverse = emit("rsqrt", emit("add", variance, constant(1e-3, dtype)))
    return vjp(Graph([x, scale], [emit("multiply", emit("multiply", centred, inverse), scale)]))


def chain(dtype: DType) -> Graph:
    x, y = given_of((300,), (), dtype=dtype)
    v = x
    for name in ("tanh", "exp", "sin", "cos", "sigmoid", "log1p", "softplus", "atan", "erf", "expm1", "sqrt", "square"):
        v = emit(name, emit("multiply", v, y))
    return vjp(Graph([x, y], [v]))


def transposed(dtype: DType) -> Graph:
    a, b = given_of((17, 9), (9, 17), dtype=dtype)
    both = emit("add", emit("exp", a), emit("transpose", emit("tanh", b), perm=(1, 0)))
    return vjp(Graph([a, b], [both, emit("reduce_max", emit("square", both), axes=(0,), keepdims=False)]))


def counted(dtype: DType) -> Graph:
    """Comparisons, whole numbers and choices."""
    (x,) = given_of((8, 21), dtype=dtype)
    positive = emit("greater", x, constant(0, dtype))
    count = emit("reduce_sum", emit("cast", positive, dtype=int64), axes=(1,), keepdims=True)
    some = emit("reduce_any", positive, axes=(0,), keepdims=False)
    scaled = emit("divide", x, emit("cast", emit("maximum", count, constant(1, int64)), dtype=dtype))
    return Graph([x], [emit("select", positive, scaled, emit("negative", x)), count, some])


def cancelled(dtype: DType) -> Graph:
    """What is NaN where x is not finite, and would be nothing in arithmetic without infinities."""
    (x,) = given_of((6, 40), dtype=dtype)
    difference = emit("subtract", emit("add", x, x), x)
    nothing, once = emit("subtract", x, x), emit("divide", x, x)
    sums = [emit("reduce_sum", v, axes=a, keepdims=False) for v in (nothing, difference) for a in ((0,), (1,), (0, 1))]
    return Graph([x], [*sums, *(emit("reduce_prod", once, axes=a, keepdims=False) for a in ((0,), (1,)))])


GRAPHS: tuple[Callable[[DType], Graph], ...] = (
    softmax_and_its_slope,
    layer_norm_and_its_slope,
    batch_norm_and_its_slope,
    chain,
    transposed,
    counted,
    cancelled,
)


@pytest.mark.parametrize("odd", [False, True], ids=["numbers", "infinities and NaN"])
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("make", GRAPHS, ids=lambda f: f.__name__)
def test_compiled_kernels_give_the_numbers_of_numpy(make: Callable[[DType], Graph], dtype: DType, odd: bool) -> None:
    graph = make(dtype)
    arrays = drawn(graph, odd=odd)
    fused = fuse(graph, spells)
    with np.errstate(all="ignore"):
        wanted = node_by_node(graph, arrays)
        found = node_by_node(fused, arrays)
    steps = list(fused_nodes(fused))
    assert steps and all(isinstance(n.step.lowered["cpu"].native, Native) for n in steps)
    for a, b in zip(found, wanted, strict=True):
        assert np.shape(a) == np.shape(b) and np.asarray(a).dtype == np.asarray(b).dtype
        scale = np.max(np.abs(b), where=np.isfinite(b), initial=1.0) if np.asarray(b).dtype.kind == "f" else 1
        np.testing.assert_allclose(a, b, rtol=300 * np.finfo(dtype.numpy_dtype).eps, atol=300 * scale * _eps(dtype))


def _eps(dtype: DType) -> float:
    return float(np.finfo(dtype.numpy_dtype).eps)


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(graphs(8))
def test_random_graphs_bit_for_bit(drawn_graph: tuple[Graph, list[Any]]) -> None:
    graph, arrays = drawn_graph
    with np.errstate(all="ignore"):
        wanted, found = node_by_node(graph, arrays), node_by_node(fuse(graph, spells), arrays)
    for a, b in zip(map(np.asarray, found), map(np.asarray, wanted), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        wide = [x.astype(np.float32) if x.dtype in HALF else x for x in (a, b)]
        assert np.array_equal(*wide, equal_nan=wide[0].dtype.kind == "f"), f"got {a}\nwant {b}\n{graph}"


def test_operands_in_any_layout() -> None:
    x, y = given_of((6, 10), (10,))
    kernel = kernel_of(Graph([x, y], [emit("tanh", emit("add", emit("exp", x), y))]))
    a = np.random.default_rng(0).normal(size=(12, 20))
    line = np.arange(20.0)
    for left in (
        a[::2, ::2],
        a.T[:6, :10],
        np.asfortranarray(a[:6, :10]),
        a[5::-1, 10:0:-1],
        np.broadcast_to(a[0, 0], (6, 10)),
    ):
        for right in (line[::2], line[::-2], line[3:13]):
            found, wanted = both(kernel, [left, right])
            np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)


def test_a_kernel_of_numbers_alone_has_no_operands() -> None:
    """What sums over nothing leave behind."""
    two, three = constant(2.0, float64), constant(3.0, float64)
    kernel = kernel_of(Graph([], [emit("multiply", emit("exp", two), emit("sqrt", three))]))
    (found,), (wanted,) = both(kernel, [])
    assert found == pytest.approx(wanted, rel=1e-14)


def test_results_are_fresh_and_operands_stay() -> None:
    (x,) = given_of((9,))
    kernel = kernel_of(Graph([x], [emit("exp", emit("negative", x))]))
    a = np.arange(9.0)
    a.flags.writeable = False
    (first,), (second,) = kernel(a), kernel(a)
    first[:] = 0
    np.testing.assert_allclose(second, np.exp(-a))


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("large", [1e9, -3e15, 1e30])
def test_angles_beyond_the_limit(dtype: DType, large: float) -> None:
    (x,) = given_of((50,), dtype=dtype)
    kernel = kernel_of(Graph([x], [emit("sin", emit("multiply", x, x)), emit("cos", x)]))
    a = np.linspace(-1, 1, 50).astype(dtype.numpy_dtype)
    for k in (None, 0, 49):
        if k is not None:
            a[k] = large
        found, wanted = both(kernel, [a])
        for f, w in zip(found, wanted, strict=True):
            np.testing.assert_allclose(f, w, rtol=1e-5 if dtype is float32 else 1e-12, atol=1e-6)


def test_long_sums_keep_their_digits() -> None:
    """A sum of a million float32 is carried in float64; NumPy adds in pairs."""
    (x,) = given_of((1, 1_000_003), dtype=float32)
    kernel = kernel_of(Graph([x], [emit("reduce_sum", emit("square", x), axes=(1,), keepdims=False)]))
    a = np.random.default_rng(0).random((1, 1_000_003), np.float32)
    exact = np.sum(np.square(a.astype(np.float64)))
    assert abs(float(kernel(a)[0][0]) - exact) < 2e-7 * exact


# ------------------------------------------------------------------ threads


@pytest.mark.parametrize("name", ["rows", "pointwise", "columns", "sinks"])
def test_parts_put_together_are_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of(wide((37, 29))[name])
    arrays = drawn(wide((37, 29))[name])
    one, wanted = both(kernel, arrays)
    for count in (2, 3, 8):
        monkeypatch.setattr(clusters, "share", _sharing(count))
        assert kernel.native is not None
        kernel.run = kernel.native.shared
        many = kernel(*arrays)
        again = kernel(*arrays)
        for a, b, c, w in zip(one, many, again, wanted, strict=True):
            if name == "sinks":
                np.testing.assert_allclose(a, b, rtol=1e-6)
            else:
                np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(b, c)
            np.testing.assert_allclose(b, w, rtol=1e-5, atol=1e-6)


def _sharing(count: int) -> Callable[..., None]:
    """So many threads, of which the last one begins first."""

    def share(rows: int, work: int, run: Callable[[int, int], None]) -> None:
        cuts = [rows * k // count for k in range(count + 1)]
        others = [threading.Thread(target=run, args=(a, b)) for a, b in itertools.pairwise(cuts) if a < b]
        for t in reversed(others):
            t.start()
        for t in others:
            t.join()

    return share


def test_eight_threads_ask_and_run_at_once(strict: Compiler) -> None:
    graph = wide((31, 23))["sinks"]
    kernel = kernel_of(graph)
    given_arrays = [drawn(graph, seed) for seed in range(8)]
    with np.errstate(all="ignore"):
        wanted = [STATE.run(kernel.program, *a) for a in given_arrays]
    faults: list[int] = []
    gate = threading.Barrier(8)

    def work(k: int) -> None:
        gate.wait()
        for _ in range(30):
            found = kernel(*given_arrays[k])
            if not all(np.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(found, wanted[k], strict=True)):
                faults.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults
    assert strict.compiled + strict.loaded == 1


def test_in_the_background_nobody_waits(monkeypatch: pytest.MonkeyPatch, strict: Compiler) -> None:
    monkeypatch.setattr(clusters.POLICY, "compile", "background")
    graph = wide((11, 13))["pointwise"]
    kernel, arrays = kernel_of(graph), drawn(graph)
    first = kernel(*arrays)
    assert kernel.asked is None, "one run of a small step is worth no kernel"
    kernel.spent = 1.0
    held = threading.Event()
    strict.submit(held.wait)
    second = kernel(*arrays)
    assert kernel.asked is not None and kernel.native is None
    held.set()
    kernel.asked[1].wait()
    third = kernel(*arrays)
    assert kernel.native is not None
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_allclose(first[0], third[0], rtol=1e-6)


def test_blocks_of_the_time_before_a_kernel_are_given_back(monkeypatch: pytest.MonkeyPatch, strict: Compiler) -> None:
    monkeypatch.setattr(clusters.POLICY, "compile", "background")
    graph = wide((11, 13))["rows"]
    kernel, arrays = kernel_of(graph), drawn(graph)
    kernel.spent = 1.0
    held = threading.Event()
    strict.submit(held.wait)
    kernel(*arrays)
    empty((1 << 21,), np.dtype(np.uint8))
    assert POOL.bytes >= 1 << 21
    assert kernel.asked is not None and kernel.native is None
    held.set()
    kernel.asked[1].wait()
    found = kernel(*arrays)
    assert kernel.native is not None and POOL.bytes == 0
    del found


def test_never_means_never(monkeypatch: pytest.MonkeyPatch, strict: Compiler) -> None:
    monkeypatch.setattr(clusters.POLICY, "compile", "never")
    kernel = kernel_of(wide((11, 13))["pointwise"])
    kernel.spent = 1e9
    kernel(*drawn(wide((11, 13))["pointwise"]))
    assert kernel.asked is None and not strict.tickets


# ------------------------------------------------------------------ machine code


def assembler_of(ticket: Ticket) -> str:
    """The code of a kernel as text."""
    request = request_of(ticket)
    module, target = optimized(request.function(), request.name, request.parameters, request.answer, request.options)
    return str(target.emit_assembly(module))


@pytest.mark.parametrize("name", ["rows", "pointwise", "columns", "sinks"])
def test_inner_loops_are_vector_code(name: str, fast: Compiler) -> None:
    (n,) = fused_nodes(fuse(wide((64, 64))[name], spells))
    cluster = by_the_way(n.step.params["cluster"])
    source = KernelSource(render(cluster), tuple(r.access.dtype for r in cluster.reads))
    text = assembler_of(fast.request(source))
    if "ymm" not in text and "zmm" not in text:
        pytest.skip("reads the assembler of x86-64 with wide registers")
    loops = assembler.inner_loops(text)
    assert any("vfmadd" in body and assembler.PACKED.search(body) for body in loops), "tanh is no vector code"


def test_a_kernel_that_leaves_its_memory_is_seen() -> None:
    """The checks of this file see it."""
    (node,) = fused_nodes(fuse(wide((8, 8))["pointwise"], spells))
    cluster = node.step.params["cluster"]
    kernel = render(cluster)
    broken = dataclasses.replace(kernel, text=kernel.text.replace("for i in range(n1)", "for i in range(n1 + 1)"))
    assert broken.text != kernel.text
    source = KernelSource(broken, tuple(r.access.dtype for r in cluster.reads))
    function = clusters.COMPILER.request(source).wait()
    x, b, out = np.zeros(64, np.float32), np.zeros(8, np.float32), np.zeros(64, np.float32)
    with pytest.raises(RuntimeError, match="leave its arrays"):
        function(out, x, b, *broken.integers, 0, 8)


def test_what_cannot_be_compiled_says_so() -> None:
    (node,) = fused_nodes(fuse(wide((8, 8))["pointwise"], spells))
    cluster = node.step.params["cluster"]
    kernel = render(cluster)
    broken = dataclasses.replace(kernel, text=kernel.text + "\n    nonsense(w0)")
    ticket = clusters.COMPILER.request(KernelSource(broken, tuple(r.access.dtype for r in cluster.reads)))
    with pytest.raises(RuntimeError, match="could not be compiled") as caught:
        ticket.wait()
    assert "nonsense(w0)" in str(caught.value)
    kernel_of(wide((8, 8))["pointwise"])(*drawn(wide((8, 8))["pointwise"]))  # the thread goes on
