"""Outer products as loops on the CPU: each number is written once, and nothing but the result leaves the cache. Floor:
kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.kernels.loops import loop, share
from gradtape.kernels.memory import LINE
from gradtape.kernels.streaming import LARGE

PAYS = 1 << 20  # elements of a result from which a loop of its own pays
DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


@loop("=x4 x3 x2 n n")
def _outer(out: Any, a: Any, b: Any, start: int, stop: int) -> None:
    for r in range(start, stop):
        i, j = r // out.shape[1], r % out.shape[1]
        for k in range(out.shape[2]):
            s = b[i, k]
            for m in range(out.shape[3]):
                out[i, j, k, m] = a[i, j, m] * s


def outer(out: Any, a: Any, b: Any) -> bool:
    """out = a * b (broadcast), where the axes of `out` are such that both operands have, then those of one, of the
    other, and of the first again; threads share the first two. False: it is not so, the result is small, or the loop
    is not compiled yet."""
    if out.size < PAYS or out.dtype not in DTYPES or not out.flags.c_contiguous:
        return False
    if a.shape[-1] == 1:
        a, b = b, a
    sizes = _grouped(out.shape, a.shape, b.shape)
    if sizes is None:
        return False
    batch, rows, lines, width = sizes
    streamed = out.nbytes >= LARGE and out.ctypes.data % LINE == 0 and width * out.itemsize % LINE == 0
    run = _outer.soon(out.dtype, streamed)
    if run is None:
        return False
    wide = out.reshape(batch, rows, lines, width)
    first = np.ascontiguousarray(a).reshape(batch, rows, width)
    second = np.ascontiguousarray(b).reshape(batch, lines)
    share(batch * rows, out.size, lambda start, stop: run(wide, first, second, start, stop))
    return True


def _grouped(shape: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, int, int, int] | None:
    """The sizes of the groups of axes: of both, of a, of b, of a; None where axes come in another order."""
    kinds = [("a" if m > 1 else "") + ("b" if n > 1 else "") for m, n in zip(a, b, strict=True)]
    sizes, at = [], 0
    for kind in ("ab", "a", "b", "a"):
        begin = at
        while at < len(shape) and (kinds[at] == kind or shape[at] == 1):
            at += 1
        sizes.append(math.prod(shape[begin:at]))
    if at < len(shape) or sizes[2] == 1 or sizes[3] == 1:
        return None
    return sizes[0], sizes[1], sizes[2], sizes[3]
