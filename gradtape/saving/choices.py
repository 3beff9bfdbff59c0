"""Choices of unknown sizes: which are alike, ranges of them, and shapes for some. Floor: saving."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.saving.formulas import Sizes, with_parts
from gradtape.saving.matching import Found

MAX_PERIOD = 128  # sizes after which a part has gone up

Place = tuple[int, int]  # an argument and its axis
Pattern = tuple[tuple[Place, Any], ...]  # for each unknown size: a number, or ("size", k)
Ranges = tuple[tuple[int, int | None], ...]  # the first and the last of each unknown size; None: there is no last


def jumps(body: Found, sizes: Sizes, ranges: Ranges) -> Iterator[Sizes]:
    """Sizes next to those where a part goes up, for each part and each axis."""
    parts = body.text["parts"]
    for k, (_, last) in enumerate(ranges):
        end = sizes[k] + 4 * MAX_PERIOD if last is None else last + 1
        begin = sizes[k] if last is None else max(ranges[k][0], last - 4 * MAX_PERIOD)
        values = [with_parts(with_size(sizes, k, n), parts)[len(sizes) :] for n in range(begin, end)] if parts else []
        for j in range(len(parts)):
            at = next((i for i in range(1, len(values)) if values[i][j] != values[i - 1][j]), None)
            if at is not None:
                yield from (with_size(sizes, k, begin + i) for i in (at - 1, at))


def example_of(k: int, span: tuple[int, int | None], s: int, start: int, stride: int, offsets: Sequence[int]) -> int:
    """The size of an axis in the s-th example."""
    by = offsets[(s * (2 * k + 1) + 5 * k) % len(offsets)] * stride
    last = span[1]
    return -(-(start + 7 * k) // stride) * stride + by if last is None else last - last % stride - by


def with_size(sizes: Sizes, k: int, n: int) -> Sizes:
    return (*sizes[:k], n, *sizes[k + 1 :])


def are_in(sizes: Sizes, ranges: Ranges) -> bool:
    return all(a <= n and (b is None or n <= b) for n, (a, b) in zip(sizes, ranges, strict=True))


def cut_at(ranges: Ranges, k: int, at: int) -> list[Ranges]:
    """Ranges cut in two at a size; those that are empty left out."""
    first, last = ranges[k]
    halves = [(first, at - 1), (at, last)]
    return [(*ranges[:k], (a, b), *ranges[k + 1 :]) for a, b in halves if b is None or a <= b]


def count(pattern: Pattern) -> int:
    return len({k for _, k in pattern if isinstance(k, tuple)})


def at(avals: tuple[Aval, ...], pattern: Pattern, sizes: Sizes) -> tuple[Aval, ...]:
    """The shapes for some sizes."""
    known = {p: sizes[k[1]] if isinstance(k, tuple) else k for p, k in pattern}
    return tuple(
        aval(tuple(known.get((i, k), n) for k, n in enumerate(a.shape or ())), a.dtype) for i, a in enumerate(avals)
    )
