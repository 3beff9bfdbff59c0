"""Positions that are found on a device: of first extreme elements, of values in sorted rows. Floor: backends."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from gradtape.backends.cuda.device import Cuda
from gradtape.backends.cuda.moves import alignment
from gradtape.ir.dtypes import DType, of_numpy
from gradtape.kernels import cuda_positions

Array = Any


def _extreme(cuda: Cuda, x: Array, axis: int, dtype: DType, largest: bool) -> Array:
    """NaN counts as more extreme than any number, as in NumPy."""
    shape, place = x.shape, alignment(x)

    def make() -> Any:
        sizes = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
        program = cuda_positions.extreme(*sizes, of_numpy(x.dtype), largest, dtype, place)
        return cuda.program(program, [((*shape[:axis], *shape[axis + 1 :]), dtype.numpy_dtype)])

    return cuda.once(("extreme", shape, x.dtype, axis, dtype, largest, place), make)(x)[0]


def searchsorted(cuda: Cuda, rows: Array, values: Array, right: bool, dtype: DType) -> Array:
    """One sorted row for all values, in which NaN comes last; or a row for each row of values."""

    def make() -> Any:
        one = rows.ndim == 1
        lead, n = math.prod(rows.shape[:-1]), rows.shape[-1]
        count = values.size if one else values.shape[-1]
        program = cuda_positions.search(lead, n, count, of_numpy(rows.dtype), right, one, dtype)
        return cuda.program(program, [(values.shape, dtype.numpy_dtype)])

    return cuda.once(("search", rows.shape, values.shape, rows.dtype, right, dtype), make)(rows, values)[0]


OPS: dict[str, Callable[..., Any]] = {
    "argmax": functools.partial(_extreme, largest=True),
    "argmin": functools.partial(_extreme, largest=False),
    "searchsorted": searchsorted,
}
