"""How machine code is given its arguments: a block of words of eight bytes each. Floor: kernels.

A number lies in its word; an array is the address of its Python object, in which the code finds the elements and the
extents. So a call costs the same however many arguments there are, and needs nothing that knows the arrays' types."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

CODES = {"bool": "?7x", "int32": "i4x", "int64": "q", "float32": "f4x", "float64": "d"}  # of `struct`, for a word each
HEAD = object.__basicsize__  # bytes of a Python object before an array's own fields: the first is where elements lie
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int)


@dataclass(frozen=True)
class Array:
    """An array in C order with so many axes; None: one of any shape, whose elements are seen as one line."""

    dtype: np.dtype[Any]
    axes: int | None = None
    written: bool = False

    @property
    def code(self) -> str:
        return "q"

    def words(self, given: Any) -> tuple[Any, ...]:
        """What stands in the block for an argument.

        Raises:
          TypeError: it is no such array.
        """
        flags = given.flags if isinstance(given, np.ndarray) else None
        if flags is None or not (flags.c_contiguous and flags.aligned and (flags.writeable or not self.written)):
            raise TypeError(f"Machine code wants an array in C order for {self}, got {_described(given)}.")
        if given.dtype != self.dtype or self.axes not in (None, given.ndim):
            raise TypeError(f"Machine code wants {self}, got {_described(given)}.")
        return (id(given),)


@dataclass(frozen=True)
class Number:
    """A number of one of the types in `CODES`."""

    dtype: np.dtype[Any]

    @property
    def code(self) -> str:
        return CODES[self.dtype.name]

    def words(self, given: Any) -> tuple[Any, ...]:
        return (given,)


@dataclass(frozen=True)
class Integers:
    """A tuple of so many integers."""

    count: int

    @property
    def code(self) -> str:
        return "q" * self.count

    def words(self, given: Any) -> tuple[Any, ...]:
        return tuple(given)


Parameter = Array | Number | Integers
INTEGER = Number(np.dtype(np.int64))


class Entry:
    """Machine code as a function of arrays and numbers.

    `pack` makes the block of words (an array's `id`, a number itself) and `run` calls the code with a block: its
    answer, 0 where it has none, and less where it failed. Other threads run meanwhile. Whoever packs by himself keeps
    the arrays until the call is over."""

    __slots__ = ("pack", "parameters", "run")

    def __init__(self, address: int, parameters: Sequence[Parameter]) -> None:
        self.parameters = tuple(parameters)
        self.pack = struct.Struct("=" + "".join(p.code for p in parameters)).pack
        self.run = _FUNCTION(address)

    def __call__(self, *arguments: Any) -> int:
        """Run with arguments that are looked at first; the answer."""
        words = [w for p, a in zip(self.parameters, arguments, strict=True) for w in p.words(a)]
        return answered(self.run(self.pack(*words)))


def answered(answer: int) -> int:
    """What machine code answered.

    Raises:
      RuntimeError: it failed.
    """
    if answer < 0:
        raise RuntimeError("A kernel ended early: there was no memory for it, or it was about to leave its arrays.")
    return answer


def _described(x: Any) -> str:
    if not isinstance(x, np.ndarray):
        return f"a {type(x).__name__}"
    order = "in C order" if x.flags.c_contiguous else "in another order"
    return f"an array {x.shape} of {x.dtype.name} {order}{'' if x.flags.writeable else ', read-only'}"


def check_layout() -> None:
    """Whether arrays lie in memory as machine code reads them.

    Raises:
      RuntimeError: they do not.
    """
    probe = np.zeros((2, 3, 5))
    words = (ctypes.c_ssize_t * 4).from_address(id(probe) + HEAD)
    axes = ctypes.c_int.from_address(id(probe) + HEAD + ctypes.sizeof(ctypes.c_void_p)).value
    if words[0] != probe.ctypes.data or axes != 3 or tuple((ctypes.c_ssize_t * 3).from_address(words[2])) != (2, 3, 5):
        raise RuntimeError("This NumPy lays arrays out in another way than kernels know. Please report this.")
