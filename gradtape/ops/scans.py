"""Declarations: running products and running logsumexp, with VJPs that divide by nothing. Floor: ops.

Both VJPs are first-order linear recurrences s[i] = t[i] + f[i] · s[i+1]. They are solved by doubling: pairs (f, t) of
neighbouring windows compose, so that log2(n) multiplications and additions do, and these are ordinary ops that can be
differentiated again. Source: Blelloch, "Prefix sums and their applications" (1990), section 1.4."""

from __future__ import annotations

from typing import Any

from gradtape.ir.aval import Aval
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ops.contraction import conjugate
from gradtape.ops.op import constant, emit
from gradtape.ops.opaque import Opaque, axes_behind
from gradtape.ops.pointwise import NUMERIC
from gradtape.ops.samples import BadSample, Sample, Spec


def shifted(x: Value, axis: int, by: int, forwards: bool, fill: float) -> Value:
    """The elements moved by `by` places towards the end of an axis (its start, unless forwards), `fill` moving in."""
    dims = x.aval.dims
    by = min(by, dims[axis])
    begin = emit("positions", value=(0 if forwards else by,))
    kept = emit("slice", x, begin, axes=(axis,), sizes=(dims[axis] - by,), strides=(1,))
    new = constant(fill, x.aval.dtype, (*dims[:axis], by, *dims[axis + 1 :]))
    return emit("concat", *((new, kept) if forwards else (kept, new)), axis=axis)


def recurrence(factor: Value, term: Value, axis: int, forwards: bool) -> Value:
    """s with s[i] = term[i] + factor[i] · s[i-1], from the start (i+1, from the end, unless forwards)."""
    step, n = 1, term.aval.dims[axis]
    while step < n:
        term = emit("add", term, emit("multiply", factor, shifted(term, axis, step, forwards, 0)))
        if 2 * step < n:
            factor = emit("multiply", factor, shifted(factor, axis, step, forwards, 0))
        step *= 2
    return term


def _infer(x: Aval, kinds: str) -> list[Aval]:
    if x.dtype.kind not in kinds:
        raise ValueError(f"does not take {x.dtype.cname} tensors.")
    return [x]


def _along(xp: Any, scan: Any, x: Any, axis: int, reverse: bool) -> Any:
    return xp.flip(scan(xp.flip(x, axis)), axis) if reverse else scan(x)


def _cumprod(xp: Any, x: Any, axis: int, reverse: bool) -> Any:
    return _along(xp, lambda a: xp.cumprod(a, axis=axis, dtype=a.dtype), x, axis, reverse)


def _cumprod_vjp(node: Node, g: Value) -> list[Value | None]:
    """x̄[i] = (product before i) · s[i] with s[i] = c[i] + x[i+1] · s[i+1]: every factor but x[i], nothing divided."""
    (x,), (out,) = node.inputs, node.outputs
    axis, forwards = node.step.params["axis"], not node.step.params["reverse"]
    before = shifted(conjugate(out), axis, 1, forwards, 1)
    factor = shifted(conjugate(x), axis, 1, not forwards, 0)
    return [emit("multiply", before, recurrence(factor, g, axis, not forwards))]


_SAMPLES = [
    Sample((Spec((2, 5)),), {"axis": 1, "reverse": False}),
    Sample((Spec((3, 2)),), {"axis": 0, "reverse": True}),
    Sample((Spec((4,), (0, 0)),), {"axis": 0, "reverse": False}, "all zero"),
    Sample((Spec((0, 2)),), {"axis": 0, "reverse": False}),
    Sample((Spec((2, 1)),), {"axis": 1, "reverse": True}),
]
_STRING = BadSample((((2,), "string"),), InvalidArgumentError, "string", {"axis": 0, "reverse": False})
CUMPROD = Opaque(
    "cumprod",
    _cumprod,
    infer=lambda x, axis, reverse: _infer(x, NUMERIC),
    vjp=_cumprod_vjp,
    signature="(n)->(n)",
    shift=axes_behind,
    accumulate=True,
    samples=_SAMPLES,
    errors=[_STRING],
    doc="Running products along an axis.",
    notes="Right at zeros, to any order: nothing is divided by x.",
)


def _logsumexps(xp: Any, x: Any, axis: int, reverse: bool) -> Any:
    """By doubling: logaddexp of windows of 1, 2, 4, ... elements."""

    def scan(a: Any) -> Any:
        step, n = 1, a.shape[axis]
        lead = (slice(None),) * axis
        while step < n:
            early, late, head = a[(*lead, slice(n - step))], a[(*lead, slice(step, n))], a[(*lead, slice(step))]
            a = xp.concatenate([head, xp.logaddexp(early, late)], axis=axis)
            step *= 2
        return a

    return _along(xp, scan, x, axis, reverse)


def _logsumexps_vjp(node: Node, g: Value) -> list[Value | None]:
    """x̄[i] = Σ c[k] · exp(x[i] - out[k]) over the k whose sums hold i. With s[i] = c[i] + exp(out[i] - out[i+1]) ·
    s[i+1] this is exp(x[i] - out[i]) · s[i], where no exponent is above 0. Sums that are -inf have no weight."""
    (x,), (out,) = node.inputs, node.outputs
    axis, forwards = node.step.params["axis"], not node.step.params["reverse"]
    factor = _weight(out, out, shifted(out, axis, 1, not forwards, float("inf")))  # 0 at the end
    s = recurrence(factor, g, axis, not forwards)
    return [emit("multiply", _weight(out, x, out), s)]


def _weight(sums: Value, a: Value, b: Value) -> Value:
    """exp(a - b), and 0 where the running sum is -inf: there a or b is, too."""
    nothing = emit("equal", sums, constant(float("-inf"), sums.aval.dtype))
    return emit("select", nothing, constant(0, a.aval.dtype), emit("exp", emit("subtract", a, b)))


CUMULATIVE_LOGSUMEXP = Opaque(
    "cumulative_logsumexp",
    _logsumexps,
    infer=lambda x, axis, reverse: _infer(x, "f"),
    vjp=_logsumexps_vjp,
    signature="(n)->(n)",
    shift=axes_behind,
    accumulate=True,
    samples=_SAMPLES,
    errors=[_STRING],
    doc="Running log(sum(exp(x))) along an axis, without overflow.",
    notes="Elements of -inf get weight 0.",
)
