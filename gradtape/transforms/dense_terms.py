"""Terms that fill all of what is assembled are added up by a kernel, in one pass over the array; what is left to
assemble is added to that. Floor: transforms."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

from gradtape.ir.dtypes import float32, float64
from gradtape.ir.graph import Graph, Value
from gradtape.ops.op import Step, emit
from gradtape.ops.placement import Assemble, Place, Product, aligned, assemble
from gradtape.transforms.simplify import rebuild

PAYS = 1 << 18  # elements of a result from which another pass over it shows


def with_dense_terms(graph: Graph) -> Graph:
    """The graph with the dense terms of each `assemble` as one; the graph itself where that saves nothing."""
    return rebuild(graph, _with_dense_terms, Assemble)


def _with_dense_terms(step: Step, operands: Sequence[Value]) -> Value | None:
    p = step.params
    shape, terms = p["shape"], p["terms"]
    dtype = p["dtype"] or operands[0].aval.dtype
    if math.prod(shape) < PAYS or dtype not in (float32, float64):
        return None
    left = iter(operands)
    factors = [list(itertools.islice(left, len(t.factors))) for t in terms]
    if any(f.aval.dtype is not dtype for own in factors for f in own):
        return None
    dense = [k for k, t in enumerate(terms) if factors[k] and _is_dense(t, shape)]
    if len(terms) < 2 or sum(len(factors[k]) for k in dense) < 2:
        return None
    total = functools.reduce(lambda x, y: emit("add", x, y), [_product(terms[k], factors[k]) for k in dense])
    if total.aval.shape != shape:  # no term alone has all the letters
        total = emit("broadcast_to", total, shape=shape)
    if len(dense) == len(terms):
        return total
    whole = Product(shape, (tuple(range(len(shape))),), tuple((Place(c, None, n),) for c, n in enumerate(shape)))
    others = [k for k in range(len(terms)) if k not in dense]
    return assemble(
        [whole, *(terms[k] for k in others)],
        [total, *(f for k in others for f in factors[k])],
        list(left),
        shape,
        p["dtype"],
    )


def _is_dense(t: Product, shape: Sequence[int]) -> bool:
    """Whether each letter runs along one axis, all of it and nothing else, and no axis of several elements has none."""
    letters = [p.letter for a in t.axes for p in a]
    return sorted(letters) == list(range(len(t.sizes))) and all(
        (len(a) == 1 and a[0].where is None and t.sizes[a[0].letter] == n) or (not a and n == 1)
        for a, n in zip(t.axes, shape, strict=True)
    )


def _product(t: Product, factors: Sequence[Value]) -> Value:
    """A dense term as an array that broadcasts over the result; small factors are multiplied first."""
    over = tuple(p.letter for a in t.axes for p in a)
    spread = [aligned(f, letters, over, t.sizes) for f, letters in zip(factors, t.factors, strict=True)]
    product = functools.reduce(lambda x, y: emit("multiply", x, y), sorted(spread, key=lambda f: f.aval.size))
    dims = iter(product.aval.dims)
    shape = tuple(next(dims) if a else 1 for a in t.axes)
    return product if product.aval.shape == shape else emit("reshape", product, shape=shape)
