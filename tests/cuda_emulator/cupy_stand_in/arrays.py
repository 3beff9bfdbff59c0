"""Arrays on the emulated device: views are free, copies are counted, and nothing else computes.

Stricter than CuPy where CuPy is convenient: what CuPy would compute by a kernel of its own raises here, so that a
program's work is done by its own kernels and by the library calls that it means to make.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.cuda_emulator.cupy_stand_in.memory import MemoryPointer, alloc, on
from tests.cuda_emulator.cupy_stand_in.state import device, enqueue
from tests.cuda_emulator.host import Span

__all__ = ["ComputesOutsideKernels", "copy_elements", "ndarray", "to_device", "to_host"]


class ComputesOutsideKernels(TypeError):
    """An array operation for which CuPy would launch a kernel of its own."""


def dimensions(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(size) for size in shape)


def strides_of(shape: tuple[int, ...], itemsize: int, order: str) -> tuple[int, ...]:
    """Strides of new memory."""
    if order not in ("C", "F"):
        raise ValueError(f"new memory is in order 'C' or 'F', got {order!r}")
    strides = [itemsize] * len(shape)
    axes = range(len(shape) - 2, -1, -1) if order == "C" else range(1, len(shape))
    for axis in axes:
        before = axis + 1 if order == "C" else axis - 1
        strides[axis] = strides[before] * max(shape[before], 1)
    return tuple(strides)


@functools.lru_cache(1024)
def twin(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A NumPy array of this shape and these strides, over memory that is not there: NumPy knows all of views."""
    return np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides)


class ndarray:
    """A device array. It is no NumPy array, and does not turn into one unless it is told to (`get`)."""

    __array_priority__ = 100

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"
    ) -> None:
        self.shape = dimensions(shape)
        self.dtype = np.dtype(dtype)
        self.strides = strides_of(self.shape, self.dtype.itemsize, order) if strides is None else tuple(strides)
        self.data: MemoryPointer = alloc(self.nbytes) if memptr is None else memptr
        self.base: ndarray | None = None

    # ---- what it is -------------------------------------------------------------------------------------------------

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: math.prod(self.shape))
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: self.size * self.itemsize)
    flags = property(lambda self: twin(self.shape, self.strides, self.dtype).flags)
    T = property(lambda self: self.transpose())

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        contiguous = self.flags.c_contiguous
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "data": (self.data.ptr if self.size else 0, False),
            "strides": None if contiguous else self.strides,
            "stream": 1,
            "version": 3,
        }

    def __repr__(self) -> str:  # CuPy shows the numbers, and waits for them
        return f"<device array of shape {self.shape}, {self.dtype}>"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def span(self) -> Span:
        return Span(self.data.ptr, self.shape, self.strides, self.dtype)

    # ---- views ------------------------------------------------------------------------------------------------------

    def _twin(self) -> np.ndarray:
        return twin(self.shape, self.strides, self.dtype)

    def _view(self, change: Callable[[np.ndarray], np.ndarray]) -> ndarray:
        twin = self._twin()
        changed = change(twin)
        offset = changed.__array_interface__["data"][0] - twin.__array_interface__["data"][0]
        view = ndarray(changed.shape, changed.dtype, self.data + (offset if changed.size else 0), changed.strides)
        view.base = self if self.base is None else self.base
        return view

    def __getitem__(self, slices: Any) -> ndarray:
        """A view, of no dimensions where NumPy would give a scalar."""
        index = slices if isinstance(slices, tuple) else (slices,)
        for one in index:
            if not isinstance(one, int | np.integer | slice | type(None) | type(Ellipsis)) or isinstance(one, bool):
                raise ComputesOutsideKernels(f"indexing by {type(one).__name__} gathers; only views are free")
        if Ellipsis not in index:
            index = (*index, Ellipsis)
        return self._view(lambda twin: twin[index])

    def __iter__(self) -> Iterator[ndarray]:
        return (self[i] for i in range(len(self)))

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> ndarray:
        """A view where one is possible, and else a copy, which is counted."""
        sizes = dimensions(shape[0] if len(shape) == 1 else shape)
        sizes = np.empty(self.shape, np.bool_).reshape(sizes).shape  # -1 is worked out, a wrong size raises
        try:
            return self._view(lambda twin: np.reshape(twin, sizes, order=order, copy=False))
        except ValueError:
            if copy is False:
                raise
        return self.copy(order).reshape(sizes, order=order)

    def ravel(self, order: str = "C") -> ndarray:
        return self.reshape(-1, order=order)

    def transpose(self, *axes: Any) -> ndarray:
        return self._view(lambda twin: twin.transpose(*axes))

    def swapaxes(self, axis1: int, axis2: int) -> ndarray:
        return self._view(lambda twin: twin.swapaxes(axis1, axis2))

    def squeeze(self, axis: Any = None) -> ndarray:
        return self._view(lambda twin: twin.squeeze(axis))

    def view(self, dtype: Any = None, type: Any = None) -> ndarray:
        return self._view(lambda twin: twin.view() if dtype is None else twin.view(dtype))

    # ---- copies -----------------------------------------------------------------------------------------------------

    def copy(self, order: str = "C") -> ndarray:
        new = ndarray(self.shape, self.dtype, order="C" if order == "K" else order)
        copy_elements(self, new)
        return new

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True
    ) -> ndarray:
        """A copy of the same dtype; another one would be computed."""
        if np.dtype(dtype) != self.dtype:
            raise ComputesOutsideKernels(f"`astype` from {self.dtype} to {np.dtype(dtype)}")
        return self.copy(order) if copy else self

    def fill(self, value: Any) -> None:
        if not np.isscalar(value) and getattr(value, "shape", None) != ():
            raise ValueError("non-scalar value cannot be used for fill")
        if isinstance(value, ndarray):
            raise ComputesOutsideKernels("`fill` by a device array")
        if self.dtype.kind == "V":
            raise ComputesOutsideKernels(f"`fill` of {self.dtype}, which CuPy's kernels need not know")
        span, number = self.span(), np.asarray(value).astype(self.dtype)
        enqueue("fill", lambda: span.written("fill").fill(number))

    def __setitem__(self, slices: Any, value: Any) -> None:
        """A copy into a view, of a device array of the same dtype, or a fill by a number."""
        target = self[slices]
        if isinstance(value, ndarray):
            copy_elements(value, target)
        elif np.isscalar(value):
            target.fill(value)
        else:
            raise TypeError(f"a device array or a number is wanted, got {type(value).__name__}: use `set`")

    def set(self, arr: np.ndarray, stream: Any = None) -> None:
        """Copy from the host, as the array is now."""
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.dtype != self.dtype or arr.shape != self.shape:
            raise ValueError(f"{arr.dtype} {arr.shape} does not fit {self.dtype} {self.shape}")
        with on(stream):
            to_device(arr, self)

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> np.ndarray:
        """Copy to the host. Unless `blocking` is false it waits for the stream, and is counted as doing so."""
        with on(stream):
            return to_host(self, out, "get", blocking=blocking)

    def item(self) -> Any:
        return to_host(self, None, "item").item()

    def tolist(self) -> Any:
        return to_host(self, None, "tolist").tolist()

    def _number(self, what: str) -> Any:
        if self.size != 1:
            raise TypeError("only size-1 arrays can be converted to Python scalars")
        return to_host(self, None, what).item()

    def __bool__(self) -> bool:
        return bool(self._number("bool"))

    def __int__(self) -> int:
        return int(self._number("int"))

    def __float__(self) -> float:
        return float(self._number("float"))

    def __index__(self) -> int:
        return int(self._number("index"))

    # ---- what it is not ---------------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        raise ComputesOutsideKernels(f"`numpy.{ufunc.__name__}` of a device array")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise ComputesOutsideKernels(f"`numpy.{function.__name__}` of a device array")


