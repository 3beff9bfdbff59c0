"""Python subscripts on tensors: integers, slices, `...`, `tf.newaxis`, tensors in them; masks. Floor: runtime."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import bool_, int64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import shape_text
from gradtape.ops.arithmetic import ADD, CAST
from gradtape.ops.comparison import LESS, SELECT
from gradtape.ops.indexing import GATHER
from gradtape.ops.layout import RESHAPE, SLICE
from gradtape.runtime.counting import numbers_of
from gradtape.runtime.dispatch import binary, execute, unary
from gradtape.runtime.masking import is_mask, masked
from gradtape.runtime.places import place_of, user_frame
from gradtape.runtime.stretches import difference
from gradtape.runtime.tensor import SymbolicTensor, SymbolicTensorError, Tensor, wrap
from gradtape.runtime.trace import map_tracer, open_tracer_of


def subscript(x: Tensor, key: Any) -> Tensor:
    """`x[key]`. A mask as the whole key picks elements; a list of other things is read as a tuple.

    Raises:
      InvalidArgumentError: an index out of bounds, or too many of them.
      TypeError: a key that subscripts do not take.
      ValueError: a mask that does not fit.
    """
    if (tracer := open_tracer_of(x)) is not None:
        found: Tensor = tracer.perform(subscript, (x, key), {})
        return found
    if not isinstance(key, tuple | slice | int) or isinstance(key, bool):
        if is_mask(key):
            return masked(x, key, 0)
        key = tuple(key) if isinstance(key, list) else key
    parts = key if isinstance(key, tuple) else (key,)
    if any(isinstance(p, SymbolicTensor) or _is_late(p) for p in parts):
        return _picked(x, _expanded(parts, x))
    cut = _Cut(x, _expanded(parts, x))
    if cut.axes:
        step = SLICE.bind(axes=tuple(cut.axes), sizes=tuple(cut.sizes), strides=tuple(cut.strides))
        x = binary(step, x, positions(cut.begin))
    shape = tuple(cut.shape)
    return x if x._aval.shape == shape else unary(RESHAPE.bind(shape=shape), x)


def positions(values: Any) -> Tensor:
    """A vector of positions as a tensor."""
    array = np.array(values, np.int64)
    return wrap(array, aval(array.shape, int64))


def _picked(x: Tensor, parts: list[Any]) -> Tensor:
    """A subscript with indices, or ends of slices, whose values are not known: along these axes elements are gathered,
    last axis first."""
    rest = [slice(None) if isinstance(p, SymbolicTensor) or _is_late(p) else p for p in parts]
    axes = [k for k, p in enumerate(p for p in parts if p is None or isinstance(p, slice | SymbolicTensor)) if _by(p)]
    result = subscript(x, tuple(rest))
    for axis, index in zip(reversed(axes), reversed([p for p in parts if _by(p)]), strict=True):
        n = result._aval.dims[axis]
        if isinstance(index, slice) and map_tracer() is None:
            result = _window(result, axis, index)
            continue
        ids = _stretch(index, n) if isinstance(index, slice) else _from_start(index, n)
        result = binary(GATHER.bind(axis=axis, batch_dims=0), result, ids)
    return result


def _window(x: Tensor, axis: int, part: slice) -> Tensor:
    """A slice that begins at a counter, and lies in the tensor whatever that is.

    Raises:
      SymbolicTensorError: how many elements it has depends on what is not known.
    """
    begins, span = numbers_of(part.start), _span(part)
    if begins.min() < 0 or begins.max() + span > x._aval.dims[axis]:
        raise _unknown_size()
    stride = 1 if part.step is None else _integer(part.step)
    step = SLICE.bind(axes=(axis,), sizes=(-(-span // stride),), strides=(stride,))
    return binary(step, x, unary(RESHAPE.bind(shape=(1,)), unary(CAST.bind(dtype=int64), part.start)))


def _is_late(part: Any) -> bool:
    """Whether it is a slice with an end that has no value, in a map, where all slices have one size, or with one that
    begins at the counter of a loop. Elsewhere what leaves the tensor may be cut off."""
    ends = (part.start, part.stop, part.step) if isinstance(part, slice) else ()
    if not any(isinstance(e, SymbolicTensor) for e in ends):
        return False
    return map_tracer() is not None or (
        isinstance(part.start, SymbolicTensor) and part.start._aval.shape == () and numbers_of(part.start) is not None
    )


def _stretch(part: slice, n: int) -> Tensor:
    """The positions of a slice whose ends have no values, but a difference.

    Raises:
      SymbolicTensorError: how many elements it has depends on what is not known.
    """
    span, step = _span(part), 1 if part.step is None else _integer(part.step)
    begin = unary(CAST.bind(dtype=int64), part.start)
    return positions_from(_both_from_start(begin, span, n), -(-span // step), step)


def _span(part: slice) -> int:
    """How far it is from one end of a slice to the other.

    Raises:
      SymbolicTensorError: that depends on what is not known.
    """
    start, stop, step = part.start, part.stop, 1 if part.step is None else part.step
    known = None not in (start, stop) and not isinstance(step, SymbolicTensor) and _integer(step) > 0
    span = difference(stop, start) if known else None
    if span is None or span <= 0:
        raise _unknown_size()
    return span


def _unknown_size() -> SymbolicTensorError:
    return SymbolicTensorError(
        f"{place_of(user_frame())}: how many elements a slice has depends on a tensor without a value. Give ends "
        "that differ by a number, `x[i : i + 2]`, or use `tf.slice`, `tf.gather`, `tf.where` or a mask."
    )


def _both_from_start(begin: Tensor, span: int, n: int) -> Tensor:
    """Where a slice begins whose ends may both count from the end; if only one does, it is left before the start."""
    zero, length, size = (wrap(np.int64(k), begin._aval) for k in (0, span, n))
    behind = binary(LESS.bind(), binary(ADD.bind(), begin, length), zero)
    found: Tensor = execute(SELECT.bind(), (behind, binary(ADD.bind(), begin, size), begin))
    return found


def positions_from(begin: Tensor, count: int, step: int = 1) -> Tensor:
    """So many positions from one of int64 on."""
    return binary(ADD.bind(), begin, positions(range(0, count * step, step)))


def _by(part: Any) -> bool:
    """Whether a part is an index without a value, or a slice with such an end.

    Raises:
      TypeError: a tensor without a value that is no integer scalar.
    """
    if isinstance(part, SymbolicTensor) and (part._aval.shape != () or not part._aval.dtype.is_integer):
        raise TypeError(
            f"A tensor among other indices should be a scalar of int32 or int64, got {part._aval!r}. To pick several "
            "positions use `tf.gather(x, indices)`."
        )
    return isinstance(part, SymbolicTensor) or _is_late(part)


def _from_start(index: Tensor, n: int) -> Tensor:
    """An index that may count from the end, counted from the start."""
    zero, size = (wrap(index._aval.dtype.numpy_dtype.type(k), index._aval) for k in (0, n))
    found: Tensor = execute(SELECT.bind(), (binary(LESS.bind(), index, zero), binary(ADD.bind(), index, size), index))
    return found


class _Cut:
    """What a subscript comes to: slices of some axes, then a shape without the indexed and with the new axes."""

    def __init__(self, x: Tensor, parts: list[Any]) -> None:
        self.axes: list[int] = []
        self.begin: list[int] = []
        self.sizes: list[int] = []
        self.strides: list[int] = []
        self.shape: list[int] = []
        axis = 0
        for part in parts:
            if part is None:
                self.shape.append(1)
                continue
            n = x._aval.dims[axis]
            if isinstance(part, slice):
                self._slice(axis, n, part)
            else:
                self._index(axis, n, _integer(part))
            axis += 1
        self.shape += x._aval.dims[axis:]

    def _slice(self, axis: int, n: int, part: slice) -> None:
        ends = (None if e is None else _integer(e) for e in (part.start, part.stop, part.step))
        start, stop, stride = slice(*ends).indices(n) if part.step != 0 else (0, 0, 0)
        if stride == 0:
            raise InvalidArgumentError("A slice's step must not be 0.")
        size = len(range(start, stop, stride))
        self.shape.append(size)
        if (start, size, stride) != (0, n, 1):
            self._cut(axis, start, size, stride)

    def _index(self, axis: int, n: int, i: int) -> None:
        if not -n <= i < n:
            raise InvalidArgumentError(f"slice index {i} of dimension {axis} out of bounds: its size is {n}.")
        self._cut(axis, i % n, 1, 1)

    def _cut(self, axis: int, start: int, size: int, stride: int) -> None:
        self.axes.append(axis)
        self.begin.append(start)
        self.sizes.append(size)
        self.strides.append(stride)


def _expanded(parts: tuple[Any, ...], x: Tensor) -> list[Any]:
    """The parts with `...` written out."""
    used = sum(1 for p in parts if p is not None and p is not Ellipsis)
    rank = x.ndim
    if used > rank:
        raise InvalidArgumentError(
            f"Too many indices: {used} for a tensor of shape {shape_text(x._aval.shape)}, which has {rank} axes."
        )
    dots = [i for i, p in enumerate(parts) if p is Ellipsis]
    if len(dots) > 1:
        raise InvalidArgumentError("Multiple ellipses in slice spec not allowed.")
    if not dots:
        return list(parts)
    return [*parts[: dots[0]], *[slice(None)] * (rank - used), *parts[dots[0] + 1 :]]


def _integer(part: Any) -> int:
    if isinstance(part, bool) or getattr(part, "dtype", None) == bool_:
        raise TypeError(
            f"A bool is no index among others, got {_named(part)}. To pick by a mask along some axes use "
            "`tf.boolean_mask(x, mask, axis)`."
        )
    try:
        return int(part.__index__())
    except SymbolicTensorError:
        raise
    except (AttributeError, TypeError):
        raise TypeError(
            "Only integers, slices (`:`), ellipsis (`...`), tf.newaxis (`None`) and scalar tf.int32/tf.int64 tensors "
            f"are valid indices, got {_named(part)}. To pick several positions use `tf.gather(x, indices)`."
        ) from None


def _named(part: Any) -> str:
    """An index in few words."""
    if hasattr(part, "dtype") and hasattr(part, "shape"):
        return f"{type(part).__name__} of shape {part.shape} and dtype {getattr(part.dtype, 'name', part.dtype)}"
    return repr(part)
