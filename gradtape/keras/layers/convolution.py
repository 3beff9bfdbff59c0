"""Layers that convolve images. Floor: keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.api.convolution import conv2d
from gradtape.api.elementwise import cast
from gradtape.api.layout import reshape
from gradtape.keras import activations, initializers
from gradtape.keras.layers.base import Layer
from gradtape.keras.layers.inputs import Dims, InputSpec, positive_integer
from gradtape.keras.layers.windows import (
    FORMATS,
    IMAGES,
    channels_wanted,
    format_named,
    padding_named,
    pair,
    shape_of_images,
    window_counts,
)
from gradtape.runtime.tensor import Tensor


class Conv2D(Layer):
    """activation(images convolved with the kernel + bias): see `tf.nn.conv2d`.

    Args:
      filters: how many channels the result has.
      kernel_size: height and width of the windows, or one number for both.
      strides: their distance along height and width, or one number for both.
      padding: "valid" (windows inside the image) or "same" (zeros around it, so that there are as many windows as
        elements, divided by the strides).
      data_format: "channels_last" (the default) or "channels_first".
      dilation_rate: the distance of a window's elements; where it is more than 1, the strides are 1.
      groups: channels are convolved in so many groups, each with its share of the filters.
      activation: by name or as a function; None for none.
      use_bias: whether there is a bias.
      kernel_initializer, bias_initializer: by name or as a function.
      kernel_constraint, bias_constraint: functions that the optimizer applies to the values after each update.
      **options: `name`, `trainable`, `dtype`, `input_shape`, as `Layer` takes them.

    Weights:
      kernel (height, width, channels / groups, filters), bias (filters,).

    Raises:
      ValueError: numbers that are not positive integers, channels or filters that `groups` does not divide, strides
        and dilations that are both more than 1, images without room for one window.

    >>> import gradtape as tf
    >>> layer = tf.keras.layers.Conv2D(2, 3, activation="relu", kernel_initializer="ones")
    >>> y = layer(tf.ones([1, 5, 5, 1]))
    >>> y.shape, layer.kernel.shape, float(y[0, 0, 0, 0])
    (TensorShape([1, 3, 3, 2]), TensorShape([3, 3, 1, 2]), 9.0)
    """

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = (1, 1),
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = (1, 1),
        groups: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_constraint: Callable[[Any], Any] | None = None,
        bias_constraint: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.filters, self.groups = positive_integer(filters, "filters"), positive_integer(groups, "groups")
        if filters % groups:
            raise ValueError(f"`filters` should be a multiple of `groups`, got filters={filters}, groups={groups}.")
        self.kernel_size, self.strides = pair(kernel_size, "kernel_size"), pair(strides, "strides")
        self.dilation_rate = pair(dilation_rate, "dilation_rate")
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ValueError(
                "`strides` > 1 and `dilation_rate` > 1 do not go together, got "
                f"strides={self.strides}, dilation_rate={self.dilation_rate}."
            )
        self.padding, self.data_format = padding_named(padding), format_named(data_format)
        self.activation, self.use_bias = activations.get(activation), bool(use_bias)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_constraint, self.bias_constraint = kernel_constraint, bias_constraint
        self.input_spec = IMAGES

    def build(self, input_shape: Any) -> None:
        channels = channels_wanted(self.name, input_shape, self.data_format)
        if channels % self.groups:
            raise ValueError(
                f"The {channels} channels of the inputs to layer '{self.name}' should be a multiple of its "
                f"{self.groups} `groups`; got input shape {input_shape}."
            )
        self.compute_output_shape(input_shape)
        kernel = (*self.kernel_size, channels // self.groups, self.filters)
        self.kernel = self.add_weight(kernel, self.kernel_initializer, constraint=self.kernel_constraint, name="kernel")
        self.bias = (
            self.add_weight((self.filters,), self.bias_initializer, constraint=self.bias_constraint, name="bias")
            if self.use_bias
            else None
        )
        axis = -1 if self.data_format == "channels_last" else 1
        self.input_spec = InputSpec(min_ndim=4, max_ndim=4, axes={axis: channels})

    def call(self, inputs: Tensor) -> Tensor:
        y = conv2d(
            cast(inputs, self._compute),
            self.kernel,
            self.strides,
            self.padding.upper(),
            FORMATS[self.data_format],
            self.dilation_rate,
        )
        if self.bias is not None:
            y = y + (self.bias if self.data_format == "channels_last" else reshape(self.bias, [self.filters, 1, 1]))
        return y if self.activation is activations.linear else self.activation(y)

    def compute_output_shape(self, input_shape: Any) -> Dims:
        height, width = ((k - 1) * d + 1 for k, d in zip(self.kernel_size, self.dilation_rate, strict=True))
        shape = tuple(input_shape)
        counts = window_counts(shape, self.data_format, (height, width), self.strides, self.padding)
        return shape_of_images(shape[0], counts, self.filters, self.data_format)
