"""cuBLAS for one device: handles of our own, since CuPy's refuses to be called while a stream is captured. Floor:
backends."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from gradtape.ir.determinism import DETERMINISM

PLAIN, TRANSPOSED = 0, 1
FLOAT32, TF32, FLOAT64 = 68, 77, 70  # how sums are carried
DEFAULT_ALGORITHM = -1
WORKSPACE = 32 << 20  # bytes that the library has by itself on the newest devices, and 4 MB on others

KINDS = {
    np.dtype(np.float32): 0,
    np.dtype(np.float64): 1,
    np.dtype(np.float16): 2,
    np.dtype(np.complex64): 4,
    np.dtype(np.complex128): 5,
    np.dtype(ml_dtypes.bfloat16): 14,
}
DOUBLE = (np.dtype(np.float64), np.dtype(np.complex128))
SINGLE = (np.dtype(np.float32), np.dtype(np.complex64))


class Math:
    """How products of float32 are computed. `tf32`: with ten bits of each factor, where the device has units for
    that, as TensorFlow does by default."""

    def __init__(self) -> None:
        self.tf32 = True


MATH = Math()


class Matrices(NamedTuple):
    """A batch of matrices by columns, perhaps transposed: the address of the first, the distance from column to
    column, and from matrix to matrix."""

    address: int
    operation: int
    leading: int
    stride: int


class Blas:
    """Products by cuBLAS.

    Args:
      library: its functions under the C library's names.
      stream: gives what the library takes for the current stream.
      memory: so many bytes of the device, as an array.
    """

    def __init__(self, library: Any, stream: Callable[[], Any], memory: Callable[[int], Any]) -> None:
        self.library, self.stream, self.memory = library, stream, memory
        self.own = _Own()
        self.idle: list[ctypes.c_void_p] = []  # handles of graphs that are gone

    def gemm(
        self, dtype: np.dtype[Any], sizes: tuple[int, int, int], a: Matrices, b: Matrices, c: Matrices, batch: int
    ) -> None:
        """c = op(a) op(b) for each matrix of the batch; sizes: rows and columns of c, and what is summed over."""
        kind = KINDS[dtype]
        compute = FLOAT64 if dtype in DOUBLE else TF32 if MATH.tf32 and dtype in SINGLE else FLOAT32
        real = ctypes.c_double if dtype in DOUBLE else ctypes.c_float
        one, zero = ((real * 2)(1, 0), (real * 2)(0, 0)) if dtype.kind == "c" else (real(1), real(0))
        m, n, k = sizes
        _check(
            "cublasGemmStridedBatchedEx",
            self.library.cublasGemmStridedBatchedEx(
                self._handle(),
                *(a.operation, b.operation, m, n, k, ctypes.byref(one)),
                *(a.address, kind, a.leading, a.stride, b.address, kind, b.leading, b.stride, ctypes.byref(zero)),
                *(c.address, kind, c.leading, c.stride, batch, compute, DEFAULT_ALGORITHM),
            ),
        )

    def _handle(self) -> ctypes.c_void_p:
        """This thread's handle, or that of the graph which it records, on the current stream."""
        own = self.own
        if own.graph is not None:
            return own.graph.handle()
        if own.handle is None:
            own.handle = self.created()
        stream = self.stream()
        if own.stream != (stream, DETERMINISM.required):
            self.bind(own.handle, stream, self.workspace(stream) if DETERMINISM.required else None)
            own.stream = stream, DETERMINISM.required
        return own.handle

    def workspace(self, stream: Any) -> Any:
        """Memory for this thread's products on a stream. The library takes some from a pool otherwise, and how a
        product is split up then depends on what other streams do."""
        own = self.own
        if stream not in own.workspaces:
            own.workspaces[stream] = self.memory(WORKSPACE)
        return own.workspaces[stream]

    def created(self) -> ctypes.c_void_p:
        """A new handle."""
        handle = ctypes.c_void_p()
        _check("cublasCreate", self.library.cublasCreate_v2(ctypes.byref(handle)))
        return handle

    def bind(self, handle: ctypes.c_void_p, stream: Any, workspace: Any = None) -> None:
        """Let a handle work on a stream; `workspace`: in this array, and not in memory that the library takes."""
        _check("cublasSetStream", self.library.cublasSetStream_v2(handle, stream))
        if workspace is not None:  # which the call before took away
            _check(
                "cublasSetWorkspace",
                self.library.cublasSetWorkspace_v2(handle, workspace.data.ptr, workspace.nbytes),
            )

    @contextlib.contextmanager
    def through(self, products: GraphProducts) -> Iterator[None]:
        """A block whose products, in this thread, are those of a graph."""
        before, self.own.graph = self.own.graph, products
        try:
            yield
        finally:
            self.own.graph = before


class GraphProducts:
    """How one graph computes products: by a handle that no other graph uses while it lives, in memory that is there for
    products on its stream. While a stream is captured the library must not take any, so that both are there before: the
    work first runs without a capture."""

    def __init__(self, blas: Blas) -> None:
        self.blas = blas
        self.own: ctypes.c_void_p | None = None
        self.workspace: Any = None
        self.stream: Any = None

    def handle(self) -> ctypes.c_void_p:
        """The handle, on the current stream."""
        if self.own is None:
            self.own = self.blas.idle.pop() if self.blas.idle else self.blas.created()
            self.workspace = self.blas.workspace(self.blas.stream())  # graphs on one stream run one after the other
            weakref.finalize(self, self.blas.idle.append, self.own)
        stream = self.blas.stream()
        if stream != self.stream:
            self.blas.bind(self.own, stream, self.workspace)
            self.stream = stream
        return self.own

    def prepare(self) -> None:
        """Go over to the current stream, if there are products at all."""
        if self.own is not None:
            self.handle()


class _Own(threading.local):
    """Of each thread: a handle serves one."""

    def __init__(self) -> None:
        self.handle: ctypes.c_void_p | None = None
        self.stream: Any = None  # that the handle is on, and whether with memory of its own
        self.workspaces: dict[Any, Any] = {}  # by stream
        self.graph: GraphProducts | None = None


def _check(name: str, status: int) -> None:
    if status:
        raise RuntimeError(f"`{name}` of cuBLAS failed with status {status}. Please report this.")
