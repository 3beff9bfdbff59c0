"""Through views to what they show: which axis of a value runs along each axis of its base. Floor: transforms."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from gradtape.ir.graph import Node, Value
from gradtape.ops.layout import BROADCAST_TO, RESHAPE, TRANSPOSE

Axes = tuple[int | None, ...]
Place = tuple[int | None, ...]  # per axis: the loop that it runs by, None for an axis of size 1


@dataclass(frozen=True, eq=False, slots=True)
class Walk:
    """A value as a view: its element at (i, j, ...) is the base's element whose index along axis k is that of the
    value's axis `axes[k]` (0 where None)."""

    base: Value
    axes: Axes


def walk_back(v: Value) -> Walk:
    """The value that a chain of views shows; a value that is no view shows itself."""
    axes: Axes = _own_axes(v.aval.dims) if v.aval.is_known else ()
    while v.node is not None and v.aval.is_known:
        step = _shown(v.node)
        if step is None:
            break
        axes = tuple(None if k is None else axes[k] for k in step)
        v = v.node.inputs[0]
    return Walk(v, axes)


@functools.lru_cache(1 << 10)
def _own_axes(dims: tuple[int, ...]) -> Axes:
    """Those of a value that shows itself; one tuple for all that have its shape, since graphs are large."""
    return tuple(k if n != 1 else None for k, n in enumerate(dims))


def _shown(node: Node) -> Axes | None:
    """For each axis of a view's operand, the axis of its result that runs along it; None where it is no such view."""
    op = node.step.op
    if op not in (RESHAPE, TRANSPOSE, BROADCAST_TO) or not node.inputs[0].aval.is_known:
        return None
    small, large = node.inputs[0].aval.dims, node.outputs[0].aval.dims
    if op is TRANSPOSE:
        perm = node.step.params["perm"]
        return tuple(perm.index(k) if n != 1 else None for k, n in enumerate(small))
    if op is BROADCAST_TO:
        lead = len(large) - len(small)
        return tuple(lead + k if n != 1 else None for k, n in enumerate(small))
    places = [k for k, n in enumerate(large) if n != 1]
    if [n for n in small if n != 1] != [large[k] for k in places]:
        return None
    count = iter(places)
    return tuple(next(count) if n != 1 else None for n in small)


def through(w: Walk, place: Place | None, dims: Sequence[int], partial: bool = False) -> Place | None:
    """The place of a value, given that of its base. None where an axis along which the base is repeated would have
    no loop, unless a `partial` answer will do."""
    if place is None:
        return None
    found: list[int | None] = [None] * len(dims)
    for axis, loop in zip(w.axes, place, strict=True):
        if axis is not None:
            found[axis] = loop
    if not partial and any(n != 1 and p is None for n, p in zip(dims, found, strict=True)):
        return None
    return tuple(found)
