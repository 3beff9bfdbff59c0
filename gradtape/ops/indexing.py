"""Declarations: gathering by integer positions; scattering with sums, its transpose, and with extremes. Floor: ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import DType, of_numpy
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ir.shapes import size_of
from gradtape.ops import moves
from gradtape.ops.op import emit
from gradtape.ops.opaque import Opaque, axes_behind
from gradtape.ops.samples import BadSample, Sample, Spec
from gradtape.ops.scatter import combined

UNSIGNED = {np.dtype(np.int32): np.dtype(np.uint32), np.dtype(np.int64): np.dtype(np.uint64)}


def _gather_infer(x: Aval, indices: Aval, axis: int, batch_dims: int) -> list[Aval]:
    if not indices.dtype.is_integer:
        raise ValueError(f"wants integer indices, got a {indices.dtype.cname} tensor.")
    if x.shape is None or indices.shape is None:
        return [aval(None, x.dtype)]
    return [aval(x.shape[:axis] + indices.shape[batch_dims:] + x.shape[axis + 1 :], x.dtype)]


def checked(indices: Any, size: int) -> Any:
    """Positions on the host that exist, or TensorFlow's error."""
    if indices.size and not in_range(indices, size):
        bad = indices[(indices < 0) | (indices >= size)]
        raise InvalidArgumentError(f"`gather` index {int(bad.ravel()[0])} is not in [0, {size}).")
    return indices


def in_range(indices: Any, size: int) -> bool:
    """Whether all positions are in [0, size), in one pass where they are of 32 or 64 bits: read without a sign,
    negative ones are large."""
    unsigned = UNSIGNED.get(indices.dtype)
    if unsigned is not None and size < 1 << 31:
        return bool(np.maximum.reduce(indices.view(unsigned), axis=None) < size)
    return bool(indices.min() >= 0 and indices.max() < size)


def _gather(xp: Any, x: Any, indices: Any, axis: int, batch_dims: int) -> Any:
    indices = checked(np.asarray(indices), x.shape[axis])
    if not batch_dims:
        return xp.take(x, indices, axis=axis)
    batch, before, after = x.shape[:batch_dims], x.shape[batch_dims:axis], x.shape[axis + 1 :]
    if x.size and not before and not after:  # single elements
        starts = xp.arange(0, x.size, x.shape[axis]).reshape(batch + (1,) * (indices.ndim - batch_dims))
        return xp.take(x.reshape(-1), indices + starts)
    rows = xp.moveaxis(x, axis, batch_dims).reshape(size_of(batch), x.shape[axis], -1 if x.size else 0)
    flat = indices.reshape(size_of(batch), -1) if indices.size else indices.reshape(size_of(batch), 0)
    picked = rows[np.arange(len(flat))[:, None], flat]
    inner = indices.shape[batch_dims:]
    shaped = picked.reshape(batch + inner + before + after)
    n, m = len(inner), len(before)
    order = [*range(batch_dims), *range(batch_dims + n, batch_dims + n + m), *range(batch_dims, batch_dims + n)]
    return shaped.transpose([*order, *range(len(order), shaped.ndim)])


_SAMPLES = [
    Sample((Spec((3, 2)), Spec((4,), (0, 3), "int")), {"axis": 0, "batch_dims": 0}, "repeated positions"),
    Sample((Spec((2, 3, 2)), Spec((2, 2), (0, 3), "int")), {"axis": 1, "batch_dims": 0}),
    Sample((Spec((2, 2, 3)), Spec((2, 4), (0, 3), "int")), {"axis": 2, "batch_dims": 1}),
    Sample((Spec((3,)), Spec((0,), (0, 3), "int")), {"axis": 0, "batch_dims": 0}),
]


def _gather_op(name: str, transpose: str, doc: str) -> Opaque:
    def vjp(node: Node, g: Value) -> list[Value | None]:
        x, indices = node.inputs
        return [emit(transpose, g, indices, shape=x.aval.dims, **node.step.params), None]

    bad = (((3,), "float32"), ((2,), "float32"))
    return Opaque(
        name,
        _gather,
        infer=_gather_infer,
        vjp=vjp,
        moves=moves.of_gather,
        signature="(n),(k)->(k)",
        samples=_SAMPLES,
        errors=[BadSample(bad, InvalidArgumentError, "integer", {"axis": 0, "batch_dims": 0})],
        doc=doc,
    )


GATHER = _gather_op("gather", "scatter_add", "The slices of x at integer positions along an axis.")
GATHER_ROWS = _gather_op(
    "gather_rows", "scatter_rows", "`gather`, of which the gradient may be handed out as row-sparse slices."
)


def _scatter_infer(g: Aval, indices: Aval, shape: Any, axis: int, batch_dims: int) -> list[Aval]:
    if not indices.dtype.is_integer:
        raise ValueError(f"wants integer indices, got a {indices.dtype.cname} tensor.")
    return [aval(shape, g.dtype)]


def _scatter_add(xp: Any, g: Any, indices: Any, shape: Any, axis: int, batch_dims: int) -> Any:
    return combined(xp, "add", 0, g, checked(np.asarray(indices), shape[axis]), shape, axis, batch_dims)


