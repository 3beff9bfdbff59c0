"""Linear algebra and Fourier transforms in 40 digits: mpmath's own algorithms, Laplace's expansion, sums as they are
written; a part of the table in `opaque_reference.py`. An op of several results answers a tuple."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.op_table.scalar_reference import MP

Places = tuple[int, ...]


def _matrix(x: Any) -> Any:
    """An object array (m, n) as mpmath's matrix."""
    out = MP.matrix(*x.shape)
    for i, j in np.ndindex(*x.shape):
        out[i, j] = x[i, j]
    return out


def _array(x: Any, shape: Places) -> Any:
    out = np.empty(shape, object)
    for i, j in np.ndindex(*shape):
        out[i, j] = x[i, j]
    return out


def _vector(x: Any, n: int) -> Any:
    out = np.empty(n, object)
    for i in range(n):
        out[i] = x[i]
    return out


def _adjoint(x: Any) -> Any:
    return np.array([[MP.conj(v) for v in row] for row in x.T], object).reshape(x.shape[::-1])


def _looped(core: Callable[..., Any], ranks: Sequence[int]) -> Callable[..., Any]:
    """A function of matrices as one of stacks, whose loop axes broadcast; `ranks`: core axes of the operands."""

    def run(operands: Sequence[Any], *shapes: Any, **params: Any) -> Any:
        loops = [x.shape[: x.ndim - r] for x, r in zip(operands, ranks)]
        whole = np.broadcast_shapes(*loops)
        wide = [np.broadcast_to(x, whole + x.shape[x.ndim - r :]) for x, r in zip(operands, ranks)]
        results = tuple(np.empty(s, object) for s in shapes)
        for at in np.ndindex(*whole):
            found = core(*[x[at] for x in wide], **params)
            for r, f in zip(results, found if isinstance(found, tuple) else (found,), strict=True):
                r[at] = f
        return results if len(shapes) > 1 else results[0]

    return run


# ------------------------------------------------------------------ systems


def _inverse(a: Any) -> Any:
    return _solved(a, _array(MP.eye(len(a)), a.shape))


def _solved(a: Any, b: Any) -> Any:
    """Gauss and Jordan, the largest pivot of a column first."""
    n, both = len(a), np.concatenate([a, b], axis=1)
    for k in range(n):
        best = max(range(k, n), key=lambda i: abs(both[i, k]))
        both[[k, best]] = both[[best, k]]
        both[k] = [x / both[k, k] for x in both[k]]
        for i in range(n):
            if i != k:
                both[i] = [x - both[i, k] * y for x, y in zip(both[i], both[k])]
    return both[:, n:]


def _triangle(a: Any, lower: bool) -> Any:
    out = a.copy()
    for i, j in np.ndindex(*a.shape):
        if (j > i) if lower else (j < i):
            out[i, j] = MP.mpf(0)
    return out


def _triangular(a: Any, b: Any, lower: bool, adjoint: bool) -> Any:
    t = _triangle(a, lower)
    return _solved(_adjoint(t) if adjoint else t, b)


def _cholesky(a: Any) -> Any:
    n = len(a)
    out = np.full((n, n), MP.mpf(0), object)
    for j in range(n):
        out[j, j] = MP.sqrt(MP.re(a[j, j]) - sum(abs(x) ** 2 for x in out[j, :j]))
        for i in range(j + 1, n):
            out[i, j] = (a[i, j] - sum(x * MP.conj(y) for x, y in zip(out[i, :j], out[j, :j]))) / out[j, j]
    return out


def _pinv(a: Any, rcond: Any) -> Any:
    """For full rank."""
    back = _adjoint(a)
    if a.shape[0] >= a.shape[1]:
        return _solved(_times(back, a), back)
    return _times(back, _inverse(_times(a, back)))


def _times(a: Any, b: Any) -> Any:
    out = np.empty((a.shape[0], b.shape[1]), object)
    for i, j in np.ndindex(*out.shape):
        out[i, j] = sum((x * y for x, y in zip(a[i], b[:, j])), MP.mpf(0))
    return out


# ------------------------------------------------------------------ determinants


def _det(a: Any) -> Any:
    """Leibniz' sum over permutations."""
    total = MP.mpf(0)
    for order in itertools.permutations(range(len(a))):
        term = MP.mpf((-1) ** sum(i > j for i, j in itertools.combinations(order, 2)))
        for i, j in enumerate(order):
            term *= a[i, j]
        total += term
    return total


def _slogdet(a: Any) -> Any:
    d = _det(a)
    return d / abs(d), MP.log(abs(d))


