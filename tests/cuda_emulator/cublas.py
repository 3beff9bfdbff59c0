"""A stand-in for cuBLAS on the emulated device: products as the library takes them, by column and leading dimension.

`Cublas` has functions under the C library's names, with its arguments in its order, and gives its status. Handles are
numbers, matrices addresses, and the factors `alpha` and `beta` are ctypes values or `ctypes.byref` of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tests.cuda_emulator.device import Device
from tests.cuda_emulator.faults import DeviceFault
from tests.cuda_emulator.host import Span
from tests.cuda_emulator.native import runtime
from tests.cuda_emulator.streams import Stream

__all__ = ["Cublas"]

SUCCESS, NOT_INITIALIZED, INVALID_VALUE, NOT_SUPPORTED = 0, 1, 7, 15
PLAIN, TRANSPOSED, CONJUGATED = 0, 1, 2
TF32_MATH = 3

DTYPES = {
    0: np.dtype(np.float32),
    1: np.dtype(np.float64),
    2: np.dtype(np.float16),
    4: np.dtype(np.complex64),
    5: np.dtype(np.complex128),
    14: np.dtype(ml_dtypes.bfloat16),
}
DOUBLES = {np.dtype(np.float64), np.dtype(np.complex128)}
HALVES = {np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)}
FLOAT32, FLOAT32_PEDANTIC, TF32, FLOAT64, FLOAT64_PEDANTIC = 68, 69, 77, 70, 71
IN_FLOAT32, IN_FLOAT64 = {FLOAT32, FLOAT32_PEDANTIC, TF32}, {FLOAT64, FLOAT64_PEDANTIC}
NAME = "cublasGemmStridedBatchedEx"


@dataclass
class Handle:
    """What a program sets once for many calls."""

    stream: Stream
    workspace: int = 0  # bytes of its own
    address: int = 0  # where they are
    mathematics: int = 0


@dataclass(frozen=True)
class Matrices:
    """A batch of matrices by columns: `leading` elements from one to the next, `stride` from matrix to matrix."""

    address: int
    rows: int
    columns: int
    leading: int
    stride: int
    batch: int
    dtype: np.dtype

    @property
    def is_possible(self) -> bool:
        return self.leading >= max(1, self.rows)

    def span(self) -> Span:
        size = self.dtype.itemsize
        shape = (self.batch, self.rows, self.columns)
        return Span(self.address, shape, (self.stride * size, size, self.leading * size), self.dtype)

    def extent(self) -> tuple[int, int]:
        """The first address and the one behind the last."""
        last = (self.batch - 1) * self.stride + (self.columns - 1) * self.leading + self.rows
        return self.address, self.address + last * self.dtype.itemsize

    @property
    def overlaps_itself(self) -> bool:
        """Whether matrices lie neither one behind the other nor between each other's columns."""
        behind = self.stride >= (self.columns - 1) * self.leading + self.rows
        between = self.stride >= self.rows and (self.batch - 1) * self.stride + self.rows <= self.leading
        return self.batch > 1 and not (behind or between)


def scalar(value: Any) -> complex:
    """A factor's value, now: the library reads it at the call when it lies on the host."""
    value = getattr(value, "_obj", value)
    if isinstance(value, ctypes.c_float | ctypes.c_double):
        return value.value
    if isinstance(value, ctypes.Array) and len(value) == 2:
        return complex(*value)
    raise TypeError(f"a factor is a ctypes float, double, or two of them, got {type(value).__name__}")


def factor_fits(value: Any, compute: int, dtype: np.dtype) -> bool:
    """Factors are of the type that is computed in; a `double` for a `float` would be read as another number."""
    value = getattr(value, "_obj", value)
    kind = ctypes.c_double if compute in IN_FLOAT64 else ctypes.c_float
    if dtype.kind == "c":
        return isinstance(value, ctypes.Array) and value._type_ is kind
    return isinstance(value, kind)


