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
    return [emit("logsumexps_pull", node.inputs[0], g, **node.step.params)]


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

# ------------------------------------------------------------------ the derivative, and its transpose

# out[k] = log Σ exp(x[i]) over the i up to k has the weights w[i, k] = exp(x[i] - out[k]). A rounded out has lost their
# digits where it is large, so they come from the running maximum m[k] and the running sum scaled by it, s[k]:
# w[i, k] = exp(x[i] - m[k]) / s[k], where no exponent is above 0. As ∂w[i, k]/∂x[j] = w[i, k] · ([i = j] - w[j, k]),
# the derivatives of both sums below are made of these sums again.


def _moved(xp: Any, a: Any, axis: int, by: int, fill: float) -> Any:
    """The elements moved by `by` places towards the end of an axis, `fill` moving in."""
    lead, by = (slice(None),) * axis, min(by, a.shape[axis])
    new = xp.full_like(a[(*lead, slice(by))], fill)
    return xp.concatenate([new, a[(*lead, slice(a.shape[axis] - by))]], axis=axis)


def _solved(xp: Any, factor: Any, term: Any, axis: int) -> Any:
    """`recurrence` of arrays, from the start."""
    step = 1
    while step < term.shape[axis]:
        term = term + factor * _moved(xp, term, axis, step, 0)
        factor = factor * _moved(xp, factor, axis, step, 0)
        step *= 2
    return term


def _scaled(xp: Any, x: Any, axis: int) -> tuple[Any, Any, Any]:
    """exp(x - m), the factors exp(m[k-1] - m[k]) of neighbouring sums, and the scaled sums; 1 for a sum of nothing."""
    step, top = 1, x
    while step < x.shape[axis]:
        top = xp.maximum(top, _moved(xp, top, axis, step, -xp.inf))
        step *= 2
    finite = xp.where(top == -xp.inf, xp.zeros_like(top), top)
    e, factor = xp.exp(x - finite), xp.exp(_moved(xp, top, axis, 1, -xp.inf) - finite)
    total = _solved(xp, factor, e, axis)
    return e, factor, xp.where(total == 0, xp.ones_like(total), total)


def _pull(xp: Any, x: Any, c: Any, axis: int, reverse: bool) -> Any:
    """Σ c[k] · w[i, k] over k, by s[i] = c[i] / (scaled sum) + factor[i+1] · s[i+1]."""
    if reverse:
        return xp.flip(_pull(xp, xp.flip(x, axis), xp.flip(c, axis), axis, False), axis)
    e, factor, total = _scaled(xp, x, axis)
    back = _moved(xp, xp.flip(factor, axis), axis, 1, 0)
    return e * xp.flip(_solved(xp, back, xp.flip(c / total, axis), axis), axis)


def _push(xp: Any, x: Any, u: Any, axis: int, reverse: bool) -> Any:
    """Σ u[i] · w[i, k] over i."""
    if reverse:
        return xp.flip(_push(xp, xp.flip(x, axis), xp.flip(u, axis), axis, False), axis)
    e, factor, total = _scaled(xp, x, axis)
    return _solved(xp, factor, u * e, axis) / total


def _through_weights(node: Node, u: Value, pulled: Value, v: Value, pushed: Value) -> Value:
    """The derivative in x of Σ u[i] · w[i, k] · v[k]."""
    again = emit("logsumexps_pull", node.inputs[0], emit("multiply", v, pushed), **node.step.params)
    return emit("subtract", emit("multiply", u, pulled), again)


def _pull_vjp(node: Node, u: Value) -> list[Value | None]:
    (x, c), (out,) = node.inputs, node.outputs
    pushed = emit("logsumexps_push", x, u, **node.step.params)
    return [_through_weights(node, u, out, c, pushed), pushed]


def _push_vjp(node: Node, v: Value) -> list[Value | None]:
    (x, u), (out,) = node.inputs, node.outputs
    pulled = emit("logsumexps_pull", x, v, **node.step.params)
    return [_through_weights(node, u, pulled, v, out), pulled]


def _infer_pair(x: Aval, c: Aval, axis: int, reverse: bool) -> list[Aval]:
    _infer(x, "f")
    if c.dtype is not x.dtype:
        raise ValueError(f"wants two tensors of one dtype, got {x!r} and {c!r}. Convert one with `tf.cast`.")
    if c.is_known and x.is_known and c.shape != x.shape:
        raise ValueError(f"wants two tensors of one shape, got {x!r} and {c!r}.")
    return [x if x.is_known else c]


def _weighted(name: str, value: Any, vjp: Any, doc: str) -> Opaque:
    return Opaque(
        name,
        value,
        infer=_infer_pair,
        vjp=vjp,
        signature="(n),(n)->(n)",
        shift=axes_behind,
        accumulate=True,
        samples=[Sample((*s.specs, *s.specs), s.params, s.note) for s in _SAMPLES],
        errors=[BadSample((((2,), "string"), ((2,), "string")), InvalidArgumentError, "string", _STRING.params)],
        doc=doc,
        notes="Sums that are -inf have no weights.",
    )


LOGSUMEXPS_PULL = _weighted(
    "logsumexps_pull", _pull, _pull_vjp, "The derivative of `cumulative_logsumexp` in x, times a cotangent."
)
LOGSUMEXPS_PUSH = _weighted(
    "logsumexps_push", _push, _push_vjp, "The derivative of `cumulative_logsumexp` in x, times a tangent."
)
