"""Kernels that call one template compile for every architecture, without spills: NVIDIA's compiler says so, on a
machine without a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from gradtape.ir.cluster import Access, Cluster, Loop, Operation, Read, Write
from gradtape.ir.dtypes import DType, bfloat16, complex64, complex128, float16, float32, float64, int8
from gradtape.kernels.cuda_drawing import (
    advanced,
    bits,
    counts,
    gamma_numbers,
    integers_between,
    moments,
    sources_of,
    truncated_normals,
)
from gradtape.kernels.cuda_launch import CudaProgram
from gradtape.kernels.cuda_scans import STAGES, scan
from gradtape.kernels.cuda_sorting import Order, keys, positions, sorted_rows
from gradtape.kernels.cuda_spectra import half_spectrum
from gradtape.kernels.cuda_together import Member, render_together

pytest.importorskip(
    "cuda.bindings.nvrtc", reason="NVIDIA's compiler is not installed: `pip install -e .[nvrtc]`, or the extra `dev`"
)

from tests.kernels.cuda import nvrtc

STACK = 40  # bytes that CUDA's own subroutines for quotients take
SHARED = 48 * 1024


def together(dtype: DType) -> CudaProgram:
    """Several members of a formula with four arrays."""
    moving, still = Access(dtype, (1,)), Access(dtype, (0,))
    code = [Operation("read", (), dtype, k) for k in range(3)]
    code += [Operation("multiply", (0, 1), dtype), Operation("tanh", (3,), dtype), Operation("add", (4, 2), dtype)]
    writes = (Write(4, moving, (True,)), Write(5, moving, (True,)))
    reads = (Read(0, moving), Read(1, still), Read(2, moving))
    members = [
        Member(Cluster((Loop(n, False),), reads, tuple(code), writes), 3 * k, 2 * k) for k, n in enumerate((9, 999))
    ]
    return render_together(members)


def programs() -> Iterator[CudaProgram]:
    """Those of each op, in the layouts and dtypes that take most registers."""
    for op in STAGES:
        wide = float64 if "exp" in op else complex128
        yield scan(op, float32, (2, 100_000), 1, False)
        yield scan(op, wide, (3000, 1000), 1, False)
        yield scan(op, wide, (2, 1000, 3), 1, True)
    for op in ("logsumexps_pull", "cumsum"):
        yield scan(op, float16, (3000, 1000), 1, True)
    yield scan("cumsum", int8, (3000, 5), 1, False, True)
    for dtype in (float32, float64, bfloat16):
        order = Order(dtype, (30, 2000), 1, 30, True)
        yield from (sorted_rows(order), keys(order), positions(order))
    yield from map(together, (float32, bfloat16, complex128))
    yield from (advanced(3, -1 % 2**128), sources_of(3, 7, 2))
    yield from (integers_between(int8, 100, 3, 7, 2**64 - 2), truncated_normals(bfloat16, 100))
    yield from (gamma_numbers(float16, 100), counts(int8, 100, float16), counts(float64, 100, float64))
    yield from (bits(100), moments(float16, 5, 1, 44, 42.0), half_spectrum(complex64, (2, 5), 8))


@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_no_spills(architecture: int) -> None:
    texts = dict.fromkeys(t for p in programs() for t in p.texts)
    ptx, usage = nvrtc.compiled("\n".join(texts), architecture)
    assert len(ptx) == len(texts)
    for name in ptx:
        used = usage[name]
        assert used.spilled == 0 and used.stack <= STACK, f"{name} on sm_{architecture}: {used}"
        assert 0 < used.registers <= 128 and used.shared <= SHARED, (name, used)
    words = next(text for name, text in ptx.items() if name.startswith("random_bits"))
    assert "st.global.v4" in words
    rows = [text for name, text in ptx.items() if name.startswith("cumsum_rows")]
    assert any(re.search(r"ld\.global(\.nc)?\.v4\.\w32", text) for text in rows)
