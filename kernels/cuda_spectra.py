"""What Fourier transforms need of kernels. Floor: kernels."""

from __future__ import annotations

import math

from gradtape.ir.dtypes import DType
from gradtape.kernels.cuda_entry import blocks_for, entry, integers, program, reach, read, written
from gradtape.kernels.cuda_launch import CudaProgram


def half_spectrum(dtype: DType, shape: tuple[int, ...], n: int) -> CudaProgram:
    """A half spectrum of n real numbers, without the imaginary parts that cannot be there."""
    size = math.prod(shape)
    blocks = blocks_for(size)
    given = [
        written("out", dtype.name),
        read("x", dtype.name, 0),
        *integers(reach(size, blocks), size=size, frequencies=shape[-1], n=n),
    ]
    comment = ["// x, of which the frequencies 0 and n / 2 are real"]
    lines = ["write_spectrum(out, x, size, frequencies, n);"]
    return program([entry("half_spectrum", ("spectra.cuh",), given, lines, blocks, 2 * size * dtype.size, comment)])
