"""What launches move, counted by the emulated device: little more than each operand and each result once, where a row
fits on the chip. A plan's own figures, and those of the documents, are what was counted."""

from __future__ import annotations

import contextlib
import functools
import io
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.ir.cluster import Cluster
from gradtape.ir.dtypes import float32
from gradtape.ir.graph import Graph
from gradtape.kernels import cuda_render
from gradtape.kernels.cuda_launch import CudaProgram
from gradtape.kernels.cuda_render import render_cuda
from gradtape.kernels.cuda_teams import SHARED
from gradtape.ops.op import emit
from tests.cuda_emulator import limits
from tests.kernels.cuda.running import Emulated
from tests.kernels.cuda.table import kernels
from tests.kernels.cuda.test_counts import (
    Shape,
    batch_norm,
    cross_entropy_and_its_slope,
    drawn_for,
    layer_norm,
    on_device,
    reward_of_actions_and_its_slope,
    slope_of_batch_norm,
    slope_of_layer_norm,
    sparse_cross_entropy_and_its_slope,
    sparse_loss_and_its_slope,
)
from tests.kernels.cuda.test_run import assert_near
from tests.kernels.steps import drawn, given_of, wide
from tests.op_table.running import node_by_node

ROOM = 1.1  # of what has to be read and written at least
SECTOR = 32  # bytes that move together
WHOLE_SECTORS = 1.15  # of the bytes moved: a few rows do not begin where a sector does
DOCUMENT = Path(__file__).parents[3] / "docs" / "kernels.md"
SIGNIFICANT = 4096  # bytes; what a kernel of single numbers moves is no matter


