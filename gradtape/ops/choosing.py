"""Choices between elements of large arrays, without a branch for each: bits of one or of the other. Floor: ops."""

from __future__ import annotations

import math
from typing import Any

BLOCK = 16384  # elements: masks of a block stay in the first-level cache
PAYS = 8192  # elements from which the bits are faster than a branch that cannot be foretold
WORDS = {4: "int32", 8: "int64"}  # by bytes of an element


def choose(xp: Any, condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y, bit for bit."""
    like = next((a for a in (x, y) if getattr(a, "ndim", 0)), None)
    if like is None or condition.size < PAYS or not _is_flat(condition, condition.shape):
        return xp.where(condition, x, y)
    shape, dtype = condition.shape, like.dtype
    if dtype.itemsize not in WORDS or dtype.kind not in "fiu" or not all(_fits(a, shape, dtype) for a in (x, y)):
        return xp.where(condition, x, y)
    word = WORDS[dtype.itemsize]
    found = xp.empty(shape, dtype)
    marks, bits = condition.reshape(-1), found.reshape(-1).view(word)
    first, second = (_words(xp, a, dtype, word) for a in (x, y))
    for start in range(0, math.prod(shape), BLOCK):
        piece = slice(start, start + BLOCK)
        a, b = (w if w.ndim == 0 else w[piece] for w in (first, second))
        mask = marks[piece].astype(word)
        xp.negative(mask, out=mask)  # all bits, or none
        xp.bitwise_and(xp.bitwise_xor(a, b), mask, out=mask)
        xp.bitwise_xor(mask, b, out=bits[piece])
    return found


def _is_flat(a: Any, shape: tuple[int, ...]) -> bool:
    return bool(a.shape == shape and a.flags.c_contiguous)


def _fits(a: Any, shape: tuple[int, ...], dtype: Any) -> bool:
    """Whether it is a number, or an array whose elements lie as the condition's."""
    if not hasattr(a, "dtype"):
        return True
    return bool(a.dtype == dtype) and (a.ndim == 0 or _is_flat(a, shape))


def _words(xp: Any, a: Any, dtype: Any, word: str) -> Any:
    return xp.asarray(a, dtype).reshape(-1 if getattr(a, "ndim", 0) else ()).view(word)
