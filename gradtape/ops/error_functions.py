"""Declarations: the error function, the normal distribution, their inverses, and GELU. Floor: ops.

Rational approximations on few intervals, chosen between without branches, so that one formula serves every target.
Where a result is exp(-a²) times something of moderate size, a² would lose as many digits as it has before the point;
there a = h + r with h a multiple of 1/128, whose square is exact, and exp(-a²) = exp(-h²) · exp((h - a)(h + a))."""

from __future__ import annotations

import math

from gradtape.ir.expr import Expr, fn
from gradtape.ops import coefficients as c
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.polynomial import clip, horner, ratio

ROOT_2, ROOT_PI, ROOT_2_PI = math.sqrt(2), math.sqrt(math.pi), math.sqrt(2 * math.pi)

# Of R(1/b²)/b = R(2/a²) √2/a, half.
MILLS_FAR = c.Ratio(tuple(p / ROOT_2 for p in c.ERFC_FAR.p), c.ERFC_FAR.q)


def _erf_near(x: Expr) -> Expr:
    """erf(x) for |x| <= 1."""
    return x + x * ratio(fn.square(fn.minimum(fn.abs(x), 1)), c.ERF)


def _scaled(a: Expr) -> Expr:
    """exp(a²) erfc(a) for a >= 0.25."""
    near, far = clip(a, 0.25, 3.5), fn.maximum(a, 3.5)
    return fn.select(
        a < 3.5, ratio((near - 2) / (near + 2), c.ERFC_NEAR) / (1 + 2 * near), ratio(1 / (far * far), c.ERFC_FAR) / far
    )


# (exp(r) - 1) / r for |r| < 0.22, where the next term is below 2⁻⁶⁰.
EXPONENTIAL = tuple(1 / math.factorial(k) for k in range(1, 13))


def _grown(x: Expr, small: Expr) -> Expr:
    """x · exp(small), with one rounding less than by a product."""
    return x + x * (small * horner(small, EXPONENTIAL))


def _erfc_tail(x: Expr) -> Expr:
    """erfc(|x|) for |x| >= 0.25; 0 from 28 on, where it is smaller than any number."""
    a = fn.minimum(fn.abs(x), 28)
    head = fn.rint(a * 128) / 128
    return fn.exp(-(head * head)) * _grown(_scaled(a), (head - a) * (head + a))


def _erf(x: Expr) -> Expr:
    tail = 1 - _erfc_tail(x)
    return fn.select(fn.abs(x) < 1, _erf_near(x), fn.select(x < 0, -tail, tail))


def _erfc(x: Expr) -> Expr:
    tail = _erfc_tail(x)
    return fn.select(fn.abs(x) < 0.25, 1 - _erf_near(x), fn.select(x < 0, 2 - tail, tail))


ERF = Pointwise(
    "erf",
    _erf,
    [lambda x: 2 / ROOT_PI * fn.exp(-(x * x))],
    doc="The error function, 2/√π ∫₀ˣ exp(-t²) dt.",
)
ERFC = Pointwise(
    "erfc",
    _erfc,
    [lambda x: -2 / ROOT_PI * fn.exp(-(x * x))],
    doc="1 - erf(x), without cancellation where erf(x) is near 1.",
)


def _mills(a: Expr) -> tuple[Expr, Expr]:
    """exp(a²/2) P(X > a) for a >= 0.5, and a times that: half of `_scaled(a / √2)`, its constants put where they
    round nothing."""
    near, far = clip(a / ROOT_2, 0.25, 3.5), fn.maximum(a, 4.9497)
    is_near = a < 4.9497
    close = ratio((near - 2) / (near + 2), c.ERFC_NEAR) / (2 + 4 * near)
    distant = ratio(2 / (far * far), MILLS_FAR)
    return fn.select(is_near, close, distant / far), fn.select(is_near, a * close, distant)


