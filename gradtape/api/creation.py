"""Making tensors: constants, ranges, fills. Floor: api."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.api.arguments import dimensions, one_axis
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, as_dtype, float32, float64, int32, string
from gradtape.ir.errors import InvalidArgumentError, UnimplementedError
from gradtape.ir.shapes import TensorShape, shape_text, size_of
from gradtape.ops.arithmetic import ADD, CAST, MULTIPLY, SUBTRACT
from gradtape.ops.comparison import SELECT
from gradtape.ops.layout import BROADCAST_TO, RESHAPE
from gradtape.runtime.convert import as_optional_dtype, convert, convert_all, requested
from gradtape.runtime.devices import filled
from gradtape.runtime.dispatch import binary, execute, unary
from gradtape.runtime.ranges import SymbolicRange
from gradtape.runtime.tensor import SymbolicTensor, Tensor, from_array, wrap
from gradtape.runtime.variable import Variable


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str = "Const") -> Tensor:
    """A tensor with a copy of the value.

    Args:
      value: a number, a string, an array, or nested lists of these.
      dtype: of the tensor; by default int32, float32, bool, complex128 or string for Python's own, and the
        array's dtype for arrays.
      shape: the value is reshaped to it; a single value fills it.
      name: accepted for compatibility.

    Raises:
      TypeError: a value that the dtype cannot hold, a tensor of another dtype, or a shape of another size.
      ValueError: rows of different lengths.

    >>> import gradtape as tf
    >>> tf.constant([[1, 2], [3, 4]], dtype=tf.float32)
    <tf.Tensor: shape=(2, 2), dtype=float32, numpy=
    array([[1., 2.],
           [3., 4.]], dtype=float32)>
    """
    wanted = as_optional_dtype(dtype)
    if isinstance(value, Tensor | Variable):
        t = convert(value)
        if wanted is not None and t._aval.dtype is not wanted:
            raise TypeError(
                f"Expected a tensor with dtype {wanted.name}, but got dtype {t.dtype.name}. Use "
                f"`tf.cast(x, tf.{wanted.name})`."
            )
        t = wrap(t._array, t._aval)
    else:
        t = requested(value, wanted)
    if shape is None:
        return t
    dims = dimensions(shape, "shape")
    if t._aval.size == 1 and size_of(dims) != 1:
        return unary(BROADCAST_TO.bind(shape=dims), unary(RESHAPE.bind(shape=()), t))
    if t._aval.size != size_of(dims):
        raise TypeError(
            f"Eager execution of tf.constant with unsupported shape: {t._aval.size} elements for {shape_text(dims)}."
        )
    return unary(RESHAPE.bind(shape=dims), t)


def convert_to_tensor(value: Any, dtype: Any = None, dtype_hint: Any = None, name: str | None = None) -> Tensor:
    """The value as a tensor: tensors pass through, variables are read, lists of tensors are stacked.

    Args:
      value: a tensor, variable, array, number, string or nested lists of these.
      dtype: of the result; a tensor of another dtype is an error.
      dtype_hint: a dtype to take where the value allows it.
      name: accepted for compatibility.

    Raises:
      ValueError: a tensor of another dtype.
      TypeError: a value that the dtype cannot hold.

    >>> import gradtape as tf
    >>> print(tf.convert_to_tensor([tf.constant(1.0), 2.0]).numpy())
    [1. 2.]
    """
    wanted, hint = as_optional_dtype(dtype), as_optional_dtype(dtype_hint)
    if wanted is None and hint is not None and not isinstance(value, Tensor | Variable):
        try:
            return convert(value, hint)
        except (TypeError, ValueError):
            return convert(value)
    return requested(value, wanted)


def is_tensor(x: Any) -> bool:
    """Whether x is a tensor or a variable.

    >>> import gradtape as tf
    >>> tf.is_tensor(tf.constant(1)), tf.is_tensor(1)
    (True, False)
    """
    return isinstance(x, Tensor | Variable)


def _filled(shape: Any, value: Any, dtype: DType) -> Tensor:
    dims = dimensions(shape, "shape")
    if dtype is string:
        value = b"" if value == 0 else value
        array: Any = np.full(dims, value, object)
    else:
        array = filled(dims, value, dtype.numpy_dtype)
    return wrap(array if dims else array[()], aval(dims, dtype))


def _here(layout: Any) -> None:
    if layout is not None:
        raise UnimplementedError("`layout` places a tensor on many devices, which there are none of. Leave it out.")


def zeros(shape: Any, dtype: Any = float32, name: str | None = None, layout: Any = None) -> Tensor:
    """A tensor of zeros.

    >>> import gradtape as tf
    >>> print(tf.zeros([2, 3]).numpy())
    [[0. 0. 0.]
     [0. 0. 0.]]
    """
    _here(layout)
    return _filled(shape, 0, as_dtype(dtype))


def ones(shape: Any, dtype: Any = float32, name: str | None = None, layout: Any = None) -> Tensor:
    """A tensor of ones.

    >>> import gradtape as tf
    >>> print(tf.ones([3], tf.int32).numpy())
    [1 1 1]
    """
    _here(layout)
    return _filled(shape, 1, as_dtype(dtype))


def fill(dims: Any, value: Any, name: str | None = None, layout: Any = None) -> Tensor:
    """A tensor of this shape, full of a scalar value; gradients flow to the value.

    Raises:
      InvalidArgumentError: a value that is no scalar, or a negative size.

    >>> import gradtape as tf
    >>> print(tf.fill([2], 7.0).numpy())
    [7. 7.]
    """
    _here(layout)
    t = convert(value)
    if t.ndim:
        raise InvalidArgumentError(f"`fill` wants a scalar `value`, got shape {shape_text(t._aval.shape)}.")
    return unary(BROADCAST_TO.bind(shape=dimensions(dims, "dims")), t)


def zeros_like(input: Any, dtype: Any = None, name: str | None = None, layout: Any = None) -> Tensor:
    """Zeros of the shape (and, unless given, the dtype) of the input.

    >>> import gradtape as tf
    >>> print(tf.zeros_like([1.0, 2.0]).numpy())
    [0. 0.]
    """
    _here(layout)
    x = convert(input)
    return _filled(x.shape, 0, as_optional_dtype(dtype) or x._aval.dtype)


def ones_like(input: Any, dtype: Any = None, name: str | None = None, layout: Any = None) -> Tensor:
    """Ones of the shape (and, unless given, the dtype) of the input.

    >>> import gradtape as tf
    >>> print(tf.ones_like([5, 6]).numpy())
    [1 1]
    """
    _here(layout)
    x = convert(input)
    return _filled(x.shape, 1, as_optional_dtype(dtype) or x._aval.dtype)


def eye(
    num_rows: Any, num_columns: Any = None, batch_shape: Any = None, dtype: Any = float32, name: str | None = None
) -> Tensor:
    """The identity matrix, repeated over a batch shape if one is given.

    >>> import gradtape as tf
    >>> print(tf.eye(2).numpy())
    [[1. 0.]
     [0. 1.]]
    """
    (rows,) = dimensions(num_rows, "num_rows")
    (columns,) = (rows,) if num_columns is None else dimensions(num_columns, "num_columns")
    matrix = np.eye(rows, columns).astype(as_dtype(dtype).numpy_dtype)
    if batch_shape is not None:
        matrix = np.tile(matrix, (*dimensions(batch_shape, "batch_shape"), 1, 1))
    return from_array(matrix)


def range(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str = "range") -> Any:
    """Numbers from `start` in steps of `delta`, up to but without `limit`.

    While a function is traced and a bound has no value, what comes can be looped over by `for`, and is no tensor.

    Raises:
      InvalidArgumentError: a step of 0, or in the other direction.

    >>> import gradtape as tf
    >>> print(tf.range(3).numpy(), tf.range(1.0, 2.0, 0.5).numpy())
    [0 1 2] [1.  1.5]
    """
    if limit is None:
        start, limit = 0, start
    parts = [
        convert(v, as_optional_dtype(dtype)) if not isinstance(v, Tensor | Variable) else convert(v)
        for v in (start, limit, delta)
    ]
    wanted = as_optional_dtype(dtype) or _widest(parts)
    if any(isinstance(p, SymbolicTensor) for p in parts):
        return SymbolicRange(*(unary(CAST.bind(dtype=wanted), p) if p.dtype is not wanted else p for p in parts))
    first, last, step = (np.asarray(p)[()].item() for p in parts)
    if step == 0:
        raise InvalidArgumentError("`range` requires a step (`delta`) other than 0.")
    if (last - first) * step < 0:
        raise InvalidArgumentError(
            f"`range` cannot reach `limit` {last} from `start` {first} in steps of {step}: "
            f"start {'<=' if step > 0 else '>='} limit is required."
        )
    count = max(0, math.ceil((last - first) / step))
    return from_array((first + np.arange(count) * step).astype(wanted.numpy_dtype))


def _widest(parts: list[Tensor]) -> DType:
    order = ("int32", "int64", "float32", "float64")
    names = [p.dtype.name for p in parts]
    known = [n for n in order if n in names]
    return as_dtype(known[-1]) if known else parts[0].dtype


def linspace(start: Any, stop: Any, num: Any, name: str | None = None, axis: int = 0) -> Tensor:
    """`num` evenly spaced numbers from `start` to `stop`, both included; gradients flow to both.

    Args:
      start, stop: tensors of one shape and dtype; integers give float64.
      num: how many numbers.
      name: accepted for compatibility.
      axis: where the new axis stands in the result.

    Raises:
      InvalidArgumentError: a negative count, an axis that does not exist, or shapes that do not broadcast.

    >>> import gradtape as tf
    >>> print(tf.linspace(0.0, 1.0, 5).numpy())
    [0.   0.25 0.5  0.75 1.  ]
    """
    first, last = convert_all([start, stop])
    count = int(num)
    if count < 0:
        raise InvalidArgumentError(f"`linspace` wants `num` of 0 or more, got {count}.")
    if first._aval.dtype.is_integer:
        first, last = (unary(CAST.bind(dtype=float64), t) for t in (first, last))
    gap = binary(SUBTRACT.bind(), last, first)
    rank = gap.ndim
    k = one_axis(axis, rank + 1)
    share = (np.arange(count) / max(count - 1, 1)).astype(gap._aval.dtype.numpy_dtype)
    line = from_array(share.reshape(-1, *(1,) * (rank - k)))
    low, high, wide = (_with_axis(t, k, gap._aval.dims) for t in (first, last, gap))
    inner = binary(ADD.bind(), low, binary(MULTIPLY.bind(), wide, line))
    is_last = from_array((np.arange(count) == count - 1).reshape(-1, *(1,) * (rank - k)))
    if count == 1:
        return inner
    result: Tensor = execute(SELECT.bind(), (is_last, high, inner))
    return result


def _with_axis(t: Tensor, k: int, dims: tuple[int, ...]) -> Tensor:
    """The tensor in the shape `dims` with a new axis of size 1."""
    full = unary(BROADCAST_TO.bind(shape=dims), t) if t._aval.dims != dims else t
    return unary(RESHAPE.bind(shape=(*dims[:k], 1, *dims[k:])), full)


def shape(input: Any, out_type: Any = None, name: str | None = None) -> Tensor:
    """The shape as a tensor of integers, int32 by default.

    >>> import gradtape as tf
    >>> print(tf.shape([[1, 2, 3]]).numpy())
    [1 3]
    """
    return from_array(np.array(convert(input)._aval.dims, as_dtype(out_type or int32).numpy_dtype))


def size(input: Any, out_type: Any = None, name: str | None = None) -> Tensor:
    """The number of elements as a scalar tensor, int32 by default.

    >>> import gradtape as tf
    >>> print(tf.size([[1, 2, 3]]).numpy())
    3
    """
    return convert(np.asarray(convert(input)._aval.size, as_dtype(out_type or int32).numpy_dtype))


def rank(input: Any, name: str | None = None) -> Tensor:
    """The number of axes as a scalar tensor.

    >>> import gradtape as tf
    >>> print(tf.rank([[1, 2, 3]]).numpy())
    2
    """
    return convert(convert(input).ndim)


def ensure_shape(x: Any, shape: Any, name: str | None = None) -> Tensor:
    """x, after a check of its shape (None for dimensions that may be anything).

    Raises:
      InvalidArgumentError: when the shape does not fit.

    >>> import gradtape as tf
    >>> print(tf.ensure_shape([[1, 2]], [None, 2]).numpy())
    [[1 2]]
    """
    from_value = convert(x)
    if not from_value.shape.is_compatible_with(shape):
        raise InvalidArgumentError(
            f"Shape of tensor {from_value.shape} is not compatible with expected shape {TensorShape(shape)}."
        )
    return from_value
