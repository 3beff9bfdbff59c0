"""Matrices that have no answer, as cuSOLVER and cuBLAS leave them: they say so where nobody looks, and go on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def by_matrix(function: Callable[..., np.ndarray], *stacks: np.ndarray) -> np.ndarray:
    """A function of matrices for stacks of the same loop axes."""
    loops = stacks[0].shape[:-2]
    found = [function(*(stack[at] for stack in stacks)) for at in np.ndindex(*loops)]
    if not found:
        return np.zeros(stacks[-1].shape, stacks[-1].dtype)
    return np.stack(found).reshape(*loops, *found[0].shape)


def cholesky(a: np.ndarray) -> np.ndarray:
    """The lower triangle, finished up to the first pivot that is not positive."""
    try:
        return np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        pass
    factor = np.tril(a)
    for k in range(len(a)):
        pivot = factor[k, k].real
        if not pivot > 0:
            return factor
        factor[k:, k] /= np.sqrt(pivot)
        rest = factor[k + 1 :, k]
        factor[k + 1 :, k + 1 :] -= np.tril(np.outer(rest, rest.conj()))
    return factor


def solve(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """By elimination that divides by pivots of 0 as IEEE numbers do."""
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        pass
    upper, x, n = a.copy(), b.copy(), len(a)
    with np.errstate(all="ignore"):
        for k in range(n):
            best = k + int(np.argmax(np.abs(upper[k:, k])))
            upper[[k, best]], x[[k, best]] = upper[[best, k]], x[[best, k]]
            if upper[k, k] != 0:
                factors = upper[k + 1 :, k, None] / upper[k, k]
                upper[k + 1 :] -= factors * upper[k]
                x[k + 1 :] -= factors * x[k]
        for k in reversed(range(n)):
            x[k] = (x[k] - upper[k, k + 1 :] @ x[k + 1 :]) / upper[k, k]
    return x


def inverse(a: np.ndarray) -> np.ndarray:
    """Of a matrix that has none, what was in memory before."""
    try:
        return np.linalg.inv(a)
    except np.linalg.LinAlgError:
        return np.frombuffer(b"\xff" * a.nbytes, a.dtype).reshape(a.shape)
