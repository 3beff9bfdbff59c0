"""Logarithms, inverse hyperbolic functions and powers without branches, as LLVM code. Floor: kernels.

x = 2ᵏ (1 + f) with √½ <= 1 + f < √2, so that log(x) = k log 2 + log(1 + f), and log 2 has a head whose product with k
is exact."""

from __future__ import annotations

from gradtape.kernels import vector_coefficients as c
from gradtape.kernels.scalar_code import (
    DOUBLE,
    INF,
    NAN,
    SINGLE,
    Number,
    absolute,
    at_least,
    at_most,
    bits,
    fast_two_sum,
    fma,
    from_bits,
    muladd,
    narrow,
    polynomial,
    power_of_two,
    rint,
    select,
    sqrt,
    to_float,
    two_product,
    two_sum,
    widen,
    with_sign_of,
)
from gradtape.kernels.vector_exponentials import LOG2_E, exp, exp_rest, scaled

ROOT_HALF = 0.7071067811865476


def split(x: Number) -> tuple[Number, Number]:
    """k, as an integer, and 1 + f of a positive normal number."""
    f = x.format
    low = f.bits_of(f.rounded(ROOT_HALF))
    shifted = bits(x) - low
    return shifted >> f.mantissa, from_bits((shifted & ((1 << f.mantissa) - 1)) + low)


def split_all(x: Number) -> tuple[Number, Number]:
    """The same of subnormal numbers too; k as a float."""
    f = x.format
    small = x < f.smallest_normal
    k, m = split(select(small, x * 2.0 ** (f.mantissa + 1), x))
    return to_float(k - select(small, k.like(f.mantissa + 1), 0)), m


def log_of(k: Number, f: Number, rest: Number | float) -> Number:
    """k log 2 + log(1 + f) + rest, with a small rest."""
    head, tail = c.LOG_2_SINGLE if f.format is SINGLE else c.LOG_2_DOUBLE
    half_square = 0.5 * f * f
    small = muladd(k, tail, rest)
    if f.format is SINGLE:
        small = muladd(f * f * f, polynomial(f, c.LOG_SINGLE), small)
    else:
        s = f / (2 + f)
        z = s * s
        small = muladd(s, half_square + z * polynomial(z, c.LOG_RATIO_DOUBLE), small)
    return fma(k, head, f - (half_square - small))


def where_defined(x: Number, value: Number) -> Number:
    """A logarithm of x, with those of 0, of negative numbers, of ∞ and of NaN."""
    return select((x > 0) & (x < INF), value, select(x == 0, x.like(-INF), select(x < 0, NAN, x)))


def log(x: Number) -> Number:
    """The natural logarithm."""
    k, m = split_all(x)
    return where_defined(x, log_of(k, m - 1, 0.0))


def log1p_of(x: Number) -> Number:
    """log(1 + x) for x > -1, finite. What 1 + x loses by rounding is added again, divided by 2ᵏ (1 + f)."""
    u, lost = two_sum(x.like(1.0), x)
    k, m = split(u)
    whole = k == 0
    f = select(whole, x, m - 1)
    rest = select(whole, 0, lost * power_of_two(at_least_integer(-k, 1 - x.format.bias)))
    return log_of(to_float(k), f, fma(-rest, f, rest))


def at_least_integer(n: Number, low: int) -> Number:
    return select(n < low, low, n)


def log1p(x: Number) -> Number:
    """log(1 + x), exact near 0."""
    tiny = absolute(x) < x.format.epsilon / 4
    return select(tiny, x, where_defined(1 + x, log1p_of(x)))


def softplus(x: Number) -> Number:
    """log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)), without overflow."""
    small = exp(-absolute(x))
    return select(x < 0, 0, x) + select(small < x.format.epsilon / 4, small, log1p_of(small))


def asinh(x: Number) -> Number:
    """log1p(a + a²/(1 + √(a² + 1))), and log(a) + log 2 for a whose square is no number."""
    a = absolute(x)
    huge = a > x.format.magic * x.format.magic
    s = select(huge, 1, a)
    square = s * s
    u = select(huge, a, s + square / (1 + sqrt(square + 1)))
    value = log1p_of(u) + select(huge, a.like(1 / LOG2_E), 0)
    value = select(a < INF, value, a)
    return select(a < x.format.epsilon / 4, x, with_sign_of(value, x))


def acosh(x: Number) -> Number:
    """log1p(t + √(t (t + 2))) with t = x - 1, and log(x) + log 2 for huge x."""
    huge = x > x.format.magic * x.format.magic
    t = select(huge, 1, x - 1)
    u = select(huge, x, t + sqrt(t * (t + 2)))
    value = log1p_of(u) + select(huge, x.like(1 / LOG2_E), 0)
    return select(x < 1, NAN, select(x < INF, value, x))


