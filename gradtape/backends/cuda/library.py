"""Calls of the array module's linear algebra, by cuSOLVER and cuBLAS, as steps of graphs. Floor: backends.

The library takes floats and doubles, and leaves what it finds wrong with a matrix on the device, where nobody waits for
it: the graphs around these calls (`factorizations`) find out from the numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.backends.cuda.device import Cuda
from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import of_numpy
from gradtape.ops.op import Op

Infer = Callable[..., Sequence[Aval]]


class Library(Op):
    """A function of the array module that computes. It is no op of the table: only graphs for a device have it.

    Args:
      name: as the step is shown.
      function: (array module, *arrays, **params) to an array or a tuple of arrays.
      infer: (*avals, **params) to the avals of the results.
    """

    kind = "library"

    def __init__(self, name: str, function: Callable[..., Any], infer: Infer) -> None:
        self.name, self.function, self.rule = name, function, infer
        self.doc, self.notes, self.samples, self.errors = "", "", (), ()
        self.steps = {}

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        return tuple(self.rule(*avals, **params))

    def run(self, cuda: Cuda, *arrays: Any, **params: Any) -> Any:
        """The results; what has no elements is not asked for."""
        results = self.infer(tuple(aval(a.shape, of_numpy(a.dtype)) for a in arrays), **params)
        if any(r.size for r in results):
            cuda.needs_host(f"`{self.name}` is a function of cuSOLVER")
            return self.function(cuda.xp, *arrays, **params)
        empty = tuple(cuda.empty(r.dims, r.dtype.numpy_dtype) for r in results)
        return empty if len(empty) > 1 else empty[0]


def _sizes(a: Aval) -> tuple[tuple[int, ...], int, int, int]:
    """Loop axes, rows, columns, and the smaller of both."""
    *loops, rows, columns = a.dims
    return tuple(loops), rows, columns, min(rows, columns)


def _eigen(a: Aval) -> list[Aval]:
    return [aval(a.dims[:-1], a.dtype.real_dtype), a]


def _singular(a: Aval, full: bool) -> list[Aval]:
    loops, rows, columns, k = _sizes(a)
    return [
        aval((*loops, rows, rows if full else k), a.dtype),
        aval((*loops, k), a.dtype.real_dtype),
        aval((*loops, columns if full else k, columns), a.dtype),
    ]


def _orthogonal(a: Aval, full: bool) -> list[Aval]:
    loops, rows, columns, k = _sizes(a)
    inner = rows if full else k
    return [aval((*loops, rows, inner), a.dtype), aval((*loops, inner, columns), a.dtype)]


def _determinant(a: Aval) -> list[Aval]:
    return [aval(a.dims[:-2], a.dtype), aval(a.dims[:-2], a.dtype.real_dtype)]


# Of A X = B the operands have the same loop axes.
SOLVE = Library("linalg_solve", lambda xp, a, b: xp.linalg.solve(a, b), lambda a, b: [b])
CHOLESKY = Library("linalg_cholesky", lambda xp, a: xp.linalg.cholesky(a), lambda a: [a])
EIGH = Library("linalg_eigh", lambda xp, a: tuple(xp.linalg.eigh(a)), _eigen)
EIGVALSH = Library("linalg_eigvalsh", lambda xp, a: xp.linalg.eigvalsh(a), lambda a: _eigen(a)[:1])
SVD = Library("linalg_svd", lambda xp, a, full: tuple(xp.linalg.svd(a, full_matrices=full)), _singular)
SINGULAR_VALUES = Library(
    "linalg_svdvals", lambda xp, a: xp.linalg.svd(a, compute_uv=False), lambda a: _singular(a, False)[1:2]
)
QR = Library(
    "linalg_qr", lambda xp, a, full: tuple(xp.linalg.qr(a, mode="complete" if full else "reduced")), _orthogonal
)
SLOGDET = Library("linalg_slogdet", lambda xp, a: tuple(xp.linalg.slogdet(a)), _determinant)
