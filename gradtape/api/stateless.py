"""Random numbers that depend on their seed alone. Floor: api."""

from __future__ import annotations

from typing import Any

from gradtape.api import draws
from gradtape.api.arguments import dimensions, integer
from gradtape.api.elementwise import cast
from gradtape.api.streams import Source
from gradtape.ir.dtypes import as_dtype, float32, int32, int64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ops.gamma_draws import GAMMA_DRAWN
from gradtape.ops.layout import BROADCAST_TO
from gradtape.ops.random_bits import mixed
from gradtape.ops.random_states import RANDOM_SOURCE
from gradtape.runtime.convert import convert
from gradtape.runtime.devices import is_on_device
from gradtape.runtime.dispatch import binary, execute, unary
from gradtape.runtime.operators import operand
from gradtape.runtime.tensor import SymbolicTensor, Tensor


def _source(seed: Any, purpose: int, *more: Any) -> Source | Tensor:
    """The source of a draw for a seed of two integers; each distribution has its own."""
    pair = convert(seed)
    if pair._aval.dims != (2,) or not pair._aval.dtype.is_integer:
        raise InvalidArgumentError(f"`seed` should be two integers, got {seed!r}. Write `seed=[1, 2]`.")
    given = [pair, *map(convert, more)]
    if any(isinstance(t, SymbolicTensor) or is_on_device(t._array) for t in given):
        source: Tensor = execute(RANDOM_SOURCE.bind(purpose=purpose), [cast(t, int64) for t in given])
        return source
    return Source(mixed(*map(int, pair.numpy()), purpose, *(integer(n, "data") for n in more)), 0)


def stateless_uniform(
    shape: Any,
    seed: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = float32,
    name: str | None = None,
    alg: Any = "auto_select",
) -> Tensor:
    """Uniformly distributed numbers in [minval, maxval), the same for the same seed.

    Args:
      shape: of the result.
      seed: two integers.
      minval, maxval: the interval, [0, 1) by default; integers of all values where both are None.
      dtype: a floating or integer dtype.
      name, alg: accepted for compatibility.

    Raises:
      ValueError: integers with only one bound, or an empty interval of them.
      InvalidArgumentError: a seed that is not two integers.

    >>> import gradtape as tf
    >>> a, b = (tf.random.stateless_uniform([2], seed=[1, 2]) for _ in range(2))
    >>> bool(tf.reduce_all(a == b))
    True
    """
    wanted, dims, source = as_dtype(dtype), dimensions(shape, "shape"), _source(seed, 0)
    if not wanted.is_integer:
        drawn = draws.unit(dims, draws.floating(wanted), source)
        return draws.between(drawn, minval, 1 if maxval is None else maxval)
    if minval is None and maxval is None:
        return draws.full_integers(dims, wanted, source)
    if minval is None or maxval is None:
        raise ValueError(f"For integer dtype {wanted.name}, specify both or none of `minval` and `maxval`.")
    return draws.integers_between(dims, integer(minval, "minval"), integer(maxval, "maxval"), wanted, source)


def stateless_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = float32,
    name: str | None = None,
    alg: Any = "auto_select",
) -> Tensor:
    """Normally distributed numbers, the same for the same seed. Arguments as for `tf.random.normal`.

    Raises:
      InvalidArgumentError: a seed that is not two integers, or a dtype that is not floating.

    >>> import gradtape as tf
    >>> tf.random.stateless_normal([2, 3], seed=[1, 2]).shape
    TensorShape([2, 3])
    """
    drawn = draws.normal(dimensions(shape, "shape"), draws.floating(dtype), _source(seed, 1))
    return draws.scaled_normal(drawn, mean, stddev)


def stateless_truncated_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = float32,
    name: str | None = None,
    alg: Any = "auto_select",
) -> Tensor:
    """Normally distributed numbers within two deviations, the same for the same seed. Arguments as for
    `tf.random.normal`.

    Raises:
      InvalidArgumentError: a seed that is not two integers, or a dtype that is not floating.

    >>> import gradtape as tf
    >>> tf.random.stateless_truncated_normal([2, 3], seed=[1, 2]).shape
    TensorShape([2, 3])
    """
    drawn = draws.truncated_normal(dimensions(shape, "shape"), draws.floating(dtype), _source(seed, 2))
    return draws.scaled_normal(drawn, mean, stddev)


