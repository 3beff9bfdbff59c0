"""Declarations: ops that rearrange elements. Floor: ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import int64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ir.index import Index
from gradtape.ir.shapes import Shape, broadcast, broadcast_axes, shape_text, size_of
from gradtape.ops import moves
from gradtape.ops.op import Op, emit
from gradtape.ops.samples import BadSample, Sample, Spec
from gradtape.ops.structural import Structural


class Positions(Op):
    """Integer positions known while the graph is made: a vector of int64 for the ops that take indices."""

    kind = "constant"

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        return (aval((len(params["value"]),), int64),)

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        return []


POSITIONS = Positions("positions", doc="A vector of positions known while the graph is made.")

# ------------------------------------------------------------------ reshape, transpose, broadcast


def _reshape_shape(x: Shape, shape: Shape) -> Shape:
    if x is not None and shape is not None and None not in x and None not in shape:
        have, want = size_of(n for n in x if n is not None), size_of(n for n in shape if n is not None)
        if have != want:
            raise ValueError(
                f"cannot turn a tensor of shape {shape_text(x)} ({have} elements) into {shape_text(shape)} ({want})."
            )
    return shape


RESHAPE = Structural(
    "reshape",
    lambda xp, x, shape: x.reshape(shape),
    shape=_reshape_shape,
    transpose=lambda node, g: [emit("reshape", g, shape=node.inputs[0].aval.dims)],
    moves=lambda node: [[moves.Reshape(node.step.params["shape"])]],
    idle=lambda x, shape: bool(x.shape == shape),
    both=lambda first, then: then,
    samples=[
        Sample((Spec((2, 6)),), {"shape": (3, 4)}),
        Sample((Spec(()),), {"shape": (1, 1)}),
        Sample((Spec((0, 3)),), {"shape": (2, 0)}),
    ],
    errors=[BadSample((((2, 3), "float32"),), InvalidArgumentError, "(6 elements)", {"shape": (4,)})],
    doc="The same elements in row-major order under another shape.",
)
TRANSPOSE = Structural(
    "transpose",
    lambda xp, x, perm: x.transpose(perm),
    shape=lambda x, perm: None if x is None else tuple(x[k] for k in perm),
    transpose=lambda node, g: [emit("transpose", g, perm=inverse(node.step.params["perm"]))],
    moves=lambda node: [[moves.Transpose(node.step.params["perm"])]],
    idle=lambda x, perm: bool(perm == tuple(range(len(perm)))),
    both=lambda first, then: {"perm": tuple(first["perm"][k] for k in then["perm"])},
    samples=[
        Sample((Spec((2, 3, 4)),), {"perm": (2, 0, 1)}),
        Sample((Spec((3,)),), {"perm": (0,)}),
        Sample((Spec((1, 0, 2)),), {"perm": (1, 2, 0)}),
        Sample((Spec(()),), {"perm": ()}),
    ],
    doc="The axes in another order.",
)


def inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes `perm`."""
    return tuple(perm.index(k) for k in range(len(perm)))


def _broadcast_shape(x: Shape, shape: tuple[int, ...]) -> Shape:
    try:
        fits = x is None or broadcast(x, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"cannot repeat a tensor of shape {shape_text(x)} up to {shape_text(shape)}.")
    return shape


def _broadcast_transpose(node: Node, g: Value) -> list[Value | None]:
    small = node.inputs[0].aval.dims
    axes = broadcast_axes(small, g.aval.dims)
    summed = emit("reduce_sum", g, axes=axes, keepdims=False) if axes else g
    return [summed if summed.aval.shape == small else emit("reshape", summed, shape=small)]


BROADCAST_TO = Structural(
    "broadcast_to",
    lambda xp, x, shape: xp.broadcast_to(x, shape),
    shape=_broadcast_shape,
    transpose=_broadcast_transpose,
    moves=lambda node: [[moves.Broadcast(node.step.params["shape"])]],
    repeats=True,
    idle=lambda x, shape: bool(x.shape == shape),
    samples=[
        Sample((Spec((3, 1)),), {"shape": (2, 3, 4)}),
        Sample((Spec(()),), {"shape": (2,)}),
        Sample((Spec((1, 2)),), {"shape": (0, 2)}),
    ],
    errors=[BadSample((((2, 3), "float32"),), InvalidArgumentError, "cannot repeat", {"shape": (2, 4)})],
    doc="Repeated along new axes and along axes of size 1.",
)

# ------------------------------------------------------------------ slices and their transposes


