"""Declarations: gathering by integer positions and its transpose, scattering with sums. Floor: ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.aval import Aval, aval
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ir.shapes import size_of
from gradtape.ops.op import emit
from gradtape.ops.opaque import Opaque
from gradtape.ops.samples import BadSample, Sample, Spec


def _gather_infer(x: Aval, indices: Aval, axis: int, batch_dims: int) -> list[Aval]:
    if not indices.dtype.is_integer:
        raise ValueError(f"wants integer indices, got a {indices.dtype.cname} tensor.")
    if x.shape is None or indices.shape is None:
        return [aval(None, x.dtype)]
    return [aval(x.shape[:axis] + indices.shape[batch_dims:] + x.shape[axis + 1 :], x.dtype)]


def _checked(indices: Any, size: int) -> Any:
    """Positions that exist, or TensorFlow's error (a host check; the device backend has its own)."""
    if indices.size and (indices.min() < 0 or indices.max() >= size):
        bad = indices[(indices < 0) | (indices >= size)]
        raise InvalidArgumentError(f"`gather` index {int(bad.ravel()[0])} is not in [0, {size}).")
    return indices


def _gather(xp: Any, x: Any, indices: Any, axis: int, batch_dims: int) -> Any:
    indices = _checked(np.asarray(indices), x.shape[axis])
    if not batch_dims:
        return xp.take(x, indices, axis=axis)
    batch, before, after = x.shape[:batch_dims], x.shape[batch_dims:axis], x.shape[axis + 1 :]
    rows = xp.moveaxis(x, axis, batch_dims).reshape(size_of(batch), x.shape[axis], -1 if x.size else 0)
    flat = indices.reshape(size_of(batch), -1) if indices.size else indices.reshape(size_of(batch), 0)
    picked = rows[np.arange(len(flat))[:, None], flat]
    inner = indices.shape[batch_dims:]
    shaped = picked.reshape(batch + inner + before + after)
    n, m = len(inner), len(before)
    order = [*range(batch_dims), *range(batch_dims + n, batch_dims + n + m), *range(batch_dims, batch_dims + n)]
    return shaped.transpose([*order, *range(len(order), shaped.ndim)])


def _gather_vjp(node: Node, g: Value) -> list[Value | None]:
    x, indices = node.inputs
    return [emit("scatter_add", g, indices, shape=x.aval.dims, **node.step.params), None]


_SAMPLES = [
    Sample((Spec((3, 2)), Spec((4,), (0, 3), "int")), {"axis": 0, "batch_dims": 0}, "repeated positions"),
    Sample((Spec((2, 3, 2)), Spec((2, 2), (0, 3), "int")), {"axis": 1, "batch_dims": 0}),
    Sample((Spec((2, 2, 3)), Spec((2, 4), (0, 3), "int")), {"axis": 2, "batch_dims": 1}),
    Sample((Spec((3,)), Spec((0,), (0, 3), "int")), {"axis": 0, "batch_dims": 0}),
]
GATHER = Opaque(
    "gather",
    _gather,
    infer=_gather_infer,
    vjp=_gather_vjp,
    signature="(n),(k)->(k)",
    samples=_SAMPLES,
    errors=[
        BadSample((((3,), "float32"), ((2,), "float32")), InvalidArgumentError, "integer", {"axis": 0, "batch_dims": 0})
    ],
    doc="The slices of x at integer positions along an axis.",
)


def _scatter_infer(g: Aval, indices: Aval, shape: Any, axis: int, batch_dims: int) -> list[Aval]:
    return [aval(shape, g.dtype)]


def _scatter_add(xp: Any, g: Any, indices: Any, shape: Any, axis: int, batch_dims: int) -> Any:
    indices = _checked(np.asarray(indices), shape[axis])
    out = xp.zeros(shape, g.dtype)
    inner = indices.ndim - batch_dims
    place = []
    for k in range(len(shape)):
        if k == axis:
            place.append(
                indices.reshape(
                    indices.shape[:batch_dims]
                    + (1,) * (axis - batch_dims)
                    + indices.shape[batch_dims:]
                    + (1,) * (len(shape) - axis - 1)
                )
            )
        else:
            at = k if k < axis else k - 1 + inner
            place.append(np.arange(shape[k]).reshape((-1,) + (1,) * (g.ndim - 1 - at)))
    np.add.at(out, tuple(place), g)
    return out


def _scatter_vjp(node: Node, g: Value) -> list[Value | None]:
    p = node.step.params
    return [emit("gather", g, node.inputs[1], axis=p["axis"], batch_dims=p["batch_dims"]), None]


SCATTER_ADD = Opaque(
    "scatter_add",
    _scatter_add,
    infer=_scatter_infer,
    vjp=_scatter_vjp,
    signature="(k),(k)->(n)",
    accumulate=True,
    samples=[
        Sample((Spec((4, 2)), Spec((4,), (0, 3), "int")), {"shape": (3, 2), "axis": 0, "batch_dims": 0}),
        Sample((Spec((2, 2, 2, 2)), Spec((2, 2), (0, 3), "int")), {"shape": (2, 3, 2), "axis": 1, "batch_dims": 0}),
        Sample((Spec((2, 2, 4)), Spec((2, 4), (0, 3), "int")), {"shape": (2, 2, 3), "axis": 2, "batch_dims": 1}),
        Sample((Spec((0, 1)), Spec((0,), (0, 3), "int")), {"shape": (3, 1), "axis": 0, "batch_dims": 0}),
    ],
    doc="Zeros of a shape with slices added at integer positions; what meets at one position adds up.",
)
