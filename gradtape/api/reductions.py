"""Reductions over axes, running sums, norms. Floor: api."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gradtape.api.arguments import axes, one_axis
from gradtape.api.creation import zeros_like
from gradtape.api.elementwise import abs, cast, imag, real, square
from gradtape.ir.dtypes import DType, as_dtype, bool_, float32, float64, int64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ops import reductions as r
from gradtape.ops.reduction import Reduction
from gradtape.runtime.convert import convert, convert_or_empty
from gradtape.runtime.dispatch import unary
from gradtape.runtime.tensor import EagerTensor, Tensor


def _reduce(op: Reduction, x: Any, axis: Any, keepdims: bool) -> Tensor:
    t: Tensor = x
    if type(x) is not EagerTensor:
        t = convert_or_empty(x, bool_) if op.accepts == "b" else convert(x)
    return unary(op.bind(axes=axes(axis, t.ndim), keepdims=bool(keepdims)), t)


def _function(name: str, op: Reduction, call: str, result: str) -> Callable[..., Tensor]:
    def function(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Tensor:
        return _reduce(op, input_tensor, axis, keepdims)

    function.__name__ = function.__qualname__ = name
    note = f"\n\n{op.notes}" if op.notes else ""
    function.__doc__ = f"""{op.doc}{note}

    Args:
      input_tensor: a tensor, or what becomes one.
      axis: an axis or a list of axes; None reduces all of them.
      keepdims: whether reduced axes stay, with size 1.
      name: accepted for compatibility.

    Returns:
      A tensor of the same dtype without the reduced axes.

    Raises:
      InvalidArgumentError: an axis that does not exist, or a dtype that cannot be reduced.

    >>> import gradtape as tf
    >>> print({call}.numpy())
    {result}
    """
    return function


reduce_sum = _function("reduce_sum", r.REDUCE_SUM, "tf.reduce_sum([[1, 2], [3, 4]], axis=0)", "[4 6]")
reduce_max = _function("reduce_max", r.REDUCE_MAX, "tf.reduce_max([[1, 2], [3, 4]], axis=1)", "[2 4]")
reduce_min = _function("reduce_min", r.REDUCE_MIN, "tf.reduce_min([[1, 2], [3, 4]], axis=1)", "[1 3]")
reduce_prod = _function("reduce_prod", r.REDUCE_PROD, "tf.reduce_prod([[1, 2], [3, 4]], axis=0)", "[3 8]")
reduce_all = _function(
    "reduce_all", r.REDUCE_ALL, "tf.reduce_all([[True, False], [True, True]], axis=1)", "[False  True]"
)
reduce_any = _function(
    "reduce_any", r.REDUCE_ANY, "tf.reduce_any([[True, False], [False, False]], axis=1)", "[ True False]"
)
reduce_logsumexp = _function("reduce_logsumexp", r.REDUCE_LOGSUMEXP, "tf.reduce_logsumexp([0.0, 0.0])", "0.6931472")


def reduce_euclidean_norm(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """sqrt(sum(|x|²)) over axes. The gradient at 0 is 0.

    Args:
      input_tensor: a floating or complex tensor.
      axis: an axis or a list of axes; None reduces all of them.
      keepdims: whether reduced axes stay, with size 1.
      name: accepted for compatibility.

    Returns:
      A tensor of the same dtype (complex numbers without an imaginary part, for complex ones; integers rounded
      towards zero).

    Raises:
      InvalidArgumentError: an axis that does not exist, or a dtype that cannot be reduced.

    >>> import gradtape as tf
    >>> print(tf.math.reduce_euclidean_norm([3.0, 4.0]).numpy())
    5.0
    """
    x = convert(input_tensor)
    if x._aval.dtype.is_integer:
        return cast(_reduce(r.REDUCE_EUCLIDEAN_NORM, cast(x, float64), axis, keepdims), x._aval.dtype)
    if x._aval.dtype.is_complex:
        return cast(_reduce(r.REDUCE_EUCLIDEAN_NORM, abs(x), axis, keepdims), x._aval.dtype)
    return _reduce(r.REDUCE_EUCLIDEAN_NORM, x, axis, keepdims)


def reduce_mean(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The mean over axes. Half types are accumulated in float32; integers are divided as TensorFlow divides
    them, towards zero, and have the mean 0 where there are none.

    Args:
      input_tensor: a tensor, or what becomes one.
      axis: an axis or a list of axes; None reduces all of them.
      keepdims: whether reduced axes stay, with size 1.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: an axis that does not exist.

    >>> import gradtape as tf
    >>> print(tf.reduce_mean([[1.0, 2.0], [3.0, 5.0]], axis=0).numpy())
    [2.  3.5]
    """
    x = convert(input_tensor)
    if x._aval.dtype.is_integer:
        mean = _reduce(r.REDUCE_MEAN, cast(x, float64), axis, keepdims)
        return cast(mean if x._aval.size else zeros_like(mean), x._aval.dtype)
    return _reduce(r.REDUCE_MEAN, x, axis, keepdims)