def _split(x: Expr) -> tuple[Expr, Expr, Expr]:
    """a = min(|x|, 40), from which P(X < -a) is 0; exp(-a²/2) as its first factor, and the logarithm of the rest."""
    a = fn.minimum(fn.abs(x), 40)
    head = fn.rint(a * 128) / 128
    return a, fn.exp(-0.5 * (head * head)), 0.5 * ((head - a) * (head + a))


def _ndtr(x: Expr) -> Expr:
    a, small, rest = _split(x)
    tail = small * _grown(_mills(a)[0], rest)
    return fn.select(fn.abs(x) < 0.5, 0.5 + 0.5 * _erf_near(x / ROOT_2), fn.select(x < 0, tail, 1 - tail))


def _density(x: Expr) -> Expr:
    return 1 / ROOT_2_PI * fn.exp(-0.5 * (x * x))


NDTR = Pointwise("ndtr", _ndtr, [_density], doc="The distribution function of the standard normal distribution.")


def _gelu(x: Expr) -> Expr:
    """x Φ(x); on the left the small factor, of which little may be left, comes last. NaN at -∞, as 0 · ∞ is."""
    a, small, rest = _split(x)
    tail = -(small * _grown(_mills(a)[1], rest))
    return fn.select(x < -0.5, fn.select(fn.equal(x, -math.inf), math.nan, tail), x * _ndtr(x))


GELU = Pointwise(
    "gelu",
    _gelu,
    [lambda x: fn.ndtr(x) + x * (1 / ROOT_2_PI * fn.exp(-0.5 * (x * x)))],
    doc="The Gaussian error linear unit: x times the normal distribution function of x.",
)

# ------------------------------------------------------------------ inverses


def _erfinv_near(x: Expr) -> Expr:
    """erfinv(x) for |x| <= 0.5."""
    return x * ratio(fn.square(fn.minimum(fn.abs(x), 0.5)) - 0.125, c.ERFINV)


def _erfcinv_tail(q: Expr) -> Expr:
    """erfcinv(q) for 0 <= q <= 0.5."""
    w = fn.sqrt(-fn.log(q))
    near, middle, far = fn.minimum(w, 3), clip(w, 3, 8), clip(w, 8, 28)
    large = fn.select(
        w < 8,
        ratio((middle - 5) / (middle + 5), c.ERFCINV_MIDDLE),
        ratio((far - 14.75) / (far + 14.75), c.ERFCINV_FAR),
    )
    return w * fn.select(w < 3, ratio((near - 1.5) / (near + 1.5), c.ERFCINV_NEAR), large)


def _erfinv(x: Expr) -> Expr:
    a = fn.abs(x)
    tail = _erfcinv_tail(1 - a)
    return fn.select(a <= 0.5, _erfinv_near(x), fn.select(x < 0, -tail, tail))


def _erfcinv(x: Expr) -> Expr:
    tail = _erfcinv_tail(fn.minimum(x, 2 - x))
    return fn.select(fn.abs(1 - x) <= 0.5, _erfinv_near(1 - x), fn.select(x > 1, -tail, tail))


ERFINV = Pointwise(
    "erfinv",
    _erfinv,
    [lambda out: ROOT_PI / 2 * fn.exp(out * out)],
    domain=[(-0.95, 0.95)],
    doc="The inverse of the error function; ±∞ at ±1, NaN beyond.",
)
ERFCINV = Pointwise(
    "erfcinv",
    _erfcinv,
    [lambda out: -ROOT_PI / 2 * fn.exp(out * out)],
    domain=[(0.05, 1.95)],
    doc="The inverse of the complementary error function; ∞ at 0, -∞ at 2, NaN outside.",
)
NDTRI = Pointwise(
    "ndtri",
    lambda x: -ROOT_2 * fn.erfcinv(2 * x),
    [lambda out: ROOT_2_PI * fn.exp(0.5 * (out * out))],
    domain=[(0.05, 0.95)],
    doc="The quantile of the standard normal distribution; -∞ at 0, ∞ at 1, NaN outside.",
)