def atanh(x: Number) -> Number:
    """log1p(2a/(1 - a)) / 2"""
    a = absolute(x)
    value = select(a < 1, 0.5 * log1p_of(2 * a / (1 - a)), select(a == 1, a.like(INF), a.like(NAN)))
    return select(a < x.format.epsilon / 4, x, with_sign_of(value, x))


# ------------------------------------------------------------------ powers


def _single_power(x: Number, y: Number) -> Number:
    """xʸ for x >= 0, single precision in double: what double precision has more is what the exponent multiplies."""
    k, m = split_all(x)
    f = widen(m) - 1
    s = f / (2 + f)
    log_m = fma(s, polynomial(s * s, c.LOG_POW_DOUBLE) * (s * s), 2 * s)
    power = widen(y) * fma(widen(k), 1 / LOG2_E, log_m)
    power = at_most(at_least(power, -200), 200)  # e²⁰⁰ is ∞ in single precision
    shifted = fma(power, LOG2_E, DOUBLE.magic)
    n = shifted - DOUBLE.magic
    r = fma(n, -1 / LOG2_E, power)
    p = 1 + fma(r * r, polynomial(r, c.EXP_POW_DOUBLE), r)
    return narrow(from_bits(bits(p) + (bits(shifted) << DOUBLE.mantissa)))


def _double_log(x: Number) -> tuple[Number, Number]:
    """log(x) for x > 0 as a sum of two numbers, to about 66 bits.

    With s = f/(2 + f), z = s²:  log(1 + f) = 2s + s z (2/3 + z Q(z)), of which all but Q is a sum of two."""
    k, m = split_all(x)
    f = m - 1
    base, base_rest = fast_two_sum(m.like(2.0), f)
    s = f / base
    s_rest = (fma(-s, base, f) - s * base_rest) / base
    z, z_rest = two_product(s, s)
    z_rest = fma(2 * s, s_rest, z_rest)
    head, head_rest = c.TWO_THIRDS
    q = z * polynomial(z, c.LOG_POW_REST_DOUBLE)
    p, p_rest = fast_two_sum(m.like(head), q)
    p_rest = p_rest + head_rest
    w, w_rest = two_product(z, p)
    w_rest = w_rest + fma(z, p_rest, z_rest * p)
    v, v_rest = two_product(s, w)
    v_rest = v_rest + fma(s, w_rest, s_rest * w)
    log_2, log_2_rest = c.LOG_2_DOUBLE
    large, large_rest = fast_two_sum(k * log_2, 2 * s)  # k log 2 is 0 or the larger
    total, total_rest = two_sum(large, v)
    rest = large_rest + total_rest + fma(k, log_2_rest, 2 * s_rest) + v_rest
    return fast_two_sum(total, rest)


def _double_power(x: Number, y: Number) -> Number:
    """xʸ for x >= 0 in double precision."""
    log_x, log_rest = _double_log(x)
    power, lost = two_product(y, log_x)
    lost = fma(y, log_rest, lost)
    inside = absolute(power) < 800
    bounded = at_most(at_least(power, -800), 800)
    head, rest = c.LOG_2_PARTS_DOUBLE
    shifted = fma(bounded, LOG2_E, DOUBLE.magic)
    n = shifted - DOUBLE.magic
    r = fma(n, -rest, fma(n, -head, bounded))
    p = exp_rest(r + select(inside, lost, 0))
    return scaled(1 + p, bits(shifted) - DOUBLE.bits_of(DOUBLE.magic))


def _power_of_size(x: Number, y: Number) -> Number:
    """xʸ for x >= 0 and any y, but for 1 to the power of ±∞."""
    value = (_single_power if x.format is SINGLE else _double_power)(x, y)
    none = select(y < 0, x.like(INF), 0)  # 0 to the power y
    every = select(y < 0, x.like(0.0), INF)  # ∞ to the power y
    value = select(x == 0, none, select(x == INF, every, value))
    infinite = absolute(y) == INF
    value = select(infinite, select((x > 1) ^ (y < 0), x.like(INF), 0), value)
    return select((x != x) | (y != y), x.like(NAN), value)


def power(x: Number, y: Number) -> Number:
    """x to the power y: of negative x for whole y; 1 if y is 0, or x is 1, whatever the other is."""
    a = absolute(x)
    whole = rint(y) == y
    odd = whole & (rint(0.5 * y) != 0.5 * y)
    value = _power_of_size(a, y)
    value = select((x < 0) & (a < INF) & ~whole, x.like(NAN), value)
    value = from_bits(bits(value) ^ select(odd, bits(x) & x.format.sign, 0))
    one = (y == 0) | (x == 1) | ((x == -1) & (absolute(y) == INF))
    return select(one, 1, value)
