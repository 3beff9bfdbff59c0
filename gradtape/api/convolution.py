"""Convolutions of one to three dimensions, grouped, depthwise and transposed: each a few lines over one op and its
transpose. Floor: api."""

from __future__ import annotations

from typing import Any

from gradtape.api.arguments import integers
from gradtape.api.windows import Layout, Sizes, layout, padded
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import shape_text
from gradtape.ops.convolution import CONVOLVE, CONVOLVE_INPUT
from gradtape.ops.windows import Windows
from gradtape.runtime.contract import reshape
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import binary
from gradtape.runtime.operators import operand
from gradtape.runtime.tensor import Tensor


def _kernel(at: Layout, filters: Any, x: Tensor) -> Tensor:
    k = operand(filters, x._aval.dtype)
    if k.ndim != at.axes:
        raise InvalidArgumentError(f"`{at.function}` wants filters with {at.axes} dimensions, got shape {k.shape}.")
    return k


def _groups(at: Layout, channels: int, depth: int, results: int) -> int:
    """How many groups of `depth` channels there are, each with its share of the results."""
    if not depth or channels % depth:
        raise InvalidArgumentError(
            f"`{at.function}`: input depth must be evenly divisible by filter depth: {channels} vs {depth}."
        )
    groups = channels // depth
    if not groups or results % groups:
        raise InvalidArgumentError(
            f"`{at.function}` wants a multiple of {groups} filters, one share for each group of {depth} of the input's "
            f"{channels} channels, got {results}."
        )
    return groups


def _convolved(
    at: Layout, x: Tensor, k: Tensor, groups: int, strides: Any, padding: Any, dilations: Any, batch: Sizes
) -> Tensor:
    """(n, *space, channels) under a kernel (*window, depth, groups, results)."""
    dims, (*window, depth, _, results) = x._aval.dims, k._aval.dims
    params = padded(at, padding, dims[1:-1], tuple(window), strides, dilations)
    y = binary(CONVOLVE.bind(**params), reshape(x, (*dims[:-1], groups, depth)), k)
    counts = y._aval.dims[1:-2]
    whole = at.restored(reshape(y, (*y._aval.dims[:-2], groups * results)))
    return reshape(whole, (*batch, *at.joined(counts, groups * results)))


