"""The layers that nearly every network has: Dense, Activation, Flatten, Dropout. Floor: keras."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gradtape.api import random
from gradtape.api.elementwise import cast, where
from gradtape.api.layout import reshape, transpose
from gradtape.api.products import matmul
from gradtape.keras import activations, initializers
from gradtape.keras.layers.base import Layer
from gradtape.keras.layers.inputs import Dims, InputSpec, is_integer, positive_integer
from gradtape.keras.layers.windows import format_named
from gradtape.runtime.tensor import Tensor


class Dense(Layer):
    """activation(x @ kernel + bias), over the last axis.

    Args:
      units: the size of the result's last axis.
      activation: by name or as a function; None for none.
      use_bias: whether there is a bias.
      kernel_initializer, bias_initializer: by name or as a function.
      kernel_constraint, bias_constraint: functions that the optimizer applies to the values after each update.
      **options: `name`, `trainable`, `dtype`, `input_shape`, as `Layer` takes them.

    Weights:
      kernel (inputs, units), bias (units,).

    Raises:
      ValueError: `units` that is no positive integer; an input of fewer than 2 axes or of another last size.

    >>> import gradtape as tf
    >>> layer = tf.keras.layers.Dense(2, activation="relu", kernel_initializer="ones")
    >>> print(layer([[1.0, 2.0, 3.0]]).numpy(), layer.kernel.shape)
    [[6. 6.]] (3, 2)
    """

    def __init__(
        self,
        units: int,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_constraint: Callable[[Any], Any] | None = None,
        bias_constraint: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.units = positive_integer(units, "units")
        self.activation = activations.get(activation)
        self.use_bias = bool(use_bias)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_constraint, self.bias_constraint = kernel_constraint, bias_constraint
        self.input_spec = InputSpec(min_ndim=2)

    def build(self, input_shape: Any) -> None:
        inputs = last_size(self, input_shape)
        self.kernel = self.add_weight(
            (inputs, self.units), self.kernel_initializer, constraint=self.kernel_constraint, name="kernel"
        )
        self.bias = (
            self.add_weight((self.units,), self.bias_initializer, constraint=self.bias_constraint, name="bias")
            if self.use_bias
            else None
        )
        self.input_spec = InputSpec(min_ndim=2, axes={-1: inputs})

    def call(self, inputs: Tensor) -> Tensor:
        x = matmul(cast(inputs, self._compute), self.kernel)
        if self.bias is not None:
            x = x + self.bias
        return x if self.activation is activations.linear else self.activation(x)

    def compute_output_shape(self, input_shape: Any) -> Dims:
        return (*tuple(input_shape)[:-1], self.units)


def last_size(layer: Layer, shape: Any) -> int:
    """The size of a shape's last axis, which a layer's weights depend on."""
    if not isinstance(shape, tuple) or not shape or not isinstance(shape[-1], int):
        raise ValueError(
            f"The last axis of the inputs to layer '{layer.name}' should be known when it is built, got shape {shape}. "
            "Build it with its size: `layer.build((None, 784))`."
        )
    return shape[-1]


class Activation(Layer):
    """An activation as a layer.

    >>> import gradtape as tf
    >>> print(tf.keras.layers.Activation("relu")([[-1.0, 2.0]]).numpy())
    [[0. 2.]]
    """

    def __init__(self, activation: Any, **options: Any) -> None:
        super().__init__(**options)
        self.activation = activations.get(activation)

    def call(self, inputs: Tensor) -> Tensor:
        return self.activation(inputs)

    def compute_output_shape(self, input_shape: Any) -> Dims:
        return tuple(input_shape)


class Flatten(Layer):
    """(batch, ...) as (batch, n); a vector becomes (batch, 1).

    Args:
      data_format: with "channels_first" channels are moved to the end before; the default is "channels_last".
      **options: as `Layer` takes them.

    >>> import gradtape as tf
    >>> tf.keras.layers.Flatten()(tf.zeros([4, 3, 2])).shape
    TensorShape([4, 6])
    """

    def __init__(self, data_format: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.data_format = format_named(data_format)
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs: Tensor) -> Tensor:
        if self.data_format == "channels_first" and inputs.ndim > 2:
            inputs = transpose(inputs, [0, *range(2, inputs.ndim), 1])
        batch, *rest = inputs._aval.dims
        return reshape(inputs, [batch, math.prod(rest)])

    def compute_output_shape(self, input_shape: Any) -> Dims:
        batch, *rest = tuple(input_shape)
        return batch, (None if None in rest else math.prod(rest))


class Dropout(Layer):
    """In training, each element is set to 0 with probability `rate` and the others are divided by 1 - rate,
    so that their mean stays; else nothing happens. Srivastava et al., 2014.

    Args:
      rate: from 0 to 1.
      noise_shape: of the mask, with None for the input's own size and 1 where elements share their fate.
      seed: mixed with the global seed of `tf.random`.
      **options: as `Layer` takes them.

    Raises:
      ValueError: a rate that is no number from 0 to 1, a `noise_shape` that is no list of positive integers and
        None or has another number of axes than the input.

    >>> import gradtape as tf
    >>> layer = tf.keras.layers.Dropout(0.5)
    >>> print(layer(tf.ones([1, 3])).numpy())
    [[1. 1. 1.]]
    >>> sorted(set(layer(tf.ones([9, 9]), training=True).numpy().ravel().tolist()))
    [0.0, 2.0]
    """

    def __init__(self, rate: float, noise_shape: Any = None, seed: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise ValueError(f"`rate` should be a number from 0 to 1, got {rate!r}.")
        self.rate, self.noise_shape, self.seed = float(rate), _noise_shape(noise_shape), seed

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        if not training or self.rate == 0:
            return inputs
        dims = inputs._aval.dims
        if self.noise_shape is not None:
            if len(dims) != len(self.noise_shape):
                raise ValueError(
                    f"`noise_shape` {self.noise_shape} of layer '{self.name}' should have an entry for each axis of "
                    f"its input, got shape {inputs.shape}."
                )
            dims = tuple(own if d is None else d for own, d in zip(dims, self.noise_shape, strict=True))
        kept = random.uniform(dims, seed=self.seed) >= self.rate
        return where(kept, inputs * (1 / (1 - self.rate) if self.rate < 1 else 0.0), 0.0)

    def compute_output_shape(self, input_shape: Any) -> Dims:
        return tuple(input_shape)


def _noise_shape(value: Any) -> Dims | None:
    if value is None:
        return None
    parts = list(value) if isinstance(value, list | tuple) else [0]
    if any(d is not None and (not is_integer(d) or d <= 0) for d in parts):
        raise ValueError(f"`noise_shape` should be a list of positive integers and None, got {value!r}.")
    return tuple(None if d is None else int(d) for d in parts)


class InputLayer(Layer):
    """Says of which shape a `Sequential`'s examples are, so that it can be built at once."""

    def __init__(self, shape: Any, batch_size: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.batch_shape = (batch_size, *shape)

    def call(self, inputs: Tensor) -> Tensor:
        return inputs


def Input(shape: Any, batch_size: int | None = None, **options: Any) -> InputLayer:
    """The shape of one example, as the first entry of a `Sequential`.

    >>> import gradtape as tf
    >>> model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)])
    >>> model.built, model.layers[0].kernel.shape
    (True, TensorShape([4, 2]))
    """
    return InputLayer(shape, batch_size, **options)
