"""Layers that make images smaller: the largest or the mean element of windows, the mean of all. Floor: keras."""

from __future__ import annotations

from typing import Any

from gradtape.api.elementwise import cast
from gradtape.api.pooling import avg_pool2d, max_pool2d
from gradtape.api.reductions import reduce_mean
from gradtape.keras.layers.base import Layer
from gradtape.keras.layers.inputs import Dims
from gradtape.keras.layers.windows import (
    FORMATS,
    IMAGES,
    channels_of,
    format_named,
    padding_named,
    pair,
    shape_of_images,
    window_counts,
)
from gradtape.runtime.tensor import Tensor


class _Pooling2D(Layer):
    """Windows over height and width; subclasses say what becomes of each."""

    def __init__(
        self,
        pool_size: Any = (2, 2),
        strides: Any = None,
        padding: str = "valid",
        data_format: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.pool_size = pair(pool_size, "pool_size")
        self.strides = self.pool_size if strides is None else pair(strides, "strides")
        self.padding, self.data_format = padding_named(padding), format_named(data_format)
        self.input_spec = IMAGES

    def compute_output_shape(self, input_shape: Any) -> Dims:
        shape = tuple(input_shape)
        counts = window_counts(shape, self.data_format, self.pool_size, self.strides, self.padding)
        return shape_of_images(shape[0], counts, channels_of(shape, self.data_format), self.data_format)


class MaxPooling2D(_Pooling2D):
    """The largest element of each window, channel by channel: see `tf.nn.max_pool2d`.

    Args:
      pool_size: height and width of the windows, or one number for both.
      strides: their distance; the default is `pool_size`.
      padding: "valid" or "same".
      data_format: "channels_last" (the default) or "channels_first".
      **options: `name`, `dtype`, `input_shape`, as `Layer` takes them.

    Raises:
      ValueError: sizes that are not positive integers, an unknown padding or data format.

    >>> import gradtape as tf
    >>> x = tf.reshape(tf.range(16.0), [1, 4, 4, 1])
    >>> print(tf.keras.layers.MaxPooling2D()(x)[0, :, :, 0].numpy())
    [[ 5.  7.]
     [13. 15.]]
    """

    def call(self, inputs: Tensor) -> Tensor:
        return max_pool2d(inputs, self.pool_size, self.strides, self.padding.upper(), FORMATS[self.data_format])


class AveragePooling2D(_Pooling2D):
    """The mean of each window's elements, channel by channel; what padding adds is no element.

    Arguments and errors as `MaxPooling2D`.

    >>> import gradtape as tf
    >>> x = tf.reshape(tf.range(16.0), [1, 4, 4, 1])
    >>> print(tf.keras.layers.AveragePooling2D()(x)[0, :, :, 0].numpy())
    [[ 2.5  4.5]
     [10.5 12.5]]
    """

    def call(self, inputs: Tensor) -> Tensor:
        x = cast(inputs, self._compute)
        return avg_pool2d(x, self.pool_size, self.strides, self.padding.upper(), FORMATS[self.data_format])


class GlobalAveragePooling2D(Layer):
    """The mean of each channel over the whole image.

    Args:
      data_format: "channels_last" (the default) or "channels_first".
      keepdims: whether height and width stay, as axes of size 1.
      **options: `name`, `dtype`, `input_shape`, as `Layer` takes them.

    Raises:
      ValueError: an unknown data format.

    >>> import gradtape as tf
    >>> print(tf.keras.layers.GlobalAveragePooling2D()(tf.reshape(tf.range(8.0), [1, 2, 2, 2])).numpy())
    [[3. 4.]]
    """

    def __init__(self, data_format: str | None = None, keepdims: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.data_format, self.keepdims = format_named(data_format), bool(keepdims)
        self.input_spec = IMAGES

    def call(self, inputs: Tensor) -> Tensor:
        axes = [1, 2] if self.data_format == "channels_last" else [2, 3]
        return reduce_mean(cast(inputs, self._compute), axes, self.keepdims)

    def compute_output_shape(self, input_shape: Any) -> Dims:
        shape = tuple(input_shape)
        channels = channels_of(shape, self.data_format)
        return shape_of_images(shape[0], (1, 1) if self.keepdims else (), channels, self.data_format)