def _cofactors(a: Any, *along: Any) -> Any:
    """The coefficient of t₁ … t_k in the cofactors of A + Σ t X, one t after the other: the slope of a polynomial, from
    its values at as many points as it has coefficients."""
    if not along:
        return _minors(a)
    *rest, last = along
    points = [MP.mpf(k) for k in range(len(a))]
    values = [_cofactors(_plus(a, last, t), *rest) for t in points]
    out = np.empty(a.shape, object)
    for at in np.ndindex(*a.shape):
        out[at] = _linear_coefficient(points, [v[at] for v in values])
    return out


def _plus(a: Any, x: Any, t: Any) -> Any:
    out = np.empty(a.shape, object)
    for at in np.ndindex(*a.shape):
        out[at] = a[at] + t * x[at]
    return out


def _linear_coefficient(points: list[Any], values: list[Any]) -> Any:
    """Of the polynomial through the points (Vandermonde's system)."""
    n = len(points)
    if n < 2:
        return MP.mpf(0)
    rows = np.array([[t**k for k in range(n)] for t in points], object)
    return _solved(rows, np.array([[v] for v in values], object))[1, 0]


def _minors(a: Any) -> Any:
    out = np.empty(a.shape, object)
    for i, j in np.ndindex(*a.shape):
        out[i, j] = (-1) ** (i + j) * _det(np.delete(np.delete(a, i, 0), j, 1))
    return out


# ------------------------------------------------------------------ decompositions


def _turn(column: Any) -> Any:
    """What makes the first component that is nearly the largest positive."""
    largest = max(abs(x) for x in column)
    anchor = next(x for x in column if abs(x) >= 0.9 * largest)
    return MP.conj(anchor) / abs(anchor)


def _scaled(x: Any, turns: Sequence[Any]) -> Any:
    return np.array([[v * t for v, t in zip(row, turns)] for row in x], object).reshape(x.shape)


def _eigh(a: Any) -> Any:
    n = len(a)
    if n == 0:
        return np.empty(0, object), np.empty((0, 0), object)
    whole = np.empty(a.shape, object)
    for i, j in np.ndindex(n, n):
        whole[i, j] = MP.re(a[i, i]) if i == j else a[i, j] if i > j else MP.conj(a[j, i])
    e, v = MP.eighe(_matrix(whole))
    vectors = _array(v, (n, n))
    return _vector(e, n), _scaled(vectors, [_turn(c) for c in vectors.T])


def _svd(a: Any, full: bool) -> Any:
    rows, columns = a.shape
    k = min(rows, columns)
    u = s = v = None
    if k:
        if rows >= columns:
            mu, ms, mv = MP.svd(_matrix(a))
            u, s, v = _array(mu, (rows, k)), _vector(ms, k), _adjoint(_array(mv, (k, columns)))
        else:
            s, v, u = _svd(_adjoint(a), False)
        turns = [_turn(c) for c in u.T]
        u, v = _scaled(u, turns), _scaled(v, turns)
    else:
        s, u, v = np.empty(0, object), np.empty((rows, 0), object), np.empty((columns, 0), object)
    return (s, _completed(u), _completed(v)) if full else (s, u, v)


def _completed(u: Any) -> Any:
    """With the one column that is missing, if one is: what Gram and Schmidt leave of the unit vector that is furthest
    from the others."""
    n, k = u.shape
    if n == k:
        return u
    assert n == k + 1
    left = []
    for i in range(n):
        unit = np.array([MP.mpf(i == j) for j in range(n)], object)
        for c in u.T:
            weight = sum(MP.conj(x) * y for x, y in zip(c, unit))
            unit = np.array([y - weight * x for x, y in zip(c, unit)], object)
        left.append(unit)
    best = max(left, key=lambda x: sum(abs(v) ** 2 for v in x))
    size = MP.sqrt(sum(abs(v) ** 2 for v in best))
    turn = _turn(best) / size
    return np.concatenate([u, np.array([[v * turn] for v in best], object)], axis=1)


def _qr(a: Any, full: bool) -> Any:
    """By reflections: each diagonal element of R has the sign that is opposite to what it replaces."""
    rows, columns = a.shape
    q, r = _array(MP.eye(rows), (rows, rows)) if rows else np.empty((0, 0), object), a.copy()
    for k in range(columns):
        x = r[k:, k].copy()
        size = MP.sqrt(sum(abs(v) ** 2 for v in x))
        if all(v == 0 for v in x[1:]) and MP.im(x[0]) == 0:
            continue
        beta = -size if MP.re(x[0]) >= 0 else size
        # H* x = beta e₁ with H = 1 - tau w w*, w₁ = 1, as LAPACK's reflections are made
        tau = (beta - x[0]) / beta
        w = np.array([MP.mpf(1), *[v / (x[0] - beta) for v in x[1:]]], object)
        r[k:] = _reflected(r[k:], w, MP.conj(tau))
        q[:, k:] = _adjoint(_reflected(_adjoint(q[:, k:]), w, MP.conj(tau)))
    upper = _triangle(r[:columns], False)
    if any(isinstance(x, MP.mpc) for x in a.ravel()):
        q[:, columns:] = _scaled(q[:, columns:], [_turn(c) for c in q[:, columns:].T])
    return (q if full else q[:, :columns]), upper


