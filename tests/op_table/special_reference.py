"""Special functions, guarded products and bits, one number at a time: references for the op table's tests.

mpmath's own functions, with the limits and poles that it leaves out. None: nothing is claimed there."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import mpmath

from gradtape.ir.dtypes import DType

Scalar = Callable[..., Any]
LARGE = 10**4  # from here on series in 1/x are exact to all digits that matter


def references(mp: mpmath.MPContext) -> dict[str, Scalar]:
    """The references by op, in the precision that `mp` has when they are called."""
    return _error_functions(mp) | _gamma_functions(mp) | _bessel(mp) | _guarded(mp) | BITS


def _error_functions(mp: mpmath.MPContext) -> dict[str, Scalar]:
    def erfc(x: Any) -> Any:
        if abs(x) > LARGE:  # too small a number for mpmath
            return mp.zero if x > 0 else mp.mpf(2)
        return x if x != x else mp.erfc(x)

    def ndtr(x: Any) -> Any:
        return erfc(-x / mp.sqrt(2)) / 2

    def erfcinv(q: Any) -> Any:
        if not 0 <= q <= 2:
            return mp.nan
        if q == 0 or q == 2:
            return mp.inf if q == 0 else -mp.inf
        if q > 1:
            return -erfcinv(2 - q)
        if q > mp.mpf("0.1"):
            return mp.erfinv(1 - q)
        return _root_of_erfc(mp, q)

    return {
        "erf": lambda x: x if x != x else mp.erf(x),
        "erfc": erfc,
        "erfcinv": erfcinv,
        "erfinv": lambda x: _erfinv(mp, x, erfcinv) if abs(x) <= 1 else mp.nan,
        "gelu": lambda x: x * ndtr(x),
        "ndtr": ndtr,
        "ndtri": lambda p: -mp.sqrt(2) * erfcinv(2 * p),
    }


def _erfinv(mp: mpmath.MPContext, x: Any, erfcinv: Scalar) -> Any:
    if abs(x) < mp.mpf("0.5"):
        return mp.erfinv(x)
    return erfcinv(1 - x) if x > 0 else -erfcinv(1 + x)


def _root_of_erfc(mp: mpmath.MPContext, q: Any) -> Any:
    """Newton's method on the logarithms; it converges from above."""
    wanted, x = mp.log(q), mp.sqrt(-mp.log(q))
    for _ in range(200):
        tail = mp.erfc(x)
        step = (mp.log(tail) - wanted) * tail * mp.exp(x * x) * mp.sqrt(mp.pi) / 2
        x += step
        if abs(step) < abs(x) * mp.eps * 8:
            return x
    raise ArithmeticError(f"erfcinv({q}) was not found")


def _gamma_functions(mp: mpmath.MPContext) -> dict[str, Scalar]:
    def is_pole(x: Any) -> bool:
        return bool(x == -mp.inf or (x <= 0 and x == mp.floor(x)))

    def lgamma(x: Any) -> Any:
        if x != x or mp.isinf(x) or is_pole(x):
            return x if x != x else mp.inf
        return mp.loggamma(x).real

    def zeta(s: Any, q: Any) -> Any:
        if s != s or q != q or s < 1:
            return mp.nan
        if s == 1:
            return mp.inf
        if is_pole(q):
            if q == -mp.inf or mp.isinf(s):
                return None
            return mp.inf if s == 2 * mp.floor(s / 2) else mp.nan
        if q < 0 and s != mp.floor(s):
            return mp.nan
        if s > 60 or mp.isinf(q):
            return None if not mp.isinf(q) or mp.isinf(s) else mp.zero
        return _hurwitz(mp, s, q)

    def polygamma(n: Any, x: Any) -> Any:
        if n != n or x != x or n < 0 or n != mp.floor(n):
            return mp.nan
        if n > 60:
            return None
        if n == 0:
            return digamma(x)
        if n == 1 and x == -mp.inf:
            return mp.inf
        value = zeta(n + 1, x)
        return value if value is None or value != value else (-1) ** int(n + 1) * mp.factorial(n) * value

    def digamma(x: Any) -> Any:
        if x != x or is_pole(x):
            return mp.nan
        return mp.inf if x == mp.inf else mp.digamma(x)

    return {
        "digamma": digamma,
        "lgamma": lgamma,
        "polygamma": polygamma,
        "trigamma": lambda x: polygamma(mp.one, x),
        "zeta": zeta,
    }


