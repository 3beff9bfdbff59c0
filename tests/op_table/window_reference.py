"""What windows, convolution and pooling are, as loops over single elements.

A window's element w of window t lies at t·stride + w·dilation - low in the image; where that is outside, there is
nothing. All sums run over every window, every element of it and every channel, as the textbook has them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tests.op_table.scalar_reference import INF

Places = tuple[int, ...]
Params = Mapping[str, Any]


def zeros(shape: Places) -> Any:
    out = np.empty(shape, object)
    out.fill(0)
    return out


def patches_source(at: Places, operands: Sequence[Any], params: Params) -> tuple[int, Places]:
    axis, place = params["axis"], list(at[:-1])
    place[axis] = at[axis] * params["stride"] + at[-1] * params["dilation"]
    return 0, tuple(place)


def fold(operands: Sequence[Any], shape: Places, axis: int, length: int, stride: int, dilation: int) -> Any:
    (g,) = operands
    out = zeros(shape)
    for at in np.ndindex(*g.shape):
        place = list(at[:-1])
        place[axis] = at[axis] * stride + at[-1] * dilation
        out[tuple(place)] = out[tuple(place)] + g[at]
    return out


def inside(t: Places, space: Places, p: Params) -> Iterator[tuple[Places, Places]]:
    """The elements of window t that lie in the image: where in the window, and where in the image."""
    for w in np.ndindex(*p["window"]):
        at = tuple(
            i * s + j * d - low for i, s, j, d, low in zip(t, p["strides"], w, p["dilations"], p["low"], strict=True)
        )
        if all(0 <= k < n for k, n in zip(at, space, strict=True)):
            yield w, at


def terms(counts: Places, space: Places, p: Params) -> Iterator[tuple[Places, Places, Places]]:
    for t in np.ndindex(*counts):
        for w, at in inside(t, space, p):
            yield t, w, at


def _trilinear(
    x: tuple[int, ...], k: tuple[int, ...], counts: Places, p: Params
) -> Iterator[tuple[Places, Places, Places]]:
    """Places in images, kernel and results of every product, for the shapes of images and kernel."""
    for t, w, at in terms(counts, x[1:-2], p):
        for n, g, c, o in itertools.product(*map(range, (x[0], x[-2], x[-1], k[-1]))):
            yield (n, *at, g, c), (*w, c, g, o), (n, *t, g, o)


def convolve(operands: Sequence[Any], shape: Places, **p: Any) -> Any:
    x, k = operands
    out = zeros(shape)
    for i, j, m in _trilinear(x.shape, k.shape, shape[1:-2], p):
        out[m] = out[m] + x[i] * k[j]
    return out


def convolve_input(operands: Sequence[Any], result: Places, shape: Places, **p: Any) -> Any:
    g, k = operands
    out = zeros(result)
    for i, j, m in _trilinear(result, k.shape, g.shape[1:-2], p):
        out[i] = out[i] + g[m] * k[j]
    return out


def convolve_kernel(operands: Sequence[Any], result: Places, **p: Any) -> Any:
    x, g = operands
    out = zeros(result)
    for i, j, m in _trilinear(x.shape, result, g.shape[1:-2], p):
        out[j] = out[j] + x[i] * g[m]
    return out


def _windows(space: Places, shape: Places, p: Params) -> Iterator[tuple[Places, Places, list[Places]]]:
    """For every image, window and channel: place of the result, and places of the window's elements in order."""
    for t in np.ndindex(*shape[1:-1]):
        found = [at for _, at in inside(t, space, p)]
        for n, c in itertools.product(range(shape[0]), range(shape[-1])):
            yield (n, *t, c), t, [(n, *at, c) for at in found]


def _largest(x: Any, places: Sequence[Places]) -> Places | None:
    """The first place that nothing exceeds (a NaN is not exceeded by anything, and exceeds numbers)."""
    best = None
    for at in places:
        if best is None or x[at] > x[best] or (x[at] != x[at] and x[best] == x[best]):
            best = at
    return best


def max_pool(operands: Sequence[Any], shape: Places, **p: Any) -> Any:
    (x,) = operands
    out = zeros(shape)
    for at, _, places in _windows(x.shape[1:-1], shape, p):
        best = _largest(x, places)
        out[at] = -INF if best is None else x[best]
    return out


def max_pool_input(operands: Sequence[Any], result: Places, shape: Places, **p: Any) -> Any:
    g, x = operands
    out = zeros(result)
    for at, _, places in _windows(x.shape[1:-1], g.shape, p):
        best = _largest(x, places)
        if best is not None:
            out[best] = out[best] + g[at]
    return out


def max_pool_pick(operands: Sequence[Any], shape: Places, **p: Any) -> Any:
    c, x = operands
    out = zeros(shape)
    for at, _, places in _windows(x.shape[1:-1], shape, p):
        best = _largest(x, places)
        if best is not None:
            out[at] = c[best]
    return out


def avg_pool(operands: Sequence[Any], shape: Places, **p: Any) -> Any:
    (x,) = operands
    out = zeros(shape)
    for at, _, places in _windows(x.shape[1:-1], shape, p):
        out[at] = sum(x[i] for i in places) / len(places) if places else 0
    return out


def avg_pool_input(operands: Sequence[Any], result: Places, shape: Places, **p: Any) -> Any:
    (g,) = operands
    out = zeros(result)
    for at, _, places in _windows(result[1:-1], g.shape, p):
        for i in places:
            out[i] = out[i] + g[at] / len(places)
    return out


WHOLE: dict[str, Callable[..., Any]] = {
    "avg_pool": avg_pool,
    "avg_pool_input": avg_pool_input,
    "convolve": convolve,
    "convolve_input": convolve_input,
    "convolve_kernel": convolve_kernel,
    "max_pool": max_pool,
    "max_pool_input": max_pool_input,
    "max_pool_pick": max_pool_pick,
}
