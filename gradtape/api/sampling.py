"""Random numbers from global seeds: the functions of `tf.random`. Floor: api."""

from __future__ import annotations

from typing import Any

from gradtape.api import draws
from gradtape.api.arguments import dimensions, integer
from gradtape.api.generators import Generator, get_global_generator, set_global_generator
from gradtape.api.indexing import gather
from gradtape.api.seeds import SEEDS, set_seed
from gradtape.api.stateless import (
    drawn_for,
    fold_in,
    split,
    stateless_categorical,
    stateless_gamma,
    stateless_normal,
    stateless_poisson,
    stateless_truncated_normal,
    stateless_uniform,
)
from gradtape.ir.dtypes import as_dtype, float32, int64
from gradtape.ir.shapes import broadcast
from gradtape.runtime.convert import convert, convert_all
from gradtape.runtime.tensor import Tensor

__all__ = [
    "Generator",
    "categorical",
    "fold_in",
    "gamma",
    "get_global_generator",
    "normal",
    "poisson",
    "set_global_generator",
    "set_seed",
    "shuffle",
    "split",
    "stateless_categorical",
    "stateless_gamma",
    "stateless_normal",
    "stateless_poisson",
    "stateless_truncated_normal",
    "stateless_uniform",
    "truncated_normal",
    "uniform",
]


def normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Normally distributed numbers; gradients flow to mean and deviation.

    Args:
      shape: of the result.
      mean, stddev: of the distribution; tensors broadcast against the shape.
      dtype: a floating dtype.
      seed: for a sequence of its own; see `tf.random.set_seed`.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: another dtype.

    >>> import gradtape as tf
    >>> tf.random.normal([2, 3]).shape
    TensorShape([2, 3])
    """
    wanted = draws.floating(dtype)
    drawn = draws.normal(dimensions(shape, "shape"), wanted, SEEDS.next("normal", seed))
    return draws.scaled_normal(drawn, mean, stddev)


def uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Uniformly distributed numbers in [minval, maxval).

    Args:
      shape: of the result.
      minval, maxval: the interval; [0, 1) by default, `maxval` is required for integers.
      dtype: a floating or integer dtype; all integers of the interval are equally likely.
      seed: for a sequence of its own; see `tf.random.set_seed`.
      name: accepted for compatibility.

    Raises:
      ValueError: integers without `maxval`, or an empty interval of them.

    >>> import gradtape as tf
    >>> bool(tf.reduce_all(tf.random.uniform([100]) < 1.0))
    True
    """
    wanted, dims = as_dtype(dtype), dimensions(shape, "shape")
    source = SEEDS.next("uniform", seed)
    if wanted.is_integer:
        if maxval is None:
            raise ValueError(f"Must specify `maxval` for integer dtype {wanted.name}.")
        low, high = integer(minval, "minval"), integer(maxval, "maxval")
        return draws.integers_between(dims, low, high, wanted, source)
    drawn = draws.unit(dims, draws.floating(wanted), source)
    return draws.between(drawn, minval, 1 if maxval is None else maxval)


def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Normally distributed numbers, drawn again where they are more than two deviations from the mean. Arguments as
    for `normal`.

    Raises:
      InvalidArgumentError: a dtype that is not floating.

    >>> import gradtape as tf
    >>> bool(tf.reduce_all(tf.abs(tf.random.truncated_normal([1000])) <= 2.0))
    True
    """
    wanted = draws.floating(dtype)
    drawn = draws.truncated_normal(dimensions(shape, "shape"), wanted, SEEDS.next("truncated_normal", seed))
    return draws.scaled_normal(drawn, mean, stddev)


def gamma(
    shape: Any, alpha: Any, beta: Any = None, dtype: Any = float32, seed: int | None = None, name: str | None = None
) -> Tensor:
    """Gamma-distributed numbers. Gradients flow to `beta`, and to `alpha` by implicit reparameterization.

    Args:
      shape: how many numbers for each pair of alpha and beta.
      alpha: the shape parameter, above 0.
      beta: the rate (inverse scale), 1 by default.
      dtype: a floating dtype.
      seed: for a sequence of its own; see `tf.random.set_seed`.
      name: accepted for compatibility.

    Returns:
      A tensor of shape `shape` + the common shape of alpha and beta.

    Raises:
      InvalidArgumentError: a dtype that is not floating.

    Source: Figurnov, Mohamed and Mnih, Implicit reparameterization gradients, 2018.

    >>> import gradtape as tf
    >>> tf.random.gamma([10], alpha=[0.5, 1.5]).shape
    TensorShape([10, 2])
    """
    wanted = draws.floating(dtype)
    a, rate = convert_all([alpha, 1.0 if beta is None else beta], wanted)
    dims = (*dimensions(shape, "shape"), *_common(a, rate))
    drawn = drawn_for(a, draws.gamma(dims, a, SEEDS.next("gamma", seed)))
    return drawn if beta is None else drawn / rate


def _common(a: Tensor, b: Tensor) -> tuple[int, ...]:
    found = broadcast(a._aval.dims, b._aval.dims) or ()
    return tuple(n for n in found if n is not None)


def poisson(shape: Any, lam: Any, dtype: Any = float32, seed: int | None = None, name: str | None = None) -> Tensor:
    """Poisson-distributed counts; no gradient flows.

    Args:
      shape: how many numbers for each rate.
      lam: rates of 0 or more.
      dtype: a floating or integer dtype.
      seed: for a sequence of its own; see `tf.random.set_seed`.
      name: accepted for compatibility.

    Returns:
      A tensor of shape `shape` + the shape of `lam`.

    >>> import gradtape as tf
    >>> tf.random.poisson([10], [0.5, 100.0]).shape
    TensorShape([10, 2])
    """
    rate = convert(lam)
    dims = (*dimensions(shape, "shape"), *rate._aval.dims)
    return draws.poisson(dims, rate, as_dtype(dtype), SEEDS.next("poisson", seed))


def categorical(
    logits: Any, num_samples: Any, dtype: Any = None, seed: int | None = None, name: str | None = None
) -> Tensor:
    """Categories drawn by unnormalised log probabilities; no gradient flows.

    Args:
      logits: floating, of shape (batch, categories); a category of -inf is never drawn.
      num_samples: how many to draw for each row.
      dtype: of the result, int64 by default.
      seed: for a sequence of its own; see `tf.random.set_seed`.
      name: accepted for compatibility.

    Returns:
      A tensor of shape (batch, num_samples).

    Raises:
      InvalidArgumentError: logits that are no matrix of floating numbers.

    >>> import gradtape as tf
    >>> print(tf.random.categorical([[0.0, float("-inf")]], 4).numpy())
    [[0 0 0 0]]
    """
    wanted = int64 if dtype is None else as_dtype(dtype)
    count = integer(num_samples, "num_samples")
    return draws.categorical(logits, count, wanted, SEEDS.next("categorical", seed))


def shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """The rows of a tensor in random order; gradients flow to where the rows came from.

    >>> import gradtape as tf
    >>> sorted(tf.random.shuffle([1, 2, 3]).numpy().tolist())
    [1, 2, 3]
    """
    x = convert(value)
    return gather(x, draws.permutation(len(x), SEEDS.next("shuffle", seed)))
