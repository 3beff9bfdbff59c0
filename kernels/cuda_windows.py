"""CUDA kernels for windows that slide along axes: windows added up, largest and mean elements, and their gradients.
Floor: kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradtape.ir.dtypes import DType, int32, uint8
from gradtape.kernels.cuda_entry import NOTHING, Given, blocks_for, entry, integers, program, reach, read, written
from gradtape.kernels.cuda_launch import CudaProgram, Launch, Scratch

TEMPLATE = ("windows.cuh",)
AXES = 3  # of images


def fold(
    before: int, length: int, after: int, n: int, window: int, steps: tuple[int, int], dtype: DType
) -> CudaProgram:
    """From windows (before, n, after, window) to the elements (before, length, after) that they add up to; `steps`:
    from window to window, and from element to element of a window."""
    size = before * length * after
    if not size:
        return NOTHING
    blocks = blocks_for(size)
    total = before * n * after * window
    index = reach(max(size, total, length + window * steps[1]), blocks)
    given = [written("out", dtype.name), read("g", dtype.name, 0)]
    numbers = {"size": size, "length": length, "after": after, "n": n, "window": window}
    given += integers(index, **numbers, stride=steps[0], dilation=steps[1])
    monoid = "Any" if dtype.is_bool else "Sum"
    call = f"fold<{monoid}>(out, g, size, length, after, n, window, stride, dilation);"
    return program([entry("fold", TEMPLATE, given, [call], blocks, (size + total) * dtype.size)])


@dataclass(frozen=True)
class Axis:
    """An axis of images, and the windows on it."""

    extent: int = 1
    count: int = 1
    window: int = 1
    stride: int = 1
    dilation: int = 1
    low: int = 0


@dataclass(frozen=True)
class Images:
    """So many images of some axes and channels, and the windows on them; `width`: the channels of a pack."""

    n: int
    axes: tuple[Axis, ...]
    channels: int
    dtype: DType
    width: int

    @property
    def three(self) -> tuple[Axis, ...]:
        return (*(Axis(),) * (AXES - len(self.axes)), *self.axes)

    @property
    def elements(self) -> int:
        return self.n * math.prod(a.extent for a in self.axes) * self.channels

    @property
    def windows(self) -> int:
        return self.n * math.prod(a.count for a in self.axes) * self.channels

    @property
    def window(self) -> int:
        """The elements of a window."""
        return math.prod(a.window for a in self.axes)

    @property
    def places(self) -> DType:
        """A type for the numbers of a window's elements and one more."""
        return uint8 if self.window < 255 else int32


def width_of(channels: int, dtype: DType, alignment: int) -> int:
    """The channels of a pack: those of 16 bytes, but at most 8, where rows and addresses allow it; else one."""
    width = min(16 // dtype.size, 8)
    return width if channels % width == 0 and alignment == 16 else 1


def largest(at: Images) -> CudaProgram:
    """From images to the largest element of each window."""
    return _program(at, [_entry(at, "largest", "out, x", [read("x", at.dtype.name, 0)], at.windows)])


def mean(at: Images) -> CudaProgram:
    """From images to the mean of the elements of each window that lie inside."""
    return _program(at, [_entry(at, "mean", "out, x", [read("x", at.dtype.name, 0)], at.windows)])


def pick(at: Images) -> CudaProgram:
    """From images (operand 0) to what they have where others (operand 1) have the largest element of each window."""
    given = [read("other", at.dtype.name, 0), read("x", at.dtype.name, 1)]
    return _program(at, [_entry(at, "pick", "out, other, x", given, at.windows)])


def share(at: Images) -> CudaProgram:
    """From a cotangent for each window to those of the elements that it is the mean of."""
    return _program(at, [_entry(at, "share", "out, g", [read("g", at.dtype.name, 0)], at.elements)])


def route(at: Images) -> CudaProgram:
    """From a cotangent for each window (operand 0) and images (operand 1) to cotangents of the elements that are the
    largest of their windows."""
    places, dtype = at.places.name, at.dtype.name
    none = integers(at.places, none=at.window)
    chosen = [written("chosen", places, 0, "scratch"), read("x", dtype, 1)]
    first = _entry(at, "choose", "chosen, x", chosen, at.windows, none)
    given = [read("g", dtype, 0), read("chosen", places, 0, "scratch")]
    second = _entry(at, "route", "out, g, chosen", given, at.elements)
    return _program(at, [first, second] if at.windows else [second], [Scratch(max(at.windows, 1), at.places)])


def _program(at: Images, parts: Sequence[tuple[str, Launch]], scratch: Sequence[Scratch] = ()) -> CudaProgram:
    """The kernels, of which none is launched without threads."""
    return program([p for p in parts if p[1].grid], scratch)


def _entry(
    at: Images, name: str, arrays: str, given: list[Given], size: int, more: Sequence[Given] = ()
) -> tuple[str, Launch]:
    """A kernel with a thread for each pack of windows or elements."""
    packs = size // at.width
    blocks = blocks_for(packs) if packs else 0
    far = max(a.extent + a.low + a.window * a.dilation + a.count * a.stride for a in at.three)
    index = reach(max(at.elements, at.windows, far), blocks, at.width)
    numbers = {
        f"{axis}{k}": n
        for axis, a in zip("abc", at.three, strict=True)
        for k, n in enumerate((a.extent, a.count, a.window, a.stride, a.dilation, a.low))
    }
    axes = ", ".join(f"{{{', '.join(f'{axis}{k}' for k in range(6))}}}" for axis in "abc")
    lines = [f"const Images<{index.name}> images{{{axes}, packs}};"]
    lines.append(f"{name}<{at.width}>({arrays}, images, size{', none' if more else ''});")
    if not arrays.startswith("chosen"):
        given = [written("out", at.dtype.name), *given]
    given = [*given, *integers(index, size=packs, packs=at.channels // at.width, **numbers), *more]
    return entry(name, TEMPLATE, given, lines, blocks, (at.elements + at.windows) * at.dtype.size)
