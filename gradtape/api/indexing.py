"""Picking and placing elements by position. Floor: api."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from gradtape.api.arguments import begins, dimensions, integers, one_axis, same_rank
from gradtape.api.elementwise import cast, logical_and, maximum, where
from gradtape.api.layout import concat
from gradtape.api.reductions import reduce_all, reduce_sum
from gradtape.ir.dtypes import DType, float32, int32, int64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import shape_text, size_of
from gradtape.ops.indexing import GATHER, GATHER_ROWS, SCATTER_ADD, SCATTER_MAX
from gradtape.ops.layout import PAD
from gradtape.ops.opaque import Opaque
from gradtape.runtime.contract import reshape
from gradtape.runtime.convert import as_optional_dtype, convert, convert_all, convert_or_empty
from gradtape.runtime.dispatch import binary, unary
from gradtape.runtime.masking import masked
from gradtape.runtime.subscript import positions, positions_from, subscript
from gradtape.runtime.tensor import SymbolicTensor, SymbolicTensorError, Tensor


def gather(
    params: Any,
    indices: Any,
    validate_indices: Any = None,
    axis: Any = None,
    batch_dims: int = 0,
    name: str | None = None,
) -> Tensor:
    """The slices of `params` at integer positions along an axis.

    Args:
      params: a tensor.
      indices: integer positions, of any shape; it takes the place of the axis in the result.
      validate_indices: accepted for compatibility; positions are always checked.
      axis: by default `batch_dims`, as it was given.
      batch_dims: how many leading axes `params` and `indices` share; negative ones count from the rank of `indices`.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: a position that does not exist.

    >>> import gradtape as tf
    >>> print(tf.gather([10, 20, 30], [2, 0, 2]).numpy())
    [30 10 30]
    """
    x, at = convert(params), convert(indices)
    batch = int(batch_dims) if batch_dims >= 0 else int(batch_dims) + at.ndim
    k = one_axis(batch_dims if axis is None else axis, x.ndim)
    if not 0 <= batch <= min(at.ndim, k) or x._aval.dims[:batch] != at._aval.dims[:batch]:
        raise InvalidArgumentError(
            f"`gather` with batch_dims={batch_dims} wants equal leading axes before `axis` {k}: got params of shape "
            f"{x.shape} and indices of shape {at.shape}."
        )
    return binary(_gathering(x, k, batch).bind(axis=k, batch_dims=batch), x, at)


def _gathering(x: Tensor, axis: int, batch: int) -> Opaque:
    """The op for a lookup of whole rows, whose gradient may stay sparse, or of anything else."""
    return GATHER_ROWS if axis == batch == 0 and x._aval.dtype.is_differentiable else GATHER


def ignores(policy: str, name: str) -> bool:
    """Whether positions that do not exist are to be passed over.

    Raises:
      InvalidArgumentError: a policy that does not exist.
    """
    if policy not in ("", "DEFAULT", "ERROR", "IGNORE"):
        raise InvalidArgumentError(
            f"`bad_indices_policy` of `{name}` should be 'DEFAULT', 'ERROR' or 'IGNORE', got {policy!r}."
        )
    return policy == "IGNORE"


def flat_positions(indices: Tensor, dims: tuple[int, ...], name: str, ignore: bool = False) -> Tensor:
    """Rows of positions as positions in the flattened leading axes, checked. Those that do not exist are an error, or
    become the first position behind the others."""
    if not indices._aval.dtype.is_integer:
        raise InvalidArgumentError(f"`{name}` wants integer indices, got a {indices.dtype.cname} tensor.")
    if isinstance(indices, SymbolicTensor):
        return _traced_positions(indices, dims, size_of(dims) if ignore else -1)
    rows = np.asarray(indices)
    bad = (rows < 0) | (rows >= np.array(dims, np.int64)) if dims else np.zeros(rows.shape, bool)
    if bad.any() and not ignore:
        raise InvalidArgumentError(
            f"`{name}` indices {rows[bad.any(-1)][0].tolist()} do not index into shape {shape_text(dims)}."
        )
    flat = np.zeros(rows.shape[:-1], np.int64)
    for k, n in enumerate(dims):
        flat = flat * n + rows[..., k]
    return positions(np.where(bad.any(-1), size_of(dims), flat) if ignore else flat)


def _traced_positions(indices: Tensor, dims: tuple[int, ...], missing: int) -> Tensor:
    """The same by ops, for positions that are known later; those that do not exist become `missing`: -1 is refused by
    the op that uses them."""
    rows = cast(indices, int64)
    exists = reduce_all(logical_and(rows >= 0, rows < positions(dims)), axis=-1)
    strides = [size_of(dims[k + 1 :]) for k in range(len(dims))]
    return where(exists, reduce_sum(rows * positions(strides), axis=-1), convert(missing, int64))


def index_depth(indices: Tensor, dims: tuple[int, ...], name: str) -> int:
    """How many leading axes the rows of positions index."""
    if not indices.ndim:
        raise InvalidArgumentError(f"`{name}` wants indices with at least one axis, got a scalar.")
    depth = indices._aval.dims[-1]
    if depth > len(dims):
        raise InvalidArgumentError(f"`{name}` got indices with {depth} positions for shape {shape_text(dims)}.")
    return depth


def gather_nd(
    params: Any, indices: Any, batch_dims: int = 0, name: str | None = None, bad_indices_policy: str = ""
) -> Tensor:
    """The elements or slices at rows of positions: the last axis of `indices` holds one position per leading axis.

    Args:
      params: a tensor.
      indices: rows of integer positions.
      batch_dims: how many leading axes `params` and `indices` share.
      name: accepted for compatibility.
      bad_indices_policy: "ERROR", the default; with "IGNORE" there are zeros for positions that do not exist.

    Raises:
      InvalidArgumentError: a position that does not exist.
      ValueError: as many shared axes as `indices` has, or more.

    >>> import gradtape as tf
    >>> print(tf.gather_nd([[1, 2], [3, 4]], [[0, 1], [1, 0]]).numpy())
    [2 3]
    """
    x, at, ignore = convert(params), convert(indices), ignores(bad_indices_policy, "gather_nd")
    if batch_dims:
        at = _with_batch(at, int(batch_dims), x)
    dims = x._aval.dims
    depth = index_depth(at, dims, "gather_nd")
    flat = flat_positions(at, dims[:depth], "gather_nd", ignore)
    if ignore:
        return binary(GATHER.bind(axis=0, batch_dims=0), _with_spare_row(x, dims[:depth], dims[depth:]), flat)
    if depth == 1 and x._aval.dtype.is_differentiable:
        return binary(GATHER_ROWS.bind(axis=0, batch_dims=0), x, flat)
    rows = reshape(x, (size_of(dims[:depth]), *dims[depth:]))
    return binary(GATHER.bind(axis=0, batch_dims=0), rows, flat)


def _with_spare_row(x: Tensor, outer: tuple[int, ...], inner: tuple[int, ...]) -> Tensor:
    """Leading axes flattened, with zeros behind them."""
    none = (0,) * len(inner)
    return unary(PAD.bind(low=(0, *none), high=(1, *none)), reshape(x, (size_of(outer), *inner)))


def _with_batch(at: Tensor, batch: int, x: Tensor) -> Tensor:
    """Indices with the positions of their own batch axes put in front."""
    dims = at._aval.dims
    if batch >= len(dims):
        raise ValueError(f"Argument `batch_dims` = {batch} must be less than rank(`indices`) = {len(dims)}.")
    if dims[:batch] != x._aval.dims[:batch]:
        raise InvalidArgumentError(f"`gather_nd` wants equal batch axes, got {x.shape} and {at.shape}.")
    grid = np.moveaxis(np.indices(dims[:-1])[:batch], 0, -1)
    return concat([positions(grid), cast(at, int64)], axis=-1)


def scatter_nd(indices: Any, updates: Any, shape: Any, bad_indices_policy: str = "", name: str | None = None) -> Tensor:
    """Zeros of a shape with updates added at rows of positions; what meets at one place adds up.

    Args:
      indices: rows of integer positions, one position per leading axis of the result.
      updates: one element or slice for each row.
      shape: of the result.
      bad_indices_policy: "ERROR", the default, or "IGNORE", which leaves out updates at positions that do not exist.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: a position that does not exist, or updates of another shape.

    >>> import gradtape as tf
    >>> print(tf.scatter_nd([[1], [1]], [2.0, 3.0], [3]).numpy())
    [0. 5. 0.]
    """
    at, values, dims = convert(indices), convert(updates), dimensions(shape, "shape")
    depth = index_depth(at, dims, "scatter_nd")
    inner = dims[depth:]
    if values._aval.dims != at._aval.dims[:-1] + inner:
        raise InvalidArgumentError(
            f"`scatter_nd` wants updates of shape {shape_text(at._aval.dims[:-1] + inner)}, got {values.shape}."
        )
    ignore = ignores(bad_indices_policy, "scatter_nd")
    flat = flat_positions(at, dims[:depth], "scatter_nd", ignore)
    count, places = flat._aval.size, size_of(dims[:depth])
    rows = reshape(values, (count, *inner))
    full = (places + ignore, *inner)
    placed = binary(SCATTER_ADD.bind(shape=full, axis=0, batch_dims=0), rows, reshape(flat, (count,)))
    return reshape(placed[:places] if ignore else placed, dims)


def tensor_scatter_nd_add(
    tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = "", name: str | None = None
) -> Tensor:
    """The tensor with updates added at rows of positions. Arguments and errors as of `scatter_nd`.

    >>> import gradtape as tf
    >>> print(tf.tensor_scatter_nd_add([1.0, 1.0], [[1], [1]], [2.0, 3.0]).numpy())
    [1. 6.]
    """
    x, values = convert_all([tensor, updates])
    return x + scatter_nd(indices, values, x._aval.dims, bad_indices_policy)


def tensor_scatter_nd_update(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Tensor:
    """The tensor with updates in place of what was at rows of positions; of several the last one stays.

    >>> import gradtape as tf
    >>> print(tf.tensor_scatter_nd_update([1.0, 1.0], [[1]], [5.0]).numpy())
    [1. 5.]
    """
    x, values = convert_all([tensor, updates])
    at = convert(indices)
    dims = x._aval.dims
    depth = index_depth(at, dims, "tensor_scatter_nd_update")
    inner = dims[depth:]
    if values._aval.dims != at._aval.dims[:-1] + inner:
        raise InvalidArgumentError(
            f"`tensor_scatter_nd_update` wants updates of shape {shape_text(at._aval.dims[:-1] + inner)}, "
            f"got {values.shape}."
        )
    flat = flat_positions(at, dims[:depth], "tensor_scatter_nd_update")
    count = flat._aval.size
    if not count:
        return x
    source = _last_at(reshape(flat, (count,)), size_of(dims[:depth]))
    rows = reshape(values, (count, *inner))
    placed = reshape(binary(GATHER.bind(axis=0, batch_dims=0), rows, maximum(source, 0)), dims)
    return where(reshape(source >= 0, dims[:depth] + (1,) * len(inner)), placed, x)


def _last_at(flat: Tensor, size: int) -> Tensor:
    """For each of `size` places the last row that goes there, -1 where there is none."""
    if not isinstance(flat, SymbolicTensor):
        source = np.full(size, -1)
        source[np.asarray(flat)] = np.arange(flat._aval.size)
        return positions(source)
    numbers = positions(np.arange(1, flat._aval.size + 1))
    last = binary(SCATTER_MAX.bind(size=size, axis=0, batch_dims=0), numbers, flat)
    return maximum(last, 0) - 1  # where there is none, the maximum is 0 or the lowest number


def slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Tensor:
    """`size[k]` elements from `begin[k]` along each axis k; -1 stands for all that follow.

    In traced functions and `vectorized_map` the numbers of `begin` may depend on tensors without values.

    Raises:
      InvalidArgumentError: a slice that leaves the tensor.

    >>> import gradtape as tf
    >>> print(tf.slice([1, 2, 3, 4], [1], [2]).numpy())
    [2 3]
    """
    x = convert(input_)
    first, count = begins(begin), integers(size, "size")
    same_rank(x, first, "begin")
    same_rank(x, count, "size")
    cut = []
    for k, (b, n, full) in enumerate(zip(first, count, x._aval.dims, strict=True)):
        late = isinstance(b, SymbolicTensor)
        if late and n == -1:
            raise SymbolicTensorError(
                f"`slice` of axis {k} begins at a tensor without a value, so that -1 is no known size. Give a number."
            )
        start = 0 if late else b
        stop = full if n == -1 else start + n
        if not 0 <= start <= stop <= full:
            raise InvalidArgumentError(f"`slice` of axis {k} from {b} with size {n} leaves [0, {full}).")
        cut.append(builtins.slice(None) if late else builtins.slice(start, stop))
    found = subscript(x, tuple(cut))
    for k, (b, n) in enumerate(zip(first, count, strict=True)):
        if isinstance(b, SymbolicTensor):
            found = binary(GATHER.bind(axis=k, batch_dims=0), found, positions_from(cast(b, int64), n))
    return found


def strided_slice(
    input_: Any,
    begin: Any,
    end: Any,
    strides: Any = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    var: Any = None,
    name: str | None = None,
) -> Tensor:
    """The subscript `x[begin:end:strides]`, entry by entry; bits of the masks replace entries by an open
    start or end, `...`, a new axis, or an index.

    >>> import gradtape as tf
    >>> print(tf.strided_slice([1, 2, 3, 4], [0], [4], [2]).numpy())
    [1 3]
    """
    first, last = integers(begin, "begin"), integers(end, "end")
    steps = (1,) * len(first) if strides is None else integers(strides, "strides")
    if not len(first) == len(last) == len(steps):
        raise InvalidArgumentError(
            "`strided_slice` wants `begin`, `end` and `strides` of one length, got "
            f"{len(first)}, {len(last)} and {len(steps)}."
        )
    key: list[Any] = []
    for k, (b, e, s) in enumerate(zip(first, last, steps, strict=True)):
        bit = 1 << k
        if ellipsis_mask & bit:
            key.append(Ellipsis)
        elif new_axis_mask & bit:
            key.append(None)
        elif shrink_axis_mask & bit:
            key.append(b)
        else:
            key.append(builtins.slice(None if begin_mask & bit else b, None if end_mask & bit else e, s))
    return subscript(convert(input_), tuple(key))


def boolean_mask(tensor: Any, mask: Any, axis: Any = None, name: str = "boolean_mask") -> Tensor:
    """The elements or slices where a mask over some leading axes holds.

    Raises:
      ValueError: a mask that does not fit the tensor.

    >>> import gradtape as tf
    >>> print(tf.boolean_mask([1, 2, 3], [True, False, True]).numpy())
    [1 3]
    """
    x = convert(tensor)
    return masked(x, mask, 0 if axis is None else one_axis(axis, x.ndim))


def one_hot(
    indices: Any,
    depth: Any,
    on_value: Any = None,
    off_value: Any = None,
    axis: Any = None,
    dtype: Any = None,
    name: str | None = None,
) -> Tensor:
    """A new axis of size `depth`, with `on_value` (1) at the index and `off_value` (0) elsewhere.

    Args:
      indices: integers; at those outside [0, depth) no element is on.
      depth: size of the new axis.
      on_value, off_value: scalars of one dtype; gradients flow to them.
      axis: where the new axis stands; by default it is the last.
      dtype: of the result; by default that of `on_value` and `off_value`, or float32.
      name: accepted for compatibility.

    Raises:
      TypeError: values of different dtypes, or of another dtype than `dtype`.

    >>> import gradtape as tf
    >>> print(tf.one_hot([0, 2], 3).numpy())
    [[1. 0. 0.]
     [0. 0. 1.]]
    """
    at = convert_or_empty(indices, int32)
    if not at._aval.dtype.is_integer:
        raise InvalidArgumentError(f"`one_hot` wants integer indices, got a {at.dtype.cname} tensor.")
    on, off, wanted = _on_and_off(on_value, off_value, as_optional_dtype(dtype))
    (n,) = dimensions(depth, "depth")
    k = at.ndim if axis in (None, -1) else one_axis(axis, at.ndim + 1)
    spread = reshape(cast(at, int64), (*at._aval.dims[:k], 1, *at._aval.dims[k:]))
    place = positions(np.arange(n).reshape((n,) + (1,) * (at.ndim - k)))
    hit = spread == place
    if on is None and off is None:
        return cast(hit, wanted)
    return where(hit, cast(1, wanted) if on is None else on, cast(0, wanted) if off is None else off)


def _on_and_off(on: Any, off: Any, dtype: DType | None) -> tuple[Tensor | None, Tensor | None, DType]:
    """Both values as tensors where they are given, and the dtype that they agree on."""
    values = [None if v is None else convert(v, None if isinstance(v, Tensor) else dtype) for v in (on, off)]
    known = [v.dtype for v in values if v is not None]
    wanted = dtype or (known[0] if known else float32)
    for name, v in zip(("on_value", "off_value"), values, strict=True):
        if v is not None and v.dtype is not wanted:
            raise TypeError(
                f"`one_hot`: dtype {v.dtype.name} of {name} does not match dtype {wanted.name} of the result. "
                "Use `tf.cast`."
            )
    return values[0], values[1], wanted