def stateless_gamma(
    shape: Any, seed: Any, alpha: Any, beta: Any = None, dtype: Any = float32, name: str | None = None
) -> Tensor:
    """Gamma-distributed numbers, the same for the same seed. Gradients flow to `beta`, and to `alpha` by implicit
    reparameterization.

    Args:
      shape: of the result; the common shape of alpha and beta broadcasts to it.
      seed: two integers.
      alpha, beta: shape and rate (1 by default).
      dtype: a floating dtype.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: a seed that is not two integers, or a dtype that is not floating.

    >>> import gradtape as tf
    >>> tf.random.stateless_gamma([10, 2], seed=[1, 2], alpha=[0.5, 1.5]).shape
    TensorShape([10, 2])
    """
    wanted = draws.floating(dtype)
    a = convert(operand(alpha, wanted))
    drawn = drawn_for(a, draws.gamma(dimensions(shape, "shape"), a, _source(seed, 3)))
    return drawn if beta is None else drawn / operand(beta, wanted)


def drawn_for(alpha: Tensor, drawn: Tensor) -> Tensor:
    """Gamma-distributed numbers as a function of the shape parameters that they were drawn for."""
    full = unary(BROADCAST_TO.bind(shape=drawn._aval.dims), alpha)
    return binary(GAMMA_DRAWN.bind(), full, drawn)


def stateless_poisson(shape: Any, seed: Any, lam: Any, dtype: Any = int32, name: str | None = None) -> Tensor:
    """Poisson-distributed counts, the same for the same seed; no gradient flows.

    Args:
      shape: of the result; the shape of `lam` broadcasts to it.
      seed: two integers.
      lam: rates of 0 or more.
      dtype: a floating or integer dtype.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: a seed that is not two integers.

    >>> import gradtape as tf
    >>> tf.random.stateless_poisson([10, 2], seed=[1, 2], lam=[0.5, 100.0]).shape
    TensorShape([10, 2])
    """
    return draws.poisson(dimensions(shape, "shape"), convert(lam), as_dtype(dtype), _source(seed, 4))


def stateless_categorical(
    logits: Any, num_samples: Any, seed: Any, dtype: Any = int64, name: str | None = None
) -> Tensor:
    """Categories drawn by unnormalised log probabilities, the same for the same seed. Arguments as for
    `tf.random.categorical`.

    Raises:
      InvalidArgumentError: a seed that is not two integers, or logits that are no matrix of floating numbers.

    >>> import gradtape as tf
    >>> tf.random.stateless_categorical([[0.0, 1.0]], 5, seed=[1, 2]).shape
    TensorShape([1, 5])
    """
    count = integer(num_samples, "num_samples")
    return draws.categorical(logits, count, as_dtype(dtype), _source(seed, 5))


# ------------------------------------------------------------------ seeds from seeds


def _seeds(dims: tuple[int, ...], source: Source | Tensor, like: Any) -> Tensor:
    return draws.full_integers(dims, convert(like)._aval.dtype, source)


def split(seed: Any, num: Any = 2, alg: Any = "auto_select") -> Tensor:
    """New seeds from a seed, independent of each other and of what is drawn with the old one.

    Args:
      seed: two integers.
      num: how many.
      alg: accepted for compatibility.

    Returns:
      A tensor of shape (num, 2) of the seed's dtype.

    Raises:
      InvalidArgumentError: a seed that is not two integers.

    >>> import gradtape as tf
    >>> a, b = tf.unstack(tf.random.split([1, 2], num=2))
    >>> tf.random.stateless_normal([3], seed=a).shape
    TensorShape([3])
    """
    return _seeds((integer(num, "num"), 2), _source(seed, 6), seed)


def fold_in(seed: Any, data: Any, alg: Any = "auto_select") -> Tensor:
    """A new seed from a seed and an integer, such as the number of a step.

    Args:
      seed: two integers.
      data: an integer.
      alg: accepted for compatibility.

    Raises:
      InvalidArgumentError: a seed that is not two integers.

    >>> import gradtape as tf
    >>> seeds = [tf.random.fold_in([1, 2], step) for step in range(2)]
    >>> bool(tf.reduce_all(seeds[0] == seeds[1]))
    False
    """
    return _seeds((2,), _source(seed, 7, data), seed)
