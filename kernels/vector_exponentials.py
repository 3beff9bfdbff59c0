"""Exponential and hyperbolic functions without branches, as LLVM code. Floor: kernels.

x = n log 2 + r with n a whole number and |r| <= log(2)/2, so that eˣ = 2ⁿ eʳ; r is exact but for its last rounding,
because n times the head of log 2 in an `fma` is. 2ⁿ is multiplied in as two factors: one alone may be no normal number
where the result is one, and a subnormal result is rounded once."""

from __future__ import annotations

from gradtape.kernels import vector_coefficients as c
from gradtape.kernels.scalar_code import (
    SINGLE,
    Number,
    absolute,
    at_least,
    at_most,
    bits,
    fma,
    muladd,
    polynomial,
    power_of_two,
    select,
    with_sign_of,
)

LOG2_E = 1.4426950408889634


def reduced(x: Number, more: Number | None = None) -> tuple[Number, Number]:
    """n, as an integer, and r of x + more = n log 2 + r; `more` is so small that n does not depend on it."""
    head, rest = c.LOG_2_PARTS_SINGLE if x.format is SINGLE else c.LOG_2_PARTS_DOUBLE
    shifted = fma(x, LOG2_E, x.format.magic)
    n = shifted - x.format.magic
    exact = fma(n, -head, x)
    r = fma(n, -rest, exact) if more is None else exact + fma(n, -rest, more)
    return bits(shifted) - x.format.bits_of(x.format.magic), r


def exp_rest(r: Number) -> Number:
    """exp(r) - 1 for |r| <= log(2)/2."""
    q = polynomial(r, c.EXP_SINGLE if r.format is SINGLE else c.EXP_DOUBLE)
    return muladd(r * r, q, r)


def scaled(x: Number, n: Number) -> Number:
    """x 2ⁿ for any n between twice the least and twice the largest exponent."""
    half = n >> 1
    return x * power_of_two(half) * power_of_two(n - half)


def limited(x: Number) -> Number:
    """x, no smaller than where exp(x) is 0 and no larger than where it is infinite."""
    low, high = (-104, 89) if x.format is SINGLE else (-746, 710)
    return at_most(at_least(x, low), high)


def exp(x: Number) -> Number:
    """e to the power x."""
    n, r = reduced(limited(x))
    return scaled(1 + exp_rest(r), n)


def half_exp(a: Number) -> Number:
    """exp(a) / 2 for a >= 0, where exp(a) may overflow."""
    n, r = reduced(at_most(a, 90 if a.format is SINGLE else 711))
    return scaled(1 + exp_rest(r), n - 1)


def _expm1(x: Number) -> Number:
    """exp(x) - 1 where it is neither tiny nor much larger than the largest number.

    = 2 (2ⁿ⁻¹ (eʳ - 1) + (2ⁿ⁻¹ - ½)); the last difference is exact unless the result is close to -1 or huge."""
    n, r = reduced(x)
    scale = power_of_two(n - 1)
    return 2 * fma(exp_rest(r), scale, scale - 0.5)


def expm1(x: Number) -> Number:
    """exp(x) - 1, exact near 0."""
    low, high = (-20, 89) if x.format is SINGLE else (-40, 710)
    value = _expm1(at_most(at_least(x, low), high))
    return select(absolute(x) < x.format.epsilon / 4, x, value)


def sinh(x: Number) -> Number:
    """x + x³ P(x²) near 0, else eᵃ/2 - 1/(2 eᵃ)."""
    a = absolute(x)
    large = half_exp(a)
    z = x * x
    p = polynomial(z, c.SINH_SINGLE if x.format is SINGLE else c.SINH_DOUBLE)
    near = muladd(x * z, p, x)
    return select(a < 1, near, with_sign_of(large - 0.25 / large, x))


def cosh(x: Number) -> Number:
    """eᵃ/2 + 1/(2 eᵃ)"""
    large = half_exp(absolute(x))
    return large + 0.25 / large


def tanh(x: Number) -> Number:
    """t / (2 + t) with t = exp(2a) - 1"""
    a = absolute(x)
    t = _expm1(2 * at_most(a, 10 if x.format is SINGLE else 20))
    return select(a < x.format.epsilon / 4, x, with_sign_of(t / (2 + t), x))


def sigmoid(x: Number) -> Number:
    """1 / (1 + exp(-x)), without overflow."""
    small = exp(-absolute(x))
    return select(x < 0, small, 1) / (1 + small)