def counted(emulated: Emulated, program: CudaProgram, arrays: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """The results of a program of which each launch moves what its plan says, and nothing much more than once."""
    found = emulated.run(program, arrays, outputs)
    for launch, plan in zip(emulated.device.counts.launches, program.launches, strict=True):
        once = sum(t.unique_bytes_read + t.unique_bytes_written for t in launch.traffic.values())
        assert once == plan.bytes, "a plan's own figures are not what was counted"
        assert launch.bytes_moved <= ROOM * plan.bytes or plan.bytes < SIGNIFICANT, (launch, plan.bytes)
    return found


def moved(graph: Graph) -> tuple[float, float]:
    """Bytes that the launches of a graph of one kernel read and wrote, each time counted; and each byte once. Both as
    multiples of its operands and results. Warps touch whole sectors, and each bank of shared memory once for each word
    of a pack."""
    emulated = Emulated(watch_warps=True)
    arrays = drawn(graph)
    (node,) = kernels(on_device(graph))
    outputs = [(v.aval.dims, v.aval.dtype.numpy_dtype) for v in node.outputs]
    program = render_cuda(node.step.params["cluster"])
    found = counted(emulated, program, arrays, outputs)
    for a, b in zip(found, node_by_node(graph, arrays), strict=True):
        assert_near(a, b, "counted")
    least = sum(a.nbytes for a in (*arrays, *found))
    for launch, plan in zip(emulated.device.counts.launches, program.launches, strict=True):
        sectors = sum(sum(launch.sectors(name)) for name in launch.traffic)
        passes, instructions = launch.bank_passes
        assert sectors * SECTOR <= WHOLE_SECTORS * plan.bytes and passes <= 4 * instructions, launch
    total = sum(launch.bytes_moved for launch in emulated.device.counts.launches)
    return total / least, sum(plan.bytes for plan in program.launches) / least


def normalised(shape: tuple[int, int]) -> Graph:
    """Rows of mean 0 and variance 1, scaled and shifted."""
    x, scale, shift = given_of(shape, shape[1:], shape[1:], dtype=float32)
    centred = emit("subtract", x, emit("reduce_mean", x, axes=(1,), keepdims=True))
    variance = emit("reduce_mean", emit("square", centred), axes=(1,), keepdims=True)
    y = emit("multiply", emit("multiply", centred, emit("rsqrt", variance)), scale)
    return Graph([x, scale, shift], [emit("add", y, shift)])


def sums(shape: tuple[int, ...], axes: tuple[int, ...]) -> Graph:
    (x,) = given_of(shape, dtype=float32)
    return Graph([x], [emit("reduce_sum", emit("square", x), axes=axes, keepdims=False)])


MOVED: dict[str, Graph] = {
    "a chain": Graph([v := given_of((250_000,), dtype=float32)[0]], [emit("tanh", emit("exp", v))]),
    "a chain with a bias": wide((1024, 512))["pointwise"],
    "softmax of rows": wide((4000, 100))["rows"],
    "layer norm": normalised((4000, 100)),
    "rows and a sum": wide((2000, 256))["sinks"],
    "columns on the chip": wide((128, 1024))["columns"],
    "a sum of all": sums((400_000,), (0,)),
    "sums of inner axes": sums((300, 1000), (1,)),
    "sums of outer axes": sums((1000, 300), (0,)),
    "sums of middle axes": sums((20, 500, 40), (1,)),
}


@pytest.mark.parametrize("name", MOVED)
def test_bytes_moved(name: str) -> None:
    total, once = moved(MOVED[name])
    assert 0.99 <= once <= ROOM and total <= ROOM, (total, once)


# ------------------------------------------------------------------ functions, of few and of many rows


def slopes(f: Callable[..., Any]) -> Callable[..., Any]:
    """The gradients of a function in all of its operands; the last operand given is the cotangent."""

    def slopes_of(*given: Any) -> Any:
        *xs, up = given
        with tf.GradientTape() as tape:
            tape.watch(xs)
            y = f(*xs)
        return tape.gradient(y, xs, output_gradients=up)

    slopes_of.__name__ = f"slopes_of_{f.__name__}"
    return slopes_of


def activation(x: Any, bias: Any) -> Any:
    return tf.nn.gelu(x + bias)


def scaled(x: Any, scale: Any) -> Any:
    return tf.tanh(x * scale) + 1.0


def labels(n: int, dtype: Any = tf.int32) -> tf.TensorSpec:
    return tf.TensorSpec((n,), dtype)


def of_rows(n: int, m: int) -> list[tuple[Callable[..., Any], Sequence[Shape]]]:
    x, row = (n, m), (m,)
    return [
        (activation, (x, row)),
        (slopes(activation), (x, row, x)),
        (scaled, (x, (n, 1))),
        (scaled, (x, ())),
        (layer_norm, (x, row, row)),
        (slope_of_layer_norm, (x, row, row, x)),
        (batch_norm, (x, row, row)),
        (slopes(batch_norm), (x, row, row, x)),
        (slope_of_batch_norm, (x, row, row, row, x)),
    ]


FUNCTIONS = [
    *of_rows(32, 512),
    *of_rows(256, 96),
    *of_rows(600, 256),
    *((f, ((n, m), (n, m))) for f in (cross_entropy_and_its_slope,) for n, m in ((2000, 10), (200, 1000))),
    (sparse_cross_entropy_and_its_slope, ((2000, 10), labels(2000))),
    (sparse_cross_entropy_and_its_slope, ((200, 1000), labels(200))),
    (sparse_cross_entropy_and_its_slope, ((50, 4000), labels(50, tf.int64))),
    (sparse_loss_and_its_slope, ((200, 1000), labels(200))),
    (reward_of_actions_and_its_slope, ((600, 64), labels(600), (600,))),
]


def name_of(x: Any) -> str:
    return x.__name__ if callable(x) else "-".join("x".join(map(str, spec)) or "1" for spec in map(_dims, x))


def _dims(x: Shape) -> tuple[int, ...]:
    return tuple(x.shape) if isinstance(x, tf.TensorSpec) else x


def run(f: Callable[..., Any], shapes: Sequence[Shape], arch: str, shared: int) -> list[CudaProgram]:
    """The programs of a function's kernels, whose results are those of the host; their launches are `counted`, and move
    little more than the function's operands and results."""
    graph, arrays = drawn_for(f, shapes)
    emulated, programs, bytes_moved = Emulated(arch=arch), [], 0

    def program_of(cluster: Cluster, operands: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        nonlocal bytes_moved
        programs.append(render_cuda(cluster, shared))
        found = counted(emulated, programs[-1], operands, outputs)
        bytes_moved += sum(launch.bytes_moved for launch in emulated.device.counts.launches)
        return found

    found, wanted = emulated.graph(on_device(graph), arrays, program_of), node_by_node(graph, arrays)
    for a, b in zip(found, wanted, strict=True):
        assert_near(a, b, f.__name__, 2000)
    # Beside that, the parts of sums are written once and read once.
    assert bytes_moved <= (ROOM + 0.1) * sum(np.asarray(a).nbytes for a in (*arrays, *found)), bytes_moved
    return programs


@pytest.mark.parametrize("f, shapes", FUNCTIONS, ids=name_of)
def test_bytes_of_functions(f: Callable[..., Any], shapes: Sequence[Shape]) -> None:
    launches = [x for p in run(f, shapes, "sm_90", limits.SHARED_BY_OPT_IN["sm_90"]) for x in p.launches]
    assert len([x for x in launches if x.bytes >= SIGNIFICANT]) <= 2, launches


# ------------------------------------------------------------------ operands that are repeated along several loops


def together(*xs: Any) -> Any:
    return tf.tanh(functools.reduce(operator.add, xs))


REPEATED: dict[str, Sequence[Shape]] = {
    "a column and a row": ((600, 1), (1, 700)),
    "both, beside a matrix": ((300, 200), (300, 1), (1, 200)),
    "a long column and a short row": ((2000, 1), (1, 5)),
    "rows of two": ((30, 1, 100), (1, 40, 100)),
    "rows of two, long": ((20, 1, 1000), (1, 30, 1000)),
    "rows of two, beside all": ((30, 40, 100), (30, 1, 100), (1, 40, 100)),
    "columns and rows of a batch": ((100, 32, 1), (100, 1, 32)),
    "a number for each step, a row for each sequence": ((16, 100, 64), (1, 100, 1), (16, 1, 64)),
    "masks of sequences and of positions": ((4, 8, 50, 50), (4, 1, 1, 50), (1, 1, 50, 50)),
    "an axis of each": ((40, 1, 1), (1, 50, 1), (1, 1, 60)),
    "two axes of each": ((10, 1, 20, 1), (1, 12, 1, 32)),
    "channels, of each image too": ((16, 20, 20, 32), (32,), (16, 1, 1, 32)),
}


def compiled_alone(graphs: Mapping[str, Graph]) -> tuple[Emulated, dict[str, CudaProgram]]:
    """The kernels of graphs that are one kernel each, compiled in one call."""
    programs = {}
    for name, graph in graphs.items():
        (node,) = kernels(on_device(graph))
        programs[name] = render_cuda(node.step.params["cluster"])
    emulated = Emulated()
    emulated.compile(list(programs.values()))
    return emulated, programs


def test_bytes_of_operands_that_are_repeated() -> None:
    """Every operand, every result once, or little more; along whichever loops operands are repeated."""
    graphs = {name: drawn_for(together, shapes) for name, shapes in REPEATED.items()}
    emulated, programs = compiled_alone({name: graph for name, (graph, _) in graphs.items()})
    for name, (graph, arrays) in graphs.items():
        (y,) = graph.outputs
        (found,) = counted(emulated, programs[name], arrays, [(y.aval.dims, np.float32)])
        assert_near(found, node_by_node(graph, arrays)[0], name)


def masked_softmax(x: Any, *masks: Any) -> Any:
    return tf.nn.softmax(functools.reduce(operator.add, masks, x))


def slope_of_masked_softmax(x: Any, mask: Any, up: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = masked_softmax(x, mask)
    return tape.gradient(y, x, output_gradients=up)


def layer_norm_of_sequences(x: Any, positions: Any, scale: Any, shift: Any) -> Any:
    y = x + positions
    mean, variance = tf.nn.moments(y, [2], keepdims=True)
    return (y - mean) * tf.math.rsqrt(variance + 1e-3) * scale + shift


def slope_of_layer_norm_of_sequences(x: Any, positions: Any, scale: Any, up: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch([x, scale])
        y = layer_norm_of_sequences(x, positions, scale, 0.0)
    return tape.gradient(y, [x, scale], output_gradients=up)


def sum_of_products(x: Any, y: Any) -> Any:
    return tf.reduce_sum(x * y, 2)


def sum_of_columns(x: Any, y: Any) -> Any:
    return tf.reduce_sum(x * y, 1)


REPEATED_IN_ROWS: dict[str, tuple[Callable[..., Any], Sequence[Shape]]] = {
    "a mask of sequences": (masked_softmax, ((3, 4, 50, 52), (3, 1, 1, 52))),
    "a mask of positions": (masked_softmax, ((4, 8, 25, 51), (1, 1, 25, 51))),
    "masks of both": (masked_softmax, ((4, 4, 50, 40), (4, 1, 1, 40), (1, 1, 50, 40))),
    "a mask of sequences, long": (masked_softmax, ((4, 2, 65, 700), (4, 1, 1, 700))),
    "a mask and its gradient": (slope_of_masked_softmax, ((3, 4, 50, 52), (3, 1, 1, 52), (3, 4, 50, 52))),
    "layer norm": (layer_norm_of_sequences, ((60, 20, 64), (20, 64), (64,), (64,))),
    "layer norm and its gradient": (
        slope_of_layer_norm_of_sequences,
        ((128, 32, 32), (32, 32), (32,), (128, 32, 32)),
    ),
    "sums of rows": (sum_of_products, ((40, 1, 100), (40, 33, 100))),
    "sums of columns": (sum_of_columns, ((40, 50, 70), (40, 50, 1))),
    "sums of columns, the same in a batch": (sum_of_columns, ((1200, 16, 33), (16, 33))),
}


def test_bytes_of_rows_with_operands_that_are_repeated() -> None:
    """The same of kernels with reductions, along whichever outer loops operands are repeated."""
    graphs = {name: drawn_for(f, shapes) for name, (f, shapes) in REPEATED_IN_ROWS.items()}
    emulated, programs = compiled_alone({name: graph for name, (graph, _) in graphs.items()})
    for name, (graph, arrays) in graphs.items():
        outputs = [(y.aval.dims, np.float32) for y in graph.outputs]
        found = counted(emulated, programs[name], arrays, outputs)
        assert "tiles0" in programs[name].text, name
        for a, b in zip(found, node_by_node(graph, arrays), strict=True):
            assert_near(a, b, name, 2000)


def test_few_rows_are_not_left_to_few_blocks() -> None:
    """There are tiles only where enough of them are left for many processors, and where they are a gain."""
    for n, m, is_tiled in ((8, 64, True), (8, 8, False)):
        graph, _ = drawn_for(sum_of_products, ((n, 1, 3000), (n, m, 3000)))
        (node,) = kernels(on_device(graph))
        program = render_cuda(node.step.params["cluster"])
        assert ("tiles0" in program.text) == is_tiled and program.launches[0].grid >= 64


# ------------------------------------------------------------------ more shared memory, for kernels that ask


LONG_ROWS = [
    (layer_norm, ((20, 9000), (9000,), (9000,))),
    (slope_of_layer_norm, ((24, 3000), (3000,), (3000,), (24, 3000))),
    (cross_entropy_and_its_slope, ((4, 9000), (4, 9000))),
    (slopes(batch_norm), ((1000, 16), (16,), (16,), (1000, 16))),
]


@pytest.mark.parametrize("f, shapes", LONG_ROWS, ids=name_of)
def test_rows_that_need_more_shared_memory_get_it(f: Callable[..., Any], shapes: Sequence[Shape]) -> None:
    """What would be read in every sweep stays on the chip, with more threads for a row."""
    (program,) = run(f, shapes, "sm_90", limits.SHARED_BY_OPT_IN["sm_90"])
    kernel = program.launches[0]
    assert SHARED < kernel.shared <= limits.SHARED_BY_OPT_IN["sm_90"] and kernel.block == 512
    assert len(program.launches) <= 2


@pytest.mark.parametrize("f, shapes", LONG_ROWS, ids=name_of)
def test_rows_that_do_not_fit_are_read_again(f: Callable[..., Any], shapes: Sequence[Shape]) -> None:
    """Without asking: the same numbers, by kernels that move more."""
    graph, arrays = drawn_for(f, shapes)
    emulated = Emulated()
    found, wanted = emulated.graph(on_device(graph), arrays), node_by_node(graph, arrays)
    for a, b in zip(found, wanted, strict=True):
        assert_near(a, b, f.__name__, 2000)
    (node,) = kernels(on_device(graph))
    small, large = (render_cuda(node.step.params["cluster"], n) for n in (SHARED, 227 << 10))
    assert all(x.shared <= SHARED for x in small.launches)
    assert small.launches != large.launches


def softmax(shape: tuple[int, int]) -> Graph:
    """Of one operand: all that a block keeps of it is one row."""
    (x,) = given_of(shape, dtype=float32)
    e = emit("exp", emit("subtract", x, emit("reduce_max", x, axes=(1,), keepdims=True)))
    return Graph([x], [emit("divide", e, emit("reduce_sum", e, axes=(1,), keepdims=True))])


@pytest.mark.parametrize("arch", limits.SHARED_BY_OPT_IN)
@pytest.mark.parametrize("name", ["rows", "sinks", "softmax"])
def test_no_block_asks_for_more_than_there_is(name: str, arch: str) -> None:
    """Rows of any length, also those that need 48 KB, or all that there is, but for the memory that a kernel has by
    itself: a launch that takes more than 48 KB with that has asked for it."""
    most = limits.SHARED_BY_OPT_IN[arch]
    emulated = Emulated(arch=arch)
    for length in (SHARED // 4 - 100, SHARED // 4, most // 4 - 2000, most // 4 - 16, most // 4, most // 8):
        graph = softmax((3, length)) if name == "softmax" else wide((3, length))[name]
        (node,) = kernels(on_device(graph))
        program = render_cuda(node.step.params["cluster"], most)
        assert max(x.shared for x in program.launches) <= most
        arrays = drawn(graph)
        outputs = [(v.aval.dims, np.float32) for v in graph.outputs]
        found = emulated.run(program, arrays, outputs)
        for a, b in zip(found, node_by_node(graph, arrays), strict=True):
            assert_near(a, b, (name, length))


# ------------------------------------------------------------------ what the documents say


def test_the_figures_of_the_document_are_counted() -> None:
    """Each launch that docs/kernels.md shows, run: its grid, its block, its shared memory and its bytes."""
    text = DOCUMENT.read_text(encoding="utf-8")
    blocks = [code for code in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S) if "render_cuda" in code]
    promised = re.findall(r"^(\w+): (\d+) x (\d+) threads, (\d+) bytes shared, (\d+) bytes moved$", text, re.M)
    found = [line for code in blocks for line in _counted_launches(code)]
    assert len(blocks) >= 3 and found == [(name, *map(int, sizes)) for name, *sizes in promised]


def _counted_launches(code: str) -> list[tuple[str, int, int, int, int]]:
    """What the launches of a program of the document were seen to do."""
    seen: list[Cluster] = []

    def noted(cluster: Cluster) -> CudaProgram:
        seen.append(cluster)
        return render_cuda(cluster)

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()):
        patch.setattr(cuda_render, "render_cuda", noted)
        exec(compile(code, str(DOCUMENT), "exec"), {"__name__": "shown"})
    found = []
    for cluster in seen:
        emulated, rng = Emulated(), np.random.default_rng(0)
        reads = {r.operand: r.access for r in cluster.reads}
        extents = [x.extent for x in cluster.loops]
        operands = [rng.normal(size=_size(a.strides, extents)).astype(np.float32) for _, a in sorted(reads.items())]
        outputs = [((_size(w.access.strides, extents),), np.float32) for w in cluster.writes]
        emulated.run(render_cuda(cluster), operands, outputs)
        for x in emulated.device.counts.launches:
            once = sum(t.unique_bytes_read + t.unique_bytes_written for t in x.traffic.values())
            found.append((x.kernel, x.grid[0], x.block[0], x.shared_bytes, once))
    return found


def _size(strides: Sequence[int], extents: Sequence[int]) -> int:
    """The elements of the array that an access goes through."""
    return 1 + sum(s * (n - 1) for s, n in zip(strides, extents, strict=True))
