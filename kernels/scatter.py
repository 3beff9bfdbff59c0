"""Rows combined at positions, as Numba loops on the CPU. Floor: kernels.

All loops are of one form: `out` (batch, n, width), `positions` (batch, k), `rows` (batch, k, width); row i is combined
with the row of `out` that its position names, in order, so that results do not depend on the number of threads.
Numba is imported, and a loop compiled, when it is first asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Loop = Callable[[Any, Any, Any], None]


def _add(out: Any, positions: Any, rows: Any) -> None:
    for b in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            at = positions[b, i]
            for j in range(rows.shape[2]):
                out[b, at, j] += rows[b, i, j]


def _max(out: Any, positions: Any, rows: Any) -> None:
    for b in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            at = positions[b, i]
            for j in range(rows.shape[2]):
                x = rows[b, i, j]
                if x > out[b, at, j] or x != x:  # NaN wins and stays
                    out[b, at, j] = x


def _min(out: Any, positions: Any, rows: Any) -> None:
    for b in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            at = positions[b, i]
            for j in range(rows.shape[2]):
                x = rows[b, i, j]
                if x < out[b, at, j] or x != x:
                    out[b, at, j] = x


LOOPS: dict[str, Loop] = {"add": _add, "maximum": _max, "minimum": _min}


@functools.cache
def loop(ufunc: str) -> Loop:
    """The compiled loop that combines as a NumPy ufunc does: "add", "maximum" or "minimum"."""
    import numba

    compiled: Loop = numba.njit(nogil=True)(LOOPS[ufunc])
    return compiled
