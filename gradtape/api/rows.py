"""Softmax, cross-entropies and normalisation: the functions of `tf.nn` that are no activations. Floor: api."""

from __future__ import annotations

import math
from typing import Any

from gradtape.api.arguments import one_axis
from gradtape.api.elementwise import (
    abs,
    cast,
    exp,
    greater,
    less,
    log,
    logical_or,
    maximum,
    rsqrt,
    softplus,
    square,
    where,
)
from gradtape.api.layout import transpose
from gradtape.api.reductions import reduce_mean, reduce_sum
from gradtape.ir.dtypes import DType, float32
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ops import rowwise as r
from gradtape.runtime.contract import reshape
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import binary, unary
from gradtape.runtime.operators import operand
from gradtape.runtime.tensor import Tensor


def softmax(logits: Any, axis: Any = None, name: str | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis (the last by default), without overflow.

    >>> import gradtape as tf
    >>> print(tf.nn.softmax([0.0, 0.0]).numpy())
    [0.5 0.5]
    """
    x = convert(logits)
    return unary(r.SOFTMAX.bind(axis=one_axis(-1 if axis is None else axis, x.ndim)), x)


def log_softmax(logits: Any, axis: Any = None, name: str | None = None) -> Tensor:
    """The logarithm of the softmax along an axis (the last by default).

    >>> import gradtape as tf
    >>> print(tf.nn.log_softmax([0.0, 0.0]).numpy())
    [-0.6931472 -0.6931472]
    """
    x = convert(logits)
    return unary(r.LOG_SOFTMAX.bind(axis=one_axis(-1 if axis is None else axis, x.ndim)), x)


def softmax_cross_entropy_with_logits(labels: Any, logits: Any, axis: Any = -1, name: str | None = None) -> Tensor:
    """-sum(labels · log(softmax(logits))) along an axis; differentiable in both.

    Args:
      labels: what weighs each class; of another dtype it is cast to that of the logits.
      logits: a floating tensor.
      axis: of the classes, the last by default.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: labels and logits of different shapes.

    >>> import gradtape as tf
    >>> print(tf.nn.softmax_cross_entropy_with_logits(labels=[[1.0, 0.0]], logits=[[0.0, 0.0]]).numpy())
    [0.6931472]
    """
    x = convert(logits)
    y = cast(convert(labels), x._aval.dtype)
    k = one_axis(axis, x.ndim)
    if k != x.ndim - 1 and y.ndim == x.ndim:
        x, y = _with_last(x, k), _with_last(y, k)
    return binary(r.CROSS_ENTROPY.bind(), y, x)


def _with_last(x: Tensor, axis: int) -> Tensor:
    """An axis moved to the end."""
    return transpose(x, [*(k for k in range(x.ndim) if k != axis), axis])


def sparse_softmax_cross_entropy_with_logits(labels: Any, logits: Any, name: str | None = None) -> Tensor:
    """The cross-entropy of integer labels: logsumexp(logits) - logits[label] along the last axis.

    Raises:
      InvalidArgumentError: labels that are no integers, or out of range.
      ValueError: not one label per row.

    >>> import gradtape as tf
    >>> print(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[1], logits=[[0.0, 0.0]]).numpy())
    [0.6931472]
    """
    y, x = convert(labels), convert(logits)
    if x.ndim and y._aval.dims != x._aval.dims[:-1]:
        raise ValueError(
            f"`labels.shape` must equal `logits.shape` except for the last dimension, got labels of shape {y.shape} "
            f"and logits of shape {x.shape}."
        )
    return binary(r.SPARSE_CROSS_ENTROPY.bind(), y, x)


def log_poisson_loss(targets: Any, log_input: Any, compute_full_loss: bool = False, name: str | None = None) -> Tensor:
    """exp(log_input) - targets · log_input: the negative log-likelihood of counts, without the term that depends on
    the targets alone.

    Args:
      targets: counts, of the shape and dtype of `log_input`.
      log_input: logarithms of the expected counts.
      compute_full_loss: add Stirling's approximation of that term, for targets above 1.
      name: accepted for compatibility.

    Raises:
      ValueError: operands of different shapes.

    >>> import gradtape as tf
    >>> print(tf.nn.log_poisson_loss([2.0], [0.0]).numpy())
    [1.]
    """
    x = convert(log_input)
    z = operand(targets, x._aval.dtype)
    if z._aval.shape != x._aval.shape:
        raise ValueError(
            f"`log_input` and `targets` must have the same shape, received ({x.shape} vs {z.shape}). Reshape one."
        )
    loss = exp(x) - x * z
    if not compute_full_loss:
        return loss
    counted = logical_or(less(z, operand(0, z._aval.dtype)), greater(z, operand(1, z._aval.dtype)))
    stirling = z * log(z) - z + log(z * (2 * math.pi)) * 0.5
    return loss + where(counted, stirling, operand(0, z._aval.dtype))


def weighted_cross_entropy_with_logits(labels: Any, logits: Any, pos_weight: Any, name: str | None = None) -> Tensor:
    """-pos_weight · labels · log(sigmoid(x)) - (1 - labels) · log(1 - sigmoid(x)), without overflow.

    Args:
      labels: probabilities, of the shape and dtype of `logits`.
      logits: x.
      pos_weight: the weight of positive examples; it broadcasts.
      name: accepted for compatibility.

    Raises:
      ValueError: labels and logits of different shapes.

    >>> import gradtape as tf
    >>> print(tf.nn.weighted_cross_entropy_with_logits(labels=[1.0], logits=[0.0], pos_weight=2.0).numpy())
    [1.3862944]
    """
    x = convert(logits)
    z = operand(labels, x._aval.dtype)
    if z._aval.shape != x._aval.shape:
        raise ValueError(
            f"`logits` and `labels` must have the same shape, received ({x.shape} vs {z.shape}). Reshape one."
        )
    weight = 1 + (operand(pos_weight, x._aval.dtype) - 1) * z
    return (1 - z) * x + weight * softplus(-x)


def l2_loss(t: Any, name: str | None = None) -> Tensor:
    """Half the sum of squares.

    >>> import gradtape as tf
    >>> print(tf.nn.l2_loss([3.0, 4.0]).numpy())
    12.5
    """
    return reduce_sum(square(convert(t))) / 2


def l2_normalize(x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None, dim: Any = None) -> Tensor:
    """x / sqrt(max(sum(|x|²), epsilon)) along axes.

    Args:
      x: a floating or complex tensor.
      axis: an axis or a list of axes; all by default.
      epsilon: what sums of squares are at least.
      name: accepted for compatibility.
      dim: an old name of `axis`.

    Raises:
      ValueError: both `axis` and `dim`.

    >>> import gradtape as tf
    >>> print(tf.math.l2_normalize([3.0, 4.0]).numpy())
    [0.6 0.8]
    """
    if dim is not None:
        if axis is not None:
            raise ValueError("`l2_normalize` takes one of `axis` and `dim`, its old name, got both.")
        axis = dim
    t = convert(x)
    size = abs(t) if t._aval.dtype.is_complex else t
    factor = rsqrt(maximum(reduce_sum(square(size), axis, True), operand(epsilon, size._aval.dtype)))
    return t * cast(factor, t._aval.dtype)


def bias_add(value: Any, bias: Any, data_format: str | None = None, name: str | None = None) -> Tensor:
    """A vector added along the last axis (along axis 1 with `data_format="NCHW"`).

    Raises:
      InvalidArgumentError: a bias that is no vector of that axis' size, or a value of fewer than two axes.
      ValueError: a `data_format` that has the channels neither last nor second.

    >>> import gradtape as tf
    >>> print(tf.nn.bias_add([[1.0, 2.0]], [10.0, 20.0]).numpy())
    [[11. 22.]]
    """
    x = convert(value)
    b = operand(bias, x._aval.dtype)
    layout = "NC" if data_format is None else data_format
    if not (layout.startswith("NC") or (layout.startswith("N") and layout.endswith("C"))):
        raise ValueError(f"`data_format` must be of the form 'N...C' or 'NC...', got {data_format!r}.")
    first = bool(data_format) and str(data_format).startswith("NC")
    axis = 1 if first else x.ndim - 1
    if x.ndim < 2:
        raise InvalidArgumentError(f"`bias_add` wants a value of two or more dimensions, got shape {x.shape}.")
    if b.ndim != 1 or b._aval.dims[0] != x._aval.dims[axis]:
        raise InvalidArgumentError(f"`bias` should be a vector of size {x._aval.dims[axis]}, got shape {b.shape}.")
    return x + reshape(b, (b._aval.dims[0], *(1,) * (x.ndim - 1 - axis)))


def moments(
    x: Any, axes: Any, shift: Any = None, keepdims: bool = False, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Mean and variance over axes; half types are computed in float32.

    >>> import gradtape as tf
    >>> mean, variance = tf.nn.moments([1.0, 3.0], axes=[0])
    >>> float(mean), float(variance)
    (2.0, 1.0)
    """
    t = convert(x)
    wide = cast(t, float32) if t._aval.dtype.is_half else t
    mean = reduce_mean(wide, axes, True)
    variance = reduce_mean(square(wide - mean), axes, keepdims)
    if not keepdims:
        mean = reshape(mean, variance._aval.dims)
    return cast(mean, t._aval.dtype), cast(variance, t._aval.dtype)