def _reflected(x: Any, w: Any, tau: Any) -> Any:
    """(1 - tau w w*) x"""
    out = x.copy()
    for j in range(x.shape[1]):
        along = sum((MP.conj(a) * b for a, b in zip(w, x[:, j])), MP.mpf(0))
        out[:, j] = [b - tau * along * a for a, b in zip(w, x[:, j])]
    return out


def _expm(a: Any, *along: Any) -> Any:
    """The series, of a matrix halved often and squared as often; along directions, the same with numbers a + Σ t X of
    which every t² is 0: the coefficient of all t, by polynomials in them."""
    if along:
        return _nilpotent_expm(a, along)
    n, halvings = len(a), 20
    small = np.array([[v / MP.mpf(2) ** halvings for v in row] for row in a], object).reshape(a.shape)
    total = term = _array(MP.eye(n), (n, n)) if n else np.empty((0, 0), object)
    for k in range(1, 12):
        term = np.array([[v / k for v in row] for row in _times(term, small)], object).reshape(a.shape)
        total = _plus(total, term, 1)
    for _ in range(halvings):
        total = _times(total, total)
    return total


def _nilpotent_expm(a: Any, along: Sequence[Any]) -> Any:
    """Σ (A + Σ t X)^m / m!, a term for each set of t; only the one of all t is returned."""
    sets = [frozenset(c) for k in range(len(along) + 1) for c in itertools.combinations(range(len(along)), k)]
    zero = np.full(a.shape, MP.mpf(0), object)
    x = {s: a if not s else along[next(iter(s))] if len(s) == 1 else zero for s in sets}
    term = {s: _array(MP.eye(len(a)), a.shape) if not s else zero for s in sets}
    total = dict(term)
    for k in range(1, 60):
        last = term
        term = {}
        for s in sets:
            term[s] = zero
            for part in sets:
                if part <= s:
                    term[s] = _plus(term[s], _times(last[part], x[s - part]), MP.mpf(1) / k)
            total[s] = _plus(total[s], term[s], 1)
    return total[sets[-1]]


# ------------------------------------------------------------------ Fourier transforms


def _unit(k: int, n: int) -> Any:
    return MP.expjpi(MP.mpf(2 * k) / n)


def _fft(x: Any, inverse: bool) -> Any:
    n, sign = len(x), 1 if inverse else -1
    return _vector([sum((v * _unit(sign * j * k, n) for j, v in enumerate(x)), MP.mpf(0)) for k in range(n)], n)


def _rfft(x: Any) -> Any:
    half = len(x) // 2 + 1
    return _fft(x, False)[:half]


def _irfft(x: Any, length: int) -> Any:
    """From the whole spectrum: the mirror images are conjugates, and real where they are their own."""
    whole = [MP.mpc(0)] * length
    for k in range(length):
        mirror = (length - k) % length
        own = x[min(k, mirror)]
        whole[k] = MP.re(own) if mirror == k else own if k < mirror else MP.conj(own)
    return _vector([MP.re(v) for v in _fft(np.array(whole, object), True)], length)


MATRICES: dict[str, Callable[..., Any]] = {
    "cholesky": _looped(_cholesky, [2]),
    "cofactors": _looped(_cofactors, [2, 2, 2]),
    "det": _looped(_det, [2]),
    "eigh": _looped(_eigh, [2]),
    "eigvalsh": _looped(lambda a: _eigh(a)[0], [2]),
    "expm": _looped(_expm, [2, 2, 2]),
    "fft": _looped(_fft, [1]),
    "inverse": _looped(_inverse, [2]),
    "irfft": _looped(_irfft, [1]),
    "pinv": _looped(_pinv, [2, 0]),
    "qr": _looped(_qr, [2]),
    "rfft": _looped(_rfft, [1]),
    "singular_values": _looped(lambda a: _svd(a, False)[0], [2]),
    "slogdet": _looped(_slogdet, [2]),
    "solve": _looped(_solved, [2, 2]),
    "svd": _looped(_svd, [2]),
    "triangular_solve": _looped(_triangular, [2, 2]),
}
