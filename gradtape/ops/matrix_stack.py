"""Stacks of matrices of which some have no answer: the others keep theirs. Floor: ops.

The array library refuses a whole stack for one singular matrix. Here such a matrix answers NaN, as does one that
holds NaN or infinities; an error is raised where no matrix of the stack has an answer, so that a matrix on its own
is refused as TensorFlow refuses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import size_of

Run = Callable[..., Any]

NOT_FOUND = "`{}`: the decomposition was not successful for any matrix. The input might not be valid."


def each_matrix(xp: Any, run: Run, cores: Sequence[int], failure: str, a: Any, *rest: Any) -> Any:
    """`run(a, *rest)` matrix by matrix.

    Args:
      xp: the array module.
      run: to an array or a tuple of arrays; raises LinAlgError when any matrix fails.
      cores: how many axes each result has behind the loops.
      failure: the message for the case that no matrix has an answer.
      a: (..., m, n), the matrices that may fail; `rest` broadcasts against its loops.

    Raises:
      InvalidArgumentError: none of the matrices has an answer, though one of them is finite.
    """
    finite = xp.isfinite(a).all(axis=(-2, -1))
    if bool(finite.all()):
        try:
            return run(a, *rest)
        except np.linalg.LinAlgError:
            pass
    lost = ~finite
    lost |= _failing(xp, run, _without(xp, a, lost), rest)
    if bool(lost.all()) and bool(finite.any()):
        raise InvalidArgumentError(failure)
    results = run(_without(xp, a, lost), *rest)
    if isinstance(results, tuple):
        return tuple(_marked(xp, r, lost, c) for r, c in zip(results, cores, strict=True))
    return _marked(xp, results, lost, cores[0])


def singular_vectors(xp: Any, a: Any, name: str) -> tuple[Any, Any, Any]:
    """U, s and V* of each matrix, thin; NaN where it has none."""

    def run(a: Any) -> Any:
        return tuple(xp.linalg.svd(a, full_matrices=False))

    found: tuple[Any, Any, Any] = each_matrix(xp, run, (2, 1, 2), NOT_FOUND.format(name), a)
    return found


def _without(xp: Any, a: Any, lost: Any) -> Any:
    """The stack with the identity in place of the lost matrices."""
    return xp.where(lost[..., None, None], xp.eye(*a.shape[-2:], dtype=a.dtype), a)


def _marked(xp: Any, result: Any, lost: Any, core: int) -> Any:
    return xp.where(lost.reshape(lost.shape + (1,) * core), xp.asarray(np.nan, result.dtype), result)


def _failing(xp: Any, run: Run, a: Any, rest: Sequence[Any]) -> Any:
    """Which matrices fail, found by halving the stack: a few of them cost little more than the stack does."""
    count = size_of(a.shape[:-2])
    flat = a.reshape(count, *a.shape[-2:])
    others = [xp.zeros(b.shape[-2:], b.dtype) for b in rest]  # what a matrix meets has no say in whether it fails
    failing = np.zeros(count, bool)
    parts = [(0, count)]
    while parts:
        start, stop = parts.pop()
        try:
            run(flat[start:stop], *others)
        except np.linalg.LinAlgError:
            middle = (start + stop) // 2
            if stop - start == 1:
                failing[start] = True
            else:
                parts += [(start, middle), (middle, stop)]
    return xp.asarray(failing.reshape(a.shape[:-2]))
