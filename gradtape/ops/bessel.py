"""Declarations: modified Bessel functions of the first kind, plain and scaled by exp(-|x|). Floor: ops."""

from __future__ import annotations

import math

from gradtape.ir.expr import Expr, fn
from gradtape.ops import coefficients as c
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.polynomial import ratio

BORDER = 6  # where the power series' approximation hands over to that in 1/x


def _near_square(x: Expr) -> Expr:
    return fn.square(0.5 * fn.minimum(fn.abs(x), BORDER))


def _i0_near(x: Expr) -> Expr:
    z = _near_square(x)
    return 1 + z * ratio(z, c.BESSEL_I0)


def _i1_near(x: Expr) -> Expr:
    return x * ratio(_near_square(x), c.BESSEL_I1)


def _far(x: Expr, of: c.Ratio) -> Expr:
    """I(|x|) exp(-|x|) for |x| >= 6."""
    a = fn.maximum(fn.abs(x), BORDER)
    return ratio(2 * BORDER / a - 1, of) / fn.sqrt(a)


def _grown(x: Expr, of: c.Ratio) -> Expr:
    """I(|x|) for |x| >= 6. exp(|x|) overflows before I does, so e⁸ of it is in the coefficients; |x| - 8 is exact.
    At 1000 both have overflown."""
    a = fn.minimum(fn.abs(x), 1000)
    return _far(a, c.Ratio(tuple(p * math.exp(8) for p in of.p), of.q)) * fn.exp(a - 8)


def _is_near(x: Expr) -> Expr:
    return fn.abs(x) < BORDER


def _signed(x: Expr, value: Expr) -> Expr:
    return fn.select(x < 0, -value, value)


def _ratio_at_zero(x: Expr, value: Expr) -> Expr:
    """value / x for an odd function with slope ½ at 0."""
    return fn.select(fn.equal(x, 0), 0.5, value / fn.select(fn.equal(x, 0), 1, x))


BESSEL_I0 = Pointwise(
    "bessel_i0",
    lambda x: fn.select(_is_near(x), _i0_near(x), _grown(x, c.BESSEL_I0_FAR)),
    [lambda x: fn.bessel_i1(x)],
    doc="The modified Bessel function of order 0.",
)
BESSEL_I1 = Pointwise(
    "bessel_i1",
    lambda x: fn.select(_is_near(x), _i1_near(x), _signed(x, _grown(x, c.BESSEL_I1_FAR))),
    [lambda x, out: fn.select(fn.equal(x, 0), 0.5, fn.bessel_i0(x) - _ratio_at_zero(x, out))],
    doc="The modified Bessel function of order 1.",
)
BESSEL_I0E = Pointwise(
    "bessel_i0e",
    lambda x: fn.select(_is_near(x), _i0_near(x) * fn.exp(-fn.abs(x)), _far(x, c.BESSEL_I0_FAR)),
    [lambda x, out: fn.bessel_i1e(x) - fn.sign(x) * out],
    avoid=(0.0,),
    doc="exp(-|x|) times the modified Bessel function of order 0.",
)
BESSEL_I1E = Pointwise(
    "bessel_i1e",
    lambda x: fn.select(_is_near(x), _i1_near(x) * fn.exp(-fn.abs(x)), _signed(x, _far(x, c.BESSEL_I1_FAR))),
    [lambda x, out: fn.select(fn.equal(x, 0), 0.5, fn.bessel_i0e(x) - out * fn.sign(x) - _ratio_at_zero(x, out))],
    avoid=(0.0,),
    doc="exp(-|x|) times the modified Bessel function of order 1.",
)
