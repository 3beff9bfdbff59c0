"""Device memory as arrays of the host: how library calls, which no kernel of ours makes, reach it when they run."""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_int, c_uint64
from dataclasses import dataclass

import numpy as np

from tests.cuda_emulator.faults import DeviceFault
from tests.cuda_emulator.native import runtime

__all__ = ["Span", "over", "poison"]

DEFINED = 8  # as in native/memory.hpp


@dataclass(frozen=True)
class Span:
    """Strided elements from an address on."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype

    def read(self, who: str) -> np.ndarray:
        """The elements; an element that nothing has written is a fault of `who`."""
        array, marks = self._arrays(who, "reads")
        if not (marks & DEFINED).all():
            raise DeviceFault("unwritten", f"{self} has elements that nothing has written", who)
        return array

    def written(self, who: str) -> np.ndarray:
        """The elements, for `who` to overwrite all of them."""
        array, marks = self._arrays(who, "writes")
        marks |= DEFINED
        return array

    def _arrays(self, who: str, verb: str) -> tuple[np.ndarray, np.ndarray]:
        """The elements, and what is known of each of their bytes."""
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype), np.full((*self.shape, self.dtype.itemsize), DEFINED, np.uint8)
        begin, size, live = c_uint64(), c_uint64(), c_int(1)
        marks = runtime().emulator_marks(self.address, ctypes.byref(begin), ctypes.byref(size), ctypes.byref(live))
        if not live.value:
            raise DeviceFault("freed", f"{verb} {self} of a freed buffer", who)
        if not marks:
            raise DeviceFault("out of bounds", f"{verb} {self}, which is in no buffer", who)
        offset = self.address - begin.value
        try:
            elements = np.ndarray(self.shape, self.dtype, over(begin.value, size.value), offset, self.strides)
        except (TypeError, ValueError) as error:
            text = f"{verb} {self} from byte {offset} of a buffer of {size.value} bytes on"
            raise DeviceFault("out of bounds", text, who) from error
        shape, strides = (*self.shape, self.dtype.itemsize), (*self.strides, 1)
        return elements, np.ndarray(shape, np.uint8, over(marks, size.value), offset, strides)

    def __str__(self) -> str:
        return f"{self.dtype} elements of shape {self.shape} and strides {self.strides}"


def poison(address: int, size: int, who: str) -> None:
    """Make bytes of a live buffer such as nothing has written."""
    array, marks = Span(address, (size,), (1,), np.dtype(np.uint8))._arrays(who, "takes")
    array.fill(0xFF)
    marks &= 0xFF ^ DEFINED


def over(address: int, size: int) -> ctypes.Array[c_char]:
    """The bytes at an address."""
    return (c_char * size).from_address(address)
