"""How machine code is given its arguments: a block of words of eight bytes each. Floor: kernels.

A number lies in its word; an array is the address of its Python object, in which the code finds the elements and the
extents. So a call costs the same however many arguments there are, and needs nothing that knows the arrays' types."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

CODES = {"bool": "?7x", "int32": "i4x", "int64": "q", "float32": "f4x", "float64": "d"}  # of `struct`, for a word each
HEAD = object.__basicsize__  # bytes of a Python object before an array's own fields: the first is where elements lie
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int)
CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400  # flags of NumPy's arrays


@dataclass(frozen=True)
class Array:
    """An array in C order with so many axes; None: one of any shape, whose elements are seen as one line."""

    dtype: np.dtype[Any]
    axes: int | None = None
    written: bool = False

    @property
    def code(self) -> str:
        return "q"

    def condition(self, name: str) -> str:
        """What an argument of this name must be, as text; `array` and `dtype` of that name are known there."""
        flags = CONTIGUOUS | ALIGNED | WRITEABLE * self.written
        conditions = [
            f"type({name}) is array",
            f"{name}.dtype is dtype_{name}",
            f"{name}.flags.num & {flags} == {flags}",
            *([] if self.axes is None else [f"{name}.ndim == {self.axes}"]),
        ]
        return " and ".join(conditions)

    def check(self, given: Any) -> None:
        """Raise an error for what machine code must not get.

        Raises:
          TypeError: it is no array in C order, or one of another dtype or number of axes, or of read-only memory.
        """
        flags = CONTIGUOUS | ALIGNED | WRITEABLE * self.written
        kind = isinstance(given, np.ndarray) and given.dtype == self.dtype and self.axes in (None, given.ndim)
        if not kind or given.flags.num & flags != flags:
            raise TypeError(f"Machine code wants {self}, got {_described(given)}.")


@dataclass(frozen=True)
class Number:
    """A number of one of the types in `CODES`."""

    dtype: np.dtype[Any]

    @property
    def code(self) -> str:
        return CODES[self.dtype.name]


@dataclass(frozen=True)
class Integers:
    """A tuple of so many integers."""

    count: int

    @property
    def code(self) -> str:
        return "q" * self.count


Parameter = Array | Number | Integers
INTEGER = Number(np.dtype(np.int64))


class Entry:
    """Machine code as a function of arrays and numbers.

    `pack` makes the block of words (an array's `id`, a number itself) and `run` calls the code with a block: its
    answer, 0 where it has none, and less where it failed. Other threads run meanwhile. Whoever packs by himself keeps
    the arrays until the call is over."""

    __slots__ = ("checked", "pack", "run")

    def __init__(self, address: int, parameters: Sequence[Parameter]) -> None:
        self.pack = struct.Struct("=" + "".join(p.code for p in parameters)).pack
        self.run = _FUNCTION(address)
        self.checked = _checked(self, parameters)

    def __call__(self, *arguments: Any) -> int:
        """Run with arguments that are looked at first; the answer."""
        answer: int = self.checked(*arguments)
        return answer

    def bind(self, *arrays: Any) -> Callable[[], int]:
        """`run` for arrays that are the same every time, which whoever calls it keeps."""
        return functools.partial(self.run, self.pack(*map(id, arrays)))


def _checked(entry: Entry, parameters: Sequence[Parameter]) -> Callable[..., int]:
    """An entry as a function that looks at its arguments, in a straight line: it is called for small arrays too."""
    env: dict[str, Any] = {"array": np.ndarray, "answered": answered, "pack": entry.pack, "run": entry.run}
    names = [f"x{k}" for k in range(len(parameters))]
    lines, words = [], []
    for name, p in zip(names, parameters, strict=True):
        if isinstance(p, Array):
            env |= {f"dtype_{name}": p.dtype, f"check_{name}": p.check}
            lines += [f"    if not ({p.condition(name)}):", f"        check_{name}({name})"]
        words.append(f"id({name})" if isinstance(p, Array) else f"*{name}" if isinstance(p, Integers) else name)
    text = [f"def call({', '.join(names)}):", *lines, f"    return answered(run(pack({', '.join(words)})))"]
    exec(compile("\n".join(text), "<gradtape call of machine code>", "exec"), env)
    function: Callable[..., int] = env["call"]
    return function


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
