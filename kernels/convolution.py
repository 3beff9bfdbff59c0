"""Convolution on the CPU: patches of a few images at a time, as a matrix in the second-level cache, times the kernel.

Images (n, *space, groups, channels), kernel (*window, channels, groups, results), results (n, *windows, groups,
results). Floor: kernels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from gradtape.kernels import depthwise
from gradtape.kernels.loops import share, sharing
from gradtape.kernels.memory import empty
from gradtape.kernels.products import add_product, images_at_once, images_summed_at_once, product
from gradtape.kernels.windows import add, are_lines, tables

BLOCK = 1 << 21  # bytes of patches at a time
PARTS = 16  # sums that are taken apart and added at the end, whatever the number of threads
FEW = 4  # channels up to which patches are copied along the image instead of along channels

Sizes = tuple[int, ...]
Part = tuple[slice, slice]  # which images, and which windows along the first axis


def convolve(x: Any, k: Any, window: Sizes, strides: Sizes, dilations: Sizes, low: Sizes, high: Sizes) -> Any:
    """The results for images and a kernel."""
    channels, groups, results = k.shape[-3:]
    if depthwise.pays(len(x), x.shape[1:-2], groups, channels, x.dtype):
        return depthwise.Loops(x.shape[1:-2], window, strides, dilations, low, high, results).convolve(x, k)
    grid = _Grid(x.shape[1:-2], window, strides, dilations, low, high)
    out = empty((len(x), *grid.counts, groups, results), x.dtype)
    weights = grid.kernel_first(k).reshape(groups, -1, results)
    unit = images_at_once(math.prod(grid.counts), *weights.shape[1:])

    def run(first: int, last: int) -> None:
        some = slice(first * unit, last * unit) if unit else slice(None)
        for (images, line), patches in grid.matrices(x[some], unit):
            product(patches, weights, _rows(out[some][images, line]), grid.lying(line))

    _shared(len(x), unit, out.size * weights.shape[1] // results, run)
    return out


def convolve_kernel(x: Any, g: Any, window: Sizes, strides: Sizes, dilations: Sizes, low: Sizes, high: Sizes) -> Any:
    """The kernel's gradient for images and the cotangent of the results."""
    groups, channels, results = x.shape[-2], x.shape[-1], g.shape[-1]
    if depthwise.pays(len(x), x.shape[1:-2], groups, channels, x.dtype):
        return depthwise.Loops(x.shape[1:-2], window, strides, dilations, low, high, results).kernel(x, g)
    grid = _Grid(x.shape[1:-2], window, strides, dilations, low, high)
    g, rows = np.ascontiguousarray(g), math.prod(grid.counts)
    sizes = (groups, math.prod(window) * channels, results)
    unit = images_summed_at_once(rows, *sizes[1:])
    units = -(-len(x) // max(1, unit))
    parts = min(units, PARTS) if unit else 1
    totals = np.zeros((parts, *sizes), x.dtype)

    def run(first: int, last: int) -> None:
        for part in range(first, last):
            some = slice(units * part // parts * max(1, unit), units * (part + 1) // parts * max(1, unit))
            for (images, line), patches in grid.matrices(x[some], unit):
                add_product(patches, _rows(g[some][images, line]), totals[part], grid.lying(line))

    share(parts, len(x) * rows * groups * sizes[1], run)
    return np.moveaxis(totals.sum(0).reshape(groups, *window, channels, results), 0, -2)


def convolve_input(
    g: Any, k: Any, shape: Sizes, window: Sizes, strides: Sizes, dilations: Sizes, low: Sizes, high: Sizes
) -> Any:
    """The images' gradient for the cotangent of the results and a kernel."""
    channels, groups, results = k.shape[-3:]
    if depthwise.pays(len(g), shape, groups, channels, g.dtype):
        return depthwise.Loops(shape, window, strides, dilations, low, high, results).images(g, k)
    grid = _Grid(shape, window, strides, dilations, low, high)
    g = np.ascontiguousarray(g)
    weights = grid.kernel_first(k).reshape(groups, -1, results)
    turned = np.ascontiguousarray(weights.transpose(0, 2, 1))
    lines, rows = are_lines(groups, channels, strides), math.prod(grid.counts)
    out = empty((len(g), *shape, groups, channels), g.dtype)
    unit = images_at_once(rows, results, weights.shape[1])

    def run(first: int, last: int) -> None:
        some = slice(first * unit, last * unit) if unit else slice(None)
        given, target = g[some], out[some]
        target[...] = 0
        scratch = empty((0,), g.dtype)
        for images, cuts in grid.parts(len(given), groups * channels * g.itemsize, unit):
            for line in cuts:
                cotangents = _rows(given[images, line])
                sizes = (groups, cotangents.shape[1], weights.shape[1])
                if scratch.size < math.prod(sizes):
                    scratch = empty((math.prod(sizes),), g.dtype)
                flat = scratch[: math.prod(sizes)]
                patches = flat.reshape(groups, *sizes[:0:-1]).transpose(0, 2, 1) if lines else flat.reshape(sizes)
                product(cotangents, turned, patches, grid.lying(line))
                places = (grid.places[0][line], *grid.places[1:])
                if not add(flat, target[images], window, places, strides, dilations):
                    grid.add(target[images], patches, line)

    _shared(len(g), unit, len(g) * rows * groups * weights.shape[1], run)
    return out


# ------------------------------------------------------------------ the memory that they hold besides their results


def convolve_scratch(x: Sizes, k: Sizes, dtype: Any, **windows: Sizes) -> list[int]:
    """The bytes of each block that `convolve` holds besides its results, for operands of these shapes."""
    (*window, channels, groups, results), space = k, x[1:-2]
    if depthwise.pays(x[0], space, groups, channels, dtype):
        return [depthwise.widened(x, results) * dtype.itemsize]
    grid = _Grid(space, **windows)
    rows, columns = math.prod(grid.counts), math.prod(window) * channels
    unit = images_at_once(rows, columns, results)
    work = x[0] * rows * groups * results * columns // results
    return grid.held(x[0], unit, -(-x[0] // max(1, unit)), work, groups * channels * dtype.itemsize)


def convolve_kernel_scratch(x: Sizes, g: Sizes, dtype: Any, **windows: Sizes) -> list[int]:
    """The same of `convolve_kernel`."""
    (n, *space, groups, channels), results = x, g[-1]
    if depthwise.pays(n, tuple(space), groups, channels, dtype):
        sums = n * math.prod(windows["window"]) * groups * results
        return [depthwise.widened(x, results) * dtype.itemsize, sums * dtype.itemsize]
    grid = _Grid(tuple(space), **windows)
    rows, columns = math.prod(grid.counts), math.prod(windows["window"]) * channels
    unit = images_summed_at_once(rows, columns, results)
    parts = min(-(-n // max(1, unit)), PARTS) if unit else 1
    held = grid.held(n, unit, parts, n * rows * groups * columns, groups * channels * dtype.itemsize)
    return [*held, (parts + 1) * groups * columns * results * dtype.itemsize]


def convolve_input_scratch(g: Sizes, k: Sizes, dtype: Any, shape: Sizes, **windows: Sizes) -> list[int]:
    """The same of `convolve_input`."""
    *window, channels, groups, results = k
    if depthwise.pays(g[0], shape, groups, channels, dtype):
        return [depthwise.widened((g[0], *shape, groups, channels), results) * dtype.itemsize]
    grid = _Grid(shape, **windows)
    rows, columns = math.prod(grid.counts), math.prod(window) * channels
    unit = images_at_once(rows, results, columns)
    work = g[0] * rows * groups * columns
    held = grid.held(g[0], unit, -(-g[0] // max(1, unit)), work, groups * channels * dtype.itemsize, images=False)
    return [*held, groups * columns * results * dtype.itemsize]


def _shared(images: int, unit: int, work: int, run: Callable[[int, int], None]) -> None:
    """`run` for images in units; where BLAS has threads of its own, which would wait for each other, in one thread."""
    if unit:
        share(-(-images // unit), work, run)
    else:
        run(0, images)


def _rows(block: Any) -> Any:
    """(images, *windows, groups, n) as a stack of matrices: (groups, rows, n)."""
    groups, n = block.shape[-2:]
    return block.reshape(math.prod(block.shape[:-2]), groups, n).transpose(1, 0, 2)


class _Grid:
    """Where windows lie in images of one size."""

    def __init__(self, space: Sizes, window: Sizes, strides: Sizes, dilations: Sizes, low: Sizes, high: Sizes) -> None:
        self.window, self.strides, self.dilations = window, strides, dilations
        self.padded = tuple(n + a + b for n, a, b in zip(space, low, high, strict=True))
        self.is_padded = self.padded != space
        self.inside = (slice(None), *[slice(a, a + n) for n, a in zip(space, low, strict=True)])
        steps = zip(self.padded, window, strides, dilations, strict=True)
        self.counts = tuple(max(0, (n - (k - 1) * d - 1) // s + 1) for n, k, s, d in steps)
        self.places = tables(space, window, strides, dilations, low, high)

    def kernel_first(self, k: Any) -> Any:
        """A kernel with its groups in front: (groups, *window, channels, results)."""
        return np.ascontiguousarray(np.moveaxis(k, -2, 0))

    def parts(self, n: int, item: int, unit: int = 1) -> Iterator[tuple[slice, list[slice]]]:
        """Images, some units of them, and lines of windows in them, whose patches fill a block; `item`: bytes of a
        window's element."""
        line = max(1, math.prod(self.counts[1:]) * math.prod(self.window) * item)
        image = line * self.counts[0]
        if 0 in self.counts:
            return
        unit, images, lines = max(1, unit), 1, max(1, BLOCK // line)
        if image <= BLOCK:
            images, lines = max(unit, BLOCK // image // unit * unit), self.counts[0]
        cuts = [slice(r, min(r + lines, self.counts[0])) for r in range(0, self.counts[0], lines)]
        for first in range(0, n, images):
            yield slice(first, min(first + images, n)), cuts

    def held(self, n: int, unit: int, parts: int, work: int, item: int, images: bool = True) -> list[int]:
        """The bytes of patches of one block, and of its padded images, for each thread."""
        threads = sharing(parts, work) if unit else 1
        first = next(self.parts(-(-n // threads), item, unit), None)
        if first is None:
            return []
        some, cuts = first
        count = some.stop - some.start
        patches = count * self.lying(cuts[0]) * math.prod(self.window) * item
        padded = count * math.prod(self.padded) * item if images and self.is_padded else 0
        return [patches, padded] * threads

    def matrices(self, x: Any, unit: int = 1) -> Iterator[tuple[Part, Any]]:
        """Patches as stacks of matrices, (groups, rows, window and channels), in memory that is used again."""
        groups, channels = x.shape[-2:]
        columns = math.prod(self.window) * channels
        few = channels <= FEW
        scratch, space = np.empty(0, x.dtype), np.empty(0, x.dtype)
        for images, lines in self.parts(len(x), groups * channels * x.itemsize, unit):
            if self.is_padded and len(space) != len(x[images]):
                space = empty((len(x[images]), *self.padded, groups, channels), x.dtype)
                space[...] = 0
            if self.is_padded:
                space[self.inside] = x[images]
            else:
                space = x[images]
            for line in lines:
                view = self.view(space, few)[self.cut(line, few)]
                if not view.flags.c_contiguous:
                    if scratch.size < view.size:
                        scratch = empty((view.size,), x.dtype)
                    copy = scratch[: view.size].reshape(view.shape)
                    np.copyto(copy, view)
                    view = copy
                rows = len(space) * self.lying(line)
                if few:
                    yield (images, line), view.reshape(groups, columns, rows).transpose(0, 2, 1)
                else:
                    yield (images, line), view.reshape(groups, rows, columns)

    def lying(self, line: slice) -> int:
        """How many windows some lines have in each image."""
        return (line.stop - line.start) * math.prod(self.counts[1:])

    def cut(self, line: slice, few: bool) -> tuple[Any, ...]:
        """The index that leaves some lines of windows in a view."""
        before = 1 + (len(self.window) + 1 if few else 0) + 1
        return (*(slice(None),) * before, line)

    def view(self, space: Any, few: bool) -> Any:
        """All patches without copying: (groups, n, *windows, *window, channels), with images last where channels
        are few, so that long runs of memory are copied either way."""
        rank = len(self.window)
        step = space.strides[1 : 1 + rank]
        at = [s * k for s, k in zip(step, self.strides, strict=True)]
        within = [s * k for s, k in zip(step, self.dilations, strict=True)]
        group, channel = (space.shape[-2], space.strides[-2]), (space.shape[-1], space.strides[-1])
        windows = [(len(space), space.strides[0]), *zip(self.counts, at, strict=True)]
        elements = [*zip(self.window, within, strict=True), channel]
        axes = [group, *elements, *windows] if few else [group, *windows, *elements]
        return as_strided(space, [n for n, _ in axes], [s for _, s in axes], writeable=False)

    def add(self, images: Any, patches: Any, line: slice) -> None:
        """Patches (groups, rows, window and channels) of some lines added where they lie in images."""
        places = (self.places[0][line], *self.places[1:])
        groups, channels = images.shape[-2:]
        shaped = patches.reshape(groups, len(images), *map(len, places), *self.window, channels)
        for at in itertools.product(*map(range, self.window)):
            parts = [_part(*p) for p in zip(places, at, self.strides, self.dilations, strict=True)]
            there, here = zip(*parts, strict=True)
            images[(slice(None), *there)] += np.moveaxis(shaped[(slice(None), slice(None), *here, *at)], 0, -2)


def _part(places: Any, w: int, stride: int, dilation: int) -> tuple[slice, slice]:
    """The elements that element w of windows along an axis lies on inside the image, and those windows."""
    inside = np.flatnonzero((places[:, 0] <= w) & (w < places[:, 1]))
    if not len(inside):
        return slice(0), slice(0)
    first, last = inside[[0, -1]]
    begin = places[first, 2] + w * dilation
    return slice(begin, begin + (last - first) * stride + 1, stride), slice(first, last + 1)
