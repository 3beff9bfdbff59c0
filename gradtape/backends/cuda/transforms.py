"""Fourier transforms on a device, by cuFFT through the array module. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.backends.cuda.device import Cuda
from gradtape.ir.dtypes import complex64, complex128, of_numpy
from gradtape.kernels.cuda_spectra import half_spectrum

FFT = "Fourier transforms are functions of cuFFT"


def fft(cuda: Cuda, x: Any, inverse: bool) -> Any:
    if not x.size:
        return cuda.empty(x.shape, x.dtype)
    cuda.needs_host(FFT)
    if inverse:
        return cuda.xp.fft.ifft(x, axis=-1, norm="forward")
    return cuda.xp.fft.fft(x, axis=-1)


def rfft(cuda: Cuda, x: Any) -> Any:
    if x.size:
        cuda.needs_host(FFT)
        return cuda.xp.fft.rfft(x, axis=-1)
    kind = complex128 if x.dtype.itemsize == 8 else complex64
    return cuda.empty((*x.shape[:-1], x.shape[-1] // 2 + 1), kind.numpy_dtype)


def irfft(cuda: Cuda, x: Any, length: int) -> Any:
    """The library is told what the op says: it may read the imaginary parts of frequencies that are real."""
    dtype = of_numpy(x.dtype)
    if not x.size:
        return cuda.empty((*x.shape[:-1], length), dtype.real_dtype.numpy_dtype)
    program = cuda.once(
        ("half_spectrum", dtype, x.shape, length),
        lambda: cuda.program(half_spectrum(dtype, x.shape, length), [(x.shape, x.dtype)]),
    )
    cuda.needs_host(FFT)
    return cuda.xp.fft.irfft(program(x)[0], n=length, axis=-1, norm="forward")


OPS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (fft, rfft, irfft)}
