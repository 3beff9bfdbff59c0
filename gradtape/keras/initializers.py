"""`tf.keras.initializers`: how a weight begins. Floor: keras.

Random values are drawn on the host by NumPy's Philox, from a seed: the given one, so that the same initializer
gives the same values at every call, or one that `tf.random` draws, so that `tf.random.set_seed` repeats them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.api import random
from gradtape.api.arguments import integers
from gradtape.api.creation import constant, fill, ones, zeros
from gradtape.ir.dtypes import as_dtype, float32, float64, int64
from gradtape.keras.names import by_name, snake_case
from gradtape.runtime.tensor import Tensor

# The standard deviation of a standard normal variable that is cut at two deviations.
CUT_DEVIATION = 0.87962566103423978


class Initializer:
    """A callable `(shape, dtype) -> tensor`."""

    def __call__(self, shape: Any, dtype: Any = None) -> Tensor:
        raise NotImplementedError("An initializer implements `__call__(shape, dtype=None)`.")

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {k: getattr(self, k) for k in inspect.signature(type(self)).parameters}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.get_config().items())})"


class Zeros(Initializer):
    """All zeros.

    >>> import gradtape as tf
    >>> print(tf.keras.initializers.Zeros()((2,)).numpy())
    [0. 0.]
    """

    def __call__(self, shape: Any, dtype: Any = None) -> Tensor:
        return zeros(shape, as_dtype(dtype or float32))


class Ones(Initializer):
    """All ones.

    >>> import gradtape as tf
    >>> print(tf.keras.initializers.Ones()((2,)).numpy())
    [1. 1.]
    """

    def __call__(self, shape: Any, dtype: Any = None) -> Tensor:
        return ones(shape, as_dtype(dtype or float32))


class Constant(Initializer):
    """A number, or an array of the weight's shape.

    >>> import gradtape as tf
    >>> print(tf.keras.initializers.Constant(3.0)((2,)).numpy())
    [3. 3.]
    """

    def __init__(self, value: Any = 0.0) -> None:
        self.value = value

    def __call__(self, shape: Any, dtype: Any = None) -> Tensor:
        wanted, dims = as_dtype(dtype or float32), integers(shape, "shape")
        array = np.asarray(self.value)
        if array.ndim == 0:
            return fill(dims, constant(array.astype(wanted.numpy_dtype)))
        if array.shape != dims:
            raise ValueError(f"`Constant` holds an array of shape {array.shape}, the weight has shape {dims}.")
        return constant(array.astype(wanted.numpy_dtype))


class _Random(Initializer):
    """Draws from a seed of its own."""

    seed: int | None

    def __call__(self, shape: Any, dtype: Any = None) -> Tensor:
        wanted, dims = as_dtype(dtype or float32), integers(shape, "shape")
        if not wanted.is_floating:
            raise ValueError(f"`{type(self).__name__}` draws floating numbers, the weight has dtype {wanted.name}.")
        values = self.draw(_generator(self.seed), dims, np.float64 if wanted is float64 else np.float32)
        return constant(values.astype(wanted.numpy_dtype), wanted)

    def draw(self, generator: np.random.Generator, dims: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """Values of that shape and dtype."""
        raise NotImplementedError


def _generator(seed: int | None) -> np.random.Generator:
    if seed is None:
        seed = int(random.uniform([], maxval=2**62, dtype=int64))
    return np.random.Generator(np.random.Philox(seed))


class RandomNormal(_Random):
    """Normally distributed.

    >>> import gradtape as tf
    >>> tf.keras.initializers.RandomNormal(stddev=0.1, seed=1)((2, 3)).shape
    TensorShape([2, 3])
    """

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None) -> None:
        self.mean, self.stddev, self.seed = mean, stddev, seed

    def draw(self, generator: np.random.Generator, dims: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        return generator.standard_normal(dims, dtype) * dtype(self.stddev) + dtype(self.mean)


class RandomUniform(_Random):
    """Uniformly distributed in [minval, maxval).

    >>> import gradtape as tf
    >>> tf.keras.initializers.RandomUniform(seed=1)((2, 3)).shape
    TensorShape([2, 3])
    """

    def __init__(self, minval: float = -0.05, maxval: float = 0.05, seed: int | None = None) -> None:
        self.minval, self.maxval, self.seed = minval, maxval, seed

    def draw(self, generator: np.random.Generator, dims: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        return generator.random(dims, dtype) * dtype(self.maxval - self.minval) + dtype(self.minval)


class TruncatedNormal(_Random):
    """Normally distributed, drawn again where more than two deviations from the mean.

    >>> import gradtape as tf
    >>> values = tf.keras.initializers.TruncatedNormal(stddev=1.0, seed=1)((1000,))
    >>> bool(tf.reduce_all(tf.abs(values) <= 2.0))
    True
    """

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None) -> None:
        self.mean, self.stddev, self.seed = mean, stddev, seed

    def draw(self, generator: np.random.Generator, dims: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        return _cut_normal(generator, dims, dtype) * dtype(self.stddev) + dtype(self.mean)


def _cut_normal(generator: np.random.Generator, dims: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    values = generator.standard_normal(dims, dtype)
    outside = np.abs(values) > 2
    while outside.any():
        values[outside] = generator.standard_normal(int(outside.sum()), dtype)
        outside = np.abs(values) > 2
    return values


class VarianceScaling(_Random):
    """Values whose variance is scale / n, where n is the number of a unit's inputs (`fan_in`), of its
    outputs (`fan_out`) or their mean (`fan_avg`), so that signals keep their size from layer to layer.

    Args:
      scale: a positive number.
      mode: "fan_in", "fan_out" or "fan_avg".
      distribution: "truncated_normal", "untruncated_normal" or "uniform".
      seed: makes every call give the same values.

    Raises:
      ValueError: a scale that is not positive, an unknown mode or distribution.

    >>> import gradtape as tf
    >>> tf.keras.initializers.VarianceScaling(2.0, "fan_in", seed=1)((4, 3)).shape
    TensorShape([4, 3])
    """

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: int | None = None,
    ) -> None:
        if scale <= 0:
            raise ValueError(f"`scale` should be a positive number, got {scale}.")
        self.scale, self.seed = scale, seed
        self.mode = mode if mode in _FANS else by_name("`mode`", dict.fromkeys(_FANS, ""), mode)
        self.distribution = distribution
        by_name("`distribution`", _DISTRIBUTIONS, distribution)

    def draw(self, generator: np.random.Generator, dims: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        deviation = math.sqrt(self.scale / max(1.0, _FANS[self.mode](*_fans(dims))))
        return _DISTRIBUTIONS[self.distribution](generator, dims, dtype, deviation)


def _uniform(
    generator: np.random.Generator, dims: tuple[int, ...], dtype: Any, deviation: float
) -> np.ndarray[Any, Any]:
    limit = math.sqrt(3) * deviation  # the variance of a uniform variable in [-a, a) is a²/3
    return (generator.random(dims, dtype) * 2 - 1) * dtype(limit)


_FANS: dict[str, Callable[[int, int], float]] = {
    "fan_in": lambda inputs, outputs: inputs,
    "fan_out": lambda inputs, outputs: outputs,
    "fan_avg": lambda inputs, outputs: (inputs + outputs) / 2,
}
_DISTRIBUTIONS: dict[str, Callable[..., np.ndarray[Any, Any]]] = {
    "uniform": _uniform,
    "truncated_normal": lambda g, dims, dtype, s: _cut_normal(g, dims, dtype) * dtype(s / CUT_DEVIATION),
    "untruncated_normal": lambda g, dims, dtype, s: g.standard_normal(dims, dtype) * dtype(s),
}


def _fans(shape: Sequence[int]) -> tuple[int, int]:
    """How many inputs and outputs a unit has: the last two axes of a kernel, times the axes of its window.

    >>> _fans((5,)), _fans((4, 3)), _fans((3, 3, 8, 16))
    ((5, 5), (4, 3), (72, 144))
    """
    if len(shape) < 2:
        only = shape[0] if shape else 1
        return only, only
    window = math.prod(shape[:-2])
    return shape[-2] * window, shape[-1] * window


class _Scaled(VarianceScaling):
    """A `VarianceScaling` with its arguments chosen."""

    chosen: tuple[float, str, str]

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(*self.chosen, seed)


class GlorotUniform(_Scaled):
    """Uniform in ±√(6 / (inputs + outputs)); Glorot and Bengio, 2010. The default of kernels.

    >>> import gradtape as tf
    >>> bool(tf.reduce_all(tf.abs(tf.keras.initializers.GlorotUniform(seed=1)((3, 3))) <= 1.0))
    True
    """

    chosen = (1.0, "fan_avg", "uniform")


class GlorotNormal(_Scaled):
    """Normal (cut at two deviations) with variance 2 / (inputs + outputs); Glorot and Bengio, 2010."""

    chosen = (1.0, "fan_avg", "truncated_normal")


class HeUniform(_Scaled):
    """Uniform in ±√(6 / inputs), for relu; He et al., 2015."""

    chosen = (2.0, "fan_in", "uniform")


class HeNormal(_Scaled):
    """Normal (cut at two deviations) with variance 2 / inputs, for relu; He et al., 2015."""

    chosen = (2.0, "fan_in", "truncated_normal")


class LecunUniform(_Scaled):
    """Uniform in ±√(3 / inputs); LeCun et al., 1998."""

    chosen = (1.0, "fan_in", "uniform")


class LecunNormal(_Scaled):
    """Normal (cut at two deviations) with variance 1 / inputs, for selu; LeCun et al., 1998."""

    chosen = (1.0, "fan_in", "truncated_normal")


_CLASSES: tuple[type[Initializer], ...] = (
    Zeros,
    Ones,
    Constant,
    RandomNormal,
    RandomUniform,
    TruncatedNormal,
    VarianceScaling,
    GlorotUniform,
    GlorotNormal,
    HeUniform,
    HeNormal,
    LecunUniform,
    LecunNormal,
)
_KNOWN: dict[str, type[Initializer]] = {snake_case(c.__name__): c for c in _CLASSES}
_ALIASES: dict[str, type[Initializer]] = {c.__name__: c for c in _CLASSES} | {
    "zero": Zeros,
    "one": Ones,
    "normal": RandomNormal,
    "uniform": RandomUniform,
}


def get(identifier: Any) -> Callable[..., Any]:
    """The initializer of that name; an initializer or another callable (shape, dtype) is itself; a tensor,
    array or number stands for `Constant` of it.

    Raises:
      ValueError: an unknown name; the message lists the known ones.

    >>> import gradtape as tf
    >>> tf.keras.initializers.get("he_normal")
    HeNormal(seed=None)
    """
    if isinstance(identifier, type) and issubclass(identifier, Initializer):
        return identifier()
    if callable(identifier):
        return identifier
    if isinstance(identifier, int | float | np.ndarray | Tensor) and not isinstance(identifier, bool):
        return Constant(identifier)
    kind = _ALIASES.get(identifier) if isinstance(identifier, str) else None
    return (kind or by_name("initializer", _KNOWN, identifier))()
