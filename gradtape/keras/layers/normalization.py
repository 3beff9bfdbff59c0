"""Layers that normalise. Floor: keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.api.elementwise import cast
from gradtape.api.layout import reshape
from gradtape.api.rows import batch_normalization, moments
from gradtape.ir.dtypes import DType, float32
from gradtape.keras import initializers
from gradtape.keras.layers.base import Layer
from gradtape.keras.layers.inputs import Dims, InputSpec, is_integer
from gradtape.keras.scope import unrecorded
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable


class BatchNormalization(Layer):
    """gamma · (x - mean) / √(variance + epsilon) + beta, with mean and variance over all axes but one.

    In training they are the batch's own (the variance divided by n, not n - 1), and the moving ones take a
    step towards them: moving = moving · momentum + batch · (1 - momentum). Else, and where `trainable` is
    False, the moving ones are used. Ioffe and Szegedy, 2015.

    Args:
      axis: the axis that keeps statistics of its own, the features'.
      momentum: of the moving statistics.
      epsilon: added to the variance.
      center, scale: whether there is a beta, a gamma.
      beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer: by name or
        as a function.
      **options: as `Layer` takes them.

    Weights:
      gamma, beta, and, not trainable, moving_mean, moving_variance; all of shape (features,).

    Raises:
      ValueError: an axis that the input does not have, an input of other rank or features than at first.

    >>> import gradtape as tf
    >>> layer = tf.keras.layers.BatchNormalization(epsilon=0.0)
    >>> print(layer([[1.0], [3.0]], training=True).numpy().ravel(), layer.moving_mean.numpy())
    [-1.  1.] [0.02]
    """

    def __init__(
        self,
        axis: int = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        moving_mean_initializer: Any = "zeros",
        moving_variance_initializer: Any = "ones",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if not is_integer(axis):
            raise ValueError(f"`axis` should be one integer, got {axis!r}.")
        self.axis, self.momentum, self.epsilon = int(axis), float(momentum), float(epsilon)
        self.center, self.scale = bool(center), bool(scale)
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.moving_mean_initializer = initializers.get(moving_mean_initializer)
        self.moving_variance_initializer = initializers.get(moving_variance_initializer)
        self.gamma: Variable | None = None
        self.beta: Variable | None = None

    def build(self, input_shape: Any) -> None:
        rank = len(input_shape)
        if not -rank <= self.axis < rank or input_shape[self.axis] is None:
            raise ValueError(
                f"Layer '{self.name}' normalises along axis {self.axis}, whose size should be known when it is built; "
                f"got input shape {input_shape}."
            )
        features = (input_shape[self.axis],)
        if self.scale:
            self.gamma = self.add_weight(features, self.gamma_initializer, name="gamma", autocast=False)
        if self.center:
            self.beta = self.add_weight(features, self.beta_initializer, name="beta", autocast=False)
        self.moving_mean = self.add_weight(
            features, self.moving_mean_initializer, trainable=False, name="moving_mean", autocast=False
        )
        self.moving_variance = self.add_weight(
            features, self.moving_variance_initializer, trainable=False, name="moving_variance", autocast=False
        )
        self.input_spec = InputSpec(ndim=rank, axes={self.axis: features[0]})

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        wide = cast(inputs, self._wide)
        if training and self._trainable:
            mean, variance = moments(wide, [k for k in range(wide.ndim) if k != self.axis % wide.ndim])
            self._follow(mean, variance)
        else:
            mean, variance = cast(self.moving_mean, self._wide), cast(self.moving_variance, self._wide)
        made = batch_normalization(
            wide,
            self._along(mean),
            self._along(variance),
            None if self.beta is None else self._along(cast(self.beta, self._wide)),
            None if self.gamma is None else self._along(cast(self.gamma, self._wide)),
            self.epsilon,
        )
        return cast(made, self._compute)

    def compute_output_shape(self, input_shape: Any) -> Dims:
        return tuple(input_shape)

    @property
    def _wide(self) -> DType:
        """The dtype of the arithmetic: half types are carried in float32."""
        return float32 if self._compute.is_half else self._compute

    def _along(self, vector: Tensor) -> Tensor:
        """A vector of features shaped so that it broadcasts along their axis."""
        rank = self.input_spec.ndim if self.input_spec and self.input_spec.ndim else 1
        after = rank - 1 - self.axis % rank
        return reshape(vector, [-1, *[1] * after]) if after else vector

    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        """The moving statistics' step. No gradient flows through it, so that no tape records it."""
        keep = self.momentum
        with unrecorded():
            for moving, batch in ((self.moving_mean, mean), (self.moving_variance, variance)):
                step = cast(moving, self._wide) * keep + batch * (1 - keep)
                moving.assign(cast(step, self._dtype))