def batch_normalization(
    x: Any, mean: Any, variance: Any, offset: Any, scale: Any, variance_epsilon: float, name: str | None = None
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) · scale + offset; `scale` and `offset` may be None.

    Where x is of a half type, the others may be of float32: the result is computed in it and rounded at the end.

    >>> import gradtape as tf
    >>> print(tf.nn.batch_normalization([1.0, 3.0], 2.0, 1.0, 0.5, 2.0, 0.0).numpy())
    [-1.5  2.5]
    """
    t = convert(x)
    dtype = t._aval.dtype
    if dtype.is_half and any(getattr(v, "dtype", None) == float32 for v in (mean, variance, offset, scale)):
        mean, variance, offset, scale = (_as_float32(v, dtype) for v in (mean, variance, offset, scale))
        wide = batch_normalization(cast(t, float32), mean, variance, offset, scale, variance_epsilon)
        return cast(wide, dtype)
    factor = rsqrt(operand(variance, dtype) + variance_epsilon)
    if scale is not None:
        factor = factor * operand(scale, dtype)
    centred = (t - operand(mean, dtype)) * factor
    return centred if offset is None else centred + operand(offset, dtype)


def _as_float32(value: Any, dtype: DType) -> Any:
    return None if value is None else cast(operand(value, dtype), float32)
