"""Every kernel compiles for every architecture, without spills, and moves packs of 16 bytes: NVIDIA's compiler says so,
on a machine without a GPU."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

import pytest

import gradtape as tf
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import (
    ALL,
    DType,
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int64,
    uint32,
)
from gradtape.ir.graph import Graph, Value
from gradtape.kernels.cuda_spelling import spells_cuda
from gradtape.ops.op import emit
from gradtape.ops.pointwise import Pointwise
from gradtape.transforms.differentiate import vjp
from gradtape.transforms.fuse import fuse
from tests.cuda_emulator import limits
from tests.kernels.cuda.running import rendered
from tests.kernels.cuda.table import LAYOUTS, NOT_JOINT, entries, held, joint, kernels
from tests.kernels.cuda.test_bytes import LONG_ROWS, REPEATED, REPEATED_IN_ROWS, together
from tests.kernels.cuda.test_counts import plain, sparse_cross_entropy_and_its_slope
from tests.kernels.steps import wide
from tests.kernels.test_compiled import GRAPHS

pytest.importorskip(
    "cuda.bindings.nvrtc", reason="NVIDIA's compiler is not installed: `pip install -e .[nvrtc]`, or the extra `dev`"
)

from tests.kernels.cuda import nvrtc

# Halves are computed in float32 by the same functions: what differs are loads, stores, rounding and questions.
OF_HALVES = frozenset({"add", "multiply", "exp", "is_finite", "select", "maximum", "cast", "floordiv"})
# CUDA's own subroutines for large angles and quotients put a few bytes on the stack; none of ours does.
SUBROUTINES = 40


def texts(graphs: Iterable[Graph], architecture: int) -> list[str]:
    """All kernels of graphs, each once, with the shared memory that blocks have there."""
    most = limits.SHARED_BY_OPT_IN[f"sm_{architecture}"]
    nodes = (n for g in graphs for n in kernels(fuse(g, spells_cuda, 1, siblings=True)))
    return list(dict.fromkeys(t for n in nodes for t in rendered(n.step.params["cluster"], most).texts))


def checked(graphs: Iterable[Graph], architecture: int) -> dict[str, str]:
    """The kernels' PTX, once their use of a processor was found to be as it should."""
    ptx, usage = nvrtc.compiled("\n".join(texts(graphs, architecture)), architecture)
    assert ptx and set(ptx) <= set(usage)
    for name in ptx:
        used = usage[name]
        assert used.spilled == 0, f"{name} spills {used.spilled} bytes of registers on sm_{architecture}"
        assert used.stack <= SUBROUTINES, f"{name} has {used.stack} bytes of local memory on sm_{architecture}"
        assert 0 < used.registers <= 168 and used.shared <= 16 * 1024, (name, used)
    return ptx


ROWS = [g for shape in ((37, 29), (4096, 1024), (100_000, 64), (64, 100_000)) for g in wide(shape).values()]


@functools.cache
def functions() -> list[Graph]:
    """Functions of networks with their derivatives, some of whose rows ask for shared memory; and tiles."""
    of_labels = (sparse_cross_entropy_and_its_slope, ((200, 1000), tf.TensorSpec((200,), tf.int32)))
    tiles = (together, REPEATED["rows of two, beside all"])
    return [plain(f, *shapes) for f, shapes in (of_labels, *LONG_ROWS, tiles, *REPEATED_IN_ROWS.values())]


@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_rows_columns_and_sums(architecture: int) -> None:
    checked([*ROWS, *(make(float32) for make in GRAPHS), *functions()], architecture)


@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_every_function(architecture: int) -> None:
    checked([joint(float32), *(joint(d, names=OF_HALVES) for d in (float16, bfloat16))], architecture)


@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_every_derivative_and_precision(architecture: int) -> None:
    """Functions of float64 in three graphs: one of all of them keeps more numbers at a time than any function needs."""
    names = sorted(op.name for op in held() if isinstance(op, Pointwise) and op.name not in NOT_JOINT)
    parts = [joint(float64, names=frozenset(names[k::3])) for k in range(3)]
    checked([vjp(joint(float32)), *parts], architecture)


@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_every_function_of_complex_numbers(architecture: int) -> None:
    checked([joint(complex64), joint(complex128)], architecture)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    names = OF_HALVES | {"square", "sigmoid"}
    checked([joint(float32, layout, names), vjp(joint(float32, layout, names))], 90)


@pytest.mark.parametrize("dtype", (int8, uint32, int64, complex64), ids=str)
def test_other_numbers(dtype: DType) -> None:
    ops = [op for op in held() if op.kind == "reduction" and dtype.kind in op.accepts]
    sums = [e.graph for op in ops for e in entries(op) if e.graph.inputs[0].aval.dtype is dtype]
    casts = [cast_to(d, dtype) for d in ALL if d.kind != "s" and d is not dtype]
    checked([joint(dtype, names=None if dtype.is_integer else frozenset({"divide"})), *sums, *casts], 90)


def cast_to(source: DType, dtype: DType) -> Graph:
    x = Value(aval((64, 48), source))
    return Graph([x], [emit("cast", x, dtype=dtype)])


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_halves_of_other_numbers(dtype: DType) -> None:
    others = [d for d in ALL if d.kind != "s" and d is not dtype]
    x, y = Value(aval((64, 48), dtype)), Value(aval((64, 48), int16))
    bits = [emit("nextafter", x, emit("bitcast", y, dtype=dtype)), emit("bitcast", emit("negative", x), dtype=int16)]
    checked([*(cast_to(d, dtype) for d in others), *(cast_to(dtype, d) for d in others), Graph([x, y], bits)], 90)


# ------------------------------------------------------------------ packs


def accesses(ptx: str, kind: str) -> set[str]:
    """The widths of a kernel's loads or stores, such as ".v4.f32"."""
    return set(re.findall(rf"\b{kind}\.global(?:\.nc)?((?:\.v\d)?\.\w+)", ptx))


@pytest.mark.parametrize(
    "dtype, pack",
    [(float32, ".v4.f32"), (float64, ".v2.f64"), (float16, ".v"), (bfloat16, ".v"), (int64, ".v2.u64")],
    ids=str,
)
def test_contiguous_elements_move_in_packs_of_16_bytes(dtype: DType, pack: str) -> None:
    (ptx,) = checked([joint(dtype, names=frozenset({"square", "maximum"}))], 90).values()
    for kind in ("ld", "st"):
        assert any(a.startswith(pack) for a in accesses(ptx, kind)), accesses(ptx, kind)


def test_rows_move_in_packs_of_16_bytes() -> None:
    for name, ptx in checked([wide((4096, 1024))[n] for n in ("rows", "sinks")], 90).items():
        if not name.startswith("combine"):
            assert ".v4.f32" in accesses(ptx, "ld") and ".v4.f32" in accesses(ptx, "st"), name


def test_what_is_written_is_not_read_past_the_caches() -> None:
    """`__restrict__` stands on buffers only that the kernel does not write."""
    for text in texts([*ROWS, *(make(float32) for make in GRAPHS)], 90):
        head = text[text.index("__launch_bounds__") : text.index("\n{")]
        for line in head.splitlines():
            assert ("__restrict__" in line) == ("const" in line and "*" in line), line
