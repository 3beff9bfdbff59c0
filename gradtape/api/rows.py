"""Softmax, cross-entropies and normalisation: the functions of `tf.nn` that are no activations. Floor: api."""

from __future__ import annotations

import math
from typing import Any

from gradtape.api.arguments import one_axis
from gradtape.api.elementwise import (
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
from gradtape.api.reductions import reduce_mean, reduce_sum
from gradtape.ir.dtypes import float32
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
    """-sum(labels · log(softmax(logits))) along the last axis; differentiable in both.

    Raises:
      InvalidArgumentError: labels and logits of different shapes or dtypes.

    >>> import gradtape as tf
    >>> print(tf.nn.softmax_cross_entropy_with_logits(labels=[[1.0, 0.0]], logits=[[0.0, 0.0]]).numpy())
    [0.6931472]
    """
    x = convert(logits)
    y = operand(labels, x._aval.dtype)
    if one_axis(axis, x.ndim) != x.ndim - 1:
        raise InvalidArgumentError(f"`axis` should be the last one, got {axis}. Move it there with `tf.transpose`.")
    return binary(r.CROSS_ENTROPY.bind(), y, x)


def sparse_softmax_cross_entropy_with_logits(labels: Any, logits: Any, name: str | None = None) -> Tensor:
    """The cross-entropy of integer labels: logsumexp(logits) - logits[label] along the last axis.

    Raises:
      InvalidArgumentError: labels that are no integers, out of range, or not one per row.

    >>> import gradtape as tf
    >>> print(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[1], logits=[[0.0, 0.0]]).numpy())
    [0.6931472]
    """
    return binary(r.SPARSE_CROSS_ENTROPY.bind(), convert(labels), convert(logits))


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


def l2_normalize(x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None) -> Tensor:
    """x / sqrt(max(sum(x²), epsilon)) along axes.

    >>> import gradtape as tf
    >>> print(tf.math.l2_normalize([3.0, 4.0]).numpy())
    [0.6 0.8]
    """
    t = convert(x)
    return t * rsqrt(maximum(reduce_sum(square(t), axis, True), operand(epsilon, t._aval.dtype)))


def bias_add(value: Any, bias: Any, data_format: str | None = None, name: str | None = None) -> Tensor:
    """A vector added along the last axis (along axis 1 with `data_format="NCHW"`).

    Raises:
      InvalidArgumentError: a bias that is no vector of that axis' size, or a value of fewer than two axes.

    >>> import gradtape as tf
    >>> print(tf.nn.bias_add([[1.0, 2.0]], [10.0, 20.0]).numpy())
    [[11. 22.]]
    """
    x = convert(value)
    b = operand(bias, x._aval.dtype)
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

    >>> import gradtape as tf
    >>> print(tf.nn.batch_normalization([1.0, 3.0], 2.0, 1.0, 0.5, 2.0, 0.0).numpy())
    [-1.5  2.5]
    """
    t = convert(x)
    dtype = t._aval.dtype
    factor = rsqrt(operand(variance, dtype) + variance_epsilon)
    if scale is not None:
        factor = factor * operand(scale, dtype)
    centred = (t - operand(mean, dtype)) * factor
    return centred if offset is None else centred + operand(offset, dtype)
