"""Declarations: windows that slide along an axis, and their transpose, adding what overlaps. Floor: ops.

Along one axis of size n, window t covers the elements t·stride + w·dilation for w = 0 … size-1. Convolution and
pooling are written with one `patches` per axis; what pads the axes lies before it, what crops them behind `fold`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gradtape.ir.aval import Aval, aval
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ir.index import Index
from gradtape.ir.shapes import Shape
from gradtape.ops.moves import Gather, Move, Reshape, Scatter, Transpose
from gradtape.ops.op import emit
from gradtape.ops.opaque import Opaque
from gradtape.ops.samples import BadSample, Sample, Spec
from gradtape.ops.structural import Structural

Sizes = tuple[int, ...]


def fitting(n: int, size: int, stride: int, dilation: int) -> int:
    """How many windows fit into an axis of n elements."""
    return max(0, (n - (size - 1) * dilation - 1) // stride + 1)


def _patches(xp: Any, x: Any, axis: int, size: int, stride: int, dilation: int) -> Any:
    n, step = fitting(x.shape[axis], size, stride, dilation), x.strides[axis]
    shape = (*x.shape[:axis], n, *x.shape[axis + 1 :], size)
    strides = (*x.strides[:axis], step * stride, *x.strides[axis + 1 :], step * dilation)
    return xp.lib.stride_tricks.as_strided(x, shape, strides)


def _patches_shape(x: Shape, axis: int, size: int, stride: int, dilation: int) -> Shape:
    if x is None:
        return None
    n = x[axis]
    return (*x[:axis], None if n is None else fitting(n, size, stride, dilation), *x[axis + 1 :], size)


def _patches_transpose(node: Node, g: Value) -> list[Value | None]:
    p = node.step.params
    length = node.inputs[0].aval.dims[p["axis"]]
    return [emit("fold", g, axis=p["axis"], length=length, stride=p["stride"], dilation=p["dilation"])]


def _elements(length: int, size: int, stride: int, dilation: int) -> Index:
    """Where the elements of all windows lie, window by window."""
    n = fitting(length, size, stride, dilation)
    return Index((np.arange(n)[:, None] * stride + np.arange(size) * dilation).reshape(-1))


def _patches_moves(node: Node) -> list[list[Move]]:
    x, out, p = node.inputs[0].aval.dims, node.outputs[0].aval.dims, node.step.params
    axis, n, size = p["axis"], out[p["axis"]], p["size"]
    ids = _elements(x[axis], size, p["stride"], p["dilation"])
    apart = (*x[:axis], n, size, *x[axis + 1 :])
    last = (*(k for k in range(len(apart)) if k != axis + 1), axis + 1)
    return [[Gather(axis, ids, n * size), Reshape(apart), Transpose(last)]]


PATCHES = Structural(
    "patches",
    _patches,
    shape=_patches_shape,
    transpose=_patches_transpose,
    moves=_patches_moves,
    samples=[
        Sample((Spec((2, 7, 2)),), {"axis": 1, "size": 3, "stride": 2, "dilation": 1}, "windows overlap"),
        Sample((Spec((8,)),), {"axis": 0, "size": 3, "stride": 1, "dilation": 2}),
        Sample((Spec((2, 7)),), {"axis": 1, "size": 1, "stride": 3, "dilation": 1}, "elements left out"),
        Sample((Spec((2, 3)),), {"axis": 1, "size": 4, "stride": 1, "dilation": 1}, "no window fits"),
        Sample((Spec((0, 3)),), {"axis": 1, "size": 2, "stride": 1, "dilation": 1}),
    ],
    doc="Windows along an axis: their number takes its place, their elements a new last axis.",
)


def _fold(xp: Any, g: Any, axis: int, length: int, stride: int, dilation: int) -> Any:
    out = xp.zeros((*g.shape[:axis], length, *g.shape[axis + 1 : -1]), g.dtype)
    n, lead = g.shape[axis], (slice(None),) * axis
    for w in range(g.shape[-1] if n else 0):
        first = w * dilation
        out[(*lead, slice(first, first + (n - 1) * stride + 1, stride))] += g[..., w]
    return out


def _fold_infer(g: Aval, axis: int, length: int, stride: int, dilation: int) -> list[Aval]:
    if g.shape is None:
        return [aval(None, g.dtype)]
    n, size = g.shape[axis], g.shape[-1]
    if n is not None and size is not None and n != fitting(length, size, stride, dilation):
        fit = fitting(length, size, stride, dilation)
        raise ValueError(f"got {n} windows of size {size} for an axis of size {length}, into which {fit} fit.")
    return [aval((*g.shape[:axis], length, *g.shape[axis + 1 : -1]), g.dtype)]


def _fold_vjp(node: Node, g: Value) -> list[Value | None]:
    p = node.step.params
    size = node.inputs[0].aval.dims[-1]
    return [emit("patches", g, axis=p["axis"], size=size, stride=p["stride"], dilation=p["dilation"])]


def _fold_moves(node: Node) -> list[list[Move]]:
    g, p = node.inputs[0].aval.dims, node.step.params
    axis, n, size, last = p["axis"], g[p["axis"]], g[-1], len(g) - 1
    ids = _elements(p["length"], size, p["stride"], p["dilation"])
    behind = (*range(axis + 1), last, *range(axis + 1, last))
    return [[Transpose(behind), Reshape((*g[:axis], n * size, *g[axis + 1 : -1])), Scatter(axis, ids, p["length"])]]


FOLD = Opaque(
    "fold",
    _fold,
    infer=_fold_infer,
    vjp=_fold_vjp,
    moves=_fold_moves,
    signature="(t,w)->(n)",
    accumulate=True,
    samples=[
        Sample((Spec((1, 3, 2, 3)),), {"axis": 1, "length": 7, "stride": 2, "dilation": 1}, "windows overlap"),
        Sample((Spec((4, 3)),), {"axis": 0, "length": 8, "stride": 1, "dilation": 2}),
        Sample((Spec((2, 3, 1)),), {"axis": 1, "length": 9, "stride": 3, "dilation": 1}, "elements left out"),
        Sample((Spec((2, 0, 4)),), {"axis": 1, "length": 3, "stride": 1, "dilation": 1}, "no window fits"),
    ],
    errors=[
        BadSample(
            (((4, 2), "float32"),),
            InvalidArgumentError,
            "into which 3 fit",
            {"axis": 0, "length": 4, "stride": 1, "dilation": 1},
        )
    ],
    doc="Windows added up along the axis from which they were taken: the transpose of `patches`.",
)

# ------------------------------------------------------------------ windows over axes 1, 2, ... of graph values


class Windows(NamedTuple):
    """Windows on axes 1, 2, ...: their sizes and steps, and the elements added before and after each axis."""

    window: Sizes
    strides: Sizes
    dilations: Sizes
    low: Sizes
    high: Sizes

    @property
    def axes(self) -> tuple[int, ...]:
        return tuple(range(1, len(self.window) + 1))

    @property
    def is_padded(self) -> bool:
        return any(self.low) or any(self.high)

    @property
    def are_elements(self) -> bool:
        """Whether there is a window for each element, and nothing else in it."""
        return not self.is_padded and all(n == 1 for n in (*self.window, *self.strides))

    def counts(self, space: Shape) -> Shape:
        """How many windows there are along each axis."""
        if space is None:
            return None
        padded = [None if n is None else n + a + b for n, a, b in zip(space, self.low, self.high, strict=True)]
        steps = zip(padded, self.window, self.strides, self.dilations, strict=True)
        return tuple(None if n is None else fitting(n, k, s, d) for n, k, s, d in steps)

    def pad(self, x: Value, trailing: int) -> Value:
        """x with zeros around it; `trailing` axes lie behind those with windows."""
        if not self.is_padded:
            return x
        return emit("pad", x, low=(0, *self.low, *(0,) * trailing), high=(0, *self.high, *(0,) * trailing))

    def crop(self, v: Value, space: Sizes) -> Value:
        """The elements that `pad` had put zeros around."""
        if not self.is_padded:
            return v
        begin = emit("positions", value=self.low)
        return emit("slice", v, begin, axes=self.axes, sizes=space, strides=(1,) * len(space))

    def take(self, x: Value) -> Value:
        """All windows of what was padded: their elements are the last axes."""
        for k, size, stride, dilation in zip(self.axes, self.window, self.strides, self.dilations, strict=True):
            x = emit("patches", x, axis=k, size=size, stride=stride, dilation=dilation)
        return x

    def add(self, v: Value, space: Sizes) -> Value:
        """Windows added up where they were taken from, padding cropped."""
        for k in reversed(self.axes):
            length = space[k - 1] + self.low[k - 1] + self.high[k - 1]
            v = emit("fold", v, axis=k, length=length, stride=self.strides[k - 1], dilation=self.dilations[k - 1])
        return self.crop(v, space)
