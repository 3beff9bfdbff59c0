"""Linear systems on a device, as graphs around calls of the library. Floor: backends."""

from __future__ import annotations

import math

from gradtape.backends.cuda import library
from gradtape.backends.cuda.matrices import (
    Expand,
    called,
    common_loops,
    expansion,
    finite,
    identity,
    in_loops,
    marked,
    on_the_diagonal,
    over,
    precision,
    real_part,
    sound,
    squared_size,
)
from gradtape.ir.graph import Value
from gradtape.ops import matrix_algebra as m
from gradtape.ops.op import constant, emit


def _with_all_columns(a: Value, b: Value) -> Value:
    """The library's solutions; one matrix with many right-hand sides is factorised once, their columns side by side."""
    loops = common_loops(a, b)
    if len(a.aval.dims) == 2 and loops:
        *_, n, k = b.aval.dims
        rank = len(b.aval.dims)
        first = (rank - 2, *range(rank - 2), rank - 1)
        beside = emit("reshape", emit("transpose", b, perm=first), shape=(n, math.prod(loops) * k))
        found = emit("reshape", called(library.SOLVE, a, beside), shape=(n, *loops, k))
        return emit("transpose", found, perm=(*range(1, rank - 1), 0, rank - 1))
    return called(library.SOLVE, *(in_loops(v, loops) for v in (a, b)))


def solve(a: Value, b: Value) -> Value:
    """A pivot of 0 leaves an infinity or NaN in every column that it belongs to."""
    ok, safe = sound(a)
    x = _with_all_columns(safe, b)
    answered = over("reduce_all", finite(x), -2)
    return marked(x, emit("logical_and", answered, ok), 2)


def inverse(a: Value) -> Value:
    return solve(a, identity(a.aval.dims, a.aval.dtype))


def triangular_solve(a: Value, b: Value, lower: bool, adjoint: bool) -> Value:
    """The library's pivots of an upper triangle are its diagonal; a lower one is an upper one with rows and columns in
    the opposite order."""
    if adjoint:
        a, lower = m.adjoint(a), not lower
    if not lower:
        return _with_all_columns(m.upper(a), b)
    rows, columns = (len(v.aval.dims) - 2 for v in (a, b))
    turned = emit("reverse", a, axes=(rows, rows + 1))
    found = _with_all_columns(m.upper(turned), emit("reverse", b, axes=(columns,)))
    return emit("reverse", found, axes=(len(found.aval.dims) - 2,))


def cholesky(a: Value) -> Value:
    """The library stops where a pivot is not positive, and leaves the rest of the matrix as it was. So each row is
    asked for Σ |L_kj|² = A_kk within rounding, and for a positive L_kk. In the row where the library stopped the sum of
    finished columns alone is A_kk or more, so that both hold together only where the pivot was 0 within rounding."""
    ok, safe = sound(a)
    factor = called(library.CHOLESKY, safe)
    n = a.aval.dims[-1]
    at = on_the_diagonal(n, n)
    none = constant(0, a.aval.dtype.real_dtype)
    pivot, wanted = (over("reduce_sum", emit("select", at, real_part(v), none), -1) for v in (factor, safe))
    total = over("reduce_sum", squared_size(factor), -1)
    near = m.times(total, 8 * (n + 1) * precision(a.aval.dtype))
    rests = emit("less_equal", emit("abs", m.minus(total, wanted)), near)
    good = emit("logical_and", emit("greater", pivot, none), emit("logical_and", rests, emit("is_finite", total)))
    return marked(factor, emit("logical_and", ok, over("reduce_all", good, -2)), 2)


EXPANSIONS: dict[str, Expand] = {f.__name__: expansion(f) for f in (solve, inverse, triangular_solve, cholesky)}
