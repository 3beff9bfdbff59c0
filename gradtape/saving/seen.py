"""Sizes that Python sees while a function is traced to be saved: whether it decides anything by them. Floor: saving.

Arithmetic of sizes gives sizes again; one that is compared, or made a float, is noted. Whoever hands it on to one of
our functions decides nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from gradtape.ir.shapes import TensorShape
from gradtape.runtime.places import CONVERTED, PACKAGE, place_of, user_frame

Note = Callable[[int], None]


class Size(int):
    """A size, or what Python makes of sizes."""

    note: Note

    def __hash__(self) -> int:
        return int.__hash__(self)


def size(n: int, note: Note) -> Size:
    """A size that tells what is done with it."""
    found = Size(n)
    found.note = note
    return found


class SeenShape(TensorShape):
    """A shape whose sizes tell what is done with them."""

    __slots__ = ("note",)

    def __init__(self, dims: Any, note: Note) -> None:
        super().__init__(dims)
        self.note = note

    def as_list(self) -> list[int | None]:
        return [None if n is None else size(n, self.note) for n in super().as_list()]

    @property
    def dims(self) -> list[int | None] | None:
        return None if self.dims_or_none is None else self.as_list()

    def num_elements(self) -> int | None:
        n = super().num_elements()
        return None if n is None else size(int(n), self.note)

    def __getitem__(self, key: int | slice) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, TensorShape):
            return SeenShape(found, self.note)
        return None if found is None else size(found, self.note)

    def __eq__(self, other: object) -> bool:
        self._compared()
        return super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()

    def is_compatible_with(self, other: Any) -> bool:
        self._compared()
        return super().is_compatible_with(other)

    def _compared(self) -> None:
        for n in self.dims_or_none or ():
            if n is not None:
                _decides(n, self.note, 2)


def is_users(depth: int) -> bool:
    """Whether the frame so many above the caller's is none of ours; what converted code calls, the user calls."""
    name = sys._getframe(depth + 1).f_code.co_filename
    return not name.startswith(PACKAGE) or name.startswith(CONVERTED)


def _decides(n: int, note: Note, depth: int) -> None:
    """Note a size by which something is decided, if it is not one of our functions that does."""
    if is_users(depth + 1):
        note(int(n))


def shape_for(dims: Any, note: Note) -> TensorShape:
    """The shape that whoever asks for the property of a tensor sees."""
    return SeenShape(dims, note) if is_users(3) else TensorShape(dims)


def where() -> str:
    """Where the user's program is at."""
    return place_of(user_frame())


def _arithmetic(name: str) -> Callable[..., Any]:
    method = getattr(int, name)

    def of_sizes(self: Size, *others: Any) -> Any:
        made = method(self, *others)
        return size(made, self.note) if type(made) is int else made

    return of_sizes


def _decision(name: str) -> Callable[..., Any]:
    method = getattr(int, name)

    def decides(self: Size, *others: Any) -> Any:
        _decides(self, self.note, 1)
        return method(self, *others)

    return decides


for _name in (
    "add",
    "sub",
    "mul",
    "floordiv",
    "mod",
    "pow",
    "neg",
    "pos",
    "abs",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
):
    setattr(Size, f"__{_name}__", _arithmetic(f"__{_name}__"))
for _name in ("radd", "rsub", "rmul", "rfloordiv", "rmod"):
    setattr(Size, f"__{_name}__", _arithmetic(f"__{_name}__"))
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "bool", "float", "truediv", "rtruediv"):
    setattr(Size, f"__{_name}__", _decision(f"__{_name}__"))
