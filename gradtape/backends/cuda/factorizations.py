"""Eigenvalues, singular values, orthogonal factors and pseudo-inverses on a device, as graphs around calls of the
library. Floor: backends."""

from __future__ import annotations

from gradtape.backends.cuda import library
from gradtape.backends.cuda.matrices import Expand, called, expansion, marked, over, real_part, sound, turned, turning
from gradtape.ir.graph import Value
from gradtape.ops import matrix_algebra as m
from gradtape.ops.op import constant, emit


def eigh(a: Value) -> tuple[Value, Value]:
    ok, safe = sound(a)
    values, vectors = called(library.EIGH, safe)
    return marked(values, ok, 1), marked(turned(vectors), ok, 2)


def eigvalsh(a: Value) -> Value:
    ok, safe = sound(a)
    return marked(called(library.EIGVALSH, safe), ok, 1)


def svd(a: Value, full: bool) -> tuple[Value, Value, Value]:
    """A pair of vectors is turned by the left one; vectors beyond the span each by itself."""
    ok, safe = sound(a)
    u, s, vh = called(library.SVD, safe, full=full)
    k, v = s.aval.dims[-1], m.adjoint(vh)
    turn = turning(m.columns(u, 0, k)) if u.aval.size and k else None
    u, v = (_with_others(_times(m.columns(x, 0, k), turn), x, k) for x in (u, v))
    return marked(s, ok, 1), marked(u, ok, 2), marked(v, ok, 2)


def _times(vectors: Value, turn: Value | None) -> Value:
    return vectors if turn is None else emit("multiply", vectors, turn)


def _with_others(pair: Value, whole: Value, k: int) -> Value:
    """The vectors of pairs, and those beyond the span."""
    n = whole.aval.dims[-1]
    if n == k:
        return pair
    others = turned(m.columns(whole, k, n))
    return others if k == 0 else m.beside(pair, others)


def singular_values(a: Value) -> Value:
    ok, safe = sound(a)
    return marked(called(library.SINGULAR_VALUES, safe), ok, 1)


def qr(a: Value, full: bool) -> tuple[Value, Value]:
    """The phases of columns beyond the span, which R does not settle, are those of the host."""
    n = a.aval.dims[-1]
    q, r = called(library.QR, a, full=full)
    if full and a.aval.dtype.is_complex and q.aval.dims[-1] > n:
        q = _with_others(m.columns(q, 0, n), q, n)
    return q, r if r.aval.dims[-2] == n else m.rows(r, 0, n)


def pinv(a: Value, rcond: Value) -> Value:
    ok, safe = sound(a)
    u, s, vh = called(library.SVD, safe, full=False)
    real = s.aval.dtype
    limit = emit("multiply", m.as_column(real_part(rcond)), over("reduce_max", s, -1))
    kept = emit("greater", s, limit)
    inverse = emit("reciprocal", emit("select", kept, s, constant(1, real)))
    inverse = emit("select", kept, inverse, constant(0, real))
    scaled = emit("multiply", m.as_column(m.cast(inverse, a.aval.dtype)), m.adjoint(u))
    return marked(m.product(m.adjoint(vh), scaled), ok, 2)


EXPANSIONS: dict[str, Expand] = {f.__name__: expansion(f) for f in (eigh, eigvalsh, svd, singular_values, qr, pinv)}
