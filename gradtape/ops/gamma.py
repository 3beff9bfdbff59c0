"""Declarations: the logarithm of the gamma function, its derivatives, and Hurwitz' zeta function. Floor: ops.

Γ and its kin are approximated for x >= ½ and brought there by recurrence (|x| < ½) or reflection (x <= -½): with
r = x - round(x), which is exact, Γ(x) Γ(-x) = -π / (x sin πx) and |sin πx| = |sin πr|."""

from __future__ import annotations

import math

from gradtape.ir.expr import Expr, fn, number
from gradtape.ops import coefficients as c
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.polynomial import clip, is_whole, ratio

PI, INF, NAN = math.pi, math.inf, math.nan
STIRLING_CONSTANT = 0.5 * math.log(2 * math.pi) - 0.5
POSITIVE = (0.3, 3.0)


def _is_pole(x: Expr) -> Expr:
    """Where x is 0 or a negative integer (or -∞)."""
    return fn.logical_and(x <= 0, is_whole(x))


def _angle(x: Expr) -> Expr:
    """π (x - round(x))"""
    return PI * (x - fn.rint(x))


def _lgamma(x: Expr) -> Expr:
    a = fn.abs(x)
    small = a < 0.5
    u = fn.select(small, x + 1, a - 1)  # log Γ(1+u) is what is approximated
    near, middle, far = clip(u, -0.5, 0.5), clip(u, 0.5, 3), fn.maximum(a, 4)
    base = fn.select(
        u < 0.5,
        near * (near - 1) * ratio(near / (near + 2), c.LGAMMA_NEAR_ONE),
        fn.select(
            u < 3,
            middle * (middle - 1) * ratio(middle, c.LGAMMA_TO_FOUR),
            (far - 0.5) * (fn.log(far) - 1) + (STIRLING_CONSTANT + ratio(1 / far, c.STIRLING) / far),
        ),
    )
    # Γ(x) = Γ(x+2) / (x (x+1)), or the reflection.
    reflected = fn.logical_and(x < 0, fn.logical_not(small))
    sine = fn.abs(fn.sin(_angle(x)))
    factor = fn.select(small, a * (x + 1), fn.select(reflected, a * sine / PI, 1))
    value = fn.select(reflected, -base, base) - fn.log(factor)
    return fn.select(_is_pole(x), INF, value)


LGAMMA = Pointwise(
    "lgamma",
    _lgamma,
    [lambda x: fn.digamma(x)],
    domain=[POSITIVE],
    doc="log |Γ(x)|; ∞ at 0, at the negative integers, and at ±∞.",
)


