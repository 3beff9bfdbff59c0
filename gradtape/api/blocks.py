"""Blocks of images as channels, and back. Floor: api."""

from __future__ import annotations

from typing import Any

from gradtape.api.arguments import integer, integers
from gradtape.api.windows import layout, padded
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import size_of
from gradtape.ops.layout import PAD, TRANSPOSE
from gradtape.ops.windows import PATCHES
from gradtape.runtime.contract import reshape
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import unary
from gradtape.runtime.tensor import Tensor


def _block(function: str, x: Tensor, block_size: Any) -> int:
    size = integer(block_size, "block_size")
    if size < 2:
        raise InvalidArgumentError(f"`block_size` of `{function}` should be 2 or more, got {size}.")
    if x.ndim != 4:
        raise InvalidArgumentError(f"`{function}` wants input with 4 dimensions, got shape {x.shape}.")
    return size


def space_to_depth(input: Any, block_size: Any, data_format: Any = "NHWC", name: str | None = None) -> Tensor:
    """Blocks of size (b, b) as channels: (n, h, w, c) to (n, h / b, w / b, b · b · c).

    Args:
      input: a tensor with 4 dimensions.
      block_size: b, at least 2; height and width are multiples of it.
      data_format: "NHWC" or "NCHW".
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: an image that has no whole number of blocks.

    >>> import gradtape as tf
    >>> x = tf.reshape(tf.constant([1, 2, 3, 4]), [1, 2, 2, 1])
    >>> print(tf.nn.space_to_depth(x, 2).numpy().tolist())
    [[[[1, 2, 3, 4]]]]
    """
    at, x = layout("space_to_depth", 2, data_format), convert(input)
    b = _block("space_to_depth", x, block_size)
    x = at.channels_last(x)
    n, h, w, c = x._aval.dims
    if h % b or w % b:
        raise InvalidArgumentError(f"`space_to_depth`: image size ({h}, {w}) should be divisible by block_size {b}.")
    apart = reshape(x, (n, h // b, b, w // b, b, c))
    blocks = unary(TRANSPOSE.bind(perm=(0, 1, 3, 2, 4, 5)), apart)
    return at.restored(reshape(blocks, (n, h // b, w // b, b * b * c)))


def depth_to_space(input: Any, block_size: Any, data_format: Any = "NHWC", name: str | None = None) -> Tensor:
    """Channels as blocks of size (b, b): (n, h, w, b · b · c) to (n, h · b, w · b, c), which undoes `space_to_depth`.

    Args:
      input: a tensor with 4 dimensions.
      block_size: b, at least 2; the number of channels is a multiple of b · b.
      data_format: "NHWC" or "NCHW".
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: another number of channels.

    >>> import gradtape as tf
    >>> x = tf.reshape(tf.constant([1, 2, 3, 4]), [1, 1, 1, 4])
    >>> print(tf.nn.depth_to_space(x, 2).numpy().tolist())
    [[[[1], [2]], [[3], [4]]]]
    """
    at, x = layout("depth_to_space", 2, data_format), convert(input)
    b = _block("depth_to_space", x, block_size)
    x = at.channels_last(x)
    n, h, w, depth = x._aval.dims
    if depth % (b * b):
        raise InvalidArgumentError(f"`depth_to_space`: depth {depth} should be divisible by block_size² = {b * b}.")
    blocks = reshape(x, (n, h, w, b, b, depth // (b * b)))
    apart = unary(TRANSPOSE.bind(perm=(0, 1, 3, 2, 4, 5)), blocks)
    return at.restored(reshape(apart, (n, h * b, w * b, depth // (b * b))))


def extract_patches(images: Any, sizes: Any, strides: Any, rates: Any, padding: str, name: str | None = None) -> Tensor:
    """All windows of images, each laid out as channels.

    Args:
      images: (batch, height, width, depth).
      sizes: [1, rows, columns, 1], the size of a window.
      strides: [1, rows, columns, 1], the distance of windows.
      rates: [1, rows, columns, 1], the distance of a window's elements.
      padding: "SAME" (zeros around the image) or "VALID".
      name: accepted for compatibility.

    Returns:
      (batch, windows, windows, rows · columns · depth).

    Raises:
      InvalidArgumentError: windows that do not fit.

    >>> import gradtape as tf
    >>> x = tf.reshape(tf.range(9), [1, 3, 3, 1])
    >>> y = tf.image.extract_patches(x, [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID")
    >>> print(y[0, 0].numpy().tolist())
    [[0, 1, 3, 4], [1, 2, 4, 5]]
    """
    at, x = layout("extract_patches", 2, None), convert(images)
    if x.ndim != 4:
        raise InvalidArgumentError(f"`extract_patches` wants images with 4 dimensions, got shape {x.shape}.")
    for value, what in ((sizes, "sizes"), (strides, "strides"), (rates, "rates")):
        if len(integers(value, what)) != 4:
            raise ValueError(f"`{what}` of `extract_patches` should have 4 entries, got {value}.")
    window, steps, gaps = at.sizes(sizes, "sizes"), at.sizes(strides, "strides"), at.sizes(rates, "rates")
    p = padded(at, padding, x._aval.dims[1:-1], window, steps, gaps)
    if any(p["low"]) or any(p["high"]):
        x = unary(PAD.bind(low=(0, *p["low"], 0), high=(0, *p["high"], 0)), x)
    for axis, size, stride, dilation in zip((1, 2), window, steps, gaps, strict=True):
        x = unary(PATCHES.bind(axis=axis, size=size, stride=stride, dilation=dilation), x)
    x = unary(TRANSPOSE.bind(perm=(0, 1, 2, 4, 5, 3)), x)
    dims = x._aval.dims
    return reshape(x, (*dims[:3], size_of(dims[3:])))
