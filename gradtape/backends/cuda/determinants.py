"""Determinants and their derivatives on a device, as graphs around calls of the library. Floor: backends."""

from __future__ import annotations

import itertools

from gradtape.backends.cuda import library
from gradtape.backends.cuda.matrices import (
    Expand,
    called,
    common_loops,
    expansion,
    in_loops,
    marked,
    not_a_number,
    on_the_diagonal,
    sound,
)
from gradtape.ir.graph import Value
from gradtape.ops import matrix_algebra as m
from gradtape.ops.contraction import conjugate
from gradtape.ops.determinants import sign_of
from gradtape.ops.op import constant, emit


def slogdet(a: Value) -> tuple[Value, Value]:
    """The library finds no sign of NaN."""
    sign, size = called(library.SLOGDET, a)
    return emit("select", emit("is_nan", size), not_a_number(a.aval.dtype), sign), size


def det(a: Value) -> Value:
    sign, size = slogdet(a)
    return emit("multiply", sign, m.cast(emit("exp", size), a.aval.dtype))


def cofactors(a: Value, *along: Value) -> Value:
    """As the host has it: A = U S V*, and all of it in the directions of the singular vectors."""
    loops = common_loops(a, *along)
    directions = [in_loops(x, loops) for x in along]
    ok, safe = sound(in_loops(a, loops))
    u, s, vh = called(library.SVD, safe, full=False)
    uh, v = m.adjoint(u), m.adjoint(vh)
    phase = emit("multiply", *(called(library.SLOGDET, x)[0] for x in (u, vh)))
    inner = _of_diagonal(m.cast(s, a.aval.dtype), [m.product(uh, x, v) for x in directions])
    whole = m.product(conjugate(u), inner, conjugate(vh))
    return marked(emit("multiply", m.per_matrix(phase), whole), ok, 2)


def _of_diagonal(s: Value, along: list[Value]) -> Value:
    """The gradient of D^k det(diag s)[x₁ … x_k] in the matrix, permutation by permutation."""
    k, lead = len(along), len(s.aval.dims) - 1
    weights = _products_without(s, k + 1)
    total: Value | None = None
    for order in itertools.permutations(range(k + 1)):
        part = weights
        for a in range(k):
            part = emit("multiply", part, _placed(along[a], a, order[a], k + 1))
        kept = {k, order[k]}
        summed = tuple(lead + c for c in range(k + 1) if c not in kept)
        if summed:
            part = emit("reduce_sum", part, axes=summed, keepdims=False)
        part = emit("undiagonal", part) if order[k] == k else m.transposed(part)
        total = m.plus(total, m.times(part, sign_of(order)))
    assert total is not None
    return total


def _placed(x: Value, a: int, b: int, count: int) -> Value:
    """x[i_a, i_b] along `count` axes, of which it has two (or one: its diagonal)."""
    *loops, n, _ = x.aval.dims
    if a == b:
        x = emit("diagonal", x)
    elif a > b:
        x = m.transposed(x)
    return emit("reshape", x, shape=(*loops, *(n if c in (a, b) else 1 for c in range(count))))


def _products_without(s: Value, count: int) -> Value:
    """(..., n) to (..., n, n, …): the products of all numbers but those at `count` distinct places, 0 where two of
    the places are the same."""
    n = s.aval.dims[-1]
    one, none = constant(1, s.aval.dtype), constant(0, s.aval.dtype)
    left = s
    for _ in range(count - 1):
        rows = emit("reshape", left, shape=(*left.aval.dims[:-1], 1, n))
        left = emit("select", on_the_diagonal(n, n), one, rows)
    table = emit("multiply", _all_before(left, False), _all_before(left, True))
    for a, b in itertools.combinations(range(count), 2):
        same = emit("reshape", on_the_diagonal(n, n), shape=tuple(n if c in (a, b) else 1 for c in range(count)))
        table = emit("select", same, none, table)
    return table


def _all_before(x: Value, reverse: bool) -> Value:
    """The products of all numbers before each one of the last axis, or behind it."""
    n, axis = x.aval.dims[-1], len(x.aval.dims) - 1
    if n == 0:
        return x
    kept = emit("slice", x, emit("positions", value=(int(reverse),)), axes=(axis,), sizes=(n - 1,), strides=(1,))
    one = constant(1, x.aval.dtype, (*x.aval.dims[:-1], 1))
    parts = (kept, one) if reverse else (one, kept)
    return emit("cumprod", emit("concat", *parts, axis=axis), axis=axis, reverse=reverse)


EXPANSIONS: dict[str, Expand] = {f.__name__: expansion(f) for f in (det, slogdet, cofactors)}
