"""Declarations: products and quotients that are 0 where their first operand is, and quotients that drop the fraction.
Floor: ops."""

from __future__ import annotations

from typing import Any

from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.expr import Expr, fn
from gradtape.ops.arithmetic import refuse_zero
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.samples import BadSample

POSITIVE = (0.3, 3.0)
MISMATCHED = (
    BadSample((((2, 3), "float32"), ((2, 4), "float32")), InvalidArgumentError, "incompatible shapes"),
    BadSample((((2,), "float32"), ((2,), "float64")), InvalidArgumentError, "double"),
    BadSample((((2,), "string"), ((2,), "string")), InvalidArgumentError, "does not take string"),
)


def _is_zero(x: Expr) -> Expr:
    return fn.equal(x, 0)


def _unless_zero(x: Expr) -> Expr:
    """1, and 0 where x is 0: what the first operand is in a derivative with respect to itself."""
    return fn.select(_is_zero(x), 0, 1)


def _guarded(name: str, value: Any, partials: Any, doc: str) -> Pointwise:
    return Pointwise(
        name,
        value,
        partials,
        operands="x y",
        accepts="fc",
        domain=((-2.0, 2.0), POSITIVE),
        errors=MISMATCHED,
        doc=doc,
        notes="Where x is 0 the value and both derivatives are 0, whatever y is.",
    )


XLOGY = _guarded(
    "xlogy",
    lambda x, y: fn.select(_is_zero(x), 0, x * fn.log(fn.select(_is_zero(x), 1, y))),
    [lambda x, y: fn.xlogy(_unless_zero(x), y), lambda x, y: fn.xdivy(x, y)],
    "x log(y), and 0 where x is 0.",
)
XLOG1PY = _guarded(
    "xlog1py",
    lambda x, y: fn.select(_is_zero(x), 0, x * fn.log1p(fn.select(_is_zero(x), 1, y))),
    [lambda x, y: fn.xlog1py(_unless_zero(x), y), lambda x, y: fn.xdivy(x, y + 1)],
    "x log(1 + y), and 0 where x is 0.",
)
XDIVY = _guarded(
    "xdivy",
    lambda x, y: fn.select(_is_zero(x), 0, x / fn.select(_is_zero(x), 1, y)),
    [lambda x, y: fn.xdivy(_unless_zero(x), y), lambda out, y: fn.xdivy(-out, y)],
    "x / y, and 0 where x is 0.",
)


def _truncatemod(xp: Any, x: Any, y: Any) -> Any:
    if x.dtype.kind in "iu":
        refuse_zero("truncatemod", x, y)
    return xp.fmod(x, y)


def _truncatediv(xp: Any, x: Any, y: Any) -> Any:
    """By the remainder, which is exact: the fraction that is dropped is never rounded up to a whole."""
    if x.dtype.kind in "iu":
        refuse_zero("truncatediv", x, y)
        return xp.floor_divide(x - xp.fmod(x, y), y)
    rest = xp.fmod(x, y)
    return xp.where(xp.isfinite(rest), xp.rint((x - rest) / y), x / y)


TRUNCATEDIV = Pointwise(
    "truncatediv",
    None,
    [None, None],
    array=_truncatediv,
    operands="x y",
    accepts="fiu",
    domain=((-2.0, 2.0), POSITIVE),
    errors=MISMATCHED,
    doc="x / y without its fraction.",
    notes="Integers by 0 are an error.",
)
TRUNCATEMOD = Pointwise(
    "truncatemod",
    None,
    [1, lambda x, y: -fn.truncatediv(x, y)],
    array=_truncatemod,
    operands="x y",
    accepts="fiu",
    domain=((0.4, 0.9), (1.0, 2.0)),
    errors=MISMATCHED,
    doc="The remainder of x / y with the sign of x.",
    notes="Integers by 0 are an error.",
)
