"""Declarations: numbers drawn from gamma distributions as functions of their shape parameter. Floor: ops.

A number z with the distribution function F(z; α) moves with α so that F stays: dz/dα = -(∂F/∂α) / p, p being the
density (Figurnov, Mohamed, Mnih, "Implicit reparameterization gradients", 2018). Under the integrals for F or 1 - F,
∂/∂α of p is (log t - ψ(α)) p. With t = z e^(su), where s = 1 above α (the integral from z to ∞) and -1 below (from 0
to z), p has no peak inside, and

    dz/dα = z · (s (log z - ψ(α)) m₀ + m₁),    mₖ = ∫ uᵏ exp(αsu - z (e^(su) - 1)) du from 0 to ∞.

Derivatives of these moments are made of them again: ∂mₖ/∂α = s mₖ₊₁, and by parts
∂mₖ/∂z = -((α - z) mₖ + s (k mₖ₋₁ + [k = 0])) / z. So derivatives of every order are there."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gradtape.ir.aval import Aval
from gradtape.ir.dtypes import float64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ir.shapes import shape_text
from gradtape.ops import matrix_algebra as m
from gradtape.ops.op import constant, emit
from gradtape.ops.opaque import Opaque
from gradtape.ops.samples import BadSample, Sample, Spec

NODES = 44
REACH = 42.0  # the integrals end where the integrand has fallen by e^-42
PIECE = 1 << 13  # how many elements are integrated at once
TINY = 1e-300


def _infer(a: Aval, x: Aval, order: int = 0) -> list[Aval]:
    for v in (a, x):
        if not v.dtype.is_floating:
            raise ValueError(f"wants floating tensors, got a {v.dtype.cname} tensor. Use `tf.cast`.")
    if a.dtype is not x.dtype or (a.is_known and x.is_known and a.shape != x.shape):
        raise ValueError(
            f"wants two tensors of one shape and dtype, got {a.dtype.cname}{shape_text(a.shape)} and "
            f"{x.dtype.cname}{shape_text(x.shape)}. Use `tf.cast` and `tf.broadcast_to`."
        )
    return [x if x.is_known else a]


# ------------------------------------------------------------------ moments


@functools.cache
def rule() -> tuple[Any, Any]:
    """Nodes and weights of Gauss and Legendre on [0, 1]: the roots of the Legendre polynomial by Newton's method, with
    more digits than a double has where there are such, since its slope at the ends is steep."""
    at = np.cos(np.pi * (np.arange(NODES, 0, -1) - 0.25) / (NODES + 0.5)).astype(np.longdouble)
    for _ in range(8):
        before, here = np.ones_like(at), at
        for n in range(2, NODES + 1):
            before, here = here, ((2 * n - 1) * at * here - (n - 1) * before) / n
        slope = NODES * (before - at * here) / ((1 - at) * (1 + at))
        at = at - here / slope
    return ((at + 1) / 2).astype(np.float64), (1 / ((1 - at) * (1 + at) * slope * slope)).astype(np.float64)


def _end(xp: Any, a: Any, x: Any) -> Any:
    """Where the exponent is -REACH or a little less. Below α: from e⁻ᵘ - 1 + u >= u² / (2 + u), which leaves a
    quadratic equation. Above: from eᵘ - 1 - u >= u² / 2, then by the equation solved for eᵘ."""
    b = REACH - 2 * (a - x)
    below = (b + xp.sqrt(b * b + 8 * a * REACH)) / (2 * a)
    gap = xp.maximum(x - a, 0)
    above = 2 * REACH / (gap + xp.sqrt(gap * gap + 2 * x * REACH))
    for _ in range(2):
        above = xp.log1p((REACH + a * above) / x)
    return xp.where(x > a, above, below)


def _integrated(xp: Any, a: Any, x: Any, order: int) -> Any:
    nodes, weights = map(xp.asarray, rule())
    end = _end(xp, a, x)[:, None]
    u = end * nodes
    v = xp.where(x > a, 1.0, -1.0)[:, None] * u
    integrand = xp.exp(a[:, None] * v - x[:, None] * xp.expm1(v))
    for _ in range(order):
        integrand *= u
    return end[:, 0] * (integrand @ weights)


def _moment(xp: Any, a: Any, x: Any, order: int) -> Any:
    shape, dtype = x.shape, x.dtype
    a, x = (v.astype(xp.float64).reshape(-1) for v in (a, x))
    pieces = [slice(k, k + PIECE) for k in range(0, x.size, PIECE)]
    found = [_integrated(xp, a[p], x[p], order) for p in pieces] or [xp.zeros(0)]
    return xp.concatenate(found).reshape(shape).astype(dtype)


def _side(a: Value, x: Value) -> Value:
    """s: 1 above the shape parameter, -1 below it."""
    dtype = x.aval.dtype
    return emit("select", emit("greater", x, a), constant(1, dtype), constant(-1, dtype))


def _moment_vjp(node: Node, g: Value) -> list[Value | None]:
    (a, x), (here,), k = node.inputs, node.outputs, node.step.params["order"]
    side = _side(a, x)
    by_shape = emit("multiply", side, emit("gamma_moment", a, x, order=k + 1))
    lower = constant(1, x.aval.dtype)
    if k:
        lower = m.times(emit("gamma_moment", a, x, order=k - 1), k)
    inner = emit("add", emit("multiply", m.minus(a, x), here), emit("multiply", side, lower))
    by_place = emit("negative", emit("divide", inner, x))
    return [emit("multiply", g, by_shape), emit("multiply", g, by_place)]


_BELOW, _ABOVE = (Spec((2, 3), (2.0, 3.0)), Spec((2, 3), (0.5, 1.5))), (Spec((3,), (1.0, 2.0)), Spec((3,), (2.5, 6.0)))
_UNLIKE = [
    BadSample((((2,), "int32"), ((2,), "int32")), InvalidArgumentError, "int32", {"order": 0}),
    BadSample((((2,), "float32"), ((3,), "float32")), InvalidArgumentError, "one shape", {"order": 0}),
]
GAMMA_MOMENT = Opaque(
    "gamma_moment",
    _moment,
    infer=_infer,
    vjp=_moment_vjp,
    signature="(),()->()",
    samples=[
        Sample(_BELOW, {"order": 0}, "below the shape parameter"),
        Sample(_ABOVE, {"order": 0}, "above it"),
        Sample(_BELOW, {"order": 1}),
        Sample(_ABOVE, {"order": 2}),
        Sample((Spec((0,)), Spec((0,))), {"order": 0}),
        Sample((Spec((), (2.0, 3.0)), Spec((), (0.5, 1.5))), {"order": 1}),
    ],
    errors=_UNLIKE,
    doc="The moments ∫ uᵏ exp(asu - x (e^(su) - 1)) du from 0 to ∞, with s = 1 where x > a and else -1.",
    notes="For x > 0 and a >= 1, or a > 0 where x > a. By Gauss-Legendre integration with 44 nodes.",
)

# ------------------------------------------------------------------ drawn numbers


def gamma_slope(a: Value, x: Value) -> Value:
    """dz/dα at z = x, in double precision, for x >= 0 and a > 0.

    Below 1 both x and a are small together, and terms like 1 / a would cancel: there by the slope g of α + 1,
    (x / a) · (g - log x + ψ(a + 1)), which F(x; a) = F(x; a + 1) + xᵃ e⁻ˣ / Γ(a + 1) gives."""
    one = constant(1, float64)
    x = emit("maximum", x, constant(TINY, float64))
    small = emit("logical_and", emit("less", a, one), emit("less_equal", x, one))
    shape = emit("select", small, emit("add", a, one), a)
    ratio = m.minus(emit("log", x), emit("digamma", shape))
    weighted = emit("multiply", emit("multiply", _side(shape, x), ratio), emit("gamma_moment", shape, x, order=0))
    slope = emit("multiply", x, emit("add", weighted, emit("gamma_moment", shape, x, order=1)))
    return emit("select", small, emit("multiply", emit("divide", x, a), m.minus(slope, ratio)), slope)


def _drawn_vjp(node: Node, g: Value) -> list[Value | None]:
    """The result itself depends on α, so that second derivatives are those along the curve z(α)."""
    slope = gamma_slope(m.cast(node.inputs[0], float64), m.cast(node.outputs[0], float64))
    return [emit("multiply", g, m.cast(slope, g.aval.dtype)), None]


GAMMA_DRAWN = Opaque(
    "gamma_drawn",
    lambda xp, a, x: x + xp.zeros_like(a),
    infer=_infer,
    vjp=_drawn_vjp,
    signature="(),()->()",
    samples=[Sample(_BELOW), Sample(_ABOVE), Sample((Spec((0,)), Spec((0,))))],
    errors=[BadSample(b.operands, b.error, b.says) for b in _UNLIKE],
    doc="A number x that was drawn for the shape parameter α, as a function of α.",
    notes="The gradient in α is the implicit one, -(∂F/∂α) / p, F being the distribution function; x has none.",
)
