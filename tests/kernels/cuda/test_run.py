"""Rendered CUDA kernels run on the emulated device give the numbers of the CPU op by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gradtape.backends.formula import HALF
from gradtape.ir.aval import aval
from gradtape.ir.cluster import Access, Cluster, Loop, Operation, Read, Write
from gradtape.ir.dtypes import DType, bfloat16, bool_, complex64, float16, float32, float64, int8, int32, int64, uint8
from gradtape.ir.graph import Graph, Value
from gradtape.kernels import cuda_body, cuda_elementwise, cuda_extents, cuda_rows, cuda_stages, cuda_teams, cuda_tiles
from gradtape.kernels.cuda_launch import CudaProgram
from gradtape.kernels.cuda_render import render_cuda
from gradtape.kernels.cuda_spelling import spells_cuda
from gradtape.ops.op import Op, emit
from gradtape.transforms.fuse import fuse
from tests.kernels.cuda.running import Emulated, rendered
from tests.kernels.cuda.table import Entry, entries, held, kernels
from tests.kernels.programs import graphs
from tests.kernels.steps import drawn, given_of, wide
from tests.kernels.test_compiled import GRAPHS
from tests.kernels.test_render import SINGLE, drawn_for
from tests.op_table.running import node_by_node

GROUPS = 12
EPSILON = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
ULPS = 64  # of results that are sums and products of some roundings
# A function of a half that is rounded once may answer a question otherwise than one that is rounded in between.
ROUNDED_BETWEEN = ("float16", "bfloat16")


@pytest.fixture(scope="module")
def emulated() -> Emulated:
    return Emulated()


def epsilon(dtype: Any) -> float:
    return EPSILON.get(dtype.name) or float(np.finfo(dtype).eps)


def assert_near(found: Any, wanted: Any, about: object, ulps: float = ULPS) -> None:
    """The same dtype and shape; whole numbers exactly, others but for some units in the last place of the largest."""
    a, b = np.asarray(found), np.asarray(wanted)
    assert (a.dtype, a.shape) == (b.dtype, b.shape), about
    if b.dtype.kind not in "fc" and b.dtype not in HALF:
        np.testing.assert_array_equal(a, b, err_msg=str(about))
        return
    eps = epsilon(b.dtype)
    a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (a, b))
    scale = np.max(np.abs(b), where=np.isfinite(b), initial=1.0)
    np.testing.assert_allclose(a, b, rtol=ulps * eps, atol=ulps * eps * scale, err_msg=str(about))


def compare(emulated: Emulated, graph: Graph, arrays: Sequence[Any], about: object, ulps: float = ULPS) -> None:
    with np.errstate(all="ignore"):
        wanted = node_by_node(graph, arrays)
        found = emulated.graph(fuse(graph, spells_cuda), arrays)
    for a, b in zip(found, wanted, strict=True):
        assert_near(a, b, about, ulps)


# ------------------------------------------------------------------ every op


def refused(entry: Entry) -> bool:
    """Whether the host has no result: integers to negative powers."""
    try:
        with np.errstate(all="ignore"):
            node_by_node(entry.graph, entry.arrays)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_op_of_the_table(emulated: Emulated, group: int) -> None:
    """Each op in each dtype, and its derivatives, as kernels of their own."""
    ops: list[Op] = held()[group::GROUPS]
    found = [(e, e.fused) for op in ops for e in entries(op) if not refused(e)]
    emulated.compile_all([g for _, g in found])
    ran = 0
    for entry, fused in found:
        with np.errstate(all="ignore"):
            wanted = node_by_node(entry.graph, entry.arrays)
            results = emulated.graph(fused, entry.arrays)
        ran += len(kernels(fused))
        for a, b in zip(results, wanted, strict=True):
            assert_near(a, b, entry.about)
    assert ran > 4 * len(ops)


@pytest.mark.parametrize("dtype", [int8, int32, int64, uint8], ids=str)
def test_quotients_of_integers_that_have_none(emulated: Emulated, dtype: DType) -> None:
    """By 0 it is 0, where the host raises an error; the smallest by -1 is itself, as all else wraps around."""
    x, y = given_of((4,), (4,), dtype=dtype)
    names = ("floordiv", "floormod", "truncatediv", "truncatemod")
    graph = Graph([x, y], [emit(name, x, y) for name in names])
    low, minus = (dtype.min, -1) if dtype.kind == "i" else (3, 1)
    arrays = [np.array(a, dtype.numpy_dtype) for a in ((5, 0, low, 7), (0, 0, minus, 2))]
    found = emulated.graph(fuse(graph, spells_cuda, 1), arrays)
    for name, a in zip(names, found, strict=True):
        quotient = name.endswith("div")
        np.testing.assert_array_equal(a, np.array([0, 0, low if quotient else 0, 3 if quotient else 1], a.dtype), name)


def test_the_sum_of_nothing(emulated: Emulated) -> None:
    """A row without elements has the number that changes nothing."""
    code = (Operation("read", (), float32, 0), Operation("reduce", (0,), float32, "max"))
    read, write = Read(0, Access(float32, (0, 1))), Write(1, Access(float32, (1, 0)), (True, False))
    cluster = Cluster((Loop(3, False), Loop(0, True)), (read,), code, (write,))
    (found,) = emulated.run(rendered(cluster), [np.zeros((3, 0), np.float32)], [((3,), np.float32)])
    np.testing.assert_array_equal(found, np.full(3, -np.inf, np.float32))


# ------------------------------------------------------------------ several ops


@pytest.mark.parametrize("odd", [False, True], ids=["numbers", "infinities and NaN"])
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("make", GRAPHS, ids=lambda f: f.__name__)
def test_programs(emulated: Emulated, make: Callable[[DType], Graph], dtype: DType, odd: bool) -> None:
    graph = make(dtype)
    compare(emulated, graph, drawn(graph, odd=odd), make.__name__, 300)


SHAPES = ((37, 29), (300, 64), (60, 1000), (700, 12), (12, 5000), (3, 20_000), (1, 40), (40, 1), (2000, 3))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_and_columns_of_all_sizes(emulated: Emulated, shape: tuple[int, ...]) -> None:
    """Threads, parts of warps, warps and blocks that share a row or a column, on the chip and read again."""
    made = wide(shape)
    emulated.compile_all([fuse(g, spells_cuda) for g in made.values()])
    for name, graph in made.items():
        compare(emulated, graph, drawn(graph), (name, shape))


REDUCTIONS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((40, 50), (0,)),
    ((40, 50), (1,)),
    ((40, 50), (0, 1)),
    ((6, 30, 20), (1,)),
    ((6, 30, 20), (0, 2)),
    ((6, 30, 20), (0, 1)),
    ((100_000,), (0,)),
    ((50_000, 3), (0,)),
    ((3, 50_000), (1,)),
    ((4, 3000, 6), (1,)),
    ((2, 2, 2, 3000), (1, 3)),
]


@pytest.mark.parametrize("shape, axes", REDUCTIONS, ids=str)
def test_reductions_over_inner_outer_and_middle_axes(
    emulated: Emulated, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    (x,) = given_of(shape, dtype=float32)
    y = emit("square", x)
    for op in ("reduce_sum", "reduce_max"):
        graph = Graph([x], [emit(op, y, axes=axes, keepdims=False)])
        compare(emulated, graph, drawn(graph), (op, shape, axes))


def standardised(shape: tuple[int, ...], axis: int) -> Graph:
    """Of mean 0 and variance 1 along an axis, and both of these: three sweeps."""
    x, scale = given_of(shape, shape[1:] if axis == 0 else (), dtype=float32)
    mean = emit("reduce_mean", x, axes=(axis,), keepdims=True)
    centred = emit("subtract", x, mean)
    variance = emit("reduce_mean", emit("square", centred), axes=(axis,), keepdims=True)
    y = emit("multiply", emit("multiply", centred, emit("rsqrt", variance)), emit("tanh", scale))
    return Graph([x, scale], [y, mean, emit("sqrt", variance)])


@pytest.mark.parametrize("shape, axis", [((3000, 24), 0), ((2, 70_000), 1), ((60_001,), 0), ((2, 2500, 5), 1)], ids=str)
def test_few_long_rounds_are_shared_by_many_blocks(emulated: Emulated, shape: tuple[int, ...], axis: int) -> None:
    """In a kernel for each sweep, whose parts are put together by the next."""
    graph = standardised(shape, axis)
    fused = fuse(graph, spells_cuda, sinks=False)
    launches = [x for n in kernels(fused) for x in rendered(n.step.params["cluster"]).launches]
    assert len(launches) == 3 and all(x.grid >= 4 for x in launches), launches
    arrays = drawn(graph)
    found, again = emulated.graph(fused, arrays), Emulated(seed=5).graph(fused, arrays)
    for a, b, c in zip(found, node_by_node(graph, arrays), again, strict=True):
        assert_near(a, b, (shape, axis))
        np.testing.assert_array_equal(a, c)


def several_sums() -> Graph:
    """Results that are reduced over different axes, of which no kernel does all by the way."""
    x, a, b, c = given_of((40, 24), (40, 1), (24,), (), dtype=float32)
    y = emit("tanh", emit("multiply", emit("add", emit("add", x, a), b), c))
    return Graph(
        [x, a, b, c],
        [
            y,
            emit("reduce_sum", y, axes=(0,), keepdims=False),
            emit("reduce_max", y, axes=(1,), keepdims=True),
            emit("reduce_sum", emit("square", y), axes=(0, 1), keepdims=False),
        ],
    )


def test_sums_over_several_sets_of_axes(emulated: Emulated) -> None:
    graph = several_sums()
    compare(emulated, graph, drawn(graph), "several sums")


def kept_along_a_loop_that_no_pack_lies_along() -> Graph:
    """Needed again after a reduction over everything, written along the first of two reduced loops."""
    x, y, flag = (Value(aval(s, d)) for s, d in (((4,), float32), ((4, 3), float32), ((), bool_)))
    dear = emit("cast", emit("rint", x), dtype=int64)
    total = emit("reduce_sum", emit("cast", y, dtype=int64), axes=(0, 1), keepdims=False)
    return Graph([x, y, flag], [dear, emit("select", flag, dear, total)])


ONE_BY_ONE = (kept_along_a_loop_that_no_pack_lies_along, *SINGLE)


@pytest.mark.parametrize("make", ONE_BY_ONE, ids=lambda f: f.__name__)
def test_single_graphs(emulated: Emulated, make: Callable[[], Graph]) -> None:
    graph = make()
    compare(emulated, graph, drawn_for(graph), make.__name__)


TILES = [(cuda_tiles, "ROW", 8), (cuda_tiles, "LEAST_ELEMENTS", 16), (cuda_tiles, "ENOUGH", 10.0)]
# Sizes from which other ways are taken, so small that the smallest graphs take them.
SMALL = {
    "in parts": [(cuda_teams, "LANE", 1), (cuda_stages, "LONG", 2), (cuda_stages, "fits_on_chip", lambda *_: False)],
    "one round of a block": [(m, "ROUNDS", 1) for m in (cuda_rows, cuda_stages, cuda_teams)],
    "in strips": [(cuda_elementwise, "ENOUGH", 2), (cuda_rows, "CARRIED", 2), (cuda_rows, "CARRYING", 2)],
    "in tiles": [(cuda_elementwise, "ROOM", 0), (cuda_elementwise, "SMALL", 0), *TILES],
    "by warps": [(cuda_teams, "MANY_ROUNDS", 0), (cuda_teams, "THREADS", 32), (cuda_teams, "WARP", 4)],
    "few blocks": [(cuda_rows, "MOST_BLOCKS", 1), (cuda_elementwise, "MOST_BLOCKS", 1), (cuda_body, "LONG", 1)],
    "nothing on the chip": [(cuda_teams, "ROOM", 0)],
}


@pytest.mark.parametrize("ways", ["as they are", *SMALL])
@settings(max_examples=3, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(st.lists(graphs(8), min_size=12, max_size=12))
def test_random_graphs_bit_for_bit(ways: str, drawn_graphs: list[tuple[Graph, list[Any]]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in SMALL.get(ways, ()):
            patch.setattr(module, name, value)
        emulated = Emulated(seed=len(drawn_graphs[0][1]))
        fused = [fuse(graph, spells_cuda, 1, siblings=True) for graph, _ in drawn_graphs]
        emulated.compile_all(fused)
        for (graph, arrays), kernel in zip(drawn_graphs, fused, strict=True):
            with np.errstate(all="ignore"):
                wanted, found = node_by_node(graph, arrays), emulated.graph(kernel, arrays)
            for a, b in zip(map(np.asarray, found), map(np.asarray, wanted), strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                first, second = (x.astype(np.float32) if x.dtype in HALF else x for x in (a, b))
                assert np.array_equal(first, second, equal_nan=first.dtype.kind == "f"), f"got {a}\nwant {b}\n{graph}"


# ------------------------------------------------------------------ ways that small arrays do not take


def programs(graph: Graph, shared: int = 48 * 1024) -> list[CudaProgram]:
    return [render_cuda(n.step.params["cluster"], shared) for n in kernels(fuse(graph, spells_cuda))]


@pytest.mark.parametrize("name", ["rows", "columns", "sinks"])
def test_what_does_not_fit_the_chip_is_read_again(emulated: Emulated, name: str) -> None:
    graph = wide((30, 400))[name]
    (program,) = programs(graph, 128)
    assert all(launch.shared == 0 for launch in program.launches)
    arrays = drawn(graph)
    outputs = [(v.aval.dims, v.aval.dtype.numpy_dtype) for v in graph.outputs]
    found = emulated.run(program, arrays, outputs)
    for a, b in zip(found, node_by_node(graph, arrays), strict=True):
        assert_near(a, b, name)


@pytest.mark.parametrize("name", ["rows", "pointwise", "columns", "sinks"])
def test_places_of_64_bits(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(cuda_body, "LONG", 1)
    graph = wide((37, 28))[name]
    (program,) = programs(graph)
    assert "const int64 n0" in program.text and "const int32 n0" not in program.text
    compare(Emulated(), graph, drawn(graph), name)


@pytest.mark.parametrize("name", ["rows", "pointwise", "sinks"])
def test_operands_that_are_not_aligned(emulated: Emulated, name: str) -> None:
    """Packs of elements are taken only from places that allow it."""
    graph = wide((37, 28))[name]
    (program,) = programs(graph)
    arrays = drawn(graph)
    outputs = [(v.aval.dims, v.aval.dtype.numpy_dtype) for v in graph.outputs]
    straight = emulated.run(program, arrays, outputs)
    assert sum(t.wide_reads for c in emulated.device.counts.launches for t in c.traffic.values())
    moved = emulated.run(program, arrays, outputs, offset=4)
    first = emulated.device.counts.launches[0]
    assert not sum(t.wide_reads for t in first.traffic.values())
    for a, b in zip(moved, straight, strict=True):
        assert_near(a, b, name)


@pytest.mark.parametrize("dtype", [float32, float64, float16, int8, complex64], ids=str)
def test_tiles(emulated: Emulated, monkeypatch: pytest.MonkeyPatch, dtype: DType) -> None:
    """Operands that are repeated along several loops, in tiles of which some are cut off, and with places that are not
    aligned; one operand lies the other way round, one has a number for each row."""
    for name, value in (("ROW", 8), ("LEAST_ELEMENTS", 400), ("MOST_ELEMENTS", 1000)):
        monkeypatch.setattr(cuda_tiles, name, value)
    x, y, z, row = given_of((13, 1, 24), (1, 11, 24), (24, 13, 1), (13, 1, 1), dtype=dtype)
    total = emit("add", emit("multiply", x, y), emit("transpose", z, perm=(1, 2, 0)))
    graph = Graph([x, y, z, row], [emit("multiply", total, row)])
    (program,) = programs(graph)
    assert "tiles0" in program.text and program.launches[0].grid > 2 and program.launches[0].shared
    arrays = [a * 9 for a in drawn(graph)] if dtype is int8 else drawn(graph)
    outputs = [(v.aval.dims, v.aval.dtype.numpy_dtype) for v in graph.outputs]
    for offset in (0, dtype.size):
        (found,) = emulated.run(program, arrays, outputs, offset=offset)
        assert_near(found, node_by_node(graph, arrays)[0], (dtype, offset), 100)


@pytest.mark.parametrize("axis", [2, 1], ids=["rows", "columns"])
@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16], ids=str)
def test_tiles_of_rows(emulated: Emulated, monkeypatch: pytest.MonkeyPatch, dtype: DType, axis: int) -> None:
    """Operands that are repeated along some of the outer loops, in tiles of which some are cut off, and with places
    that are not aligned; one operand lies the other way round and has a larger dtype, one has a number for each row."""
    for name, value in (("FEW_TILES", 2), ("SMALL", 0)):
        monkeypatch.setattr(cuda_extents, name, value)
    x, y, row = given_of((7, 11, 40), (7, 1, 40), (11, 1), dtype=dtype)
    (z,) = given_of((40, 11), dtype=float64)
    turned = emit("cast", emit("transpose", z, perm=(1, 0)), dtype=dtype)
    total = emit("multiply", emit("add", emit("add", x, y), turned), row)
    top = emit("reduce_max", total, axes=(axis,), keepdims=True)
    part = emit("exp", emit("subtract", total, top))
    graph = Graph([x, y, z, row], [emit("divide", part, emit("reduce_sum", part, axes=(axis,), keepdims=True))])
    (program,) = programs(graph)
    assert "tiles0" in program.text and program.launches[0].grid > 1
    arrays = drawn(graph)
    outputs = [(v.aval.dims, v.aval.dtype.numpy_dtype) for v in graph.outputs]
    for offset in (0, 8):
        (found,) = emulated.run(program, arrays, outputs, offset=offset)
        assert_near(found, node_by_node(graph, arrays)[0], (dtype, offset), 100)


def test_tiles_of_rows_whichever_axes_are_repeated(emulated: Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
    """A normalisation over some axes, and sums by the way, of products of operands that lack some axes."""
    for name, value in (("FEW_TILES", 2), ("SMALL", 0), ("AGAIN", 0)):
        monkeypatch.setattr(cuda_extents, name, value)
    rng = np.random.default_rng(0)
    found = []
    for _ in range(9):
        whole = rng.choice((2, 3, 5, 8, 12, 17), size=4)
        shapes = [tuple(map(int, np.where(rng.random(4) < 0.6, whole, 1))) for _ in range(3)]
        axes = tuple(int(k) for k in sorted(rng.choice(4, rng.integers(1, 3), replace=False)))
        x, y, z = given_of(*shapes, dtype=float32)
        part = emit("exp", emit("multiply", emit("multiply", x, y), z))
        ready = emit("divide", part, emit("reduce_sum", part, axes=axes, keepdims=True))
        sums = emit("reduce_sum", emit("square", ready), axes=axes, keepdims=False)
        found.append(Graph([x, y, z], [ready, sums]))
    fused = [fuse(g, spells_cuda, 1, siblings=True) for g in found]
    emulated.compile_all(fused)
    texts = [rendered(n.step.params["cluster"]).text for g in fused for n in kernels(g)]
    assert sum("tile += gridDim.x" in text and "team" in text for text in texts) >= 3
    for graph, kernel in zip(found, fused, strict=True):
        arrays = drawn(graph)
        for a, b in zip(emulated.graph(kernel, arrays), node_by_node(graph, arrays), strict=True):
            assert_near(a, b, graph, 300)


@pytest.mark.parametrize("name", ["rows", "columns", "sinks"])
def test_the_same_bits_in_any_order_of_threads(name: str) -> None:
    graph = wide((333, 40))[name]
    arrays = drawn(graph)
    fused = fuse(graph, spells_cuda)
    first, second = (Emulated(seed=s).graph(fused, arrays) for s in (1, 2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
