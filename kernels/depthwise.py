"""Convolution of each channel by itself on the CPU, as loops over runs of windows that lie side by side. Floor:
kernels.

Images (n, *space, channels), kernel (*window, channels), results (n, *windows, channels). A run is as many windows of
one line as fill a vector register many times over, if their steps are 1, else one window; the kernel's numbers are
repeated along it. Where windows lie is said by the tables of `kernels.windows`; what lies outside an image is zero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.kernels.loops import loop, share
from gradtape.kernels.memory import empty
from gradtape.kernels.windows import FLOATS, WHOLE, Sizes, tables, three

RUN = 1024  # elements of a run
PAYS = 1 << 14  # elements of images from which compiled loops pay


@loop("x1 x1 =x1 i2 i2 i2 n3 n3 n3 n n n n n")
def _results(
    x: Any,
    weights: Any,
    out: Any,
    zs: Any,
    ys: Any,
    xs: Any,
    steps: Any,
    window: Any,
    space: Any,
    stride: int,
    run: int,
    channels: int,
    start: int,
    stop: int,
) -> None:
    """Rows are lines of windows."""
    width, lines, size = len(xs), len(zs) * len(ys), run * channels
    left, right = 0, width
    while left < width and xs[left, 0] > 0:
        left += 1
    while right > left and xs[right - 1, 1] < window[2]:
        right -= 1
    for row in range(start, stop):
        n, t, u = row // lines, row % lines // len(ys), row % len(ys)
        begin = 0
        while begin < width:
            end = min(left if begin < left else right if begin < right else width, begin + run)
            total = out[(row * width + begin) * channels : (row * width + end) * channels]
            total[:] = 0
            for i in range(zs[t, 0], zs[t, 1]):
                for j in range(ys[u, 0], ys[u, 1]):
                    line = (n * space[0] + zs[t, 2] + i * steps[0]) * space[1] + ys[u, 2] + j * steps[1]
                    k = 0
                    while k < window[2]:
                        first = xs[0, 2] + k * steps[2]
                        inside = begin * stride + first >= 0 and (end - 1) * stride + first + 2 * steps[2] < space[2]
                        if (
                            inside and k + 2 < window[2]
                        ):  # three at once: each number of the sum is read and written once
                            many = (end - begin) * channels
                            at, further = (line * space[2] + begin * stride + first) * channels, steps[2] * channels
                            there = ((i * window[1] + j) * window[2] + k) * size
                            a0, a1, a2 = x[at : at + many], x[at + further :], x[at + 2 * further :]
                            w0, w1, w2 = (
                                weights[there : there + many],
                                weights[there + size :],
                                weights[there + 2 * size :],
                            )
                            for c in range(len(total)):
                                total[c] = ((total[c] + a0[c] * w0[c]) + a1[c] * w1[c]) + a2[c] * w2[c]
                            k += 3
                        else:
                            low, high = begin, end
                            if run > 1:
                                low, high = max(begin, -first), min(end, space[2] - first)
                            at = low * stride + first
                            if low < high and 0 <= at < space[2]:
                                many, skipped = (high - low) * channels, (low - begin) * channels
                                at = (line * space[2] + at) * channels
                                there = ((i * window[1] + j) * window[2] + k) * size + skipped
                                seen, factor = x[at : at + many], weights[there : there + many]
                                part = total[skipped : skipped + many]
                                for c in range(len(part)):
                                    part[c] += seen[c] * factor[c]
                            k += 1
            begin = end


@loop("x1 x1 =x1 i2 i2 i2 n3 n3 n3 n n n n n")
def _images(
    g: Any,
    weights: Any,
    out: Any,
    zs: Any,
    ys: Any,
    xs: Any,
    steps: Any,
    window: Any,
    space: Any,
    stride: int,
    run: int,
    channels: int,
    start: int,
    stop: int,
) -> None:
    """Rows are images."""
    width, size, image = len(xs), run * channels, space[0] * space[1] * space[2] * channels
    left, right = 0, width
    while left < width and xs[left, 0] > 0:
        left += 1
    while right > left and xs[right - 1, 1] < window[2]:
        right -= 1
    out[start * image : stop * image] = 0
    for n in range(start, stop):
        for t in range(len(zs)):
            for u in range(len(ys)):
                row = ((n * len(zs) + t) * len(ys) + u) * width
                for i in range(zs[t, 0], zs[t, 1]):
                    for j in range(ys[u, 0], ys[u, 1]):
                        line = (n * space[0] + zs[t, 2] + i * steps[0]) * space[1] + ys[u, 2] + j * steps[1]
                        begin = 0
                        while begin < width:
                            end = min(left if begin < left else right if begin < right else width, begin + run)
                            for k in range(window[2]):
                                first = xs[0, 2] + k * steps[2]
                                low, high = begin, end
                                if run > 1:
                                    low, high = max(begin, -first), min(end, space[2] - first)
                                at = low * stride + first
                                if low < high and 0 <= at < space[2]:
                                    many, skipped = (high - low) * channels, (low - begin) * channels
                                    at = (line * space[2] + at) * channels
                                    there = ((i * window[1] + j) * window[2] + k) * size + skipped
                                    part, factor = out[at : at + many], weights[there : there + many]
                                    seen = g[(row + low) * channels : (row + high) * channels]
                                    for c in range(len(part)):
                                        part[c] += seen[c] * factor[c]
                            begin = end


@loop("x1 x1 =x1 i2 i2 i2 n3 n3 n3 n n n n n")
def _weights(
    x: Any,
    g: Any,
    out: Any,
    zs: Any,
    ys: Any,
    xs: Any,
    steps: Any,
    window: Any,
    space: Any,
    stride: int,
    run: int,
    channels: int,
    start: int,
    stop: int,
) -> None:
    """Rows are images, each with sums of its own: (n, *window, channels)."""
    width, size, elements = len(xs), run * channels, window[0] * window[1] * window[2]
    left, right = 0, width
    while left < width and xs[left, 0] > 0:
        left += 1
    while right > left and xs[right - 1, 1] < window[2]:
        right -= 1
    sums = np.empty(elements * size, x.dtype)
    for n in range(start, stop):
        sums[:] = 0
        for t in range(len(zs)):
            for u in range(len(ys)):
                row = ((n * len(zs) + t) * len(ys) + u) * width
                begin = 0
                while begin < width:
                    end = min(left if begin < left else right if begin < right else width, begin + run)
                    given = g[(row + begin) * channels : (row + end) * channels]
                    for i in range(zs[t, 0], zs[t, 1]):
                        for j in range(ys[u, 0], ys[u, 1]):
                            line = (n * space[0] + zs[t, 2] + i * steps[0]) * space[1] + ys[u, 2] + j * steps[1]
                            k = 0
                            while k < window[2]:
                                first = xs[0, 2] + k * steps[2]
                                inside = (
                                    begin * stride + first >= 0 and (end - 1) * stride + first + 2 * steps[2] < space[2]
                                )
                                if (
                                    inside and k + 2 < window[2]
                                ):  # three at once: each number of the sum is read and written once
                                    many = (end - begin) * channels
                                    at, further = (
                                        (line * space[2] + begin * stride + first) * channels,
                                        steps[2] * channels,
                                    )
                                    there = ((i * window[1] + j) * window[2] + k) * size
                                    a0, a1, a2 = x[at : at + many], x[at + further :], x[at + 2 * further :]
                                    s0, s1, s2 = (
                                        sums[there : there + many],
                                        sums[there + size :],
                                        sums[there + 2 * size :],
                                    )
                                    for c in range(len(given)):
                                        s0[c] += a0[c] * given[c]
                                        s1[c] += a1[c] * given[c]
                                        s2[c] += a2[c] * given[c]
                                    k += 3
                                else:
                                    low, high = begin, end
                                    if run > 1:
                                        low, high = max(begin, -first), min(end, space[2] - first)
                                    at = low * stride + first
                                    if low < high and 0 <= at < space[2]:
                                        many, skipped = (high - low) * channels, (low - begin) * channels
                                        at = (line * space[2] + at) * channels
                                        there = ((i * window[1] + j) * window[2] + k) * size + skipped
                                        seen, part = x[at : at + many], sums[there : there + many]
                                        some = given[skipped : skipped + many]
                                        for c in range(len(part)):
                                            part[c] += seen[c] * some[c]
                                    k += 1
                    begin = end
        total = out[n * elements * channels : (n + 1) * elements * channels]
        total[:] = 0
        for e in range(elements):
            mine = total[e * channels : (e + 1) * channels]
            for r in range(run):
                part = sums[e * size + r * channels : e * size + (r + 1) * channels]
                for c in range(len(mine)):
                    mine[c] += part[c]


# ------------------------------------------------------------------ functions of arrays


def pays(images: int, space: Sizes, groups: int, channels: int, dtype: Any) -> bool:
    """Whether these loops serve a convolution in groups of so many channels."""
    few = groups > 1 and channels == 1 and len(space) <= 3
    return few and dtype in FLOATS and images * math.prod(space) * groups >= PAYS


def widened(images: Sizes, results: int) -> int:
    """Elements of images with every channel once for each of its results, where that makes another array."""
    return math.prod(images) * results if results > 1 else 0


class Loops:
    """The loops for images (n, *space, groups, 1) and a kernel with `results` for each group."""

    def __init__(
        self, space: Sizes, window: Sizes, strides: Sizes, dilations: Sizes, low: Sizes, high: Sizes, results: int
    ) -> None:
        places = tables(space, window, strides, dilations, low, high)
        self.space, self.window, self.counts, self.results = space, window, tuple(map(len, places)), results
        self.over, self.steps, self.stride = three(places, WHOLE), three(dilations, 1), strides[-1]

    def convolve(self, x: Any, k: Any) -> Any:
        """Results (n, *windows, groups, results)."""
        n, wide = len(x), self._wide(x)
        out = empty((n, *self.counts, *k.shape[-2:]), x.dtype)
        if out.size:
            rows = n * len(self.over[0]) * len(self.over[1])
            self._run(_results, wide, self._repeated(k), out, rows, k.shape[-2])
        return out

    def images(self, g: Any, k: Any) -> Any:
        """The images' gradient: (n, *space, groups, 1)."""
        out = empty((len(g), *self.space, *k.shape[-2:]), g.dtype)
        self._run(_images, np.ascontiguousarray(g), self._repeated(k), out, len(g), k.shape[-2])
        if self.results == 1:
            return out
        return np.matmul(out.reshape(-1, self.results), np.ones((self.results, 1), g.dtype)).reshape(*out.shape[:-1], 1)

    def kernel(self, x: Any, g: Any) -> Any:
        """The kernel's gradient: (*window, 1, groups, results)."""
        groups = g.shape[-2]
        out = np.empty((len(x), *self.window, groups, self.results), x.dtype)
        self._run(_weights, self._wide(x), np.ascontiguousarray(g), out, len(x), groups)
        return np.expand_dims(out.sum(0), -3)

    def _run(self, body: Any, a: Any, b: Any, out: Any, rows: int, groups: int) -> None:
        channels = groups * self.results
        loop_of, run = body.of(out.dtype), self._length(channels)
        sizes, space = three(self.window, 1), three(self.space, 1)
        flat = (a.reshape(-1), b.reshape(-1), out.reshape(-1))
        work = max(a.size, out.size) * math.prod(self.window)
        share(
            rows,
            work,
            lambda first, last: loop_of(
                *flat, *self.over, self.steps, sizes, space, self.stride, run, channels, first, last
            ),
        )

    def _length(self, channels: int) -> int:
        """How many windows a run has."""
        return max(1, min(self.counts[-1], RUN // channels)) if self.stride == 1 else 1

    def _wide(self, x: Any) -> Any:
        """Images with every channel once for each of its results."""
        return np.ascontiguousarray(x) if self.results == 1 else x.repeat(self.results, -1)

    def _repeated(self, k: Any) -> Any:
        """The kernel's numbers along a run."""
        flat = k.reshape(math.prod(self.window), 1, -1)
        return np.ascontiguousarray(np.broadcast_to(flat, (len(flat), self._length(flat.shape[-1]), flat.shape[-1])))