def as_strided(x: ndarray, shape: Any = None, strides: Any = None) -> ndarray:
    """A view of any shape and strides, which nobody checks until somebody goes there."""
    return x._view(lambda twin: np.lib.stride_tricks.as_strided(twin, shape, strides))


OPERATORS = [
    *(
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "divmod",
        "pow",
        "matmul",
        "lshift",
        "rshift",
        "and",
        "or",
        "xor",
    ),
    *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rdivmod", "rpow", "rmatmul"),
    *("rlshift", "rrshift", "rand", "ror", "rxor", "lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert"),
    *("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul"),
    *("ilshift", "irshift", "iand", "ior", "ixor"),
]
METHODS = [
    *("all", "any", "argmax", "argmin", "argpartition", "argsort", "byteswap", "choose", "clip", "compress", "conj"),
    *("conjugate", "cumprod", "cumsum", "diagonal", "dot", "flatten", "max", "mean", "min", "nonzero", "partition"),
    *("prod", "ptp", "put", "repeat", "round", "scatter_add", "scatter_max", "scatter_min", "searchsorted", "sort"),
    *("std", "sum", "take", "trace", "var"),
]


def refusing(name: str) -> Callable[..., Any]:
    def method(self: ndarray, *_: Any, **__: Any) -> Any:
        raise ComputesOutsideKernels(f"`{name}` of a device array: CuPy would launch a kernel of its own")

    method.__name__ = name
    return method


for _name in (*(f"__{operator}__" for operator in OPERATORS), *METHODS):
    setattr(ndarray, _name, refusing(_name))
ndarray.__hash__ = None  # type: ignore[assignment]


# ---- between arrays, and between device and host ---------------------------------------------------------------------


def copy_elements(source: ndarray, target: ndarray) -> None:
    """Queue a copy, broadcast as NumPy does it."""
    if source.dtype != target.dtype:
        raise ComputesOutsideKernels(f"a copy from {source.dtype} to {target.dtype}")
    np.broadcast_to(source._twin(), target.shape)  # raises where the shapes do not fit
    given, wanted = source.span(), target.span()

    def copy() -> None:
        wanted.written("copy")[...] = given.read("copy").copy()

    enqueue("copy", copy)


def to_device(array: np.ndarray, target: ndarray) -> None:
    """Queue a copy of the host array as it is now."""
    values, span, stream = array.copy(), target.span(), device().current_stream
    if stream.recording is not None:
        raise stream.refuse("a copy from memory of the host that is not pinned")

    def copy() -> None:
        span.written("copy to the device")[...] = values

    device().counts.copies_to_device += 1
    stream.enqueue(copy)


def to_host(array: ndarray, out: np.ndarray | None, reason: str, *, blocking: bool = True) -> np.ndarray:
    """The array's elements on the host; poison (all bits set) until the stream gets there."""
    if out is None:
        out = np.frombuffer(bytearray(b"\xff" * array.nbytes), array.dtype).reshape(array.shape)
    if out.dtype != array.dtype or out.shape != array.shape:
        raise ValueError(f"`out` has {out.dtype} {out.shape}, and the array has {array.dtype} {array.shape}")
    span, target = array.span(), out

    def copy() -> None:
        target[...] = span.read(f"copy to the host ({reason})")

    stream = device().current_stream
    stream.enqueue(copy)
    if blocking:
        device().synchronize(reason, stream)
    return out