def rounded_to_tf32(values: np.ndarray) -> np.ndarray:
    """float32 with ten bits of fraction, to nearest, as tensor cores read it."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x0FFF + (bits >> 13 & 1)) & np.uint32(0xFFFFE000)).view(values.dtype)


def turned(values: np.ndarray, operation: int) -> np.ndarray:
    if operation == PLAIN:
        return values
    values = values.swapaxes(-1, -2)
    return values.conj() if operation == CONJUGATED else values


@dataclass(frozen=True)
class Product:
    """One call: C becomes alpha A B + beta C."""

    a: Matrices
    b: Matrices
    c: Matrices
    operations: tuple[int, int]
    inner: int
    alpha: complex
    beta: complex
    uses_tf32: bool
    workspace: int  # of a graph: its address

    def refuse_overlap(self) -> None:
        if self.c.overlaps_itself:
            raise DeviceFault("aliasing", f"matrices of C lie {self.c.stride} elements apart, and overlap", NAME)
        first, last = self.c.extent()
        for name, other in (("A", self.a), ("B", self.b)):
            start, end = other.extent()
            if self.inner and start < last and first < end:
                raise DeviceFault("aliasing", f"C overlaps {name}, which is read", NAME)

    def run(self) -> None:
        if self.workspace and runtime().emulator_buffer_at(self.workspace) is None:
            raise DeviceFault("freed", "the workspace that it was recorded with was freed", NAME)
        self.refuse_overlap()
        wide = np.result_type(self.c.dtype, np.float32)
        result = np.zeros((self.c.batch, self.c.rows, self.c.columns), wide)
        if self.inner and self.alpha:
            given = [
                turned(matrices.span().read(NAME).astype(wide), operation)
                for matrices, operation in zip((self.a, self.b), self.operations)
            ]
            if self.uses_tf32:
                given = [rounded_to_tf32(values) for values in given]
            with np.errstate(all="ignore"):
                result += wide.type(self.alpha) * np.matmul(*given)
        if self.beta:  # or else C need not hold anything
            result += wide.type(self.beta) * self.c.span().read(NAME).astype(wide)
        self.c.span().written(NAME)[...] = result.astype(self.c.dtype)


class Cublas:
    """The library, for one device. Calls are queued on the handle's stream and counted among its library calls."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._handles: dict[int, Handle] = {}
        self._numbers: Iterator[int] = iter(range(1, 1 << 31))

    def cublasCreate_v2(self, handle: Any) -> int:
        """Writes the new handle into a `ctypes.c_void_p` (or `byref` of one)."""
        number = next(self._numbers)
        getattr(handle, "_obj", handle).value = number
        self._handles[number] = Handle(self.device.default_stream)
        return SUCCESS

    def cublasDestroy_v2(self, handle: Any) -> int:
        return NOT_INITIALIZED if self._handles.pop(number_of(handle), None) is None else SUCCESS

    def cublasSetStream_v2(self, handle: Any, stream: Stream) -> int:
        """The stream; it also takes the workspace away, as the library's call does."""
        found = self._handles.get(number_of(handle))
        if found is None:
            return NOT_INITIALIZED
        found.stream, found.workspace = stream, 0
        return SUCCESS

    def cublasSetWorkspace_v2(self, handle: Any, workspace: int, size: int) -> int:
        found = self._handles.get(number_of(handle))
        if found is None:
            return NOT_INITIALIZED
        if workspace % 256:
            return INVALID_VALUE
        found.workspace, found.address = size, workspace
        return SUCCESS

    def cublasSetMathMode(self, handle: Any, mode: int) -> int:
        found = self._handles.get(number_of(handle))
        if found is None:
            return NOT_INITIALIZED
        found.mathematics = mode
        return SUCCESS

    def cublasGemmStridedBatchedEx(
        self,
        handle: Any,
        transa: int,
        transb: int,
        m: int,
        n: int,
        k: int,
        alpha: Any,
        a: int,
        a_type: int,
        lda: int,
        stride_a: int,
        b: int,
        b_type: int,
        ldb: int,
        stride_b: int,
        beta: Any,
        c: int,
        c_type: int,
        ldc: int,
        stride_c: int,
        batch: int,
        compute: int,
        algorithm: int,
    ) -> int:
        """C = alpha op(A) op(B) + beta C for each matrix of the batch; op(A) has m rows, op(B) n columns."""
        found = self._handles.get(number_of(handle))
        if found is None:
            return NOT_INITIALIZED
        if not {transa, transb} <= {PLAIN, TRANSPOSED, CONJUGATED} or min(m, n, k, batch) < 0:
            return INVALID_VALUE
        if not types_fit(a_type, b_type, c_type, compute):
            return NOT_SUPPORTED
        dtype, target = DTYPES[a_type], DTYPES[c_type]
        if not (factor_fits(alpha, compute, target) and factor_fits(beta, compute, target)):
            return INVALID_VALUE
        left = Matrices(a, *((m, k) if transa == PLAIN else (k, m)), lda, stride_a, batch, dtype)
        right = Matrices(b, *((k, n) if transb == PLAIN else (n, k)), ldb, stride_b, batch, dtype)
        result = Matrices(c, m, n, ldc, stride_c, batch, target)
        if not (left.is_possible and right.is_possible and result.is_possible):
            return INVALID_VALUE
        if found.stream.recording is not None and not found.workspace:
            raise DeviceFault("workspace", "allocates in a graph: give the handle a workspace of its own before", NAME)
        tf32 = compute == TF32 or (compute == FLOAT32 and found.mathematics == TF32_MATH)
        uses_tf32 = tf32 and dtype not in HALVES
        own = found.address if found.stream.recording is not None else 0
        product = Product(left, right, result, (transa, transb), k, scalar(alpha), scalar(beta), uses_tf32, own)
        if m and n and batch:
            self.device.counts.library_calls.append(NAME)
            found.stream.enqueue(product.run)
        return SUCCESS


def number_of(handle: Any) -> int:
    return getattr(handle, "value", handle) or 0


def types_fit(a_type: int, b_type: int, c_type: int, compute: int) -> bool:
    """The combinations that this library computes: one type, or halves with a result in float32."""
    if a_type != b_type or not {a_type, c_type} <= DTYPES.keys() or compute not in IN_FLOAT32 | IN_FLOAT64:
        return False
    given, result = DTYPES[a_type], DTYPES[c_type]
    if (result in DOUBLES) != (compute in IN_FLOAT64):
        return False
    return given == result or (given in HALVES and result == np.float32)
