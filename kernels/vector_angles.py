"""Trigonometric functions and their inverses without branches, as LLVM code. Floor: kernels.

x = n π/2 + r with |r| <= π/4. π/2 is a sum of numbers P₁ + P₂ + P₃ of double precision; in an `fma`, x - n P₁ is
exact, for it is a multiple of the last bit of P₁ and smaller than 1. Numbers of single precision are reduced in double
precision. Both hold up to |x| = 2⁴⁰."""

from __future__ import annotations

from gradtape.kernels import vector_coefficients as c
from gradtape.kernels.scalar_code import (
    DOUBLE,
    INF,
    SINGLE,
    Number,
    absolute,
    bits,
    fma,
    from_bits,
    narrow,
    polynomial,
    select,
    sqrt,
    two_product,
    two_sum,
    widen,
    with_sign_of,
)

LIMIT = 2.0**40  # operands up to this size are reduced well
TWO_OVER_PI = 0.6366197723675814


def _turns(x: Number) -> tuple[Number, Number, Number]:
    """n's last bits, and r as a sum of two numbers."""
    if x.format is SINGLE:
        wide = widen(x)
        shifted = fma(wide, TWO_OVER_PI, DOUBLE.magic)
        n = shifted - DOUBLE.magic
        r = fma(n, -c.HALF_PI_DOUBLE[1], fma(n, -c.HALF_PI_DOUBLE[0], wide))
        head = narrow(r)
        return narrow(bits(shifted)), head, narrow(r - widen(head))
    shifted = fma(x, TWO_OVER_PI, DOUBLE.magic)
    n = shifted - DOUBLE.magic
    first, second, third = c.HALF_PI_DOUBLE
    product, product_rest = two_product(n, second)
    r, r_rest = two_sum(fma(n, -first, x), -product)
    return bits(shifted), r, fma(n, -third, r_rest - product_rest)


def _sin_cos(r: Number, rest: Number) -> tuple[Number, Number]:
    """Of r + rest: sin r + rest cos r, cos r - rest sin r."""
    z = r * r
    tables = (c.SIN_SINGLE, c.COS_SINGLE) if r.format is SINGLE else (c.SIN_DOUBLE, c.COS_DOUBLE)
    s, k = polynomial(z, tables[0]), polynomial(z, tables[1])
    half = 0.5 * z
    sine = r + fma(rest, 1 - half, r * z * s)
    main = 1 - half
    cosine = main + (((1 - main) - half) + fma(z * z, k, -(r * rest)))
    return sine, cosine


def _turned(x: Number, quarter: int) -> Number:
    """sin(x + quarter · π/2)"""
    n, r, rest = _turns(x)
    n = n + quarter
    sine, cosine = _sin_cos(r, rest)
    value = select((n & 1) == 0, sine, cosine)
    return from_bits(bits(value) ^ ((n & 2) << (x.format.bits - 2)))


def sin(x: Number) -> Number:
    """The sine, of operands up to `LIMIT`."""
    return select(x == 0, x, _turned(x, 0))


def cos(x: Number) -> Number:
    """The cosine, of operands up to `LIMIT`."""
    return _turned(x, 1)


def tan(x: Number) -> Number:
    """The tangent, of operands up to `LIMIT`."""
    n, r, rest = _turns(x)
    sine, cosine = _sin_cos(r, rest)
    even = (n & 1) == 0
    value = select(even, sine, -cosine) / select(even, cosine, sine)
    return select(x == 0, x, value)


def is_beyond(x: Number) -> Number:
    """Whether `sin`, `cos` and `tan` are wrong here."""
    a = absolute(x)
    return (a > LIMIT) & (a < INF)


def sin_anywhere(x: Number) -> Number:
    """The sine; beyond the limit that of the C library."""
    return select(is_beyond(x), x.code.intrinsic("llvm.sin", x), sin(x))


def cos_anywhere(x: Number) -> Number:
    return select(is_beyond(x), x.code.intrinsic("llvm.cos", x), cos(x))


def tan_anywhere(x: Number) -> Number:
    far = x.code.intrinsic("llvm.sin", x) / x.code.intrinsic("llvm.cos", x)
    return select(is_beyond(x), far, tan(x))


# ------------------------------------------------------------------ inverses


def _half_pi(x: Number) -> tuple[float, float]:
    return c.HALF_PI_SINGLE if x.format is SINGLE else c.HALF_PI_DOUBLE[:2]


def _atan_rest(a: Number) -> Number:
    """atan(a) - a for 0 <= a <= 1."""
    z = a * a
    return a * (z * polynomial(z, c.ATAN_SINGLE if a.format is SINGLE else c.ATAN_DOUBLE))


def atan(x: Number) -> Number:
    """The inverse tangent: π/2 - atan(1/a) for a > 1."""
    a = absolute(x)
    large = a > 1
    t = select(large, 1 / a, a)
    rest = _atan_rest(t)
    head, tail = _half_pi(x)
    value = select(large, head - (t + (rest - tail)), t + rest)
    return with_sign_of(value, x)


def atan2(y: Number, x: Number) -> Number:
    """The angle of the point (x, y)."""
    a, b = absolute(x), absolute(y)
    steep = b > a
    low, high = select(steep, a, b), select(steep, b, a)
    t = select(high == 0, 0, select(low == high, 1, low / high))
    rest = _atan_rest(t)
    head, tail = _half_pi(x)
    value = select(steep, head - (t + (rest - tail)), t + rest)
    left = (bits(x) & x.format.sign) != 0
    value = select(left, 2 * head - (value - 2 * tail), value)
    return select((x != x) | (y != y), x + y, with_sign_of(value, y))


def _asin_parts(x: Number) -> tuple[Number, Number, Number, Number]:
    """a, whether it is above ½, and s, s z P(z) of asin(s) = s + s z P(z): s = a, or √((1 - a)/2) above ½."""
    a = absolute(x)
    large = a > 0.5
    z = select(large, 0.5 * (1 - a), a * a)
    s = select(large, sqrt(z), a)
    p = s * (z * polynomial(z, c.ASIN_SINGLE if x.format is SINGLE else c.ASIN_DOUBLE))
    # What the root lost, half of (z - s²)/s; at z = 0 nothing.
    lost = select(large & (z > 0), 0.5 * fma(-s, s, z) / s, 0)
    return large, s, p, lost


def asin(x: Number) -> Number:
    """The inverse sine: π/2 - 2 asin(√((1 - a)/2)) for a > ½."""
    large, s, p, lost = _asin_parts(x)
    head, tail = _half_pi(x)
    total, rest = two_sum(s.like(head), -2 * s)
    value = select(large, total + (rest - (2 * (p + lost) - tail)), s + p)
    return with_sign_of(value, x)


def acos(x: Number) -> Number:
    """The inverse cosine: π/2 - asin(x), and 2 asin(√((1 - a)/2)) for a > ½."""
    large, s, p, lost = _asin_parts(x)
    head, tail = _half_pi(x)
    middle, rest = two_sum(s.like(head), -with_sign_of(s, x))
    near = middle + (rest - (with_sign_of(p, x) - tail))
    far = 2 * (s + (p + lost))
    return select(large, select(x < 0, 2 * head - (far - 2 * tail), far), near)
