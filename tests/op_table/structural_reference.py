"""What structural ops are: for each place of the result, the operand and the place that its element comes from, or a
zero. One map per op; where the elements end up is all there is to know of such an op."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.op_table.window_reference import patches_source

Places = tuple[int, ...]
Source = tuple[int, Places] | None  # which operand and where; None: a zero


def moved(source: Source, operands: Sequence[Any]) -> Any:
    """The element at a source."""
    return 0 if source is None else operands[source[0]][source[1]]


def _in_row_major_order(at: Places, operands: Sequence[Any], params: Mapping[str, Any]) -> Source:
    number = functools.reduce(lambda n, ik: n * ik[1] + ik[0], zip(at, params["shape"]), 0)
    place = []
    for n in reversed(operands[0].shape):
        number, k = divmod(number, n)
        place.append(k)
    return 0, tuple(reversed(place))


def _repeated(at: Places, operands: Sequence[Any], params: Mapping[str, Any]) -> Source:
    shape = operands[0].shape
    return 0, tuple(0 if n == 1 else k for k, n in zip(at[len(at) - len(shape) :], shape))


def _cut(at: Places, operands: Sequence[Any], params: Mapping[str, Any]) -> Source:
    place = list(at)
    for axis, begin, stride in zip(params["axes"], operands[1], params["strides"]):
        place[axis] = begin + stride * at[axis]
    return 0, tuple(place)


def _uncut(at: Places, operands: Sequence[Any], params: Mapping[str, Any]) -> Source:
    place = list(at)
    for axis, begin, stride in zip(params["axes"], operands[1], params["strides"]):
        place[axis], rest = divmod(at[axis] - begin, stride)
        if rest or not 0 <= place[axis] < operands[0].shape[axis]:
            return None
    return 0, tuple(place)


def _padded(at: Places, operands: Sequence[Any], params: Mapping[str, Any]) -> Source:
    place = tuple(k - low for k, low in zip(at, params["low"]))
    return (0, place) if all(0 <= k < n for k, n in zip(place, operands[0].shape)) else None


def _joined(at: Places, operands: Sequence[Any], params: Mapping[str, Any]) -> Source:
    axis, place = params["axis"], list(at)
    for i, x in enumerate(operands):
        if place[axis] < x.shape[axis]:
            return i, tuple(place)
        place[axis] -= x.shape[axis]
    raise IndexError(at)


def _reversed(at: Places, operands: Sequence[Any], params: Mapping[str, Any]) -> Source:
    return 0, tuple(n - 1 - k if i in params["axes"] else k for i, (k, n) in enumerate(zip(at, operands[0].shape)))


SOURCES: dict[str, Callable[[Places, Sequence[Any], Mapping[str, Any]], Source]] = {
    "broadcast_to": _repeated,
    "concat": _joined,
    "diagonal": lambda at, operands, params: (0, (*at, at[-1])),
    "pad": _padded,
    "patches": patches_source,
    "reshape": _in_row_major_order,
    "reverse": _reversed,
    "slice": _cut,
    "transpose": lambda at, operands, params: (0, tuple(at[params["perm"].index(k)] for k in range(len(at)))),
    "undiagonal": lambda at, operands, params: (0, at[:-1]) if at[-1] == at[-2] else None,
    "unslice": _uncut,
}
