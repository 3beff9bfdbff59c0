"""Tensors' bytes read as another dtype, and casts that stop at a dtype's ends. Floor: api."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.api.elementwise import cast, clip_by_value, complex, imag, real
from gradtape.ir.dtypes import DType, as_dtype
from gradtape.ops import bits as b
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import unary
from gradtape.runtime.tensor import Tensor


def bitcast(input: Any, type: Any, name: str | None = None) -> Tensor:
    """The bytes of a tensor, read as another dtype. No gradient flows through it.

    Args:
      input: a tensor of numbers.
      type: the dtype to read. If it is smaller, each element becomes a row along a new last axis; if it is larger,
        each row along the last axis, which must have the right size, becomes one element.
      name: accepted for compatibility.

    Returns:
      A tensor of dtype `type`.

    Raises:
      InvalidArgumentError: for bools and strings, and where rows do not make one element.

    >>> import gradtape as tf
    >>> print(tf.bitcast([1.0, -2.0], tf.int32).numpy())
    [ 1065353216 -1073741824]
    >>> print(tf.bitcast(tf.constant([[1, 0], [2, 0]]), tf.int64).numpy())
    [1 2]
    """
    x, target = convert(input), as_dtype(type)
    source = x._aval.dtype
    if source is target:
        return x
    op = b.BITCAST if source.size == target.size else b.BITCAST_SPLIT if source.size > target.size else b.BITCAST_JOIN
    return unary(op.bind(dtype=target), x)


def saturate_cast(value: Any, dtype: Any, name: str | None = None) -> Tensor:
    """A tensor with another dtype, in which numbers that it cannot hold become its smallest or its largest.

    Args:
      value: a tensor of numbers; of complex ones the real part is taken where the dtype is real.
      dtype: the dtype.
      name: accepted for compatibility.

    Returns:
      A tensor of the same shape. Gradients flow between floating dtypes, where the numbers fit.

    >>> import gradtape as tf
    >>> print(tf.saturate_cast([-1.0, 100.0, 300.0], tf.uint8).numpy())
    [  0 100 255]
    """
    x, target = convert(value), as_dtype(dtype)
    if x._aval.dtype.is_complex:
        if target.is_complex:
            part = target.real_dtype
            return complex(saturate_cast(real(x), part), saturate_cast(imag(x), part))
        x = real(x)
    low, high = _limits(x._aval.dtype, target.real_dtype)
    return cast(clip_by_value(x, low, high) if low is not None else x, target)


def _exact(number: Any) -> int | float:
    return int(number) if isinstance(number, int | np.integer) else float(number)


def _limits(source: DType, target: DType) -> tuple[Any, Any]:
    """The smallest and the largest number of the source dtype that the target holds; None where it holds all."""
    if source.is_bool or (source.min >= target.min and source.max <= target.max):
        return None, None
    number = source.numpy_dtype.type
    if source.is_integer:
        return number(max(source.min, int(target.min))), number(min(source.max, int(target.max)))
    low, high = (number(v) for v in (max(source.min, target.min), min(source.max, target.max)))
    # Rounding to the source may have left the target's range, as 2³¹ - 1 does in single precision.
    # Python compares a float with an int exactly.
    if float(low) < _exact(target.min):
        low = np.nextafter(low, number(0))
    if float(high) > _exact(target.max):
        high = np.nextafter(high, number(0))
    return low, high
