"""Arithmetic, rounding, comparisons and choices as LLVM code, as NumPy has them. Floor: kernels."""

from __future__ import annotations

from gradtape.kernels import scalar_code as s
from gradtape.kernels.scalar_code import INF, Number, absolute, bits, ceil, floor, from_bits, rint, select, sqrt

__all__ = ["ceil", "floor", "rint", "select", "sqrt"]


def add(x: Number, y: Number) -> Number:
    return x + y


def subtract(x: Number, y: Number) -> Number:
    return x - y


def multiply(x: Number, y: Number) -> Number:
    return x * y


def divide(x: Number, y: Number) -> Number:
    return x / y


def negative(x: Number) -> Number:
    return -x


def square(x: Number) -> Number:
    return x * x


def reciprocal(x: Number) -> Number:
    return 1 / x


def rsqrt(x: Number) -> Number:
    return 1 / sqrt(x)


def magnitude(x: Number) -> Number:
    """|x|"""
    return absolute(x) if x.kind == "f" else select(x < 0, -x, x)


def sign(x: Number) -> Number:
    """-1, 0 or 1; NaN of NaN."""
    one = select(x > 0, x.like(1), select(x < 0, x.like(-1), 0))
    return one if x.kind == "i" else select(x != x, x, one)


def step(x: Number) -> Number:
    return select(x > 0, x.like(1), 0)


def maximum(x: Number, y: Number) -> Number:
    """The larger of both, NaN where one is."""
    return select((x >= y) | (x != x), x, y)


def minimum(x: Number, y: Number) -> Number:
    """The smaller of both, NaN where one is."""
    return select((x <= y) | (x != x), x, y)


def multiply_no_nan(x: Number, y: Number) -> Number:
    return select(y == 0, 0, x * y)


def divide_no_nan(x: Number, y: Number) -> Number:
    return select(y == 0, 0, x / y)


def identity(x: Number) -> Number:
    return x


def latter(x: Number, y: Number) -> Number:
    return y


# ------------------------------------------------------------------ truth values


def less(x: Number, y: Number) -> Number:
    return x < y


def less_equal(x: Number, y: Number) -> Number:
    return x <= y


def greater(x: Number, y: Number) -> Number:
    return x > y


def greater_equal(x: Number, y: Number) -> Number:
    return x >= y


def equal(x: Number, y: Number) -> Number:
    return x == y


def not_equal(x: Number, y: Number) -> Number:
    return x != y


def both(x: Number, y: Number) -> Number:
    return x & y


def either(x: Number, y: Number) -> Number:
    return x | y


def one_of(x: Number, y: Number) -> Number:
    return x ^ y


def inverted(x: Number) -> Number:
    return ~x


def is_nan(x: Number) -> Number:
    return x != x


def is_inf(x: Number) -> Number:
    return absolute(x) == INF


def is_finite(x: Number) -> Number:
    return absolute(x) < INF


def has_log(x: Number) -> Number:
    return x > 0


# ------------------------------------------------------------------ quotients without fractions


def _floored(x: Number, y: Number) -> tuple[Number, Number]:
    """The floored quotient and the remainder with the sign of y, both from the exact remainder."""
    rest = x % y
    adjust = (rest != 0) & ((y < 0) ^ (rest < 0))
    quotient = (x - rest) / y - select(adjust, x.like(1), 0)
    whole = floor(quotient)
    whole = whole + select(quotient - whole > 0.5, x.like(1), 0)
    whole = select(quotient == 0, s.with_sign_of(absolute(quotient), x / y), whole)
    rest = select(rest == 0, s.with_sign_of(absolute(rest), y), rest + select(adjust, y, 0))
    return whole, rest


def floordiv(x: Number, y: Number) -> Number:
    """floor(x / y); x / y where that is no finite number."""
    return select((y == 0) | (absolute(x) == INF), x / y, _floored(x, y)[0])


def floormod(x: Number, y: Number) -> Number:
    """The remainder of x / y with the sign of y."""
    return _floored(x, y)[1]


def truncatemod(x: Number, y: Number) -> Number:
    """The remainder of x / y with the sign of x."""
    return x % y


def truncatediv(x: Number, y: Number) -> Number:
    """x / y without its fraction."""
    rest = x % y
    return select(absolute(rest) < INF, rint((x - rest) / y), x / y)


def nextafter(x: Number, y: Number) -> Number:
    """The next number from x on the way to y."""
    away = (absolute(x) == absolute(x)) & ((x < y) ^ (x < 0))
    moved = from_bits(bits(x) + select(away, bits(x).like(1), -1))
    moved = select(x == 0, s.with_sign_of(from_bits(bits(x).like(1)), y), moved)
    return select(x == y, y, select((x != x) | (y != y), x + y, moved))
