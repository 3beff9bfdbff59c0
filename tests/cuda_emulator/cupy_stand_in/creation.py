"""New arrays, and arrays from and to the host, as in `cupy`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cuda_emulator.cupy_stand_in.arrays import ComputesOutsideKernels, ndarray, to_device
from tests.cuda_emulator.cupy_stand_in.state import device

__all__ = [
    "array",
    "asarray",
    "ascontiguousarray",
    "asnumpy",
    "broadcast_to",
    "diagonal",
    "empty",
    "empty_like",
    "flip",
    "full",
    "full_like",
    "get_array_module",
    "ones",
    "zeros",
    "zeros_like",
]


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    """Poison, until somebody writes."""
    return ndarray(shape, dtype, order=order)


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    """By a memset, as CuPy has it."""
    new = ndarray(shape, dtype, order=order)
    new.data.memset_async(0, new.nbytes)
    return new


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> ndarray:
    new = ndarray(shape, np.asarray(fill_value).dtype if dtype is None else dtype, order=order)
    new.fill(fill_value)
    return new


def ones(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return full(shape, 1, dtype, order)


def like(prototype: ndarray, dtype: Any, order: str, subok: Any, shape: Any) -> ndarray:
    if not isinstance(prototype, ndarray):
        raise TypeError(f"a device array is wanted, got {type(prototype).__name__}")
    if subok is not None:
        raise TypeError("subok is not supported yet")
    if order in ("K", "A"):
        order = "F" if prototype.flags.f_contiguous and not prototype.flags.c_contiguous else "C"
    return ndarray(prototype.shape if shape is None else shape, dtype or prototype.dtype, order=order)


def empty_like(prototype: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> ndarray:
    return like(prototype, dtype, order, subok, shape)


def zeros_like(a: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> ndarray:
    new = like(a, dtype, order, subok, shape)
    new.data.memset_async(0, new.nbytes)
    return new


def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None
) -> ndarray:
    new = like(a, dtype, order, subok, shape)
    new.fill(fill_value)
    return new


def array(
    obj: Any,
    dtype: Any = None,
    copy: bool = True,
    order: str = "K",
    subok: bool = False,
    ndmin: int = 0,
    *,
    blocking: bool = False,
) -> ndarray:
    """A device array from anything of the host, by one copy; or from a device array."""
    if subok or ndmin:
        raise NotImplementedError("`subok` and `ndmin` are not in the stand-in")
    if isinstance(obj, ndarray):
        return obj.astype(dtype or obj.dtype, order, copy=copy)
    if hasattr(obj, "__cuda_array_interface__"):
        raise NotImplementedError("arrays of other libraries are not in the stand-in")
    if isinstance(obj, list | tuple) and any(isinstance(one, ndarray) for one in obj):
        raise ComputesOutsideKernels("an array from a list of device arrays")
    host = np.asarray(obj, dtype)
    if host.dtype.kind in "OUS":
        raise ValueError(f"Unsupported dtype {host.dtype}")
    new = ndarray(host.shape, host.dtype, order="F" if order == "F" else "C")
    to_device(host, new)
    if blocking:
        device().synchronize("array", device().current_stream)
    return new


def asarray(
    a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None, blocking: bool = False
) -> ndarray:
    return array(a, dtype, copy=bool(copy), order=order or "K", blocking=blocking)


def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    """The array itself if it lies in one piece already, else a copy, which is counted."""
    new = asarray(a, dtype)
    return new if new.flags.c_contiguous else new.copy()


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> np.ndarray:
    """The elements on the host."""
    if isinstance(a, ndarray):
        return a.get(stream, order, out, blocking)
    return np.asarray(a)


def broadcast_to(array: ndarray, shape: Any) -> ndarray:
    """A view with the elements repeated."""
    return array._view(lambda twin: np.broadcast_to(twin, shape))


def flip(a: ndarray, axis: Any = None) -> ndarray:
    """A view from the other end."""
    return a._view(lambda twin: np.flip(twin, axis))


def diagonal(a: ndarray, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ndarray:
    """A view of the elements whose places on two axes agree."""
    return a._view(lambda twin: np.diagonal(twin, offset, axis1, axis2))


def get_array_module(*args: Any) -> Any:
    """NumPy, unless one of the arguments is a device array: then `arrays_module`, which the package sets."""
    return arrays_module if any(isinstance(argument, ndarray) for argument in args) else np


arrays_module: Any = None
