"""A program run piece by piece along one axis of its operands and results, in several threads. Floor: backends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gradtape.backends.memory import empty
from gradtape.backends.one_thread import share_products


def in_pieces(
    program: Callable[..., tuple[Any, ...]],
    count: int,
    cut: Sequence[int | None],
    lying: Sequence[int],
    results: Sequence[tuple[tuple[int, ...], Any]],
) -> Callable[..., Any]:
    """The function that hands a program one piece of its operands after the other (`cut`: by operand the axis, None:
    all of it) and puts its results behind each other (`lying`: by result the axis). `results`: shapes and dtypes."""
    work = sum(math.prod(shape) for shape, _ in results) * count
    lengths = [shape[axis] // count for (shape, _), axis in zip(results, lying, strict=True)]

    def run(*arrays: Any) -> Any:
        made = [empty(shape, dtype) for shape, dtype in results]

        def some(start: int, stop: int) -> None:
            for k in range(start, stop):
                parts = program(*[a if axis is None else _part(a, axis, k, count) for a, axis in zip(arrays, cut)])
                for whole, part, axis, n in zip(made, parts, lying, lengths):
                    whole[(*(slice(None),) * axis, slice(k * n, k * n + n))] = part

        share_products(count, work, some)
        return made[0] if len(made) == 1 else tuple(made)

    return run


def _part(a: Any, axis: int, k: int, count: int) -> Any:
    n = a.shape[axis] // count
    return a[(*(slice(None),) * axis, slice(k * n, k * n + n))]
