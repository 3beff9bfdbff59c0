"""Zeros in memory that was used before: a block remembers what of it is not zero. Floor: backends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtape.kernels import memory as host
from gradtape.kernels.memory import empty
from gradtape.ops.assembling import Part

__all__ = ["empty", "view", "zeros"]

FEW = 16  # writing zeros over one element of so many is cheaper than over all


class Written(NamedTuple):
    """What is known of a block: its first `size` bytes are zeros but for these parts, in elements of `dtype`."""

    size: int
    dtype: np.dtype[Any]
    parts: tuple[Part, ...]


def zeros(shape: tuple[int, ...], dtype: np.dtype[Any], written: Sequence[Part] | None) -> np.ndarray[Any, Any]:
    """Zeros, of which only the parts `written` will ever be written (None: nobody knows). A large array's block
    remembers its parts, so that the next array of zeros in it clears those alone; the array itself is read-only then,
    and `view` gives the parts to write to."""
    size = host.bytes_of(shape, dtype)
    if size < host.LARGE:
        return np.zeros(shape, dtype)
    note = None
    if written is not None and sum(_elements(p) for p in written) * FEW * dtype.itemsize <= size:
        note = Written(size, np.dtype(dtype), tuple(written))
    found = host.POOL.take(size)
    if found is None:
        block = host.fresh(size, np.zeros)  # pages that nobody has touched yet
    else:
        block, known = found
        _clear(block, size, known)
    array = np.asarray(host.Lease(host.POOL, block, size, note)).view(dtype).reshape(shape)
    if note is not None:
        array.flags.writeable = False
    return array


def view(array: np.ndarray[Any, Any], part: Part) -> np.ndarray[Any, Any]:
    """The part of an array in C order from here, to write to."""
    assert array.flags.c_contiguous, "a part of a copy would be written"
    if array.flags.writeable:
        return _view(array.reshape(-1), part)
    lease: Any = array
    while isinstance(lease, np.ndarray):
        lease = lease.base
    return _view(np.asarray(lease).view(array.dtype), part)


def _view(flat: np.ndarray[Any, Any], part: Part) -> np.ndarray[Any, Any]:
    size = flat.itemsize
    return np.ndarray(part.shape, flat.dtype, flat.view(np.uint8), part.start * size, [s * size for s in part.steps])


def _elements(part: Part) -> int:
    n = 1
    for d in part.shape:
        n *= d
    return n


def _clear(block: np.ndarray[Any, Any], size: int, known: Written | None) -> None:
    if known is None or known.size < size:
        block[:size] = 0
        return
    elements = block[: known.size].view(known.dtype)
    for part in known.parts:
        _view(elements, part)[...] = 0
