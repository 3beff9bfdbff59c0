"""Polynomials, and what approximations are made of, as scalar expressions. Floor: ops."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.expr import Expr, fn, number
from gradtape.ops.coefficients import Ratio


def horner(t: Expr, coefficients: Sequence[float]) -> Expr:
    """c₀ + t (c₁ + t (c₂ + ...))"""
    total: Expr = number(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * t + c
    return total


def ratio(t: Expr, of: Ratio) -> Expr:
    """p(t) / q(t)"""
    return horner(t, of.p) if of.q == (1.0,) else horner(t, of.p) / horner(t, of.q)


def clip(x: Expr, low: float, high: float) -> Expr:
    """x moved into an interval; NaN stays NaN."""
    return fn.minimum(fn.maximum(x, low), high)


def is_whole(x: Expr) -> Expr:
    """Where x is an integer, or infinite."""
    return fn.equal(x, fn.floor(x))