def slices(begin: Any, ndim: int, axes: tuple[int, ...], sizes: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """The NumPy index of a slice: `sizes[k]` elements of axis `axes[k]` from `begin[k]` in steps of `strides[k]`."""
    index = [slice(None)] * ndim
    for k, first, size, stride in zip(axes, begin, sizes, strides, strict=True):
        first = int(first)
        stop = first + size * stride
        index[k] = slice(first, stop if stop >= 0 else None, stride) if size else slice(0, 0)
    return tuple(index)


def _slice_shape(x: Shape, begin: Shape, axes: Any, sizes: Any, strides: Any) -> Shape:
    if x is None:
        return None
    out = list(x)
    for k, size in zip(axes, sizes, strict=True):
        out[k] = size
    return tuple(out)


def _slice_transpose(node: Node, g: Value) -> list[Value | None]:
    x, begin = node.inputs
    p = node.step.params
    full = tuple(x.aval.dims[k] for k in p["axes"])
    return [emit("unslice", g, begin, axes=p["axes"], sizes=full, strides=p["strides"])]


def _slice_moves(node: Node) -> list[list[moves.Move]]:
    p, begin = node.step.params, node.inputs[1]
    cuts = zip(p["axes"], p["sizes"], p["strides"], strict=True)
    return [[moves.Gather(k, moves.line(begin, i, n, by), n) for i, (k, n, by) in enumerate(cuts)]]


_CUTS = {"axes": (0, 2), "sizes": (2, 2), "strides": (1, -1)}
SLICE = Structural(
    "slice",
    lambda xp, x, begin, axes, sizes, strides: x[slices(begin, x.ndim, axes, sizes, strides)],
    shape=_slice_shape,
    transpose=_slice_transpose,
    moves=_slice_moves,
    indices=1,
    samples=[
        Sample((Spec((3, 2, 3)), Spec((2,), (1, 2), "int")), _CUTS),
        Sample((Spec((3,)), Spec((1,), (1, 2), "int")), {"axes": (0,), "sizes": (0,), "strides": (1,)}),
    ],
    doc="Evenly spaced elements along some axes; where they begin is an operand.",
)


def _unslice(xp: Any, g: Any, begin: Any, axes: Any, sizes: Any, strides: Any) -> Any:
    shape = list(g.shape)
    for k, n in zip(axes, sizes, strict=True):
        shape[k] = n
    out = xp.zeros(shape, g.dtype)
    out[slices(begin, g.ndim, axes, tuple(g.shape[k] for k in axes), strides)] = g
    return out


def _unslice_moves(node: Node) -> list[list[moves.Move]]:
    p, (part, begin) = node.step.params, node.inputs
    cuts = zip(p["axes"], p["sizes"], p["strides"], strict=True)
    return [[moves.Scatter(k, moves.line(begin, i, part.aval.dims[k], by), n) for i, (k, n, by) in enumerate(cuts)]]


def _unslice_transpose(node: Node, g: Value) -> list[Value | None]:
    x, begin = node.inputs
    p = node.step.params
    part = tuple(x.aval.dims[k] for k in p["axes"])
    return [emit("slice", g, begin, axes=p["axes"], sizes=part, strides=p["strides"])]


UNSLICE = Structural(
    "unslice",
    _unslice,
    shape=_slice_shape,
    transpose=_unslice_transpose,
    moves=_unslice_moves,
    indices=1,
    view=False,
    samples=[
        Sample((Spec((2, 2, 2)), Spec((2,), (1, 2), "int")), {"axes": (0, 2), "sizes": (3, 4), "strides": (1, -1)}),
        Sample((Spec((0,)), Spec((1,), (1, 2), "int")), {"axes": (0,), "sizes": (3,), "strides": (1,)}),
    ],
    doc="Zeros of the full size with the operand at a slice: the transpose of `slice`.",
)


def _pad_shape(x: Shape, low: tuple[int, ...], high: tuple[int, ...]) -> Shape:
    if x is None:
        return None
    return tuple(None if n is None else n + a + b for n, a, b in zip(x, low, high, strict=True))


def _pad(xp: Any, x: Any, low: tuple[int, ...], high: tuple[int, ...]) -> Any:
    out = xp.zeros([n + a + b for n, a, b in zip(x.shape, low, high, strict=True)], x.dtype)
    out[tuple(slice(a, a + n) for a, n in zip(low, x.shape, strict=True))] = x
    return out


def _pad_moves(node: Node) -> list[list[moves.Move]]:
    shape, result = node.inputs[0].aval.dims, node.outputs[0].aval.dims
    low = node.step.params["low"]
    return [[moves.Scatter(k, Index(np.arange(n) + low[k]), result[k]) for k, n in enumerate(shape) if n != result[k]]]


def _pad_transpose(node: Node, g: Value) -> list[Value | None]:
    low, shape = node.step.params["low"], node.inputs[0].aval.dims
    axes = tuple(k for k in range(len(shape)) if shape[k] != g.aval.dims[k])
    begin = emit("positions", value=tuple(low[k] for k in axes))
    return [emit("slice", g, begin, axes=axes, sizes=tuple(shape[k] for k in axes), strides=(1,) * len(axes))]


PAD = Structural(
    "pad",
    _pad,
    shape=_pad_shape,
    transpose=_pad_transpose,
    moves=_pad_moves,
    view=False,
    samples=[
        Sample((Spec((2, 3)),), {"low": (1, 0), "high": (0, 2)}),
        Sample((Spec((0,)),), {"low": (1,), "high": (1,)}),
    ],
    doc="Zeros added before and after along each axis.",
)


def _concat_shape(*shapes: Shape, axis: int) -> Shape:
    known = [s for s in shapes if s is not None]
    if not known:
        return None
    out = list(known[0])
    for i, s in enumerate(known[1:], 1):
        for k, (m, n) in enumerate(zip(out, s, strict=False)):
            if len(s) != len(out) or (k != axis and m is not None and n is not None and m != n):
                raise ValueError(
                    f"wants equal shapes except along axis {axis}: part 0 has shape {shape_text(known[0])}, "
                    f"part {i} has {shape_text(s)}."
                )
    total = [s[axis] if s is not None else None for s in shapes]
    out[axis] = None if None in total else sum(n for n in total if n is not None)
    return tuple(out)


def _concat_moves(node: Node) -> list[list[moves.Move]]:
    axis, n = node.step.params["axis"], node.outputs[0].aval.dims[node.step.params["axis"]]
    placed: list[list[moves.Move]] = []
    start = 0
    for v in node.inputs:
        size = v.aval.dims[axis]
        placed.append([moves.Scatter(axis, Index(np.arange(size) + start), n)])
        start += size
    return placed


def _concat_transpose(node: Node, g: Value) -> list[Value | None]:
    axis, start, parts = node.step.params["axis"], 0, []
    for v in node.inputs:
        size = v.aval.dims[axis]
        begin = emit("positions", value=(start,))
        parts.append(emit("slice", g, begin, axes=(axis,), sizes=(size,), strides=(1,)))
        start += size
    return list(parts)


CONCAT = Structural(
    "concat",
    lambda xp, *parts, axis: xp.concatenate(parts, axis=axis),
    shape=_concat_shape,
    transpose=_concat_transpose,
    moves=_concat_moves,
    view=False,
    samples=[
        Sample((Spec((2, 3)), Spec((2, 1)), Spec((2, 0))), {"axis": 1}),
        Sample((Spec((1,)), Spec((2,))), {"axis": 0}),
    ],
    errors=[
        BadSample((((2, 3), "float32"), ((3, 3), "float32")), InvalidArgumentError, "equal shapes", {"axis": 1}),
        BadSample((((2,), "float32"), ((2,), "float64")), InvalidArgumentError, "double", {"axis": 0}),
    ],
    doc="Tensors joined along an axis.",
)


def _reverse_moves(node: Node) -> list[list[moves.Move]]:
    shape = node.inputs[0].aval.dims
    return [[moves.Scatter(k, Index(np.arange(shape[k])[::-1]), shape[k]) for k in node.step.params["axes"]]]


REVERSE = Structural(
    "reverse",
    lambda xp, x, axes: xp.flip(x, axes),
    shape=lambda x, axes: x,
    transpose=lambda node, g: [emit("reverse", g, axes=node.step.params["axes"])],
    moves=_reverse_moves,
    samples=[
        Sample((Spec((2, 3)),), {"axes": (0, 1)}),
        Sample((Spec((3,)),), {"axes": (0,)}),
        Sample((Spec((1, 0, 2)),), {"axes": (0, 1)}),
    ],
    doc="The elements along some axes in the opposite order.",
)


def _diagonal(xp: Any, x: Any) -> Any:
    return xp.diagonal(x, axis1=-2, axis2=-1)


def _undiagonal(xp: Any, d: Any) -> Any:
    n = d.shape[-1]
    out = xp.zeros((*d.shape, n), d.dtype)
    place = np.arange(n)
    out[..., place, place] = d
    return out


def _diagonal_shape(x: Shape) -> Shape:
    if x is None:
        return None
    if len(x) < 2 or (x[-1] is not None and x[-2] is not None and x[-1] != x[-2]):
        raise ValueError(f"wants two equal last axes, got shape {shape_text(x)}.")
    return x[:-1]


DIAGONAL = Structural(
    "diagonal",
    _diagonal,
    shape=_diagonal_shape,
    transpose=lambda node, g: [emit("undiagonal", g)],
    moves=lambda node: [[moves.Diagonal()]],
    samples=[Sample((Spec((2, 3, 3)),)), Sample((Spec((0, 0)),))],
    errors=[BadSample((((2, 3), "float32"),), InvalidArgumentError, "two equal last axes")],
    doc="The elements at equal positions of the last two axes.",
)
UNDIAGONAL = Structural(
    "undiagonal",
    _undiagonal,
    shape=lambda x: None if x is None else (*x, x[-1]),
    transpose=lambda node, g: [emit("diagonal", g)],
    moves=lambda node: [[moves.Undiagonal()]],
    view=False,
    samples=[Sample((Spec((2, 3)),)), Sample((Spec((1,)),))],
    doc="Zeros with the last axis on the diagonal of two: the transpose of `diagonal`.",
)
