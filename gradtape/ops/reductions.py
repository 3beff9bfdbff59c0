"""Declarations: reductions over axes, positions of extremes, and running sums. Floor: ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import DType, int64, of_numpy
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.expr import fn
from gradtape.ir.graph import Node, Value
from gradtape.ir.shapes import size_of
from gradtape.ops.op import constant, emit
from gradtape.ops.opaque import Opaque, axes_behind
from gradtape.ops.pointwise import NUMERIC
from gradtape.ops.reduction import Reduction, reduced, reshaped
from gradtape.ops.samples import BadSample, Sample, Spec

ORDERED = "fiu"
_STRING = (
    BadSample((((2,), "string"),), InvalidArgumentError, "does not take string", {"axes": (0,), "keepdims": False}),
)

REDUCE_SUM = Reduction("reduce_sum", "sum", lambda: 1, accumulate=True, errors=_STRING, doc="The sum over axes.")


def _mean(x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    count = size_of(x.aval.dims[k] for k in axes)
    return emit("divide", emit("reduce_sum", x, axes=axes, keepdims=keepdims), constant(count, x.aval.dtype))


REDUCE_MEAN = Reduction(
    "reduce_mean",
    None,
    lambda n: 1 / n,
    body=_mean,
    accumulate=True,
    accepts="fc",
    errors=_STRING,
    doc="The mean over axes.",
)


def _extreme_vjp(node: Node, g: Value) -> list[Value | None]:
    """Equal extremes share one unit: c · [x = out] / (how many there are)."""
    (x,), axes = node.inputs, node.step.params["axes"]
    out = reshaped(node.outputs[0], reduced(x.aval.dims, axes, True))
    chosen = emit("cast", emit("equal", x, out), dtype=x.aval.dtype)
    count = emit("reduce_sum", chosen, axes=axes, keepdims=True)
    return [emit("multiply", chosen, emit("divide", g, count))]


def _extreme(name: str) -> Callable[..., Any]:
    """The extreme over axes; over nothing it is the far bound of the dtype, as TensorFlow's is."""

    def value(xp: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        if x.size == 0 and size_of(x.shape[k] for k in axis) == 0:
            return xp.full(reduced(x.shape, axis, keepdims), _far_bound(name, of_numpy(x.dtype)), x.dtype)
        return getattr(xp, name)(x, axis=axis, keepdims=keepdims)

    return value


def _far_bound(name: str, dtype: DType) -> Any:
    if dtype.is_floating:
        return float("-inf") if name == "max" else float("inf")
    return dtype.min if name == "max" else dtype.max


REDUCE_MAX = Reduction(
    "reduce_max",
    _extreme("max"),
    monoid="max",
    vjp=_extreme_vjp,
    accepts=ORDERED,
    errors=_STRING,
    doc="The largest element over axes.",
    notes="Equal maxima share the gradient evenly.",
)
REDUCE_MIN = Reduction(
    "reduce_min",
    _extreme("min"),
    monoid="min",
    vjp=_extreme_vjp,
    accepts=ORDERED,
    errors=_STRING,
    doc="The smallest element over axes.",
    notes="Equal minima share the gradient evenly.",
)


def _product_vjp(node: Node, g: Value) -> list[Value | None]:
    """c times the product of the other elements, from running products on both sides: right at zeros, and
    to any order, because nothing is divided."""
    (x,), axes = node.inputs, node.step.params["axes"]
    shape = x.aval.dims
    rest = tuple(k for k in range(len(shape)) if k not in axes)
    perm = rest + axes
    count = size_of(shape[k] for k in axes)
    flat_shape = (*(shape[k] for k in rest), count)
    flat = reshaped(emit("transpose", x, perm=perm), flat_shape)
    others = emit("multiply", _product_before(flat, False), _product_before(flat, True))
    moved = reshaped(others, tuple(shape[k] for k in perm))
    back = emit("transpose", moved, perm=tuple(perm.index(k) for k in range(len(perm))))
    return [emit("multiply", g, _conjugate(back))]


def _product_before(x: Value, reverse: bool) -> Value:
    """For each element of the last axis, the product of those before it (after it, when reversed): shifts by
    1, 2, 4, ... so that log2(n) multiplications do."""
    n = x.aval.dims[-1]
    acc = _shift(x, 1, reverse)
    step = 1
    while step < n:
        acc = emit("multiply", acc, _shift(acc, step, reverse))
        step *= 2
    return acc


def _shift(x: Value, by: int, reverse: bool) -> Value:
    """The last axis moved by `by` places towards its end (its start, when reversed), ones moving in."""
    *lead, n = x.aval.dims
    by = min(by, n)
    axis = len(lead)
    begin = emit("positions", value=(by if reverse else 0,))
    kept = emit("slice", x, begin, axes=(axis,), sizes=(n - by,), strides=(1,))
    ones = constant(1, x.aval.dtype, (*lead, by))
    return emit("concat", *((kept, ones) if reverse else (ones, kept)), axis=axis)


def _conjugate(v: Value) -> Value:
    return emit("conj", v) if v.aval.dtype.is_complex else v


REDUCE_PROD = Reduction(
    "reduce_prod", "prod", vjp=_product_vjp, accumulate=True, errors=_STRING, doc="The product over axes."
)
_BOOLS = [
    Sample((Spec((2, 3), dtype="bool"),), {"axes": (1,), "keepdims": False}),
    Sample((Spec((0, 3), dtype="bool"),), {"axes": (0,), "keepdims": True}),
]
REDUCE_ALL = Reduction("reduce_all", "all", accepts="b", samples=_BOOLS, doc="Whether all elements over axes hold.")
REDUCE_ANY = Reduction("reduce_any", "any", accepts="b", samples=_BOOLS, doc="Whether any element over axes holds.")


def _logsumexp(x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    top = emit("reduce_max", x, axes=axes, keepdims=True)
    top = emit("select", emit("is_finite", top), top, constant(0, x.aval.dtype))
    total = emit("reduce_sum", emit("exp", emit("subtract", x, top)), axes=axes, keepdims=True)
    return _kept(emit("add", emit("log", total), top), x, axes, keepdims)


def _kept(total: Value, x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    """A result with its axes kept, in the shape that was asked for."""
    return reshaped(total, reduced(x.aval.dims, axes, keepdims))


REDUCE_LOGSUMEXP = Reduction(
    "reduce_logsumexp",
    None,
    body=_logsumexp,
    weights=lambda node: emit("logsumexp_weights", node.inputs[0], axes=node.step.params["axes"]),
    accepts="f",
    accumulate=True,
    errors=_STRING,
    doc="log(sum(exp(x))) over axes, without overflow.",
    notes="Elements of -inf get weight 0; where all are -inf the gradient is 0.",
)


def _norm(x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    """Scaled by the largest element, so that squares neither overflow nor vanish."""
    dtype, size = x.aval.dtype, emit("abs", x)
    top = emit("reduce_max", size, axes=axes, keepdims=True)
    usable = emit("logical_and", emit("greater", top, constant(0, dtype)), emit("is_finite", top))
    scale = emit("select", usable, top, constant(1, dtype))
    total = emit("reduce_sum", emit("square", emit("divide", size, scale)), axes=axes, keepdims=True)
    return _kept(emit("multiply", emit("sqrt", total), scale), x, axes, keepdims)


REDUCE_EUCLIDEAN_NORM = Reduction(
    "reduce_euclidean_norm",
    None,
    lambda x, out: fn.divide_no_nan(x, out),
    body=_norm,
    accepts="f",
    accumulate=True,
    errors=_STRING,
    doc="sqrt(sum(x²)) over axes.",
    notes="The gradient at 0 is 0.",
)

# ------------------------------------------------------------------ positions and running sums


def _without(x: Aval, axis: int, dtype: DType) -> list[Aval]:
    if x.dtype.kind not in "fiub":
        raise ValueError(f"does not take {x.dtype.cname} tensors.")
    if x.shape is None:
        return [aval(None, dtype)]
    if x.shape[axis] == 0:
        raise ValueError(f"needs at least one element along axis {axis}, got shape {x.shape}.")
    return [aval(reduced(x.shape, (axis,), False), dtype)]


def _position(name: str) -> Opaque:
    return Opaque(
        name,
        lambda xp, x, axis, dtype: getattr(xp, name)(x, axis=axis).astype(dtype.numpy_dtype),
        infer=lambda x, axis, dtype: _without(x, axis, dtype),
        vjp=None,
        signature="(n)->()",
        shift=axes_behind,
        samples=[
            Sample((Spec((2, 3)),), {"axis": 1, "dtype": int64}),
            Sample((Spec((4,)),), {"axis": 0, "dtype": int64}),
            Sample((Spec((0, 1)),), {"axis": 1, "dtype": int64}),
        ],
        errors=[BadSample((((0,), "float32"),), InvalidArgumentError, "at least one", {"axis": 0, "dtype": int64})],
        doc=f"The index of the {'largest' if name == 'argmax' else 'smallest'} element; of equal ones the first.",
    )


ARGMAX, ARGMIN = _position("argmax"), _position("argmin")


def _cumsum(xp: Any, x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    flipped = xp.flip(x, axis) if reverse else x
    total = xp.cumsum(flipped, axis=axis, dtype=x.dtype)
    if exclusive:
        total = xp.concatenate([xp.zeros_like(_cut(total, axis, 0, 1)), _cut(total, axis, 0, -1)], axis=axis)
    return xp.flip(total, axis) if reverse else total


def _cut(x: Any, axis: int, start: int, stop: int) -> Any:
    return x[(slice(None),) * axis + (slice(start, stop),)]


def _cumsum_vjp(node: Node, g: Value) -> list[Value | None]:
    p = node.step.params
    return [emit("cumsum", g, axis=p["axis"], exclusive=p["exclusive"], reverse=not p["reverse"])]


def _same(x: Aval, **_: Any) -> list[Aval]:
    if x.dtype.kind not in NUMERIC:
        raise ValueError(f"does not take {x.dtype.cname} tensors.")
    return [x]


CUMSUM = Opaque(
    "cumsum",
    _cumsum,
    infer=_same,
    vjp=_cumsum_vjp,
    signature="(n)->(n)",
    shift=axes_behind,
    accumulate=True,
    samples=[
        Sample((Spec((2, 3)),), {"axis": 1, "exclusive": False, "reverse": False}),
        Sample((Spec((3, 2)),), {"axis": 0, "exclusive": True, "reverse": True}),
        Sample((Spec((0, 2)),), {"axis": 1, "exclusive": True, "reverse": False}),
        Sample((Spec((1,)),), {"axis": 0, "exclusive": True, "reverse": False}),
    ],
    errors=[
        BadSample(
            (((2,), "string"),), InvalidArgumentError, "string", {"axis": 0, "exclusive": False, "reverse": False}
        )
    ],
    doc="Running sums along an axis.",
)
