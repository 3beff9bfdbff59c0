"""Pooling: the largest or the mean element of windows. Floor: api."""

from __future__ import annotations

from typing import Any

from gradtape.api.windows import Layout, layout, padded
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ops.composite import Composite
from gradtape.ops.pooling import AVG_POOL, MAX_POOL
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import unary
from gradtape.runtime.tensor import Tensor


def _pooled(op: Composite, at: Layout, x: Tensor, ksize: Any, strides: Any, padding: Any, dilations: Any) -> Tensor:
    if x.ndim != at.axes:
        raise InvalidArgumentError(f"`{at.function}` wants input with {at.axes} dimensions, got shape {x.shape}.")
    window, steps, gaps = at.sizes(ksize, "ksize"), at.sizes(strides, "strides"), at.sizes(dilations, "dilations")
    params = padded(at, padding, at.space(x._aval.dims), window, steps, gaps)
    return at.restored(unary(op.bind(**params), at.channels_last(x)))


def _of_any_rank(function: str, x: Tensor, data_format: Any) -> Layout:
    if not 3 <= x.ndim <= 5:
        raise ValueError(f"`{function}` wants input with 3, 4 or 5 dimensions, got shape {x.shape}.")
    return layout(function, x.ndim - 2, data_format)


def max_pool(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: Any = None, name: str | None = None
) -> Tensor:
    """The largest element of each window, channel by channel.

    Args:
      input: (batch, *space, channels) with one to three axes of space, of real numbers.
      ksize: the window's size: one integer, one per axis of space, or one per axis of `input`.
      strides: the distance of windows, in the same way.
      padding: "SAME" (windows may reach over the edge; there they have fewer elements), "VALID", or a pair of
        integers for every axis of `input`.
      data_format: "NWC", "NHWC" or "NDHWC" (default), or channels first: "NCW", "NCHW" or "NCDHW".
      name: accepted for compatibility.

    Returns:
      (batch, *windows, channels). Of equal largest elements the first one gets the gradient.

    Raises:
      InvalidArgumentError: windows that do not fit.
      ValueError: an unknown padding or data format, another number of dimensions.

    >>> import gradtape as tf
    >>> print(tf.nn.max_pool([[[1.0], [3.0], [2.0]]], ksize=2, strides=1, padding="VALID").numpy().tolist())
    [[[3.0], [3.0]]]
    """
    x = convert(input)
    return _pooled(MAX_POOL, _of_any_rank("max_pool", x, data_format), x, ksize, strides, padding, 1)


def max_pool1d(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NWC", name: str | None = None
) -> Tensor:
    """`max_pool` of (batch, width, channels).

    >>> import gradtape as tf
    >>> print(tf.nn.max_pool1d([[[1.0], [3.0], [2.0]]], 2, 2, "SAME").numpy().tolist())
    [[[3.0], [2.0]]]
    """
    return _pooled(MAX_POOL, layout("max_pool1d", 1, data_format), convert(input), ksize, strides, padding, 1)


def max_pool2d(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NHWC", name: str | None = None
) -> Tensor:
    """`max_pool` of (batch, height, width, channels).

    >>> import gradtape as tf
    >>> x = tf.reshape(tf.constant([1.0, 2.0, 3.0, 4.0]), [1, 2, 2, 1])
    >>> print(tf.nn.max_pool2d(x, 2, 2, "VALID").numpy().tolist())
    [[[[4.0]]]]
    """
    return _pooled(MAX_POOL, layout("max_pool2d", 2, data_format), convert(input), ksize, strides, padding, 1)


def max_pool3d(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NDHWC", name: str | None = None
) -> Tensor:
    """`max_pool` of (batch, depth, height, width, channels).

    >>> import gradtape as tf
    >>> tf.nn.max_pool3d(tf.zeros([1, 4, 4, 4, 2]), 2, 2, "VALID").shape
    TensorShape([1, 2, 2, 2, 2])
    """
    return _pooled(MAX_POOL, layout("max_pool3d", 3, data_format), convert(input), ksize, strides, padding, 1)


