"""A kernel's arguments as bytes, each as wide as its parameter is declared.

A driver copies as many bytes as the kernel declares from wherever the argument lies, and cannot know that it was given
too few, or an integer for a float. Here that is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.cuda_emulator.faults import LaunchRefused

__all__ = ["Declared", "pack", "pointer_of"]

KINDS = {"p": "a pointer", "i": "an integer", "f": "a floating point number", "b": "a bool", "s": "a structure"}
LONGEST_SCALAR = 16  # bytes of a NumPy scalar that CuPy has room for; an array of one element it takes where it lies
KIND_OF_DTYPE = {"i": "i", "u": "i", "f": "f", "b": "b", "V": "s", "S": "s"}


@dataclass(frozen=True)
class Declared:
    """A parameter as the compiler sees it."""

    name: str
    text: str
    size: int
    kind: str
    is_restricted: bool


def pointer_of(value: Any) -> int | None:
    """The device address that a value stands for, or None if it is no pointer."""
    interface = getattr(value, "__cuda_array_interface__", None)
    return None if interface is None else interface["data"][0]


@dataclass(frozen=True)
class Given:
    """Kind and bytes of an argument, and the number that they were made of. It keeps no array alive."""

    kind: str
    data: bytes
    number: Any

    def __str__(self) -> str:
        return "it" if self.number is None else f"{self.number!r} ({type(self.number).__name__})"


def given(value: Any) -> Given:
    """An argument as `cupy.RawKernel` passes it."""
    if isinstance(value, Given):
        return value
    kind, data = _kind_and_bytes(value)
    return Given(kind, data, None if kind == "p" else value)


def _kind_and_bytes(value: Any) -> tuple[str, bytes]:
    address = pointer_of(value)
    if address is not None:
        return "p", np.uint64(address).tobytes()
    if isinstance(value, bool | np.bool_):
        return "b", np.bool_(value).tobytes()
    if isinstance(value, int):
        return "i", (np.int64 if value < 2**63 else np.uint64)(value).tobytes()
    if isinstance(value, float):
        return "f", np.float64(value).tobytes()
    if isinstance(value, np.ndarray) and value.ndim > 0:
        raise LaunchRefused("a host array was given: a kernel takes buffers of the device, and scalars")
    if isinstance(value, np.generic) and value.nbytes > LONGEST_SCALAR:
        raise LaunchRefused(f"a scalar of {value.nbytes} bytes was given: make it an array without axes")
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in KIND_OF_DTYPE:
        return KIND_OF_DTYPE[value.dtype.kind], value.tobytes()
    raise LaunchRefused(f"an argument of type {type(value).__name__!r} has no form on the device")


def fits(parameter: Declared, kind: str, size: int) -> bool:
    if parameter.size != size:
        return False
    if parameter.kind == "p":
        return kind in "pi"  # an address may come as an integer
    if parameter.kind == "s":
        return kind != "p"  # a half is a structure, and so is a NumPy record
    return parameter.kind == kind


def pack(kernel: str, declared: Sequence[Declared], values: Sequence[Any]) -> list[bytes]:
    """The bytes of every argument, or an error that names the first that does not fit."""
    if len(values) != len(declared):
        names = ", ".join(f"`{parameter.text}`" for parameter in declared)
        raise LaunchRefused(f"`{kernel}` takes {len(declared)} arguments ({names}), got {len(values)}")
    packed = []
    for number, (parameter, value) in enumerate(zip(declared, values)):
        try:
            found = given(value)
        except LaunchRefused as error:
            raise LaunchRefused(f"argument {number} of `{kernel}`, `{parameter.text}`: {error}") from None
        if not fits(parameter, found.kind, len(found.data)):
            raise LaunchRefused(
                f"argument {number} of `{kernel}` is declared `{parameter.text}`, {KINDS[parameter.kind]} of "
                f"{parameter.size} bytes, and {found} is {KINDS[found.kind]} of {len(found.data)} bytes. "
                "Give a NumPy scalar of the declared type"
            )
        packed.append(found.data)
    return packed
