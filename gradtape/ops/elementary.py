"""Declarations: elementary functions and activations. Floor: ops."""

from __future__ import annotations

import math
from typing import Any

from gradtape.ir.expr import Expr, fn
from gradtape.ops.pointwise import Pointwise

POSITIVE = (0.3, 3.0)
UNIT = (-0.9, 0.9)
FC = "fc"
REAL_NUMBERS = "fiu"


def _unary(
    name: str, value: Any, partial: Any, doc: str, domain: tuple[float, float] = (-2.0, 2.0), **options: Any
) -> Pointwise:
    return Pointwise(name, value, [partial], domain=[domain], doc=doc, **options)


EXP = _unary("exp", "exp", lambda out: out, "e to the power x.", accepts=FC)
EXPM1 = _unary("expm1", "expm1", lambda out: out + 1, "exp(x) - 1, exact near 0.", accepts=FC)
LOG = _unary("log", "log", lambda x: 1 / x, "The natural logarithm.", POSITIVE, accepts=FC)


def _log1p(xp: Any, x: Any) -> Any:
    """NumPy's own, except of small complex numbers, whose real part it loses: there ½ log1p(|1 + x|² - 1)."""
    if x.dtype.kind != "c":
        return xp.log1p(x)
    small = xp.abs(x) < 0.5
    near = xp.where(small, x, 0)
    square = near.real * (2 + near.real) + near.imag * near.imag
    out = xp.empty_like(near)
    out.real, out.imag = 0.5 * xp.log1p(square), xp.arctan2(near.imag, 1 + near.real)
    return xp.where(small, out, xp.log1p(x))


LOG1P = _unary("log1p", None, lambda x: 1 / (x + 1), "log(1 + x), exact near 0.", POSITIVE, array=_log1p, accepts=FC)
SQRT_SLOPE = _unary(
    "sqrt_slope",
    lambda x: 0.5 / x,
    lambda out: -2 * out * out,
    "1 / (2x), the slope of the square root x, such that a zero cotangent gives zero to the second order as well.",
    POSITIVE,
    accepts=FC,
    linear_at_zero=True,
)
SQRT = _unary(
    "sqrt", "sqrt", lambda out: fn.sqrt_slope(out), "The square root.", POSITIVE, accepts=FC, linear_at_zero=True
)
RSQRT = _unary("rsqrt", lambda x: 1 / fn.sqrt(x), lambda x, out: -0.5 * out / x, "1 / sqrt(x).", POSITIVE, accepts=FC)
SIN = _unary("sin", "sin", lambda x: fn.cos(x), "The sine.", accepts=FC)
COS = _unary("cos", "cos", lambda x: -fn.sin(x), "The cosine.", accepts=FC)
TAN = _unary("tan", "tan", lambda out: 1 + out * out, "The tangent.", (-1.2, 1.2), accepts=FC)
ASIN_SLOPE = _unary(
    "asin_slope",
    lambda x: 1 / fn.sqrt((1 - x) * (1 + x)),
    lambda x, out: x * (out * out * out),
    "1 / √(1 - x²), the slope of the inverse sine, whose own slopes are infinite at ±1, and not NaN.",
    UNIT,
    accepts=FC,
)
ASIN = _unary("asin", "arcsin", lambda x: fn.asin_slope(x), "The inverse sine.", UNIT, accepts=FC)
ACOS = _unary("acos", "arccos", lambda x: -fn.asin_slope(x), "The inverse cosine.", UNIT, accepts=FC)
ATAN = _unary("atan", "arctan", lambda x: 1 / (1 + x * x), "The inverse tangent.", accepts=FC)
SINH = _unary("sinh", "sinh", lambda x: fn.cosh(x), "The hyperbolic sine.", accepts=FC)
COSH = _unary("cosh", "cosh", lambda x: fn.sinh(x), "The hyperbolic cosine.", accepts=FC)
TANH = _unary("tanh", "tanh", lambda out: 1 - out * out, "The hyperbolic tangent.", accepts=FC)
ASINH = _unary("asinh", "arcsinh", lambda x: 1 / fn.sqrt(x * x + 1), "The inverse hyperbolic sine.", accepts=FC)
ACOSH_SLOPE = _unary(
    "acosh_slope",
    lambda x: 1 / (fn.sqrt(x - 1) * fn.sqrt(x + 1)),
    lambda x, out: -x * (out * out * out),
    "1 / √(x² - 1), the slope of the inverse hyperbolic cosine, whose own slopes are infinite at 1, and not NaN.",
    (1.3, 3.0),
    accepts=FC,
)
ACOSH = _unary(
    "acosh",
    "arccosh",
    lambda x: fn.acosh_slope(x),
    "The inverse hyperbolic cosine.",
    (1.3, 3.0),
    accepts=FC,
)
ATANH_SLOPE = _unary(
    "atanh_slope",
    lambda x: 1 / (1 - x) / (1 + x),
    lambda x, out: 2 * x * (out * out),
    "1 / (1 - x²), the slope of the inverse hyperbolic tangent, whose own slopes are infinite at ±1, and not NaN.",
    UNIT,
    accepts=FC,
)
ATANH = _unary("atanh", "arctanh", lambda x: fn.atanh_slope(x), "The inverse hyperbolic tangent.", UNIT, accepts=FC)
ATAN2 = Pointwise(
    "atan2",
    "arctan2",
    [lambda x, y: y / (x * x + y * y), lambda x, y: -x / (x * x + y * y)],
    operands="x y",
    domain=(POSITIVE, POSITIVE),
    doc="The angle of the point (y, x): atan(x / y) in the right quadrant.",
)

