"""Pooling on the CPU: loops over windows, whose inner loop runs over channels. Floor: kernels.

One loop serves images with one to three axes; where windows lie is said by the tables of `kernels.windows`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.kernels.loops import Loop, loop, share
from gradtape.kernels.memory import empty
from gradtape.kernels.windows import WHOLE, Sizes, Tables, tables, three

# ------------------------------------------------------------------ loops


@loop("x5 =x5 i2 i2 i2 n3 n n")
def _largest(x: Any, out: Any, zs: Any, ys: Any, xs: Any, steps: Any, start: int, stop: int) -> None:
    """First over whole lines of the image, then along the line; the first two of either at once. NaN wins and stays.
    Windows with no element keep what `out` has."""
    line = np.empty(x.shape[3] * x.shape[4], x.dtype)
    channels, lines = x.shape[4], len(zs) * len(ys)
    for row in range(start, stop):
        n, t, u = row // lines, row % lines // len(ys), row % len(ys)
        lasting, count = line, 0
        for i in range(zs[t, 0], zs[t, 1]):
            for j in range(ys[u, 0], ys[u, 1]):
                seen = x[n, zs[t, 2] + i * steps[0], ys[u, 2] + j * steps[1]].reshape(-1)
                if count == 0:
                    lasting = seen
                elif count == 1:
                    for c in range(len(line)):
                        m, e = lasting[c], seen[c]
                        line[c] = e if (e > m) | (e != e) else m
                    lasting = line
                else:
                    for c in range(len(line)):
                        m, e = line[c], seen[c]
                        line[c] = e if (e > m) | (e != e) else m
                count += 1
        results = out[n, t, u].reshape(-1)
        for v in range(len(xs) if count > 0 else 0):
            first, last = xs[v, 0], xs[v, 1]
            at, step = (xs[v, 2] + first * steps[2]) * channels, steps[2] * channels
            best = results[v * channels : (v + 1) * channels]
            if last - first == 1:
                one = lasting[at : at + channels]
                for c in range(len(best)):
                    best[c] = one[c]
            elif last > first:
                one, two = lasting[at : at + channels], lasting[at + step : at + step + channels]
                for c in range(len(best)):
                    m, e = one[c], two[c]
                    best[c] = e if (e > m) | (e != e) else m
                for _ in range(first + 2, last):
                    at += step
                    two = lasting[at + step : at + step + channels]
                    for c in range(len(best)):
                        m, e = best[c], two[c]
                        best[c] = e if (e > m) | (e != e) else m


@loop("x5 x5 =x5 i2 i2 i2 n3 n n")
def _route(g: Any, x: Any, out: Any, zs: Any, ys: Any, xs: Any, steps: Any, start: int, stop: int) -> None:
    """`out` gets the cotangents at the first largest element of each window, or its first NaN: found over whole lines
    of the image, then along the line; of equal ones along the line, the one on the earlier line, then the first."""
    number = g.dtype.type  # lines and places are counted in numbers of the elements' own size
    zero, channels, width = number(0), x.shape[4], x.shape[3] * x.shape[4]
    most, where, rest = np.empty(width, g.dtype), np.empty(width, g.dtype), np.empty(width, g.dtype)
    best, line, place = np.empty(channels, g.dtype), np.empty(channels, g.dtype), np.empty(channels, g.dtype)
    for n in range(start, stop):
        out[n] = zero
        for t in range(len(zs)):
            for u in range(len(ys)):
                count = zero
                rest[:] = zero
                for i in range(zs[t, 0], zs[t, 1]):
                    for j in range(ys[u, 0], ys[u, 1]):
                        seen = x[n, zs[t, 2] + i * steps[0], ys[u, 2] + j * steps[1]].reshape(-1)
                        if count == zero:
                            for c in range(width):
                                most[c], where[c] = seen[c], zero
                        else:
                            for c in range(width):
                                e, m, w = seen[c], most[c], where[c]
                                better = (e > m) | ((e != e) & (m == m))
                                most[c] = e if better else m
                                where[c] = count if better else w
                        count += number(1)
                for v in range(len(xs) if count > zero else 0):
                    for k in range(xs[v, 0], xs[v, 1]):
                        at, here = (xs[v, 2] + k * steps[2]) * channels, number(k)
                        seen, lines = most[at : at + channels], where[at : at + channels]
                        if k == xs[v, 0]:
                            for c in range(channels):
                                best[c], line[c], place[c] = seen[c], lines[c], here
                        else:
                            for c in range(channels):
                                e, a, m, b, p = seen[c], lines[c], best[c], line[c], place[c]
                                equal = (e == m) | ((e != e) & (m != m))
                                better = (e > m) | ((e != e) & (m == m)) | (equal & (a < b))
                                best[c] = e if better else m
                                line[c] = a if better else b
                                place[c] = here if better else p
                    given = g[n, t, u, v]
                    for k in range(xs[v, 0], xs[v, 1]):
                        at, here = (xs[v, 2] + k * steps[2]) * channels, number(k)
                        part = rest[at : at + channels]
                        for c in range(channels):
                            e = given[c]
                            part[c] += e if place[c] == here else zero
                count = zero
                for i in range(zs[t, 0], zs[t, 1]):
                    for j in range(ys[u, 0], ys[u, 1]):
                        got = out[n, zs[t, 2] + i * steps[0], ys[u, 2] + j * steps[1]].reshape(-1)
                        for c in range(width):
                            e = rest[c]
                            got[c] += e if where[c] == count else zero
                        count += number(1)


@loop("x5 x5 x5 =x5 i2 i2 i2 n3 n n")
def _pick(a: Any, x: Any, m: Any, out: Any, zs: Any, ys: Any, xs: Any, steps: Any, start: int, stop: int) -> None:
    """`out` (zeros) gets the elements of `a` where x is m, or NaN. Backwards, so that the first one stays."""
    lines = len(zs) * len(ys)
    for row in range(start, stop):
        n, t, u = row // lines, row % lines // len(ys), row % len(ys)
        for v in range(len(xs)):
            got, most = out[n, t, u, v], m[n, t, u, v]
            for i in range(zs[t, 1] - 1, zs[t, 0] - 1, -1):
                for j in range(ys[u, 1] - 1, ys[u, 0] - 1, -1):
                    for k in range(xs[v, 1] - 1, xs[v, 0] - 1, -1):
                        p, q, r = zs[t, 2] + i * steps[0], ys[u, 2] + j * steps[1], xs[v, 2] + k * steps[2]
                        seen, given = x[n, p, q, r], a[n, p, q, r]
                        for c in range(got.shape[0]):
                            e, new, old = seen[c], given[c], got[c]
                            got[c] = new if (e == most[c]) | (e != e) else old


@loop("x5 =x5 i2 i2 i2 n3 n n")
def _mean(x: Any, out: Any, zs: Any, ys: Any, xs: Any, steps: Any, start: int, stop: int) -> None:
    """First over whole lines of the image, then along the line; the first two of either at once. Windows with no
    element keep what `out` has."""
    line = np.empty(x.shape[3] * x.shape[4], x.dtype)
    channels, lines = x.shape[4], len(zs) * len(ys)
    for row in range(start, stop):
        n, t, u = row // lines, row % lines // len(ys), row % len(ys)
        lasting, count = line, 0
        for i in range(zs[t, 0], zs[t, 1]):
            for j in range(ys[u, 0], ys[u, 1]):
                seen = x[n, zs[t, 2] + i * steps[0], ys[u, 2] + j * steps[1]].reshape(-1)
                if count == 0:
                    lasting = seen
                elif count == 1:
                    for c in range(len(line)):
                        line[c] = lasting[c] + seen[c]
                    lasting = line
                else:
                    for c in range(len(line)):
                        line[c] += seen[c]
                count += 1
        results = out[n, t, u].reshape(-1)
        for v in range(len(xs) if count > 0 else 0):
            first, last = xs[v, 0], xs[v, 1]
            at, step = (xs[v, 2] + first * steps[2]) * channels, steps[2] * channels
            best = results[v * channels : (v + 1) * channels]
            if last - first == 1:
                one = lasting[at : at + channels]
                for c in range(len(best)):
                    best[c] = one[c]
            elif last > first:
                one, two = lasting[at : at + channels], lasting[at + step : at + step + channels]
                for c in range(len(best)):
                    best[c] = one[c] + two[c]
                for _ in range(first + 2, last):
                    at += step
                    two = lasting[at + step : at + step + channels]
                    for c in range(len(best)):
                        best[c] += two[c]
            size = x.dtype.type(max(count * (last - first), 1))
            for c in range(len(best)):
                best[c] /= size


@loop("x5 =x5 i2 i2 i2 n3 n n")
def _spread(g: Any, out: Any, zs: Any, ys: Any, xs: Any, steps: Any, start: int, stop: int) -> None:
    """`out` gets each cotangent's share at every element of its window: along a line, then on whole lines."""
    channels = g.shape[4]
    line = np.empty(out.shape[3] * channels, g.dtype)
    for n in range(start, stop):
        out[n] = 0
        for t in range(len(zs)):
            for u in range(len(ys)):
                line[:] = 0
                for v in range(len(xs)):
                    count = (zs[t, 1] - zs[t, 0]) * (ys[u, 1] - ys[u, 0]) * (xs[v, 1] - xs[v, 0])
                    size = g.dtype.type(max(count, 1))
                    given = g[n, t, u, v]
                    for k in range(xs[v, 0], xs[v, 1]):
                        at = (xs[v, 2] + k * steps[2]) * channels
                        part = line[at : at + channels]
                        for c in range(channels):
                            part[c] += given[c] / size
                for i in range(zs[t, 0], zs[t, 1]):
                    for j in range(ys[u, 0], ys[u, 1]):
                        got = out[n, zs[t, 2] + i * steps[0], ys[u, 2] + j * steps[1]].reshape(-1)
                        for c in range(len(line)):
                            got[c] += line[c]


