"""Faults that are put into our own templates and texts: the emulated device, or the host's numbers, tell of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradtape.ir.dtypes import float32, int32, int64
from gradtape.ir.graph import Graph
from gradtape.kernels.cuda_launch import CudaProgram, Number
from gradtape.kernels.cuda_render import render_cuda
from gradtape.kernels.cuda_spelling import spells_cuda
from gradtape.ops.op import emit
from gradtape.transforms.fuse import fuse
from tests.cuda_emulator.faults import DeviceFault, LaunchRefused
from tests.kernels.cuda import running
from tests.kernels.cuda.running import Emulated
from tests.kernels.cuda.table import kernels
from tests.kernels.cuda.test_run import assert_near
from tests.kernels.steps import given_of, wide
from tests.op_table.running import node_by_node

Change = tuple[str, str, str]  # in a template (or in the text of the kernel: ""), what is put in place of what


def largest() -> Graph:
    (x,) = given_of((40, 300), dtype=float32)
    return Graph([x], [emit("reduce_max", x, axes=(1,), keepdims=False)])


def total() -> Graph:
    (x,) = given_of((50_000,), dtype=float32)
    return Graph([x], [emit("reduce_sum", emit("square", x), axes=(0,), keepdims=False)])


def pointwise() -> Graph:
    (x,) = given_of((4001,), dtype=float32)
    return Graph([x], [emit("tanh", emit("square", x))])


BARRIER = "                warps[threadIdx.x / 32] = x;\n            __syncthreads();\n"
BEFORE_THE_NEXT = "Monoid::of(x, warps[k]);\n            __syncthreads();\n"
FAULTS: dict[str, tuple[Callable[[], Graph], Change, str]] = {
    "a missing barrier": (total, ("teams.cuh", BARRIER, BARRIER.replace("__syncthreads();", "")), "race or unwritten"),
    "a missing barrier before the next use": (
        lambda: wide((40, 3000))["rows"],
        ("teams.cuh", BEFORE_THE_NEXT, BEFORE_THE_NEXT.replace("__syncthreads();", "")),
        "race",
    ),
    "a wrong neutral element": (largest, ("teams.cuh", "return lowest<T>();", "return T{};"), "other numbers"),
    "a shuffle of half a warp": (
        largest,
        ("teams.cuh", "__shfl_xor_sync(0xffffffffu, x, distance)", "__shfl_xor_sync(0xffffu, x, distance)"),
        "mask",
    ),
    "one element too many": (pointwise, ("", "i0 < last", "i0 <= last"), "out of bounds"),
    "one row too many": (lambda: wide((39, 30))["rows"], ("", "mine < rounds", "mine <= rounds"), "out of bounds"),
    "vectors that are taken to be aligned": (
        pointwise,
        ("packs.cuh", "return (true && ...", "return true || (true && ..."),
        "misaligned",
    ),
    "a read of what is written past the caches": (
        pointwise,
        ("", "const float32 t0_read = r0_[j];", "const float32 t0_read = __ldg(w0 + i0 + j);"),
        "read-only or unwritten",
    ),
}


def program_of(graph: Graph) -> CudaProgram:
    (node,) = kernels(fuse(graph, spells_cuda, 1))
    return render_cuda(node.step.params["cluster"])


def negative(graph: Graph) -> list[Any]:
    rng = np.random.default_rng(1)
    return [(-1 - rng.random(v.aval.dims)).astype(np.float32) for v in graph.inputs]


def run(graph: Graph, program: CudaProgram, offset: int = 0) -> None:
    """Compare with the host; operands that begin `offset` bytes behind an aligned place."""
    arrays = negative(graph)
    outputs = [(v.aval.dims, v.aval.dtype.numpy_dtype) for v in graph.outputs]
    found = Emulated(seed=1).run(program, arrays, outputs, offset)
    for a, b in zip(found, node_by_node(graph, arrays), strict=True):
        assert_near(a, b, "a kernel")


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, (file, right, wrong), kinds = FAULTS[name]
    graph = make()
    program, offset = program_of(graph), 4 if "misaligned" in kinds else 0
    run(graph, program, offset)
    if file:
        assert right in running.HEADERS[file], right
        monkeypatch.setitem(running.HEADERS, file, running.HEADERS[file].replace(right, wrong))
    else:
        assert right in program.texts[0], right
        first, *others = program.texts
        program = dataclasses.replace(program, texts=(first.replace(right, wrong), *others))
    if kinds == "other numbers":
        with pytest.raises(AssertionError, match="Mismatched elements: 40 / 40"):
            run(graph, program, offset)
        return
    with pytest.raises(DeviceFault) as caught:
        run(graph, program, offset)
    assert caught.value.kind in kinds.split(" or "), caught.value


def test_an_argument_of_another_width_is_refused() -> None:
    graph = pointwise()
    program = program_of(graph)
    (launch,) = program.launches
    wide_numbers = tuple(
        dataclasses.replace(a, dtype=int64) if isinstance(a, Number) and a.dtype is int32 else a
        for a in launch.arguments
    )
    assert wide_numbers != launch.arguments
    with pytest.raises(LaunchRefused, match="is declared `const int32 n0`, an integer of 4 bytes, and"):
        run(graph, dataclasses.replace(program, launches=(dataclasses.replace(launch, arguments=wide_numbers),)))


def test_memory_that_is_let_go_of_too_early_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a sum between its two kernels."""
    graph = total()
    program = program_of(graph)
    emulated = Emulated()
    alloc = emulated.device.alloc
    given: list[Any] = []
    monkeypatch.setattr(emulated.device, "alloc", lambda n, name: (given.append(alloc(n, name)), given[-1])[1])
    emulated.compile([program])
    last = emulated.functions[program.launches[-1].kernel]

    def freed_before(*arguments: Any, **more: Any) -> None:
        last(*arguments, **more)
        next(b for b in given if b.name.startswith("scratch")).free()

    emulated.functions[program.launches[-1].kernel] = freed_before
    with pytest.raises(DeviceFault) as caught:
        emulated.run(program, negative(graph), [((), np.float32)])
    assert caught.value.kind == "freed"
