"""The error function, the normal distribution and activations built of them, without branches, as LLVM code.
Floor: kernels.

exp(a²) erfc(a) (a + 2) is one polynomial in t = (a - 2)/(a + 2) for all a >= ½, and exp(a²/2) P(X > a) (a + 3) of the
normal distribution is one in (a - 3)/(a + 3) for all a >= ¾. t is taken as 2a q - 1 with q = 1/(a + 2), so that in the
product of q and the polynomial most of an error of q cancels. a² is a product and its error, and the error joins the
reduced operand of the exponential, for a² loses as many digits as it has before the point."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradtape.kernels import vector_coefficients as c
from gradtape.kernels.scalar_code import (
    INF,
    NAN,
    SINGLE,
    Number,
    absolute,
    at_most,
    fma,
    muladd,
    polynomial,
    select,
    two_product,
    with_sign_of,
)
from gradtape.kernels.vector_exponentials import exp_rest, reduced, scaled

ROOT_HALF = math.sqrt(0.5)


def _shrunk(a: Number, b: Number, factor: Number) -> Number:
    """exp(-a b) times a factor, rounded once more if it is subnormal."""
    square, rest = two_product(a, b)
    n, r = reduced(-square, -rest)
    return scaled(fma(factor, exp_rest(r), factor), n)


def _far(t: Number, coefficients: Sequence[float]) -> Number:
    """A polynomial in t whose first coefficient comes last, so that what the others lose is multiplied by t."""
    return muladd(t, polynomial(t, coefficients[1:]), coefficients[0])


def _erf_near(x: Number) -> Number:
    """erf(x) for |x| <= 1."""
    return muladd(x, polynomial(x * x, c.ERF_SINGLE if x.format is SINGLE else c.ERF_DOUBLE), x)


def _erfc_far(x: Number) -> Number:
    """erfc(|x|) for |x| >= ½."""
    a = at_most(absolute(x), 10.2 if x.format is SINGLE else 27.4)
    inverse = 1 / (a + 2)
    table = c.ERFC_SINGLE if x.format is SINGLE else c.ERFC_DOUBLE
    return _shrunk(a, a, inverse * _far(fma(2 * a, inverse, -1), table))


def erf(x: Number) -> Number:
    """The error function."""
    return select(absolute(x) < 1, _erf_near(x), with_sign_of(1 - _erfc_far(x), x))


def erfc(x: Number) -> Number:
    """1 - erf(x), without cancellation."""
    tail = _erfc_far(x)
    return select(absolute(x) < 0.5, 1 - _erf_near(x), select(x < 0, 2 - tail, tail))


def _normal(x: Number) -> tuple[Number, Number, Sequence[float]]:
    """a = |x|, or what makes a P(X > a) 0; P(X < x) if a <= ¾, and the table for larger a."""
    a = at_most(absolute(x), 14.5 if x.format is SINGLE else 39)
    middle = fma(_erf_near(x * ROOT_HALF), 0.5, 0.5)
    return a, middle, c.NORMAL_SINGLE if x.format is SINGLE else c.NORMAL_DOUBLE


def ndtr(x: Number) -> Number:
    """The distribution function of the standard normal distribution."""
    a, middle, table = _normal(x)
    inverse = 1 / (a + 3)
    tail = _shrunk(a, 0.5 * a, inverse * _far(fma(2 * a, inverse, -1), table))
    return select(a < 0.75, middle, select(x < 0, tail, 1 - tail))


def gelu(x: Number) -> Number:
    """x P(X < x) = max(x, 0) - |x| P(X > |x|); NaN at -∞, as 0 · ∞ is."""
    a, middle, table = _normal(x)
    share = a / (a + 3)
    tail = _shrunk(a, 0.5 * a, share * _far(fma(share, 2, -1), table))
    value = select(a < 0.75, x * middle, select(x < 0, x.like(-0.0), x) - tail)
    return select(x == -INF, NAN, value)


def silu(x: Number) -> Number:
    """x / (1 + exp(-x)); on the left x exp(x) / (1 + exp(x)). NaN at -∞, as 0 · ∞ is."""
    low = x.like(-112 if x.format is SINGLE else -760)  # where the value is 0
    bounded = select(x < low, low, x)
    n, r = reduced(select(x > -low, low, -absolute(bounded)))
    p = 1 + exp_rest(r)
    quotient = bounded / (1 + scaled(p, n))
    return select(x < 0, select(x == -INF, NAN, scaled(p * quotient, n)), quotient)