# ------------------------------------------------------------------ functions of arrays


def max_pool(x: Any, window: Sizes, strides: Sizes, dilations: Sizes, low: Sizes, high: Sizes) -> Any:
    """The largest element of each window."""
    places = tables(x.shape[1:-1], window, strides, dilations, low, high)
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return _over_windows(_largest, [x], least, places, dilations)


def max_pool_input(
    g: Any, x: Any, shape: Sizes, window: Sizes, strides: Sizes, dilations: Sizes, low: Sizes, high: Sizes
) -> Any:
    """Cotangents where the largest elements were."""
    places = tables(shape, window, strides, dilations, low, high)
    return _over_images(_route, [g, x], x.shape, places, dilations)


def max_pool_pick(a: Any, x: Any, window: Sizes, strides: Sizes, dilations: Sizes, low: Sizes, high: Sizes) -> Any:
    """The elements of `a` where x has its largest elements."""
    places = tables(x.shape[1:-1], window, strides, dilations, low, high)
    most = max_pool(x, window, strides, dilations, low, high)
    return _over_windows(_pick, [a, x, most], 0, places, dilations)


def avg_pool(x: Any, window: Sizes, strides: Sizes, dilations: Sizes, low: Sizes, high: Sizes) -> Any:
    """The mean of each window's elements inside the image."""
    places = tables(x.shape[1:-1], window, strides, dilations, low, high)
    return _over_windows(_mean, [x], 0, places, dilations)


