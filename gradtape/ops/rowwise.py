"""Declarations: functions of whole rows (softmax and its logarithm, cross-entropies), as composites. Floor: ops."""

from __future__ import annotations

import math

from gradtape.ir.aval import Aval
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ir.index import Index
from gradtape.ir.shapes import shape_text
from gradtape.ops.composite import Composite
from gradtape.ops.op import constant, emit
from gradtape.ops.samples import BadSample, Sample, Spec

ROWS = [
    Sample((Spec((2, 3)),), {"axis": 1}),
    Sample((Spec((3, 2)),), {"axis": 0}),
    Sample((Spec((0, 3)),), {"axis": 1}),
    Sample((Spec((2, 1)),), {"axis": 1}),
]
_INTEGER = (BadSample((((2, 3), "int32"),), InvalidArgumentError, "floating", {"axis": 1}),)


def _floating(x: Aval, axis: int) -> None:
    if not x.dtype.is_floating:
        raise ValueError(f"wants a floating tensor, got {x!r}. Use `tf.cast`.")
    if x.shape is not None and not x.shape:
        raise ValueError("wants at least one axis, got a scalar.")


def _sum(x: Value, axis: int) -> Value:
    return emit("reduce_sum", x, axes=(axis,), keepdims=True)


def _softmax(x: Value, axis: int) -> Value:
    e = emit("exp", emit("subtract", x, emit("reduce_max", x, axes=(axis,), keepdims=True)))
    return emit("divide", e, _sum(e, axis))


def _softmax_vjp(node: Node, g: Value) -> list[Value | None]:
    """p · (c - Σ c·p)"""
    (p,), axis = node.outputs, node.step.params["axis"]
    return [emit("multiply", p, emit("subtract", g, _sum(emit("multiply", g, p), axis)))]


SOFTMAX = Composite(
    "softmax",
    _softmax,
    vjp=_softmax_vjp,
    check=_floating,
    samples=ROWS,
    errors=_INTEGER,
    doc="exp(x) / sum(exp(x)) along an axis, without overflow.",
)


def _log_softmax(x: Value, axis: int) -> Value:
    shifted = emit("subtract", x, emit("reduce_max", x, axes=(axis,), keepdims=True))
    return emit("subtract", shifted, emit("log", _sum(emit("exp", shifted), axis)))


def _log_softmax_vjp(node: Node, g: Value) -> list[Value | None]:
    """c - softmax(x) · Σ c"""
    (out,), axis = node.outputs, node.step.params["axis"]
    return [emit("subtract", g, emit("multiply", emit("exp", out), _sum(g, axis)))]


LOG_SOFTMAX = Composite(
    "log_softmax",
    _log_softmax,
    vjp=_log_softmax_vjp,
    check=_floating,
    samples=ROWS,
    errors=_INTEGER,
    doc="log(softmax(x)) along an axis.",
)


def _check_axes(x: Aval, axes: tuple[int, ...]) -> None:
    if not x.dtype.is_floating:
        raise ValueError(f"wants a floating tensor, got {x!r}. Use `tf.cast`.")


def _total(x: Value, axes: tuple[int, ...]) -> Value:
    return emit("reduce_sum", x, axes=axes, keepdims=True)


def _weights(x: Value, axes: tuple[int, ...]) -> Value:
    """Scaled by the largest element and by the sum itself: the rounded logarithm of the sum has lost these digits."""
    top = emit("reduce_max", x, axes=axes, keepdims=True)
    top = emit("select", emit("is_finite", top), top, constant(0, x.aval.dtype))
    e = emit("exp", emit("subtract", x, top))
    return emit("divide_no_nan", e, _total(e, axes))


def _weights_vjp(node: Node, g: Value) -> list[Value | None]:
    """p · (c - Σ c·p)"""
    (p,), axes = node.outputs, node.step.params["axes"]
    return [emit("multiply", p, emit("subtract", g, _total(emit("multiply", g, p), axes)))]


LOGSUMEXP_WEIGHTS = Composite(
    "logsumexp_weights",
    _weights,
    vjp=_weights_vjp,
    check=_check_axes,
    samples=[
        Sample((Spec((2, 3)),), {"axes": (1,)}),
        Sample((Spec((2, 3, 2)),), {"axes": (0, 2)}),
        Sample((Spec((3,)),), {"axes": (0,)}),
        Sample((Spec((0, 3)),), {"axes": (1,)}),
        Sample((Spec((2, 1)),), {"axes": (1,)}),
    ],
    errors=(BadSample((((2, 3), "int32"),), InvalidArgumentError, "floating", {"axes": (1,)}),),
    doc="The derivative of `reduce_logsumexp`: exp(x) / sum(exp(x)) over axes, without overflow.",
    notes="Where all elements are -inf the weights are 0.",
)

# ------------------------------------------------------------------ cross-entropies of logits along the last axis


def _check_dense(labels: Aval, logits: Aval) -> None:
    _floating(logits, -1)
    if labels.dtype is not logits.dtype:
        raise ValueError(f"wants labels and logits of one dtype, got {labels!r} and {logits!r}. Use `tf.cast`.")
    if labels.is_known and logits.is_known and labels.shape != logits.shape:
        raise ValueError(
            f"wants labels and logits of one shape, got {shape_text(labels.shape)} and {shape_text(logits.shape)}."
        )


