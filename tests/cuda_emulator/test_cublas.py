"""The stand-in for cuBLAS: products by column, and what a wrong argument does."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_float, c_void_p
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.cuda_emulator.cublas import Cublas
from tests.cuda_emulator.device import Device
from tests.cuda_emulator.faults import DeviceFault
from tests.cuda_emulator.memory import Buffer

N, T, C = 0, 1, 2
R32, R64, R16, C32, B16 = 0, 1, 2, 4, 14
F32, PEDANTIC, F64, TF32 = 68, 69, 70, 77


class Library:
    """cuBLAS with a handle, and a call with the arguments that a test does not care for."""

    def __init__(self) -> None:
        self.device = Device()
        self.cublas = Cublas(self.device)
        self.handle = c_void_p()
        assert self.cublas.cublasCreate_v2(ctypes.byref(self.handle)) == 0

    def on(self, array: Any) -> Buffer:
        array = np.asarray(array)
        return self.device.alloc(array.nbytes).copy_from(array)

    def gemm(self, a: Buffer | int, b: Buffer | int, c: Buffer | int, **given: Any) -> int:
        default = {
            "transa": N, "transb": N, "m": 2, "n": 3, "k": 4, "alpha": c_float(1), "a": address(a), "a_type": R32,
            "lda": 2, "stride_a": 0, "b": address(b), "b_type": R32, "ldb": 4, "stride_b": 0, "beta": c_float(0),
            "c": address(c), "c_type": R32, "ldc": 2, "stride_c": 0, "batch": 1, "compute": F32, "algorithm": -1,
        }  # fmt: skip
        assert given.keys() <= default.keys()
        return self.cublas.cublasGemmStridedBatchedEx(self.handle, *(default | given).values())


def address(buffer: Buffer | int) -> int:
    return buffer if isinstance(buffer, int) else buffer.address


@pytest.fixture
def library() -> Library:
    return Library()


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(2).standard_normal(shape, np.float32)


@pytest.mark.parametrize("transb", [N, T])
@pytest.mark.parametrize("transa", [N, T])
def test_products_by_column(library: Library, transa: int, transb: int) -> None:
    """Memory of rows, read by columns, is the transposed matrix: that of B A for row-major A and B."""
    a, b = numbers(5, 4, 2), numbers(5, 3, 4)  # op(A) is 2 x 4 and op(B) is 4 x 3, by columns
    left, right = (a.swapaxes(1, 2) if transa else a), (b.swapaxes(1, 2) if transb else b)
    x, y, out = library.on(left.copy()), library.on(right.copy()), library.device.alloc(4 * 30)
    status = library.gemm(
        x, y, out, transa=transa, transb=transb, lda=4 if transa else 2, ldb=3 if transb else 4,
        stride_a=8, stride_b=12, stride_c=6, batch=5,
    )  # fmt: skip
    assert status == 0
    assert np.allclose(out.to_numpy(shape=(5, 3, 2)), b @ a, rtol=1e-5)
    assert library.device.counts.library_calls == ["cublasGemmStridedBatchedEx"]


def test_leading_dimensions_leave_gaps_alone(library: Library) -> None:
    a, b = numbers(4, 5), numbers(3, 6)
    out = library.on(np.full((3, 4), 7, np.float32))
    assert library.gemm(library.on(a), library.on(b), out, lda=5, ldb=6, ldc=4) == 0
    found = out.to_numpy(shape=(3, 4))
    assert np.allclose(found[:, :2], b[:, :4] @ a[:, :2], rtol=1e-5)
    assert (found[:, 2:] == 7).all()


def test_one_matrix_for_a_whole_batch(library: Library) -> None:
    a, b = numbers(4, 2), numbers(5, 3, 4)
    out = library.device.alloc(4 * 30)
    assert library.gemm(library.on(a), library.on(b), out, stride_b=12, stride_c=6, batch=5) == 0
    assert np.allclose(out.to_numpy(shape=(5, 3, 2)), b @ a, rtol=1e-5)


def test_factors(library: Library) -> None:
    a, b, c = numbers(4, 2), numbers(3, 4), numbers(3, 2)
    out = library.on(c)
    assert library.gemm(library.on(a), library.on(b), out, alpha=c_float(2), beta=ctypes.byref(c_float(-3))) == 0
    assert np.allclose(out.to_numpy(shape=(3, 2)), 2 * (b @ a) - 3 * c, rtol=1e-5)


def test_a_result_that_is_only_written_may_hold_anything(library: Library) -> None:
    a, b = library.on(numbers(4, 2)), library.on(numbers(3, 4))
    out = library.device.alloc(24)
    assert library.gemm(a, b, out) == 0
    assert np.isfinite(out.to_numpy()).all()
    assert library.gemm(a, b, library.device.alloc(24), beta=c_float(1)) == 0
    with pytest.raises(DeviceFault, match="nothing has written"):
        library.device.synchronize()


def test_a_factor_of_zero_reads_nothing(library: Library) -> None:
    a, b, c = library.device.alloc(32), library.device.alloc(48), numbers(3, 2)
    out = library.on(c)
    assert library.gemm(a, b, out, alpha=c_float(0), beta=c_float(2)) == 0
    assert np.array_equal(out.to_numpy(shape=(3, 2)), 2 * c)


def test_freed_operands(library: Library) -> None:
    a, b, out = library.on(numbers(4, 2)), library.on(numbers(3, 4)), library.device.alloc(24)
    library.device.synchronize()
    assert library.gemm(a, b, out) == 0
    b.free()
    with pytest.raises(DeviceFault) as caught:
        library.device.synchronize()
    assert caught.value.kind == "freed"


def test_no_inner_extent_gives_zeros(library: Library) -> None:
    out = library.device.alloc(24)
    assert library.gemm(0, 0, out, k=0, ldb=1) == 0
    assert (out.to_numpy() == 0).all()
    for nothing in ({"m": 0}, {"n": 0}, {"batch": 0}):
        assert library.gemm(0, 0, 0, **nothing) == 0
    library.device.synchronize()
    assert len(library.device.counts.library_calls) == 1


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"lda": 1}, 7),
        ({"ldb": 3}, 7),
        ({"ldc": 1}, 7),
        ({"transa": T, "lda": 3}, 7),
        ({"transb": T, "ldb": 2}, 7),
        ({"transa": 3}, 7),
        ({"m": -1}, 7),
        ({"alpha": c_double(1)}, 7),
        ({"compute": F64}, 15),
        ({"b_type": R16}, 15),
        ({"a_type": 3, "b_type": 3}, 15),
    ],
)
def test_wrong_arguments_have_the_librarys_status(library: Library, given: dict[str, Any], status: int) -> None:
    a, b, out = library.on(numbers(4, 2)), library.on(numbers(3, 4)), library.device.alloc(24)
    assert library.gemm(a, b, out, **given) == status
    assert library.device.counts.library_calls == []


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"lda": 3}, "out of bounds"),
        ({"batch": 2, "stride_c": 6, "stride_a": 1}, "out of bounds"),
        ({"batch": 2, "stride_c": 5}, "aliasing"),
    ],
)
def test_operands_lie_in_their_buffers(library: Library, given: dict[str, Any], kind: str) -> None:
    a, b, out = library.on(numbers(4, 2)), library.on(numbers(3, 4)), library.device.alloc(48)
    assert library.gemm(a, b, out, **given) == 0
    with pytest.raises(DeviceFault) as caught:
        library.device.synchronize()
    assert caught.value.kind == kind


def test_a_result_over_an_operand(library: Library) -> None:
    a, b = library.on(numbers(4, 2)), library.on(numbers(3, 4))
    assert library.gemm(a, b, a.address + 8) == 0
    with pytest.raises(DeviceFault, match="C overlaps A"):
        library.device.synchronize()


@pytest.mark.parametrize(
    ("dtype", "code", "compute", "kind"),
    [
        (np.float64, R64, F64, c_double),
        (np.float16, R16, F32, c_float),
        (ml_dtypes.bfloat16, B16, PEDANTIC, c_float),
        (np.complex64, C32, F32, c_float * 2),
    ],
)
def test_types(library: Library, dtype: Any, code: int, compute: int, kind: Any) -> None:
    a, b = (numbers(4, 2) + 0).astype(dtype), numbers(3, 4).astype(dtype)
    if np.dtype(dtype).kind == "c":
        a = (a + 1j * numbers(4, 2)).astype(dtype)
    x, y, out = library.on(a), library.on(b), library.device.alloc(6 * a.itemsize)
    one, zero = (kind(1, 0), kind(0, 0)) if np.dtype(dtype).kind == "c" else (kind(1), kind(0))
    types = {"a_type": code, "b_type": code, "c_type": code, "compute": compute}
    assert library.gemm(x, y, out, alpha=one, beta=zero, **types) == 0
    wide = np.result_type(dtype, np.float32)
    wanted = (b.astype(wide) @ a.astype(wide)).astype(dtype)
    assert np.allclose(out.to_numpy(dtype, (3, 2)).astype(wide), wanted.astype(wide), rtol=1e-2 if code > 4 else 1e-3)


def test_conjugated(library: Library) -> None:
    a = (numbers(2, 4) + 1j * numbers(2, 4)[::-1]).astype(np.complex64)
    b = numbers(3, 4).astype(np.complex64)
    out = library.device.alloc(48)
    pair = c_float * 2
    types = {"a_type": C32, "b_type": C32, "c_type": C32, "alpha": pair(1, 0), "beta": pair(0, 0)}
    assert library.gemm(library.on(a), library.on(b), out, transa=C, lda=4, **types) == 0
    assert np.allclose(out.to_numpy(np.complex64, (3, 2)), b @ a.conj().T, rtol=1e-4)


def test_tf32_shows(library: Library) -> None:
    """Ten bits of fraction: what lies below is rounded away, once by the call's type and once by the handle's mode."""
    a = np.full((4, 2), 1 + 2.0**-12, np.float32)
    b, exact = np.ones((3, 4), np.float32), np.float32(4 * (1 + 2.0**-12))
    x, y, out = library.on(a), library.on(b), library.device.alloc(24)

    def product(compute: int) -> float:
        assert library.gemm(x, y, out, compute=compute) == 0
        return float(out.to_numpy()[0])

    assert product(F32) == exact
    assert product(TF32) == 4
    assert library.cublas.cublasSetMathMode(library.handle, 3) == 0
    assert product(F32) == 4
    assert product(PEDANTIC) == exact


def test_graphs_need_a_workspace(library: Library) -> None:
    stream = library.device.new_stream("other")
    a, b, out = library.on(numbers(4, 2)), library.on(numbers(3, 4)), library.device.alloc(24)
    room = library.device.alloc(1 << 20)
    library.device.synchronize()
    assert library.cublas.cublasSetStream_v2(library.handle, stream) == 0
    stream.begin_capture()
    with pytest.raises(DeviceFault, match="workspace of its own"):
        library.gemm(a, b, out)
    assert library.cublas.cublasSetWorkspace_v2(library.handle, room.address, room.nbytes) == 0
    assert library.cublas.cublasSetStream_v2(library.handle, stream) == 0  # takes the workspace away
    with pytest.raises(DeviceFault, match="workspace of its own"):
        library.gemm(a, b, out)
    assert library.cublas.cublasSetWorkspace_v2(library.handle, room.address, room.nbytes) == 0
    assert library.gemm(a, b, out) == 0
    graph = stream.end_capture()
    graph.launch(stream)
    library.device.synchronize()
    assert np.isfinite(out.to_numpy()).all()


def test_a_handle_ends() -> None:
    library = Library()
    assert library.cublas.cublasDestroy_v2(library.handle) == 0
    assert library.gemm(0, 0, 0) == library.cublas.cublasDestroy_v2(library.handle) == 1
    assert library.cublas.cublasSetMathMode(None, 0) == 1