def _hurwitz(mp: mpmath.MPContext, s: Any, q: Any) -> Any:
    if q > 0:
        return mp.zeta(s, q) if q < LARGE else _far_hurwitz(mp, s, q)
    # Over the integers on both sides of the poles, from each side outwards.
    rest = q - mp.floor(q)
    other = 1 - q
    beyond = mp.zeta(s, other) if other < LARGE else _far_hurwitz(mp, s, other)
    return mp.zeta(s, rest) + (-1) ** int(s) * (mp.zeta(s, mp.ceil(q) - q) - beyond)


def _far_hurwitz(mp: mpmath.MPContext, s: Any, q: Any) -> Any:
    """The series of Euler and Maclaurin."""
    total = q ** (1 - s) / (s - 1) + q**-s / 2
    for j in range(1, 12):
        total += mp.bernoulli(2 * j) / mp.factorial(2 * j) * mp.rf(s, 2 * j - 1) * q ** (1 - s - 2 * j)
    return total


def _bessel(mp: mpmath.MPContext) -> dict[str, Scalar]:
    def scaled(order: int, x: Any) -> Any:
        """I(x) exp(-x) for x >= 0."""
        if x != x or mp.isinf(x):
            return x if x != x else mp.zero
        if x < LARGE:
            return mp.besseli(order, x) * mp.exp(-x)
        term = total = mp.one
        for k in range(1, 40):  # DLMF 10.40.1
            term *= -(4 * order**2 - (2 * k - 1) ** 2) / (8 * k * x)
            total += term
        return total / mp.sqrt(2 * mp.pi * x)

    def plain(order: int, x: Any) -> Any:
        return mp.inf if x > LARGE else scaled(order, x) * mp.exp(x)

    def odd(f: Scalar, x: Any) -> Any:
        return -f(1, -x) if x < 0 else f(1, x)

    return {
        "bessel_i0": lambda x: plain(0, abs(x)),
        "bessel_i0e": lambda x: scaled(0, abs(x)),
        "bessel_i1": lambda x: odd(plain, x),
        "bessel_i1e": lambda x: odd(scaled, x),
    }


def _guarded(mp: mpmath.MPContext) -> dict[str, Scalar]:
    def quotient(x: Any, y: Any) -> Any:
        if y == 0:
            return mp.nan if x == 0 or x != x else mp.inf
        return x / y

    def truncated(x: Any, y: Any) -> Any:
        if isinstance(x, int):
            return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        found = quotient(x, y)
        return found if found != found or mp.isinf(found) else mp.floor(abs(found)) * mp.sign(found)

    def remainder(x: Any, y: Any) -> Any:
        if isinstance(x, int):
            return x - y * truncated(x, y)
        if x != x or y != y or mp.isinf(x) or y == 0:
            return mp.nan
        return x if mp.isinf(y) else mp.sign(x) * mp.fmod(abs(x), abs(y))

    def log(y: Any) -> Any:
        return mp.log(y) if y != 0 else -mp.inf

    def nextafter(x: Any, y: Any) -> Any:
        if x != x or y != y:
            return mp.nan
        return x if x == y or abs(x) < 60000 else None  # where the numbers end depends on the dtype

    return {
        "nextafter": nextafter,
        "truncatediv": truncated,
        "truncatemod": remainder,
        "xdivy": lambda x, y: mp.zero if x == 0 else quotient(x, y),
        "xlog1py": lambda x, y: mp.zero if x == 0 else x * (mp.log1p(y) if y != -1 else -mp.inf),
        "xlogy": lambda x, y: mp.zero if x == 0 else x * log(y),
    }


def _bitcast(x: Any, dtype: DType) -> Any:
    """Sizes are equal, so the target's tells which float a number was. Zeros have lost their signs, NaN its bits."""
    if not isinstance(x, int) and (x == 0 or x != x):
        return None
    letters = {8: "q", 4: "i", 2: "h", 1: "b"}[dtype.size]
    if isinstance(x, int):
        packed = struct.pack(letters, x)
    elif x.imag != 0:
        packed = struct.pack("ff", float(x.real), float(x.imag))
    else:
        packed = struct.pack({8: "d", 4: "f"}[dtype.size], float(x))
    return struct.unpack({"i": letters, "f": {8: "d", 4: "f"}.get(dtype.size, "e")}[dtype.kind], packed)[0]


BITS: dict[str, Scalar] = {
    "bitcast": _bitcast,
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
    "invert": lambda x: ~x,
    "left_shift": lambda x, y: x << y,
    "right_shift": lambda x, y: x >> y,
}
