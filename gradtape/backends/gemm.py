"""Contractions as NumPy products: matmul on views where letters allow, so that BLAS sees no copy. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.backends.formula import HALF
from gradtape.ops.contraction import parts

PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    "ab,bc->ac": lambda a, b: a @ b,
    "ab,cb->ac": lambda a, b: a @ b.T,
    "ba,bc->ac": lambda a, b: a.T @ b,
    "ba,cb->ac": lambda a, b: a.T @ b.T,
    "ab,bc->ca": lambda a, b: b.T @ a.T,
    "ab,cb->ca": lambda a, b: b @ a.T,
    "ba,bc->ca": lambda a, b: b.T @ a,
    "ba,cb->ca": lambda a, b: b @ a,
    "ab,b->a": lambda a, b: a @ b,
    "ab,a->b": lambda a, b: b @ a,
    "a,ab->b": lambda a, b: a @ b,
    "a,ba->b": lambda a, b: b @ a,
    "a,a->": lambda a, b: a @ b,
}


def compile_contraction(subscripts: str) -> Callable[[Any, Any], Any]:
    """The NumPy function of two arrays for the subscripts; half types are carried in float32."""
    product = PLAIN.get(_canonical(subscripts)) or _general(subscripts)

    def run(a: Any, b: Any) -> Any:
        if a.dtype in HALF:
            return product(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
        return product(a, b)

    return run


def _canonical(subscripts: str) -> str:
    """The same subscripts with letters named a, b, c, ... so that equal patterns are equal text: letters are
    named by their first place in `left`, `right`; patterns with one summed letter call it b, as in PLAIN."""
    left, right, out = parts(subscripts)
    best = subscripts
    letters = list(dict.fromkeys(left + right))
    for names in ("abc", "bac"):
        if len(letters) > len(names):
            return best
        table = str.maketrans(dict(zip(letters, names, strict=False)))
        renamed = f"{left.translate(table)},{right.translate(table)}->{out.translate(table)}"
        if renamed in PLAIN:
            return renamed
    return best


def _general(subscripts: str) -> Callable[[Any, Any], Any]:
    left, right, out = parts(subscripts)
    summed = [c for c in left if c in right and c not in out]
    batch = [c for c in out if c in left and c in right]
    lfree = [c for c in out if c in left and c not in right]
    rfree = [c for c in out if c in right and c not in left]
    if not summed:
        return _multiply(left, right, out)
    if not lfree and not rfree:
        return lambda a, b: np.einsum(subscripts, a, b)
    if rfree and lfree and out.index(rfree[0]) < out.index(lfree[0]):
        swapped = _matmul(right, left, out, batch, rfree, lfree, summed)
        return lambda a, b: swapped(b, a)
    return _matmul(left, right, out, batch, lfree, rfree, summed)


def _multiply(left: str, right: str, out: str) -> Callable[[Any, Any], Any]:
    """No letter is summed: a broadcast product."""
    perm_a, index_a = _aligned(left, out)
    perm_b, index_b = _aligned(right, out)
    return lambda a, b: np.multiply(a.transpose(perm_a)[index_a], b.transpose(perm_b)[index_b])


def _aligned(letters: str, out: str) -> tuple[list[int], tuple[Any, ...]]:
    """How to move an operand's axes and add new ones so that it broadcasts over the letters of the result."""
    perm = [letters.index(c) for c in out if c in letters]
    return perm, tuple(slice(None) if c in letters else None for c in out)


def _matmul(
    left: str, right: str, out: str, batch: list[str], lfree: list[str], rfree: list[str], summed: list[str]
) -> Callable[[Any, Any], Any]:
    """Stacked matrices: (batch, left, summed) @ (batch, summed, right), then the axes in the result's order."""
    perm_a = [left.index(c) for c in batch + lfree + summed]
    perm_b = [right.index(c) for c in batch + summed + rfree]
    made = batch + lfree + rfree
    perm_out = [made.index(c) for c in out]
    nb, nl, nr, ns = len(batch), len(lfree), len(rfree), len(summed)
    straight = perm_out == list(range(len(made)))

    def run(a: Any, b: Any) -> Any:
        a, b = a.transpose(perm_a), b.transpose(perm_b)
        shape = a.shape[: nb + nl] + b.shape[nb + ns :]
        rows, inner, columns = _size(a.shape[nb : nb + nl]), _size(b.shape[nb : nb + ns]), _size(b.shape[nb + ns :])
        lead = a.shape[:nb]
        c = np.matmul(a.reshape(*lead, rows, inner), b.reshape(*lead, inner, columns)).reshape(shape)
        return c if straight else c.transpose(perm_out)

    del nr
    return run


def _size(shape: tuple[int, ...]) -> int:
    n = 1
    for d in shape:
        n *= d
    return n
