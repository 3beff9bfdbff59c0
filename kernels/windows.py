"""Where windows lie in images of one to three axes, for compiled loops, and the loop that adds them up there. Floor:
kernels.

Loops have three axes of space: those that are missing have size 1. Where windows lie along an axis is a table with a
line per window: the first and the last element that lie inside the image, and where element 0 lies."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gradtape.kernels.loops import loop

Sizes = tuple[int, ...]
Tables = tuple[Any, ...]

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


@functools.lru_cache(256)
def tables(space: Sizes, window: Sizes, strides: Sizes, dilations: Sizes, low: Sizes, high: Sizes) -> Tables:
    """For each axis: per window the first and the last element inside (and one more), and where element 0 lies."""
    return tuple(map(_table, space, window, strides, dilations, low, high))


def _table(n: int, size: int, stride: int, dilation: int, low: int, high: int) -> Any:
    count = max(0, (n + low + high - (size - 1) * dilation - 1) // stride + 1)
    begin = np.arange(count, dtype=np.int64) * stride - low
    first = np.maximum(0, -(begin // dilation))  # the least w with begin + w · dilation >= 0
    last = np.minimum(size, -((begin - n) // dilation))  # the least w with begin + w · dilation >= n
    return np.ascontiguousarray(np.stack([first, np.maximum(first, last), begin], axis=1))


def three(values: tuple[Any, ...], missing: Any) -> tuple[Any, ...]:
    """A value for each of three axes."""
    return (*(missing,) * (3 - len(values)), *values)


WHOLE = np.array([[0, 1, 0]], np.int64)  # the one window of an axis that is not there


@loop("x1 =x1 i2 i2 i2 n3 n3 n3 n n n n n")
def _add(
    patches: Any,
    out: Any,
    zs: Any,
    ys: Any,
    xs: Any,
    steps: Any,
    window: Any,
    space: Any,
    images: int,
    groups: int,
    channels: int,
    start: int,
    stop: int,
) -> None:
    """Windows backwards: what meets at one element is added in the order of the windows' elements."""
    width, size = len(xs), window[0] * window[1] * window[2] * channels
    joined = groups == 1 and steps[2] == 1
    for n in range(start, stop):
        for t in range(len(zs) - 1, -1, -1):
            for u in range(len(ys) - 1, -1, -1):
                for g in range(groups):
                    row = (((g * images + n) * len(zs) + t) * len(ys) + u) * width * size
                    for i in range(zs[t, 0], zs[t, 1]):
                        for j in range(ys[u, 0], ys[u, 1]):
                            line = (n * space[0] + zs[t, 2] + i * steps[0]) * space[1] + ys[u, 2] + j * steps[1]
                            part = row + (i * window[1] + j) * window[2] * channels
                            for v in range(width - 1, -1, -1):
                                if joined:  # the elements lie side by side on both sides
                                    first, many = xs[v, 0], (xs[v, 1] - xs[v, 0]) * channels
                                    at = (line * space[2] + xs[v, 2] + first) * channels
                                    there = out[at : at + many]
                                    here = part + v * size + first * channels
                                    given = patches[here : here + many]
                                    for c in range(len(given)):
                                        there[c] += given[c]
                                else:
                                    for k in range(xs[v, 0], xs[v, 1]):
                                        at = ((line * space[2] + xs[v, 2] + k * steps[2]) * groups + g) * channels
                                        there = out[at : at + channels]
                                        here = part + v * size + k * channels
                                        given = patches[here : here + channels]
                                        for c in range(len(given)):
                                            there[c] += given[c]


@loop("x1 =x1 i2 i2 i2 n3 n3 n3 n n n")
def _add_lines(
    patches: Any,
    out: Any,
    zs: Any,
    ys: Any,
    xs: Any,
    steps: Any,
    window: Any,
    space: Any,
    images: int,
    start: int,
    stop: int,
) -> None:
    """The same of images with one channel, in whose lines windows lie side by side: a line of windows at once."""
    width = len(xs)
    for n in range(start, stop):
        for t in range(len(zs) - 1, -1, -1):
            for u in range(len(ys) - 1, -1, -1):
                for i in range(zs[t, 0], zs[t, 1]):
                    for j in range(ys[u, 0], ys[u, 1]):
                        line = (n * space[0] + zs[t, 2] + i * steps[0]) * space[1] + ys[u, 2] + j * steps[1]
                        for k in range(window[2]):
                            first = xs[0, 2] + k * steps[2]
                            low, high = max(0, -first), min(width, space[2] - first)
                            if low < high:
                                at = line * space[2] + first
                                there = out[at + low : at + high]
                                element = (i * window[1] + j) * window[2] + k
                                here = (((element * images + n) * len(zs) + t) * len(ys) + u) * width
                                given = patches[here + low : here + high]
                                for c in range(len(given)):
                                    there[c] += given[c]


def are_lines(groups: int, channels: int, strides: Sizes) -> bool:
    """Whether patches are better made element by element of the window: (*window, n, *windows)."""
    return groups == channels == 1 and strides[-1] == 1


def add(patches: Any, out: Any, window: Sizes, places: Tables, strides: Sizes, dilations: Sizes) -> bool:
    """Patches (groups, n, *windows, *window, channels), or lines, added where they lie in images (n, *space, groups,
    channels); `places`: the tables of those windows. False: the loop is not compiled yet, or there is none."""
    lines = are_lines(out.shape[-2], out.shape[-1], strides)
    if len(window) > 3 or out.dtype not in FLOATS:
        return False
    run = (_add_lines if lines else _add).soon(out.dtype)
    if run is None:
        return False
    over, steps, sizes, space = three(places, WHOLE), three(dilations, 1), three(window, 1), three(out.shape[1:-2], 1)
    blocks, flat = patches.reshape(-1), out.reshape(-1)
    counts = (len(out),) if lines else (len(out), *out.shape[-2:])
    run(blocks, flat, *over, steps, sizes, space, *counts, 0, len(out))
    return True