def avg_pool_input(
    g: Any, shape: Sizes, window: Sizes, strides: Sizes, dilations: Sizes, low: Sizes, high: Sizes
) -> Any:
    """Cotangents shared out among their windows."""
    places = tables(shape, window, strides, dilations, low, high)
    return _over_images(_spread, [g], (len(g), *shape, g.shape[-1]), places, dilations)


def _five_axes(a: Any) -> Any:
    """(n, *space, channels) with three axes of space, in C order."""
    shape = (len(a), *(1,) * (5 - a.ndim), *a.shape[1:])
    return np.ascontiguousarray(a).reshape(shape)


def _over_windows(body: Loop, arrays: list[Any], start: Any, places: Tables, dilations: Sizes) -> Any:
    """A result per window; rows are lines of windows."""
    x = arrays[0]
    out = empty((len(x), *map(len, places), x.shape[-1]), x.dtype)
    if body is _pick or any((p[:, 0] == p[:, 1]).any() for p in places):
        out[...] = start
    over, steps, wide = three(places, WHOLE), three(dilations, 1), _five_axes(out)
    run, operands = body.of(x.dtype), [_five_axes(a) for a in arrays]
    rows = len(x) * len(over[0]) * len(over[1])
    share(rows, x.size, lambda a, b: run(*operands, wide, *over, steps, a, b))
    return out


def _over_images(body: Loop, arrays: list[Any], shape: Sizes, places: Tables, dilations: Sizes) -> Any:
    """A result per element of the images; rows are images, because windows may overlap."""
    g = arrays[0]
    out = empty(shape, g.dtype)
    over, steps, wide = three(places, WHOLE), three(dilations, 1), _five_axes(out)
    run, operands = body.of(g.dtype), [_five_axes(a) for a in arrays]
    share(len(out), math.prod(shape), lambda a, b: run(*operands, wide, *over, steps, a, b))
    return out