class LayerNormalization(Layer):
    """gamma · (x - mean) / √(variance + epsilon) + beta, with each example's mean and variance over `axis`.

    Half types are computed in float32. Ba, Kiros and Hinton, 2016.

    Args:
      axis: the axis, or a list of axes, of the features.
      epsilon: added to the variance.
      center, scale: whether there is a beta, a gamma.
      beta_initializer, gamma_initializer: by name or as a function.
      beta_constraint, gamma_constraint: functions that the optimizer applies to the values after each update.
      **options: as `Layer` takes them.

    Weights:
      gamma, beta; of the input's sizes along `axis`.

    Raises:
      TypeError: an axis that is no integer and no list of them.
      ValueError: an axis that the input does not have, or whose size is not known.

    >>> import gradtape as tf
    >>> print(tf.keras.layers.LayerNormalization(epsilon=0.0)([[1.0, 3.0], [40.0, 20.0]]).numpy())
    [[-1.  1.]
     [ 1. -1.]]
    """

    _casts_inputs = False

    def __init__(
        self,
        axis: Any = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        beta_constraint: Callable[[Any], Any] | None = None,
        gamma_constraint: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        axes = list(axis) if isinstance(axis, list | tuple) else [axis]
        if not axes or not all(is_integer(k) for k in axes):
            raise TypeError(f"`axis` should be an integer or a list of integers, got {axis!r}.")
        self.axis: int | list[int] = [int(k) for k in axes] if isinstance(axis, list | tuple) else int(axis)
        self.epsilon, self.center, self.scale = float(epsilon), bool(center), bool(scale)
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.beta_constraint, self.gamma_constraint = beta_constraint, gamma_constraint
        self.gamma: Variable | None = None
        self.beta: Variable | None = None

    def build(self, input_shape: Any) -> None:
        sizes = tuple(input_shape[k] for k in self._axes(input_shape))
        if None in sizes:
            raise ValueError(
                f"Layer '{self.name}' normalises along axis {self.axis}, whose size should be known when it is built; "
                f"got input shape {input_shape}."
            )
        if self.scale:
            self.gamma = self.add_weight(
                sizes, self.gamma_initializer, constraint=self.gamma_constraint, name="gamma", autocast=False
            )
        if self.center:
            self.beta = self.add_weight(
                sizes, self.beta_initializer, constraint=self.beta_constraint, name="beta", autocast=False
            )

    def call(self, inputs: Tensor) -> Tensor:
        dtype = inputs._aval.dtype
        x = cast(inputs, float32) if dtype.is_half or not dtype.is_floating else inputs
        axes = self._axes(x._aval.dims)
        mean, variance = moments(x, axes, keepdims=True)
        along = [n if k in axes else 1 for k, n in enumerate(x._aval.dims)]
        beta, gamma = (None if v is None else reshape(cast(v, x._aval.dtype), along) for v in (self.beta, self.gamma))
        return cast(batch_normalization(x, mean, variance, beta, gamma, self.epsilon), self._compute)

    def compute_output_shape(self, input_shape: Any) -> Dims:
        self._axes(input_shape)
        return tuple(input_shape)

    def _axes(self, shape: Any) -> list[int]:
        """The axes in ascending order, counted from the front."""
        rank = len(shape)
        axes = self.axis if isinstance(self.axis, list) else [self.axis]
        if any(not -rank <= k < rank for k in axes):
            raise ValueError(f"Axis {self.axis} of layer '{self.name}' is out of bounds for input shape {shape}.")
        return sorted({k % rank for k in axes})
