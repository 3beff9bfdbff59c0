"""A stand-in for CuPy on the emulated device, for tests: `from tests.cuda_emulator import cupy_stand_in as cupy`.

It has what a program of kernels needs, and is stricter than CuPy: nothing computes but kernels and the library calls of
`library.py`, no host array mixes with device arrays, and every wait of the host is counted.
"""

from __future__ import annotations

import sys

import numpy as _numpy

from tests.cuda_emulator.cupy_stand_in import creation as _creation
from tests.cuda_emulator.cupy_stand_in import cuda, lib
from tests.cuda_emulator.cupy_stand_in.arrays import ComputesOutsideKernels, ndarray
from tests.cuda_emulator.cupy_stand_in.creation import (
    array,
    asarray,
    ascontiguousarray,
    asnumpy,
    broadcast_to,
    diagonal,
    empty,
    empty_like,
    flip,
    full,
    full_like,
    get_array_module,
    ones,
    zeros,
    zeros_like,
)
from tests.cuda_emulator.cupy_stand_in.cuda import is_available
from tests.cuda_emulator.cupy_stand_in.exchange import from_dlpack
from tests.cuda_emulator.cupy_stand_in.kernels import RawKernel, RawModule
from tests.cuda_emulator.cupy_stand_in.library import argsort, fft, linalg, matmul, sort
from tests.cuda_emulator.cupy_stand_in.memory import get_default_memory_pool
from tests.cuda_emulator.cupy_stand_in.state import device, using_device

__all__ = [
    "ComputesOutsideKernels",
    "RawKernel",
    "RawModule",
    "argsort",
    "array",
    "asarray",
    "ascontiguousarray",
    "asnumpy",
    "broadcast_to",
    "cuda",
    "device",
    "diagonal",
    "dtype",
    "empty",
    "empty_like",
    "fft",
    "flip",
    "from_dlpack",
    "full",
    "full_like",
    "get_array_module",
    "get_default_memory_pool",
    "is_available",
    "lib",
    "linalg",
    "matmul",
    "ndarray",
    "newaxis",
    "ones",
    "sort",
    "using_device",
    "zeros",
    "zeros_like",
]

dtype, newaxis = _numpy.dtype, None
bool_, int8, int16, int32, int64 = _numpy.bool_, _numpy.int8, _numpy.int16, _numpy.int32, _numpy.int64
uint8, uint16, uint32, uint64 = _numpy.uint8, _numpy.uint16, _numpy.uint32, _numpy.uint64
float16, float32, float64 = _numpy.float16, _numpy.float32, _numpy.float64
complex64, complex128 = _numpy.complex64, _numpy.complex128

_creation.arrays_module = sys.modules[__name__]
