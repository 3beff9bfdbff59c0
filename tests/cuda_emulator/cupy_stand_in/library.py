"""The library calls that compute: products by cuBLAS, cuSOLVER, cuFFT, sorting. Each is counted by its name.

The host computes them when the stream gets there, from what the device's memory holds then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.cuda_emulator.cupy_stand_in import failing
from tests.cuda_emulator.cupy_stand_in.arrays import ndarray
from tests.cuda_emulator.cupy_stand_in.state import device, enqueue
from tests.cuda_emulator.faults import CaptureRefused

__all__ = ["argsort", "fft", "linalg", "matmul", "sort"]


def harmless(a: ndarray) -> np.ndarray:
    """Elements of the same shape and dtype with which every function works: only the results' shapes are wanted."""
    values = np.zeros(a.shape, a.dtype)
    if a.ndim >= 2:
        values[..., range(min(a.shape[-2:])), range(min(a.shape[-2:]))] = 1
    return values


def queue(name: str, function: Callable[..., Any], operands: tuple[Any, ...], out: ndarray | None = None) -> Any:
    """Queue `function` of device arrays; the results' shapes are those that it gives for other elements."""
    for operand in operands:
        if not isinstance(operand, ndarray):
            raise TypeError(f"`{name}` wants device arrays, got {type(operand).__name__}")
    if device().current_stream.recording is not None:
        raise CaptureRefused(f"`{name}`: calling cuBLAS and its kin during stream capture is unsupported")
    sample = function(*(harmless(operand) for operand in operands))
    several = isinstance(sample, tuple)
    shapes = tuple(sample) if several else (sample,)
    if out is not None and (out.shape != shapes[0].shape or out.dtype != shapes[0].dtype):
        raise ValueError(f"`out` has {out.dtype} {out.shape}, and `{name}` gives {shapes[0].dtype} {shapes[0].shape}")
    results = [out] if out is not None else [ndarray(one.shape, one.dtype) for one in shapes]
    given, wanted = [operand.span() for operand in operands], [result.span() for result in results]

    def run() -> None:
        found = function(*(span.read(name) for span in given))
        for span, one in zip(wanted, tuple(found) if several else (found,)):
            span.written(name)[...] = one

    enqueue(name, run)
    return tuple(results) if several else results[0]


def matmul(a: Any, b: Any, /, out: ndarray | None = None) -> ndarray:
    return queue("matmul", np.matmul, (a, b), out)


def sort(a: Any, axis: int = -1, kind: Any = None) -> ndarray:
    return queue("sort", lambda x: np.sort(x, axis, kind="stable"), (a,))


def argsort(a: Any, axis: int = -1, kind: Any = None) -> ndarray:
    return queue("argsort", lambda x: np.argsort(x, axis, kind="stable"), (a,))


class Linalg:
    """`cupy.linalg`, by cuSOLVER and cuBLAS: what is wrong with a matrix is not raised, since nobody waits for it."""

    @staticmethod
    def cholesky(a: Any) -> ndarray:
        return queue("linalg.cholesky", lambda x: failing.by_matrix(failing.cholesky, x), floats(a))

    @staticmethod
    def inv(a: Any) -> ndarray:
        return queue("linalg.inv", lambda x: failing.by_matrix(failing.inverse, x), floats(a))

    @staticmethod
    def solve(a: Any, b: Any) -> ndarray:
        if b.ndim > 1 and a.shape[:-1] != b.shape[:-1]:
            raise ValueError("a must have (..., M, M) shape and b must have (..., M, K) for multidimensional b")
        return queue("linalg.solve", lambda x, y: failing.by_matrix(failing.solve, x, y), floats(a, b))

    @staticmethod
    def slogdet(a: Any) -> Any:
        return queue("linalg.slogdet", lambda x: tuple(np.linalg.slogdet(x)), floats(a))

    @staticmethod
    def qr(a: Any, mode: str = "reduced") -> Any:
        return queue("linalg.qr", lambda x: tuple(np.linalg.qr(x, mode)), floats(a))

    @staticmethod
    def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
        def function(x: np.ndarray) -> Any:
            found = np.linalg.svd(x, full_matrices, compute_uv)
            return tuple(found) if compute_uv else found

        return queue("linalg.svd", function, floats(a))

    @staticmethod
    def eigh(a: Any, UPLO: str = "L") -> Any:
        return queue("linalg.eigh", lambda x: tuple(np.linalg.eigh(x, UPLO)), floats(a))

    @staticmethod
    def eigvalsh(a: Any, UPLO: str = "L") -> ndarray:
        return queue("linalg.eigvalsh", lambda x: np.linalg.eigvalsh(x, UPLO), floats(a))


def floats(*arrays: Any) -> tuple[Any, ...]:
    """The operands, of a dtype that cuSOLVER takes."""
    for a in arrays:
        if a.dtype.name not in ("float32", "float64", "complex64", "complex128"):
            raise TypeError(f"{a.dtype} is unsupported in linalg")
    return arrays


class Fft:
    """`cupy.fft`, which keeps float32 as cuFFT does."""

    @staticmethod
    def fft(a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> ndarray:
        return queue("fft.fft", lambda x: np.fft.fft(x, n, axis, norm), (a,))

    @staticmethod
    def ifft(a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> ndarray:
        return queue("fft.ifft", lambda x: np.fft.ifft(x, n, axis, norm), (a,))

    @staticmethod
    def rfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> ndarray:
        return queue("fft.rfft", lambda x: np.fft.rfft(x, n, axis, norm), (a,))

    @staticmethod
    def irfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> ndarray:
        return queue("fft.irfft", lambda x: np.fft.irfft(x, n, axis, norm), (a,))


linalg, fft = Linalg, Fft
