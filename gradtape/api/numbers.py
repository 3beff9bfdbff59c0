"""Tests and small computations on numbers: `tf.math`'s functions that are made of a few others. Floor: api."""

from __future__ import annotations

import math
from typing import Any

from gradtape.api.elementwise import abs, add_n, atan2, divide_no_nan, imag, less, multiply, real, subtract, where
from gradtape.api.layout import reshape
from gradtape.api.reductions import reduce_all
from gradtape.ir.dtypes import as_dtype
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import TensorShape
from gradtape.ops.bits import NEXTAFTER
from gradtape.ops.comparison import GREATER, GREATER_EQUAL
from gradtape.ops.op import Op
from gradtape.runtime.convert import convert, convert_all
from gradtape.runtime.dispatch import binary
from gradtape.runtime.operators import operand
from gradtape.runtime.tensor import Tensor


def nextafter(x1: Any, x2: Any, name: str | None = None) -> Tensor:
    """The next number after x1 on the way to x2, elementwise.

    Args:
      x1: tensors of a floating dtype. Gradients flow to them.
      x2: tensors of the same dtype. Shapes broadcast.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: for mixed dtypes, and for shapes that do not broadcast.

    >>> import gradtape as tf
    >>> print(tf.math.nextafter([1.0, 0.0], 2.0).numpy())
    [1.0000001e+00 1.4012985e-45]
    """
    return binary(NEXTAFTER.bind(), *convert_all([x1, x2]))


def angle(input: Any, name: str | None = None) -> Tensor:
    """The angle of complex numbers in [-pi, pi]; of real ones 0, and pi where they are negative.

    Args:
      input: tensors of a complex or floating dtype.
      name: accepted for compatibility.

    Returns:
      A real tensor of the same shape.

    >>> import gradtape as tf
    >>> print(tf.math.angle([1j, -1 + 0j]).numpy().round(4))
    [1.5708 3.1416]
    """
    z = convert(input)
    if z._aval.dtype.is_complex:
        return atan2(imag(z), real(z))
    dtype = z._aval.dtype
    return where(less(z, convert(0.0, dtype)), convert(math.pi, dtype), convert(0.0, dtype))


def reciprocal_no_nan(x: Any, name: str | None = None) -> Tensor:
    """1 / x, and 0 where x is 0.

    >>> import gradtape as tf
    >>> print(tf.math.reciprocal_no_nan([2.0, 0.0]).numpy())
    [0.5 0. ]
    """
    x = convert(x)
    return divide_no_nan(convert(1.0, x._aval.dtype), x)


def approximate_equal(x: Any, y: Any, tolerance: float = 1e-05, name: str | None = None) -> Tensor:
    """Where |x - y| < tolerance.

    Args:
      x: tensors of numbers.
      y: tensors of the same dtype and shape.
      tolerance: how far apart the numbers may be.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: for tensors of different shapes or dtypes.

    >>> import gradtape as tf
    >>> print(tf.math.approximate_equal([1.0, 2.0], [1.000001, 2.1]).numpy())
    [ True False]
    """
    x, y = convert_all([x, y])
    if x._aval.shape != y._aval.shape:
        raise InvalidArgumentError(f"`approximate_equal` wants tensors of one shape, got {x.shape} and {y.shape}.")
    far = abs(subtract(x, y))
    return less(far, operand(tolerance, far._aval.dtype))


def accumulate_n(inputs: Any, shape: Any = None, tensor_dtype: Any = None, name: str | None = None) -> Tensor:
    """The sum of a list of tensors of one shape and dtype.

    Args:
      inputs: a list of tensors.
      shape: the shape that they should have; by default that of the first.
      tensor_dtype: the dtype that they should have.
      name: accepted for compatibility.

    Raises:
      ValueError: an empty list, or tensors of another shape or dtype.

    >>> import gradtape as tf
    >>> print(tf.math.accumulate_n([[1.0, 2.0], [3.0, 4.0]]).numpy())
    [4. 6.]
    """
    if not isinstance(inputs, list | tuple) or not inputs:
        raise ValueError("`accumulate_n` wants a non-empty list of tensors of one shape and dtype.")
    parts = convert_all(inputs)
    wanted = TensorShape(shape) if shape is not None else parts[0].shape
    dtype = as_dtype(tensor_dtype) if tensor_dtype is not None else parts[0].dtype
    for p in parts:
        if p.dtype != dtype or not wanted.is_compatible_with(p.shape):
            raise ValueError(
                f"`accumulate_n` wants tensors of dtype {dtype.name} and shape {wanted}, got {p.dtype.name} {p.shape}."
            )
    return add_n(parts)


def _steps(x: Any, op: Op) -> Tensor:
    """Whether every element of a flattened tensor and the next one are so compared."""
    flat = reshape(convert(x), [-1])
    return reduce_all(binary(op.bind(), flat[1:], flat[:-1]))


def is_non_decreasing(x: Any, name: str | None = None) -> Tensor:
    """Whether no element, in the order of the flattened tensor, is smaller than the one before it.

    >>> import gradtape as tf
    >>> print(tf.math.is_non_decreasing([1.0, 1.0, 2.0]).numpy())
    True
    """
    return _steps(x, GREATER_EQUAL)


def is_strictly_increasing(x: Any, name: str | None = None) -> Tensor:
    """Whether every element, in the order of the flattened tensor, is larger than the one before it.

    >>> import gradtape as tf
    >>> print(tf.math.is_strictly_increasing([1.0, 1.0, 2.0]).numpy())
    False
    """
    return _steps(x, GREATER)


def polyval(coeffs: Any, x: Any, name: str | None = None) -> Tensor:
    """A polynomial at x, by Horner's rule: coeffs[0] is of the highest power.

    Args:
      coeffs: a list of numbers or tensors that broadcast with x.
      x: a tensor.
      name: accepted for compatibility.

    Raises:
      ValueError: when `coeffs` is no list.

    >>> import gradtape as tf
    >>> print(tf.math.polyval([2.0, 0.0, 1.0], [1.0, 3.0]).numpy())
    [ 3. 19.]
    """
    if not isinstance(coeffs, list | tuple):
        raise ValueError(f"`polyval` wants a list of coefficients, got {type(coeffs).__name__}.")
    x = convert(x)
    total = multiply(x, operand(0, x._aval.dtype))
    for c in coeffs:
        total = total * x + operand(c, x._aval.dtype)
    return total