def reduce_variance(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The mean of squared deviations from the mean; half types are computed in float32.

    Args:
      input_tensor: a floating or complex tensor.
      axis: an axis or a list of axes; None reduces all of them.
      keepdims: whether reduced axes stay, with size 1.
      name: accepted for compatibility.

    Returns:
      A real tensor without the reduced axes.

    Raises:
      TypeError: integers.

    >>> import gradtape as tf
    >>> print(tf.math.reduce_variance([1.0, 2.0, 3.0, 4.0]).numpy())
    1.25
    """
    x, dtype = _centred(input_tensor, axis, "reduce_variance")
    squared = square(real(x)) + square(imag(x)) if x._aval.dtype.is_complex else square(x)
    return cast(reduce_mean(squared, axis, keepdims), dtype)


def _centred(value: Any, axis: Any, name: str) -> tuple[Tensor, DType]:
    """The distances from the mean, in float32 for half types, and the dtype of the result."""
    x = convert(value)
    dtype = x._aval.dtype
    if not dtype.is_differentiable:
        raise TypeError(f"`{name}`: input must be either real or complex, got {dtype.name}. Use `tf.cast`.")
    wide = cast(x, float32) if dtype.is_half else x
    return wide - reduce_mean(wide, axis, True), dtype.real_dtype


def reduce_std(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The root of the variance; arguments as for `reduce_variance`. Where all elements are equal the gradient is 0.

    Raises:
      TypeError: integers.

    >>> import gradtape as tf
    >>> print(tf.math.reduce_std([1.0, 3.0]).numpy())
    1.0
    """
    x, dtype = _centred(input_tensor, axis, "reduce_std")
    count = math.prod(x._aval.dims[k] for k in axes(axis, x.ndim))
    spread = _reduce(r.REDUCE_EUCLIDEAN_NORM, abs(x) if x._aval.dtype.is_complex else x, axis, keepdims)
    return cast(spread / (math.sqrt(count) if count else float("nan")), dtype)


def argmax(input: Any, axis: Any = None, output_type: Any = int64, name: str | None = None) -> Tensor:
    """The position of the largest element along an axis (0 by default); of equal ones the first.

    >>> import gradtape as tf
    >>> print(tf.argmax([[1.0, 9.0], [7.0, 2.0]], axis=1).numpy())
    [1 0]
    """
    return _position(r.ARGMAX, input, axis, output_type)


def argmin(input: Any, axis: Any = None, output_type: Any = int64, name: str | None = None) -> Tensor:
    """The position of the smallest element along an axis (0 by default); of equal ones the first.

    >>> import gradtape as tf
    >>> print(tf.argmin([[1.0, 9.0], [7.0, 2.0]], axis=1).numpy())
    [0 1]
    """
    return _position(r.ARGMIN, input, axis, output_type)


def _position(op: Any, x: Any, axis: Any, dtype: Any) -> Tensor:
    t = convert(x)
    if not as_dtype(dtype).is_integer:
        raise InvalidArgumentError(f"`output_type` should be an integer dtype, got {as_dtype(dtype).name}.")
    return unary(op.bind(axis=one_axis(0 if axis is None else axis, t.ndim), dtype=as_dtype(dtype)), t)


def cumsum(x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None) -> Tensor:
    """Running sums along an axis.

    Args:
      x: a numeric tensor.
      axis: along which to add.
      exclusive: leave each element out of its own sum.
      reverse: add from the end.
      name: accepted for compatibility.

    >>> import gradtape as tf
    >>> print(tf.cumsum([1, 2, 3]).numpy(), tf.cumsum([1, 2, 3], exclusive=True).numpy())
    [1 3 6] [0 1 3]
    """
    t = convert(x)
    return unary(r.CUMSUM.bind(axis=one_axis(axis, t.ndim), exclusive=bool(exclusive), reverse=bool(reverse)), t)