# ------------------------------------------------------------------ activations


def _sigmoid(x: Expr) -> Any:
    small = fn.exp(-fn.abs(x))  # never overflows, and never more than 1
    return fn.maximum(fn.step(x), small) / (1 + small)


SIGMOID = _unary("sigmoid", _sigmoid, lambda out: out * (1 - out), "1 / (1 + exp(-x)), without overflow.")
SOFTPLUS = _unary(
    "softplus",
    lambda x: fn.maximum(x, 0) + fn.log1p(fn.exp(-fn.abs(x))),
    lambda x: fn.sigmoid(x),
    "log(1 + exp(x)), without overflow.",
)
LOG_SIGMOID = _unary(
    "log_sigmoid", lambda x: -fn.softplus(-x), lambda x: fn.sigmoid(-x), "log(sigmoid(x)), without overflow."
)
SOFTSIGN = _unary("softsign", lambda x: x / (1 + fn.abs(x)), lambda x: 1 / fn.square(1 + fn.abs(x)), "x / (1 + |x|).")
STEP = _unary(
    "step",
    None,
    lambda: 0,
    "1 where x > 0, else 0.",
    array=lambda xp, x: (x > 0).astype(x.dtype),
    avoid=(0.0,),
)
RELU = _unary(
    "relu", lambda x: fn.maximum(x, 0), lambda out: fn.step(out), "max(x, 0).", avoid=(0.0,), accepts=REAL_NUMBERS
)
RELU6 = _unary(
    "relu6",
    lambda x: fn.minimum(fn.maximum(x, 0), 6),
    lambda out: fn.step(out) * fn.step(6 - out),
    "min(max(x, 0), 6).",
    (-3.0, 9.0),
    avoid=(0.0, 6.0),
    accepts=REAL_NUMBERS,
)
LEAKY_RELU = Pointwise(
    "leaky_relu",
    lambda x, alpha: fn.select(x > 0, x, alpha * x),
    [lambda x, alpha: fn.select(x > 0, fn.step(x), alpha), lambda x: fn.select(x > 0, 0, x)],
    operands="x alpha",
    domain=((-2.0, 2.0), (0.1, 0.9)),
    avoid=(0.0,),
    doc="x where it is positive, else alpha * x.",
)
ELU = _unary(
    "elu",
    lambda x: fn.select(x > 0, x, fn.expm1(x)),
    lambda out: fn.select(out >= 0, 1, out + 1),
    "x where it is positive, else exp(x) - 1.",
    avoid=(0.0,),
)
SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
SELU = _unary(
    "selu",
    lambda x: SELU_SCALE * fn.select(x > 0, x, SELU_ALPHA * fn.expm1(x)),
    lambda out: fn.select(out >= 0, SELU_SCALE, out + SELU_SCALE * SELU_ALPHA),
    "The self-normalising exponential unit.",
    avoid=(0.0,),
)


def _silu(x: Expr) -> Any:
    """x · sigmoid(x); exp(x) is taken in two halves, so that x is multiplied in before digits are lost."""
    half = fn.exp(-0.5 * fn.abs(x))
    factor = fn.select(x >= 0, 1, half)
    return x * factor * factor / (1 + half * half)


SILU = _unary(
    "silu",
    _silu,
    lambda x: fn.sigmoid(x) * (1 + x * (1 - fn.sigmoid(x))),
    "x * sigmoid(x), also called swish.",
)
# 0.044715 as TensorFlow has it in every dtype: rounded to single precision.
_GELU_SCALE, _GELU_CUBE = 2 * math.sqrt(2 / math.pi), 0.044714998453855515


def _gelu_gate(x: Expr) -> Expr:
    """(1 + tanh u) / 2 = sigmoid(2u) without cancellation, u = √(2/π) (x + 0.044715 x³)"""
    return fn.sigmoid(_GELU_SCALE * (x + _GELU_CUBE * x * x * x))


def _gelu_tanh_partial(x: Expr) -> Any:
    s = _gelu_gate(x)
    return s + x * (s * (1 - s)) * (_GELU_SCALE * (1 + 3 * _GELU_CUBE * x * x))


GELU_TANH = _unary(
    "gelu_tanh",
    lambda x: x * _gelu_gate(x),
    _gelu_tanh_partial,
    "The Gaussian error linear unit, by its tanh approximation.",
)


def _sigmoid_cross_entropy(labels: Expr, x: Expr) -> Any:
    """A sum of numbers that are not negative for labels in [0, 1], so that none cancels."""
    size = fn.abs(x)
    return size * fn.select(x >= 0, 1 - labels, labels) + fn.log1p(fn.exp(-size))


SIGMOID_CROSS_ENTROPY = Pointwise(
    "sigmoid_cross_entropy",
    _sigmoid_cross_entropy,
    [lambda x: -x, lambda labels, x: fn.sigmoid(x) - labels],
    operands="labels x",
    domain=((0.0, 1.0), (-2.0, 2.0)),
    doc="-labels · log(sigmoid(x)) - (1 - labels) · log(1 - sigmoid(x)), without overflow.",
)