def _grouped(at: Layout, input: Any, filters: Any, strides: Any, padding: Any, dilations: Any) -> Tensor:
    x = convert(input)
    k = _kernel(at, filters, x)
    x, batch = at.merged(x)
    x = at.channels_last(x)
    *window, depth, results = k._aval.dims
    groups = _groups(at, x._aval.dims[-1], depth, results)
    k = reshape(k, (*window, depth, groups, results // groups))
    return _convolved(at, x, k, groups, at.sizes(strides, "strides"), padding, at.sizes(dilations, "dilations"), batch)


def convolution(
    input: Any,
    filters: Any,
    strides: Any = None,
    padding: Any = "VALID",
    data_format: Any = None,
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Sums over windows of the input, weighted by filters (which are not reversed), in one to three dimensions.

        result[n, t, o] = sum over w and c of  input[n, t·stride + w·dilation - before, c] · filters[w, c, o]

    Args:
      input: (batch, *space, channels), floating or complex.
      filters: (*window, depth, results). Where `channels` is a multiple of `depth`, channels are convolved in groups
        of `depth`, each with its share of the results.
      strides: the distance of windows: one integer, one per axis of space, or one per axis of `input`.
      padding: "SAME" (as many windows as elements, divided by the stride), "VALID" (windows inside the input), or a
        pair of integers for every axis of `input`: how many zeros go before and after it.
      data_format: channels last by default, or channels first: "NCW", "NCHW", "NCDHW".
      dilations: the distance of a window's elements, in the same way as `strides`.
      name: accepted for compatibility.

    Returns:
      (batch, *windows, results).

    Raises:
      InvalidArgumentError: shapes or dtypes that do not fit.
      ValueError: an unknown padding or data format.

    >>> import gradtape as tf
    >>> x = tf.reshape(tf.constant([1.0, 2.0, 3.0]), [1, 3, 1])
    >>> print(tf.nn.convolution(x, tf.ones([2, 1, 1])).numpy().tolist())
    [[[3.0], [5.0]]]
    """
    k = convert(filters)
    if not 3 <= k.ndim <= 5:
        raise ValueError(f"`convolution` wants filters with 3, 4 or 5 dimensions, got shape {k.shape}.")
    at = layout("convolution", k.ndim - 2, data_format)
    return _grouped(at, input, filters, strides, padding, dilations)


def conv1d(
    input: Any,
    filters: Any,
    stride: Any,
    padding: Any,
    data_format: Any = "NWC",
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """`convolution` of (batch, width, channels) by filters (width, depth, results); more batch axes may lead.

    >>> import gradtape as tf
    >>> x = tf.reshape(tf.constant([1.0, 2.0, 3.0]), [1, 3, 1])
    >>> print(tf.nn.conv1d(x, tf.ones([2, 1, 1]), 1, "SAME").numpy().tolist())
    [[[3.0], [5.0], [3.0]]]
    """
    return _grouped(layout("conv1d", 1, data_format), input, filters, stride, padding, dilations)


def conv2d(
    input: Any,
    filters: Any,
    strides: Any,
    padding: Any,
    data_format: Any = "NHWC",
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """`convolution` of (batch, height, width, channels) by filters (height, width, depth, results); more batch axes
    may lead.

    >>> import gradtape as tf
    >>> x = tf.reshape(tf.constant([1.0, 2.0, 3.0, 4.0]), [1, 2, 2, 1])
    >>> print(tf.nn.conv2d(x, tf.ones([2, 2, 1, 1]), strides=1, padding="VALID").numpy().tolist())
    [[[[10.0]]]]
    """
    return _grouped(layout("conv2d", 2, data_format), input, filters, strides, padding, dilations)


def conv3d(
    input: Any,
    filters: Any,
    strides: Any,
    padding: Any,
    data_format: Any = "NDHWC",
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """`convolution` of (batch, depth, height, width, channels) by filters with three axes of window.

    >>> import gradtape as tf
    >>> y = tf.nn.conv3d(tf.ones([1, 3, 3, 3, 1]), tf.ones([2, 2, 2, 1, 4]), [1, 1, 1, 1, 1], "VALID")
    >>> print(y.shape, y[0, 0, 0, 0].numpy())
    (1, 2, 2, 2, 4) [8. 8. 8. 8.]
    """
    return _grouped(layout("conv3d", 3, data_format), input, filters, strides, padding, dilations)


def depthwise_conv2d(
    input: Any,
    filter: Any,
    strides: Any,
    padding: Any,
    data_format: Any = None,
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Each channel convolved by filters of its own.

    Args:
      input: (batch, height, width, channels).
      filter: (height, width, channels, multiplier).
      strides, padding, data_format, dilations: as for `conv2d`.
      name: accepted for compatibility.

    Returns:
      (batch, height, width, channels · multiplier): the results of a channel stand next to each other.

    Raises:
      InvalidArgumentError: another number of channels.

    >>> import gradtape as tf
    >>> x = tf.constant([[[[1.0, 10.0], [2.0, 20.0]]]])
    >>> print(tf.nn.depthwise_conv2d(x, tf.ones([1, 2, 2, 1]), [1, 1, 1, 1], "VALID").numpy())
    [[[[ 3. 30.]]]]
    """
    at = layout("depthwise_conv2d", 2, data_format)
    x = convert(input)
    k = _kernel(at, filter, x)
    x, batch = at.merged(x)
    x = at.channels_last(x)
    *window, channels, results = k._aval.dims
    if x._aval.dims[-1] != channels:
        raise InvalidArgumentError(
            f"`depthwise_conv2d`: input and filter must have the same depth: {x._aval.dims[-1]} vs {channels}."
        )
    k = reshape(k, (*window, 1, channels, results))
    steps, gaps = at.sizes(strides, "strides"), at.sizes(dilations, "dilations")
    return _convolved(at, x, k, channels, steps, padding, gaps, batch)


def separable_conv2d(
    input: Any,
    depthwise_filter: Any,
    pointwise_filter: Any,
    strides: Any,
    padding: Any,
    data_format: Any = None,
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """`depthwise_conv2d`, and its results mixed by filters of size 1.

    Args:
      input: (batch, height, width, channels).
      depthwise_filter: (height, width, channels, multiplier).
      pointwise_filter: (1, 1, channels · multiplier, results).
      strides, padding, data_format, dilations: as for `conv2d`; they hold for the first step.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: shapes that do not fit.

    >>> import gradtape as tf
    >>> x = tf.constant([[[[1.0, 10.0], [2.0, 20.0]]]])
    >>> y = tf.nn.separable_conv2d(x, tf.ones([1, 2, 2, 1]), tf.ones([1, 1, 2, 1]), [1, 1, 1, 1], "VALID")
    >>> print(y.numpy())
    [[[[33.]]]]
    """
    between = depthwise_conv2d(input, depthwise_filter, strides, padding, data_format, dilations)
    mixing = operand(pointwise_filter, between._aval.dtype)
    if mixing.ndim != 4 or mixing._aval.dims[:2] != (1, 1):
        raise InvalidArgumentError(
            f"`separable_conv2d` wants a pointwise filter of shape (1, 1, channels, results), got {mixing.shape}."
        )
    return conv2d(between, mixing, 1, "VALID", data_format or "NHWC")


# ------------------------------------------------------------------ transposed


def _transposed(
    at: Layout, input: Any, filters: Any, output_shape: Any, strides: Any, padding: Any, dilations: Any
) -> Tensor:
    x = convert(input)
    k = _kernel(at, filters, x)
    if x.ndim != at.axes:
        raise InvalidArgumentError(f"`{at.function}` wants input with {at.axes} dimensions, got shape {x.shape}.")
    shape = integers(output_shape, "output_shape")
    if len(shape) != at.axes:
        raise ValueError(f"`output_shape` of `{at.function}` should have {at.axes} entries, got {list(shape)}.")
    *window, depth, results = k._aval.dims
    x = at.channels_last(x)
    n, *counts, given = x._aval.dims
    batch, channels = at.others(shape)
    groups = _groups(at, channels, depth, results)
    if batch != n or given != results:
        raise InvalidArgumentError(
            f"`{at.function}` with filters of shape {k.shape} and `output_shape` {list(shape)} wants a batch of "
            f"{batch} and {results} channels, got input of shape {shape_text(convert(input)._aval.shape)}."
        )
    space = at.space(shape)
    params = padded(at, padding, space, tuple(window), at.sizes(strides, "strides"), at.sizes(dilations, "dilations"))
    if Windows(**params).counts(space) != tuple(counts):
        raise InvalidArgumentError(
            f"`{at.function}` with `output_shape` {list(shape)} wants input of size "
            f"{shape_text(Windows(**params).counts(space))}, got {shape_text(tuple(counts))}."
        )
    k = reshape(k, (*window, depth, groups, results // groups))
    y = binary(CONVOLVE_INPUT.bind(shape=space, **params), reshape(x, (n, *counts, groups, results // groups)), k)
    return at.restored(reshape(y, (n, *space, channels)))


def conv_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    data_format: Any = None,
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """The transpose of `convolution`, which is its gradient: each element of the input adds a weighted window.

    Args:
      input: (batch, *windows, channels).
      filters: (*window, results, channels).
      output_shape: the shape of the result; `convolution` of a tensor of this shape has the shape of `input`.
      strides, padding, data_format, dilations: those of that convolution.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: shapes or dtypes that do not fit.
      ValueError: an unknown padding or data format.

    >>> import gradtape as tf
    >>> x = tf.reshape(tf.constant([1.0, 2.0]), [1, 2, 1])
    >>> print(tf.nn.conv_transpose(x, tf.ones([2, 1, 1]), [1, 4, 1], 2).numpy().tolist())
    [[[1.0], [1.0], [2.0], [2.0]]]
    """
    k = convert(filters)
    if not 3 <= k.ndim <= 5:
        raise ValueError(f"`conv_transpose` wants filters with 3, 4 or 5 dimensions, got shape {k.shape}.")
    at = layout("conv_transpose", k.ndim - 2, data_format)
    return _transposed(at, input, filters, output_shape, strides, padding, dilations)


def conv1d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    data_format: Any = "NWC",
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """`conv_transpose` of (batch, width, channels).

    >>> import gradtape as tf
    >>> tf.nn.conv1d_transpose(tf.ones([1, 3, 2]), tf.ones([3, 4, 2]), [1, 6, 4], 2).shape
    TensorShape([1, 6, 4])
    """
    at = layout("conv1d_transpose", 1, data_format)
    return _transposed(at, input, filters, output_shape, strides, padding, dilations)


def conv2d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    data_format: Any = "NHWC",
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """`conv_transpose` of (batch, height, width, channels).

    >>> import gradtape as tf
    >>> tf.nn.conv2d_transpose(tf.ones([1, 3, 3, 2]), tf.ones([3, 3, 4, 2]), [1, 6, 6, 4], 2).shape
    TensorShape([1, 6, 6, 4])
    """
    at = layout("conv2d_transpose", 2, data_format)
    return _transposed(at, input, filters, output_shape, strides, padding, dilations)


def conv3d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    data_format: Any = "NDHWC",
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """`conv_transpose` of (batch, depth, height, width, channels).

    >>> import gradtape as tf
    >>> tf.nn.conv3d_transpose(tf.ones([1, 2, 2, 2, 2]), tf.ones([3, 3, 3, 4, 2]), [1, 4, 4, 4, 4], 2).shape
    TensorShape([1, 4, 4, 4, 4])
    """
    at = layout("conv3d_transpose", 3, data_format)
    return _transposed(at, input, filters, output_shape, strides, padding, dilations)