def _last(x: Value) -> int:
    return (x.aval.ndim or 1) - 1


def _per_row(v: Value) -> Value:
    """A value per row, with an axis of size 1 for its elements."""
    return emit("reshape", v, shape=None if v.aval.shape is None else (*v.aval.shape, 1))


def _cross_entropy(labels: Value, logits: Value) -> Value:
    axis = _last(logits)
    terms = emit("multiply_no_nan", emit("log_softmax", logits, axis=axis), labels)
    return emit("negative", emit("reduce_sum", terms, axes=(axis,), keepdims=False))


def _cross_entropy_vjp(node: Node, g: Value) -> list[Value | None]:
    """In the logits: c · (p · Σ labels - labels); in the labels: -c · log p."""
    labels, logits = node.inputs
    axis = _last(logits)
    c = _per_row(g)
    weight = _sum(labels, axis)
    slope = emit("subtract", emit("multiply", emit("softmax", logits, axis=axis), weight), labels)
    return [
        emit("multiply", emit("negative", c), emit("log_softmax", logits, axis=axis)),
        emit("multiply", c, slope),
    ]


CROSS_ENTROPY = Composite(
    "softmax_cross_entropy",
    _cross_entropy,
    vjp=_cross_entropy_vjp,
    check=_check_dense,
    samples=[
        Sample((Spec((2, 3), (0.1, 1.0)), Spec((2, 3)))),
        Sample((Spec((3,), (0.1, 1.0)), Spec((3,)))),
        Sample((Spec((0, 3), (0.1, 1.0)), Spec((0, 3)))),
    ],
    errors=[
        BadSample((((2, 3), "float32"), ((2, 4), "float32")), InvalidArgumentError, "one shape"),
        BadSample((((2, 3), "float64"), ((2, 3), "float32")), InvalidArgumentError, "one dtype"),
    ],
    doc="-sum(labels · log(softmax(logits))) along the last axis.",
    notes="Differentiates through labels, which need not sum to 1.",
)


def _check_sparse(labels: Aval, logits: Aval) -> None:
    _floating(logits, -1)
    if not labels.dtype.is_integer:
        raise ValueError(f"wants integer labels, got {labels!r}.")
    if labels.is_known and logits.is_known and labels.dims != logits.dims[:-1]:
        raise ValueError(
            f"wants one label per row of logits: labels of shape {shape_text(logits.dims[:-1])}, "
            f"got {shape_text(labels.shape)}."
        )


def _sparse(labels: Value, logits: Value) -> Value:
    axis = _last(logits)
    rows = emit("gather", logits, _per_row(labels), axis=axis, batch_dims=axis)
    picked = emit("reshape", rows, shape=labels.aval.shape)
    loss = emit("subtract", emit("reduce_logsumexp", logits, axes=(axis,), keepdims=False), picked)
    return emit("multiply", loss, _of_classes(labels, logits))


def _of_classes(labels: Value, logits: Value) -> Value:
    """1 for labels that are classes and NaN for others, of which a device does not say that they are none."""
    dtype, shape = labels.aval.dtype, logits.aval.shape
    classes = None if shape is None else shape[-1]  # known whenever it runs
    is_class = emit("greater_equal", labels, constant(0, dtype))
    if classes is not None and classes <= dtype.max:
        is_class = emit("logical_and", is_class, emit("less", labels, constant(classes, dtype)))
    return emit("select", is_class, constant(1, logits.aval.dtype), constant(math.nan, logits.aval.dtype))


def _sparse_vjp(node: Node, g: Value) -> list[Value | None]:
    """c · (p - one_hot(label)): one product, so that the rows of a Jacobian stay one term."""
    labels, logits = node.inputs
    axis = _last(logits)
    classes = emit("positions", value=Index(range(logits.aval.dims[axis])))
    place = labels if labels.aval.dtype is classes.aval.dtype else emit("cast", labels, dtype=classes.aval.dtype)
    hit = emit("cast", emit("equal", _per_row(place), classes), dtype=logits.aval.dtype)
    slope = emit("subtract", emit("softmax", logits, axis=axis), hit)
    return [None, emit("multiply", _per_row(emit("multiply", g, _of_classes(labels, logits))), slope)]


SPARSE_CROSS_ENTROPY = Composite(
    "sparse_softmax_cross_entropy",
    _sparse,
    vjp=_sparse_vjp,
    check=_check_sparse,
    samples=[
        Sample((Spec((2,), (0, 3), "int"), Spec((2, 3)))),
        Sample((Spec((), (0, 3), "int"), Spec((3,)))),
        Sample((Spec((0,), (0, 3), "int"), Spec((0, 3)))),
    ],
    errors=[
        BadSample((((3,), "int64"), ((2, 3), "float32")), InvalidArgumentError, "one label per row"),
        BadSample((((2,), "float32"), ((2, 3), "float32")), InvalidArgumentError, "integer labels"),
    ],
    doc="logsumexp(logits) - logits[label] along the last axis.",
)
