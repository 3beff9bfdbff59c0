"""What `assemble` is: a loop over all values of all letters of each term, the product of the factors there added at
the place of the result that the axes name."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ops.placement import Place, Product

Places = tuple[int, ...]


def assembled(operands: Sequence[Any], shape: Places, terms: Sequence[Product]) -> Any:
    """The sum of the terms; operands are the factors of all terms, then the vectors of positions."""
    out = np.empty(shape, object)
    out.fill(0)
    factors = iter(operands)
    own = [[next(factors) for _ in t.factors] for t in terms]
    vectors = list(factors)
    for t, arrays in zip(terms, own, strict=True):
        for values in itertools.product(*map(range, t.sizes)):
            numbers = [a[tuple(values[c] for c in letters)] for a, letters in zip(arrays, t.factors, strict=True)]
            at = tuple(_position(axis, values, vectors) for axis in t.axes)
            out[at] = out[at] + functools.reduce(operator.mul, numbers, 1)
    return out


def _position(axis: Sequence[Place], values: Places, vectors: Sequence[Any]) -> int:
    """The digits of a position, one per place of the axis."""
    position = 0
    for p in axis:
        value = values[p.letter]
        known = vectors[p.where] if isinstance(p.where, int) else p.where
        position = position * p.extent + (value if known is None else list(known)[value])
    return position