def avg_pool(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: Any = None, name: str | None = None
) -> Tensor:
    """The mean of each window's elements, channel by channel; what padding adds is no element.

    Args:
      input: (batch, *space, channels) with one to three axes of space, floating.
      ksize: the window's size: one integer, one per axis of space, or one per axis of `input`.
      strides: the distance of windows, in the same way.
      padding: "SAME", "VALID", or a pair of integers for every axis of `input`.
      data_format: "NWC", "NHWC" or "NDHWC" (default), or channels first: "NCW", "NCHW" or "NCDHW".
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: windows that do not fit.
      ValueError: an unknown padding or data format, another number of dimensions.

    >>> import gradtape as tf
    >>> print(tf.nn.avg_pool([[[1.0], [3.0], [2.0]]], ksize=2, strides=2, padding="SAME").numpy().tolist())
    [[[2.0], [2.0]]]
    """
    x = convert(input)
    return _pooled(AVG_POOL, _of_any_rank("avg_pool", x, data_format), x, ksize, strides, padding, 1)


def avg_pool1d(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NWC", name: str | None = None
) -> Tensor:
    """`avg_pool` of (batch, width, channels).

    >>> import gradtape as tf
    >>> print(tf.nn.avg_pool1d([[[1.0], [3.0], [2.0]]], 2, 1, "VALID").numpy().tolist())
    [[[2.0], [2.5]]]
    """
    return _pooled(AVG_POOL, layout("avg_pool1d", 1, data_format), convert(input), ksize, strides, padding, 1)


def avg_pool2d(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NHWC", name: str | None = None
) -> Tensor:
    """`avg_pool` of (batch, height, width, channels).

    >>> import gradtape as tf
    >>> x = tf.reshape(tf.constant([1.0, 2.0, 3.0, 4.0]), [1, 2, 2, 1])
    >>> print(tf.nn.avg_pool2d(x, 2, 2, "VALID").numpy().tolist())
    [[[[2.5]]]]
    """
    return _pooled(AVG_POOL, layout("avg_pool2d", 2, data_format), convert(input), ksize, strides, padding, 1)


def avg_pool3d(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NDHWC", name: str | None = None
) -> Tensor:
    """`avg_pool` of (batch, depth, height, width, channels).

    >>> import gradtape as tf
    >>> tf.nn.avg_pool3d(tf.zeros([1, 4, 4, 4, 2]), 2, 2, "VALID").shape
    TensorShape([1, 2, 2, 2, 2])
    """
    return _pooled(AVG_POOL, layout("avg_pool3d", 3, data_format), convert(input), ksize, strides, padding, 1)


def pool(
    input: Any,
    window_shape: Any,
    pooling_type: str,
    strides: Any = None,
    padding: Any = "VALID",
    data_format: Any = None,
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """`max_pool` or `avg_pool` with gaps between a window's elements.

    Args:
      input: (batch, *space, channels) with one to three axes of space.
      window_shape: the window's size along each axis.
      pooling_type: "MAX" or "AVG".
      strides: the distance of windows; 1 by default.
      padding: "SAME", "VALID", or a pair of integers for every axis of `input`.
      data_format: channels last by default.
      dilations: the distance of a window's elements; 1 by default.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: windows that do not fit.
      ValueError: another kind of pooling.

    >>> import gradtape as tf
    >>> x = tf.reshape(tf.constant([1.0, 5.0, 2.0, 4.0]), [1, 4, 1])
    >>> print(tf.nn.pool(x, [2], "MAX", dilations=[2]).numpy().tolist())
    [[[2.0], [5.0]]]
    """
    kinds = {"MAX": MAX_POOL, "AVG": AVG_POOL}
    if pooling_type not in kinds:
        raise ValueError(f"`pooling_type` should be 'MAX' or 'AVG', got {pooling_type!r}.")
    x = convert(input)
    at = _of_any_rank("pool", x, data_format)
    return _pooled(kinds[pooling_type], at, x, window_shape, strides, padding, dilations)
