"""Rearranging tensors: reshape, transpose, join, cut, repeat, pad. Floor: api."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from gradtape.api.arguments import axes, dimensions, full_shape, integer, integers, one_axis, pairs, same_rank
from gradtape.api.elementwise import conj, identity, where
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import TensorShape, broadcast, shape_text
from gradtape.ops import layout as ops
from gradtape.ops.indexing import GATHER
from gradtape.runtime import convert as conversion
from gradtape.runtime.contract import reshape as reshaped
from gradtape.runtime.convert import convert, convert_all
from gradtape.runtime.dispatch import binary, execute, unary
from gradtape.runtime.operators import operand
from gradtape.runtime.subscript import positions
from gradtape.runtime.tensor import Tensor, from_array


def reshape(tensor: Any, shape: Any, name: str | None = None) -> Tensor:
    """The same elements in row-major order under another shape; one dimension may be -1.

    Raises:
      InvalidArgumentError: a shape of another size.

    >>> import gradtape as tf
    >>> tf.reshape([1, 2, 3, 4], [2, -1]).shape
    TensorShape([2, 2])
    """
    x = convert(tensor)
    return unary(ops.RESHAPE.bind(shape=full_shape(shape, x._aval.size, x)), x)


def transpose(a: Any, perm: Any = None, conjugate: bool = False, name: str = "transpose") -> Tensor:
    """The axes in another order; reversed by default.

    Raises:
      InvalidArgumentError: `perm` is no permutation of the axes.

    >>> import gradtape as tf
    >>> tf.transpose([[1, 2, 3]]).shape
    TensorShape([3, 1])
    """
    x = convert(a)
    order = tuple(reversed(range(x.ndim))) if perm is None else integers(perm, "perm")
    order = tuple(k + x.ndim if k < 0 else k for k in order)
    if sorted(order) != list(range(x.ndim)):
        raise InvalidArgumentError(f"`perm` {list(order)} is no permutation of the axes of shape {x.shape}.")
    result = unary(ops.TRANSPOSE.bind(perm=order), x)
    return conj(result) if conjugate else result


def expand_dims(input: Any, axis: Any, name: str | None = None) -> Tensor:
    """A new axis of size 1.

    >>> import gradtape as tf
    >>> tf.expand_dims([1, 2], 0).shape
    TensorShape([1, 2])
    """
    x = convert(input)
    k = one_axis(axis, x.ndim + 1)
    return reshaped(x, (*x._aval.dims[:k], 1, *x._aval.dims[k:]))


def squeeze(input: Any, axis: Any = None, name: str | None = None) -> Tensor:
    """Without axes of size 1: all of them, or those named.

    Raises:
      InvalidArgumentError: a named axis of another size.

    >>> import gradtape as tf
    >>> tf.squeeze([[[1], [2]]]).shape
    TensorShape([2])
    """
    x = convert(input)
    dims = x._aval.dims
    dropped = tuple(k for k, n in enumerate(dims) if n == 1) if axis in (None, []) else axes(axis, x.ndim)
    for k in dropped:
        if dims[k] != 1:
            raise InvalidArgumentError(f"Can not squeeze dim[{k}], expected a dimension of 1, got {dims[k]}.")
    return reshaped(x, tuple(n for k, n in enumerate(dims) if k not in dropped))


def broadcast_to(input: Any, shape: Any, name: str | None = None) -> Tensor:
    """The tensor repeated up to a shape.

    >>> import gradtape as tf
    >>> print(tf.broadcast_to([1, 2], [2, 2]).numpy())
    [[1 2]
     [1 2]]
    """
    return unary(ops.BROADCAST_TO.bind(shape=dimensions(shape, "shape")), convert(input))


def broadcast_static_shape(shape_x: Any, shape_y: Any) -> TensorShape:
    """The shape that two shapes broadcast to, where unknown dimensions stay unknown.

    Raises:
      ValueError: shapes that do not broadcast.

    >>> import gradtape as tf
    >>> tf.broadcast_static_shape(tf.TensorShape([1, 2, 3]), tf.TensorShape([4, 1]))
    Traceback (most recent call last):
    ValueError: Incompatible shapes for broadcasting: (1, 2, 3) and (4, 1): 2 and 4 do not broadcast
    >>> tf.broadcast_static_shape(tf.TensorShape([2, 3]), tf.TensorShape([4, 1, 3]))
    TensorShape([4, 2, 3])
    """
    x, y = TensorShape(shape_x), TensorShape(shape_y)
    try:
        return TensorShape(broadcast(x.dims_or_none, y.dims_or_none))
    except ValueError as e:
        raise ValueError(f"Incompatible shapes for broadcasting: {x} and {y}: {e}") from None


def broadcast_dynamic_shape(shape_x: Any, shape_y: Any) -> Tensor:
    """The shape that two shapes broadcast to, from tensors of integers to one.

    Raises:
      InvalidArgumentError: shapes that do not broadcast.

    >>> import gradtape as tf
    >>> print(tf.broadcast_dynamic_shape([2, 3], [4, 1, 3]).numpy())
    [4 2 3]
    """
    x, y = convert_all([shape_x, shape_y])
    try:
        dims = broadcast(integers(x, "shape_x"), integers(y, "shape_y"))
    except ValueError as e:
        raise InvalidArgumentError(f"`broadcast_dynamic_shape`: incompatible shapes, {e}.") from None
    return from_array(np.array(dims, x.dtype.numpy_dtype))


def identity_n(input: Any, name: str | None = None) -> list[Tensor]:
    """Each tensor of a list, as a new tensor with the same value.

    >>> import gradtape as tf
    >>> [t.numpy().tolist() for t in tf.identity_n([tf.constant([1, 2]), tf.constant(3)])]
    [[1, 2], 3]
    """
    return [identity(t) for t in input]


def concat(values: Any, axis: Any, name: str = "concat") -> Tensor:
    """Tensors joined along an axis.

    Raises:
      InvalidArgumentError: shapes that differ elsewhere, or mixed dtypes.

    >>> import gradtape as tf
    >>> print(tf.concat([[1, 2], [3]], axis=0).numpy())
    [1 2 3]
    """
    given = list(values) if isinstance(values, list | tuple) else [values]
    if not given:
        raise InvalidArgumentError("`concat` wants a list with at least one tensor.")
    parts = convert_all(given)
    if any(p.ndim == 0 for p in parts):
        raise InvalidArgumentError("`concat` wants tensors with at least one axis, got a scalar. Use `tf.stack`.")
    if len(parts) == 1:
        return parts[0]
    result: Tensor = execute(ops.CONCAT.bind(axis=one_axis(axis, parts[0].ndim)), parts)
    return result


def stack(values: Any, axis: Any = 0, name: str = "stack") -> Tensor:
    """Tensors of one shape joined along a new axis.

    Raises:
      InvalidArgumentError: shapes that differ, or mixed dtypes.
      ValueError: an axis that the result would not have.

    >>> import gradtape as tf
    >>> print(tf.stack([[1, 2], [3, 4]], axis=1).numpy())
    [[1 3]
     [2 4]]
    """
    given = list(values)
    if not given:
        raise InvalidArgumentError("`stack` wants a list with at least one tensor.")
    if all(type(v) in (bool, int, float, complex) for v in given) and _place(axis, 1) == 0:
        return convert(given)
    parts = convert_all(given)
    dims = parts[0]._aval.dims
    for p in parts:
        if p._aval.dims != dims:
            raise InvalidArgumentError(f"Shapes of all inputs must match: got {shape_text(dims)} and {p.shape}.")
    k = _place(axis, len(dims) + 1)
    wide = [reshaped(p, (*dims[:k], 1, *dims[k:])) for p in parts]
    if len(wide) == 1:
        return wide[0]
    result: Tensor = execute(ops.CONCAT.bind(axis=k), wide)
    return result


conversion.stack_tensors.append(stack)


def _place(axis: Any, rank: int) -> int:
    """An axis of so many, as `stack` and `unstack` refuse it.

    Raises:
      ValueError: there is no such axis.
    """
    k = integer(axis, "axis")
    if not -rank <= k < rank:
        raise ValueError(f"Argument `axis` = {k} not in range [{-rank}, {rank}).")
    return k % rank


def _piece(x: Tensor, axis: int, start: int, count: int) -> Tensor:
    return binary(ops.SLICE.bind(axes=(axis,), sizes=(count,), strides=(1,)), x, positions((start,)))


def unstack(value: Any, num: Any = None, axis: Any = 0, name: str = "unstack") -> list[Tensor]:
    """The slices along an axis, as a list.

    Raises:
      ValueError: an axis that does not exist.
      InvalidArgumentError: `num` is not the size of the axis.

    >>> import gradtape as tf
    >>> [t.numpy().tolist() for t in tf.unstack([[1, 2], [3, 4]])]
    [[1, 2], [3, 4]]
    """
    x = convert(value)
    k = _place(axis, x.ndim)
    dims = x._aval.dims
    if num is not None and int(num) != dims[k]:
        raise InvalidArgumentError(f"`num` is {int(num)}, but axis {k} of shape {x.shape} has size {dims[k]}.")
    return [reshaped(_piece(x, k, i, 1), dims[:k] + dims[k + 1 :]) for i in range(dims[k])]


def split(value: Any, num_or_size_splits: Any, axis: Any = 0, num: Any = None, name: str = "split") -> list[Tensor]:
    """Pieces along an axis: a number of equal ones, or one per given size (one size may be -1).

    Raises:
      InvalidArgumentError: sizes that do not add up, or another number of them than `num` says.

    >>> import gradtape as tf
    >>> [t.numpy().tolist() for t in tf.split([1, 2, 3, 4], 2)]
    [[1, 2], [3, 4]]
    """
    x = convert(value)
    k = one_axis(axis, x.ndim)
    total = x._aval.dims[k]
    if np.ndim(np.asarray(num_or_size_splits)) == 0:
        count = integer(num_or_size_splits, "num_or_size_splits")
        if count < 1 or total % count:
            raise InvalidArgumentError(f"`split` cannot cut axis {k} of size {total} into {count} equal pieces.")
        sizes = [total // count] * count
    else:
        sizes = list(integers(num_or_size_splits, "num_or_size_splits"))
        if sizes.count(-1) == 1:
            sizes[sizes.index(-1)] = total - sum(sizes) - 1
        if sum(sizes) != total or min(sizes, default=0) < 0:
            raise InvalidArgumentError(f"`split` sizes {sizes} do not add up to {total}, the size of axis {k}.")
        if num is not None and int(num) != len(sizes):
            raise InvalidArgumentError(
                f"`split` got {len(sizes)} sizes for `num` = {int(num)} pieces. Leave `num` out."
            )
    starts = np.cumsum([0, *sizes[:-1]])
    return [_piece(x, k, int(s), n) for s, n in zip(starts, sizes, strict=True)]


def tile(input: Any, multiples: Any, name: str | None = None) -> Tensor:
    """The tensor repeated as a whole, along each axis as often as `multiples` says.

    >>> import gradtape as tf
    >>> print(tf.tile([1, 2], [2]).numpy())
    [1 2 1 2]
    """
    x = convert(input)
    times = dimensions(multiples, "multiples")
    same_rank(x, times, "multiples")
    return _repeated(x, times, inner=False)


def _repeated(x: Tensor, times: tuple[int, ...], inner: bool) -> Tensor:
    """Each axis n as (t, n), or (n, t) where elements are repeated one by one, broadcast and merged."""
    dims = x._aval.dims
    apart = [m for n in dims for m in ((n, 1) if inner else (1, n))]
    wide = [m for n, t in zip(dims, times, strict=True) for m in ((n, t) if inner else (t, n))]
    spread = unary(ops.BROADCAST_TO.bind(shape=tuple(wide)), reshaped(x, tuple(apart)))
    return reshaped(spread, tuple(n * t for n, t in zip(dims, times, strict=True)))


def repeat(input: Any, repeats: Any, axis: Any = None, name: str | None = None) -> Tensor:
    """Each element along an axis repeated; a flat tensor without an axis.

    Raises:
      ValueError: neither one number of repeats nor one for each element.

    >>> import gradtape as tf
    >>> print(tf.repeat([1, 2], 2).numpy(), tf.repeat([1, 2], [1, 3], axis=0).numpy())
    [1 1 2 2] [1 2 2 2]
    """
    x = convert(input)
    if axis is None:
        x, axis = reshaped(x, (x._aval.size,)), 0
    k = one_axis(axis, x.ndim)
    counts = dimensions(repeats, "repeats")
    if len(counts) == 1:
        return _repeated(x, tuple(counts[0] if j == k else 1 for j in range(x.ndim)), inner=True)
    if len(counts) != x._aval.dims[k]:
        raise ValueError(f"`repeats` should have 1 or {x._aval.dims[k]} entries, got {len(counts)}.")
    return gather_rows(x, np.repeat(np.arange(x._aval.dims[k]), counts), k)


def gather_rows(x: Tensor, where: Any, axis: int) -> Tensor:
    return binary(GATHER.bind(axis=axis, batch_dims=0), x, positions(where))


def reverse(tensor: Any, axis: Any, name: str | None = None) -> Tensor:
    """The elements along some axes in the opposite order.

    >>> import gradtape as tf
    >>> print(tf.reverse([1, 2, 3], axis=[0]).numpy())
    [3 2 1]
    """
    x = convert(tensor)
    return unary(ops.REVERSE.bind(axes=axes(axis, x.ndim)), x)


def roll(input: Any, shift: Any, axis: Any, name: str | None = None) -> Tensor:
    """The elements along some axes moved on, what leaves at the end coming in at the start.

    Args:
      input: a tensor.
      shift: by how many places; a number, or one for each axis (backwards where negative).
      axis: along which; an axis that is named twice is moved by the sum.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: another number of shifts than of axes, or an axis that does not exist.

    >>> import gradtape as tf
    >>> print(tf.roll([1, 2, 3], shift=1, axis=0).numpy())
    [3 1 2]
    """
    x = convert(input)
    amounts, along = integers(shift, "shift"), integers(axis, "axis")
    if len(amounts) != len(along):
        raise InvalidArgumentError(f"`roll`: shift and axis must have the same size, got {amounts} and {along}.")
    for by, k in zip(amounts, along, strict=True):
        k = one_axis(k, x.ndim)
        n = x._aval.dims[k]
        by = by % n if n else 0
        if by:
            x = execute(ops.CONCAT.bind(axis=k), (_piece(x, k, n - by, by), _piece(x, k, 0, n - by)))
    return x


def pad(
    tensor: Any, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0, name: str | None = None
) -> Tensor:
    """Elements added before and after along each axis: constants, or reflections of what is there.

    Args:
      tensor: a tensor of n axes.
      paddings: (n, 2) integers: how many before and after.
      mode: "CONSTANT", "REFLECT" (without the border element) or "SYMMETRIC" (with it).
      constant_values: what is added in constant mode.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: paddings of another shape, negative, or too large to reflect.

    >>> import gradtape as tf
    >>> print(tf.pad([1, 2, 3], [[1, 1]]).numpy(), tf.pad([1, 2, 3], [[1, 1]], "REFLECT").numpy())
    [0 1 2 3 0] [2 1 2 3 2]
    """
    x, kind = convert(tensor), mode.upper()
    if kind not in ("CONSTANT", "REFLECT", "SYMMETRIC"):
        raise ValueError(f"`mode` should be 'CONSTANT', 'REFLECT' or 'SYMMETRIC', got {mode!r}.")
    amounts = pairs(paddings, x.ndim, "paddings")
    if any(n < 0 for pair in amounts for n in pair):
        raise InvalidArgumentError(f"`paddings` must not be negative, got {amounts}.")
    if kind == "CONSTANT":
        return _constant_pad(x, amounts, constant_values)
    for k, (before, after) in enumerate(amounts):
        n = x._aval.dims[k]
        limit = n - 1 if kind == "REFLECT" else n
        if max(before, after) > limit:
            raise InvalidArgumentError(
                f"`paddings` of axis {k} must not exceed {limit} in mode {kind}, got {before, after}."
            )
        if before or after:
            how: Literal["reflect", "symmetric"] = "reflect" if kind == "REFLECT" else "symmetric"
            x = gather_rows(x, np.pad(np.arange(n), (before, after), mode=how), k)
    return x


def _constant_pad(x: Tensor, amounts: list[tuple[int, int]], value: Any) -> Tensor:
    low, high = tuple(a for a, _ in amounts), tuple(b for _, b in amounts)
    dtype = x._aval.dtype
    if isinstance(value, int | float) and value == 0 and dtype.kind != "s":
        return unary(ops.PAD.bind(low=low, high=high), x)
    fill = operand(b"" if dtype.kind == "s" and value == 0 else value, dtype)
    inside = unary(ops.PAD.bind(low=low, high=high), unary(ops.BROADCAST_TO.bind(shape=x._aval.dims), convert(True)))
    return where(inside, unary(ops.PAD.bind(low=low, high=high), x), fill)