_SCATTER_SAMPLES = [
    Sample((Spec((4, 2)), Spec((4,), (0, 3), "int")), {"shape": (3, 2), "axis": 0, "batch_dims": 0}),
    Sample((Spec((2, 2, 2, 2)), Spec((2, 2), (0, 3), "int")), {"shape": (2, 3, 2), "axis": 1, "batch_dims": 0}),
    Sample((Spec((2, 2, 4)), Spec((2, 4), (0, 3), "int")), {"shape": (2, 2, 3), "axis": 2, "batch_dims": 1}),
    Sample((Spec((3,)), Spec((3,), (0, 5), "int")), {"shape": (5,), "axis": 0, "batch_dims": 0}, "positions left out"),
    Sample((Spec((0, 2)), Spec((0,), (0, 3), "int")), {"shape": (3, 2), "axis": 0, "batch_dims": 0}),
]


def _scatter_op(name: str, transpose: str, doc: str, as_slices: bool = False) -> Opaque:
    def vjp(node: Node, g: Value) -> list[Value | None]:
        p = node.step.params
        return [emit(transpose, g, node.inputs[1], axis=p["axis"], batch_dims=p["batch_dims"]), None]

    return Opaque(
        name,
        _scatter_add,
        infer=_scatter_infer,
        vjp=vjp,
        moves=moves.of_scatter,
        signature="(k),(k)->(n)",
        accumulate=True,
        as_slices=as_slices,
        samples=_SCATTER_SAMPLES,
        errors=[_no_integers(shape=(3,), axis=0, batch_dims=0)],
        doc=doc,
    )


def _no_integers(**params: Any) -> BadSample:
    return BadSample((((2,), "float32"), ((2,), "float32")), InvalidArgumentError, "integer", params)


SCATTER_ADD = _scatter_op(
    "scatter_add",
    "gather",
    "Zeros of a shape with slices added at integer positions; what meets at one position adds up.",
)
SCATTER_ROWS = _scatter_op(
    "scatter_rows",
    "gather_rows",
    "`scatter_add`; where the result leaves a backward pass, its operands may be handed out instead.",
    as_slices=True,
)

# ------------------------------------------------------------------ extremes at positions


def _extreme_vjp(node: Node, g: Value) -> list[Value | None]:
    """Equal extremes of one position share its cotangent evenly, as those of `reduce_max` do."""
    (x, indices), (out,) = node.inputs, node.outputs
    p = node.step.params
    where = {"axis": p["axis"], "batch_dims": p["batch_dims"]}
    chosen = emit("cast", emit("equal", x, emit("gather", out, indices, **where)), dtype=x.aval.dtype)
    count = emit("scatter_add", chosen, indices, shape=out.aval.dims, **where)
    share = emit("divide_no_nan", g, count)
    return [emit("multiply", chosen, emit("gather", share, indices, **where)), None]


def _extreme_infer(x: Aval, indices: Aval, size: int, axis: int, batch_dims: int) -> list[Aval]:
    if x.dtype.kind not in "fiu":
        raise ValueError(f"does not take {x.dtype.cname} tensors.")
    if x.shape is None or indices.shape is None:
        return _scatter_infer(x, indices, None, axis, batch_dims)
    behind = axis + len(indices.shape) - batch_dims
    return _scatter_infer(x, indices, (*x.shape[:axis], size, *x.shape[behind:]), axis, batch_dims)


_EXTREME_SAMPLES = [  # every position occurs: what has none is infinite and has no slope
    Sample((Spec((8, 2)), Spec((8,), (0, 2), "int")), {"size": 2, "axis": 0, "batch_dims": 0}),
    Sample((Spec((2, 3, 2, 2)), Spec((3, 2), (0, 1), "int")), {"size": 1, "axis": 1, "batch_dims": 0}),
    Sample((Spec((1, 2, 9)), Spec((1, 9), (0, 2), "int")), {"size": 2, "axis": 2, "batch_dims": 1}),
    Sample((Spec((0, 2)), Spec((0,), (0, 3), "int")), {"size": 0, "axis": 0, "batch_dims": 0}),
]


def _extreme(name: str, ufunc: str, start: Callable[[DType], Any], word: str) -> Opaque:
    def value(xp: Any, x: Any, indices: Any, size: int, axis: int, batch_dims: int) -> Any:
        at = checked(np.asarray(indices), size)
        shape = (*x.shape[:axis], size, *x.shape[axis + at.ndim - batch_dims :])
        return combined(xp, ufunc, start(of_numpy(x.dtype)), x, at, shape, axis, batch_dims)

    return Opaque(
        name,
        value,
        infer=_extreme_infer,
        vjp=_extreme_vjp,
        signature="(k),(k)->(n)",
        shift=axes_behind,
        accumulate=True,
        samples=_EXTREME_SAMPLES,
        errors=[_no_integers(size=3, axis=0, batch_dims=0)],
        doc=f"The {word} of the slices at each integer position; where there are none, the far bound of the dtype.",
        notes="Equal extremes share the gradient evenly.",
    )


# What an extreme is where there are no slices, by its monoid.
FAR: dict[str, Callable[[DType], Any]] = {
    "max": lambda d: -math.inf if d.is_floating else d.min,
    "min": lambda d: math.inf if d.is_floating else d.max,
}
SCATTER_MAX = _extreme("scatter_max", "maximum", FAR["max"], "largest")
SCATTER_MIN = _extreme("scatter_min", "minimum", FAR["min"], "smallest")