def _psi_operand(x: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """The positive operand y behind x (1 - x where that is negative), whether it is below 1, u in [0, 3] with
    ψ(1+u) to be approximated, and max(y, 4)."""
    y = fn.select(x < 0, 1 - x, x)
    below = y < 1
    return y, below, fn.minimum(fn.select(below, y, y - 1), 3), fn.maximum(y, 4)


def _digamma(x: Expr) -> Expr:
    y, below, u, far = _psi_operand(x)
    near = ((u - c.PSI_ROOT) - c.PSI_ROOT_REST) * ratio(u, c.DIGAMMA)
    base = fn.select(y < 4, near, fn.log(far) - ratio(1 / far, c.DIGAMMA_FAR) / far)
    value = base - fn.select(below, 1 / y, fn.select(x < 0, PI / fn.tan(_angle(x)), 0))
    return fn.select(_is_pole(x), NAN, value)


DIGAMMA = Pointwise(
    "digamma",
    _digamma,
    [lambda x: fn.trigamma(x)],
    domain=[POSITIVE],
    doc="ψ(x), the derivative of log Γ(x); NaN at 0 and at the negative integers, where its poles have two signs.",
)


def _trigamma(x: Expr) -> Expr:
    y, below, u, far = _psi_operand(x)
    v = 1 / far
    base = fn.select(y < 4, ratio((u - 1) / (u + 1), c.TRIGAMMA), v * (1 + v * ratio(v, c.TRIGAMMA_FAR)))
    value = base + fn.select(below, fn.square(1 / y), 0)
    value = fn.select(x < 0, PI**2 / fn.square(fn.sin(_angle(x))) - value, value)
    return fn.select(_is_pole(x), INF, value)


TRIGAMMA = Pointwise(
    "trigamma",
    _trigamma,
    [lambda x: fn.polygamma(2, x)],
    domain=[POSITIVE],
    doc="ψ'(x), the derivative of the digamma function; ∞ at 0 and at the negative integers.",
)

# ------------------------------------------------------------------ sums of powers

ZETA_SHIFT = 8  # summands before the Euler-Maclaurin tail
# B₂ⱼ / (2j)!, Bernoulli's numbers over factorials
ZETA_TAIL = (
    0.08333333333333333,
    -0.001388888888888889,
    3.306878306878307e-05,
    -8.267195767195768e-07,
    2.08767569878681e-08,
    -5.284190138687493e-10,
    1.3382536530684679e-11,
    -3.3896802963225827e-13,
    8.586062056277845e-15,
    -2.174868698558062e-16,
    5.5090028283602295e-18,
    -1.3954464685812522e-19,
)


def _power_of_sum(q: Expr, k: int, s: Expr) -> Expr:
    """(q + k)⁻ˢ, with what the sum lost by rounding, which is exact as a difference and counts s times."""
    if k == 0:
        return q ** (-s)
    total = q + k
    lost = q - (total - k)
    power = total ** (-s)
    return fn.select(fn.equal(lost, 0), power, power - power * (s * (lost / total)))


def _zeta_positive(s: Expr, q: Expr, factor: Expr) -> Expr:
    """A factor times Σ (q+k)⁻ˢ for q > 0, s > 1, by the formula of Euler and Maclaurin:

    Σₖ₌₀ⁿ⁻¹ (q+k)⁻ˢ + w¹⁻ˢ/(s-1) + w⁻ˢ (½ + Σⱼ B₂ⱼ/(2j)! s(s+1)...(s+2j-2) w¹⁻²ʲ),  w = q + n

    n = 0 where q is large against s, for there the last sum needs no help. In it s stops at 6w: beyond, its factor
    w⁻ˢ is less than q⁻ˢ by more than all digits, and its summands would overflow. w⁻ˢ is multiplied in by halves,
    because it may be too small a number when the product is not."""
    few = q < s + ZETA_SHIFT
    w = fn.select(few, q + ZETA_SHIFT, q)
    head: Expr = number(0)
    for k in reversed(range(ZETA_SHIFT)):
        head = _power_of_sum(q, k, s) + head
    t = fn.minimum(s, 6 * w)
    tail: Expr = number(ZETA_TAIL[-1])
    for j in reversed(range(1, len(ZETA_TAIL))):
        tail = ZETA_TAIL[j - 1] + tail * ((t + (2 * j - 1)) / w * ((t + 2 * j) / w))
    half = w ** (-0.5 * s)
    rest = fn.select(fn.equal(half, 0), half, factor * half * (w / (s - 1) + (0.5 + tail * (t / w))) * half)
    lost = fn.select(few, q - (w - ZETA_SHIFT), 0)
    return fn.select(few, factor * head, 0) + fn.select(fn.equal(lost, 0), rest, rest - rest * (t * (lost / w)))


def _is_odd(n: Expr) -> Expr:
    return fn.not_equal(n, 2 * fn.floor(n / 2))


def _zeta_times(x: Expr, q: Expr, factor: Expr) -> Expr:
    """A factor times ζ(x, q). For q < 0 and whole x, with r = q - floor(q): ζ(x, r) + (-1)ˣ (ζ(x, 1-r) - ζ(x, 1-q)).
    1 - r is exact as ceil(q) - q."""
    rest = q - fn.floor(q)
    below = _zeta_positive(x, fn.select(q < 0, fn.ceil(q) - q, 1), factor) - _zeta_positive(
        x, fn.select(q < 0, 1 - q, 1), factor
    )
    value = _zeta_positive(x, fn.select(q > 0, q, rest), factor)
    value = fn.select(q < 0, value + fn.select(_is_odd(x), -below, below), value)
    value = fn.select(fn.logical_and(q < 0, fn.logical_not(is_whole(x))), NAN, value)
    value = fn.select(_is_pole(q), NAN, value)
    value = fn.select(fn.logical_and(_is_pole(q), fn.equal(x, 2 * fn.floor(x / 2))), INF, value)
    value = fn.select(x < 1, NAN, value)
    return fn.select(fn.logical_and(fn.equal(x, 1), fn.equal(q, q)), INF, value)


ZETA = Pointwise(
    "zeta",
    lambda x, q: _zeta_times(x, q, number(1)),
    [None, lambda x, q: -x * fn.zeta(x + 1, q)],
    operands="x q",
    domain=((1.5, 4.0), POSITIVE),
    doc="Hurwitz' zeta function, the sum of (q + k)⁻ˣ over k = 0, 1, 2, ...",
    notes="For x > 1; negative q are for whole x only. Differentiates in q.",
)


EXACT_FACTORIALS = 20  # all of them numbers of double precision


def _factorial(n: Expr) -> Expr:
    """n! of whole numbers, a product up to 20, then by Stirling's formula, whose power is taken in two halves, for it
    overflows first."""
    product = fn.maximum(fn.minimum(n, 1), 1)  # 1 in the dtype of n
    for k in range(2, EXACT_FACTORIALS + 1):
        product = fn.select(n >= k, product * k, product)
    g = fn.maximum(n, EXACT_FACTORIALS) + 1
    half = g ** (0.5 * g - 0.25)
    large = half * (fn.exp(-g) * (math.sqrt(2 * math.pi) * ratio(1 / g, c.GAMMA_STIRLING))) * half
    return fn.select(n > EXACT_FACTORIALS, large, product)


def _polygamma(a: Expr, x: Expr) -> Expr:
    value = _zeta_times(fn.maximum(a, 1) + 1, x, _factorial(a))
    value = fn.select(_is_odd(a), value, -value)
    value = fn.select(fn.logical_and(a >= 0, is_whole(a)), value, NAN)
    return fn.select(fn.equal(a, 0), fn.digamma(x), fn.select(fn.equal(a, 1), fn.trigamma(x), value))


POLYGAMMA = Pointwise(
    "polygamma",
    _polygamma,
    [None, lambda a, x: fn.polygamma(a + 1, x)],
    operands="a x",
    domain=((2.0, 2.0), POSITIVE),
    doc="The a-th derivative of the digamma function; a is 0, 1, 2, ...",
    notes="Differentiates in x. Of orders up to 170, or 34 in single precision, whose factorials are numbers.",
)
