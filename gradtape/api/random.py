"""`tf.random`: counter-based random numbers (Philox), equal on every backend for one seed. Floor: api."""

from __future__ import annotations

import itertools
import math
import secrets
import threading
from typing import Any

import numpy as np

from gradtape.api.arguments import integers
from gradtape.api.elementwise import cast, cos, log, sqrt
from gradtape.api.indexing import gather
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, as_dtype, float32, float64, uint64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ops.random_bits import RANDOM_BITS
from gradtape.runtime.contract import reshape
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import execute
from gradtape.runtime.operators import operand
from gradtape.runtime.tensor import Tensor, wrap

MASK = (1 << 64) - 1


class _Global:
    """The global seed and how many draws were made under it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reset(None)

    def reset(self, seed: int | None) -> None:
        with self.lock:
            self.key = secrets.randbits(64) if seed is None else seed & MASK
            self.draws = itertools.count()

    def next(self, seed: int | None) -> tuple[int, int]:
        """The key and counter of the next draw; an op's own seed is mixed into the key."""
        with self.lock:
            counter = next(self.draws)
        key = self.key if seed is None else (self.key ^ (seed * 0x9E3779B97F4A7C15)) & MASK
        return key, counter


_GLOBAL = _Global()


def set_seed(seed: int) -> None:
    """Make what follows repeatable: the same seed, then the same calls, give the same numbers.

    >>> import gradtape as tf
    >>> tf.random.set_seed(7)
    >>> first = tf.random.uniform([3])
    >>> tf.random.set_seed(7)
    >>> bool(tf.reduce_all(first == tf.random.uniform([3])))
    True
    """
    _GLOBAL.reset(int(seed))


def _bits(shape: tuple[int, ...], state: tuple[int, int]) -> Tensor:
    key = wrap(np.array(state, np.uint64), aval((2,), uint64))
    result: Tensor = execute(RANDOM_BITS.bind(shape=shape), (key,))
    return result


def _unit(shape: tuple[int, ...], dtype: DType, state: tuple[int, int]) -> Tensor:
    """Uniform numbers in [0, 1): 24 random bits each, or 53 for float64."""
    if dtype is float64:
        words = _bits((2, *shape), state)
        return cast(words[0], float64) * 2.0**-32 + cast(words[1] // np.uint32(2048), float64) * 2.0**-53
    return cast(_bits(shape, state) // np.uint32(256), float32) * 2.0**-24


def _normal(shape: tuple[int, ...], dtype: DType, state: tuple[int, int]) -> Tensor:
    """Standard normal numbers by the method of Box and Muller."""
    wide = float64 if dtype is float64 else float32
    u = _unit((2, *shape), wide, state)
    return sqrt(-2.0 * log(1.0 - u[0])) * cos(2.0 * math.pi * u[1])


def _floating(dtype: Any) -> DType:
    wanted = as_dtype(dtype)
    if not wanted.is_floating:
        raise InvalidArgumentError(f"Random normal numbers have a floating dtype, got {wanted.name}.")
    return wanted


def normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Normally distributed numbers.

    Args:
      shape: of the result.
      mean, stddev: of the distribution; tensors broadcast against the shape.
      dtype: a floating dtype.
      seed: mixed with the global seed.
      name: accepted for compatibility.

    >>> import gradtape as tf
    >>> tf.random.normal([2, 3]).shape
    TensorShape([2, 3])
    """
    wanted = _floating(dtype)
    drawn = cast(_normal(integers(shape, "shape"), wanted, _GLOBAL.next(seed)), wanted)
    return drawn * operand(stddev, wanted) + operand(mean, wanted)


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
      dtype: a floating or integer dtype.
      seed: mixed with the global seed.
      name: accepted for compatibility.

    Raises:
      ValueError: integers without `maxval`, or an empty interval of them.

    >>> import gradtape as tf
    >>> bool(tf.reduce_all(tf.random.uniform([100]) < 1.0))
    True
    """
    wanted, dims = as_dtype(dtype), integers(shape, "shape")
    state = _GLOBAL.next(seed)
    if wanted.is_integer:
        if maxval is None or int(maxval) <= int(minval):
            raise ValueError(f"Uniform integers want `minval` < `maxval`, got {minval} and {maxval}.")
        unit = _unit(dims, float64, state)
        return cast(unit * float(int(maxval) - int(minval)), wanted) + operand(int(minval), wanted)
    wanted = _floating(wanted)
    unit = cast(_unit(dims, wanted, state), wanted)
    low, high = operand(minval, wanted), operand(1 if maxval is None else maxval, wanted)
    return unit * (high - low) + low


def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Normally distributed numbers, drawn again where they are more than two deviations from the mean.

    >>> import gradtape as tf
    >>> bool(tf.reduce_all(tf.abs(tf.random.truncated_normal([1000])) <= 2.0))
    True
    """
    wanted, dims = _floating(dtype), integers(shape, "shape")
    count = math.prod(dims)
    drawn = np.zeros(0, np.float64 if wanted is float64 else np.float32)
    while drawn.size < count:
        more = np.asarray(_normal((max(16, (count - drawn.size) * 5 // 4),), wanted, _GLOBAL.next(seed)))
        drawn = np.concatenate([drawn, more[np.abs(more) <= 2.0]])
    flat = drawn[:count].astype(wanted.numpy_dtype)
    kept = reshape(wrap(flat, aval((count,), wanted)), dims)
    return kept * operand(stddev, wanted) + operand(mean, wanted)


def shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """The rows of a tensor in random order; gradients flow to where the rows came from.

    >>> import gradtape as tf
    >>> sorted(tf.random.shuffle([1, 2, 3]).numpy().tolist())
    [1, 2, 3]
    """
    x = convert(value)
    order = np.argsort(np.asarray(_bits((2, len(x)), _GLOBAL.next(seed))).astype(np.uint64)[0], kind="stable")
    return gather(x, order)
