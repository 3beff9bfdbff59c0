"""`tf.signal`: discrete Fourier transforms. Floor: api."""

from gradtape.api.fourier import (
    fft,
    fft2d,
    ifft,
    ifft2d,
    irfft,
    irfft2d,
    rfft,
    rfft2d,
)

__all__ = [
    "fft",
    "fft2d",
    "ifft",
    "ifft2d",
    "irfft",
    "irfft2d",
    "rfft",
    "rfft2d",
]
