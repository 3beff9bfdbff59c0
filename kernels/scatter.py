"""Rows combined at positions, as loops on the CPU. Floor: kernels.

All loops are of one form: `out` (batch, n, width), `positions` (batch, k), `rows` (batch, k, width); row i is combined
with the row of `out` that its position names, in order. Threads share the rows of `out`, so that results do not depend
on how many there are."""

from __future__ import annotations

from typing import Any

from gradtape.kernels.loops import Loop, loop, share


@loop("=x3 i2 x3 n n")
def _add(out: Any, positions: Any, rows: Any, start: int, stop: int) -> None:
    if rows.shape[2] == 1:  # no loop over a row's one element
        for b in range(rows.shape[0]):
            single, numbers = out[b].reshape(-1), rows[b].reshape(-1)
            for i in range(len(numbers)):
                at = positions[b, i]
                if start <= at < stop:
                    single[at] += numbers[i]
        return
    for b in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            at = positions[b, i]
            if start <= at < stop:
                for j in range(rows.shape[2]):
                    out[b, at, j] += rows[b, i, j]


@loop("=x3 i2 x3 n n")
def _max(out: Any, positions: Any, rows: Any, start: int, stop: int) -> None:
    for b in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            at = positions[b, i]
            if start <= at < stop:
                for j in range(rows.shape[2]):
                    m, x = out[b, at, j], rows[b, i, j]
                    out[b, at, j] = x if (x > m or x != x) else m  # NaN wins and stays


@loop("=x3 i2 x3 n n")
def _min(out: Any, positions: Any, rows: Any, start: int, stop: int) -> None:
    for b in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            at = positions[b, i]
            if start <= at < stop:
                for j in range(rows.shape[2]):
                    m, x = out[b, at, j], rows[b, i, j]
                    out[b, at, j] = x if (x < m or x != x) else m


WIDE = 16  # elements of a row from which threads share the rows of the result
LOOPS: dict[str, Loop] = {"add": _add, "maximum": _max, "minimum": _min}


def combine(ufunc: str, out: Any, positions: Any, rows: Any) -> None:
    """Combine as a NumPy ufunc does: "add", "maximum" or "minimum". Arrays are in C order, positions int64."""
    run = LOOPS[ufunc].of(out.dtype)
    # every thread looks at all positions: for narrow rows the mispredicted branches cost more than the rows
    elements = rows.size if rows.shape[2] >= WIDE else 0
    share(out.shape[1], elements, lambda start, stop: run(out, positions, rows, start, stop))
