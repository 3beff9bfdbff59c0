"""Random numbers of every distribution from a key and a counter. Floor: api.

A draw is a function of (key, counter) alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.api.elementwise import cast, cos, exp, is_finite, log, minimum, sqrt, stop_gradient, where
from gradtape.api.reductions import cumsum, reduce_max
from gradtape.api.streams import Source, state_of
from gradtape.ir.dtypes import DType, as_dtype, float32, float64, int64, uint64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ops.ordering import ARGSORT, SEARCHSORTED
from gradtape.ops.random_bits import RANDOM_BITS
from gradtape.ops.random_draws import (
    RANDOM_GAMMA,
    RANDOM_INTEGERS,
    RANDOM_POISSON,
    RANDOM_TRUNCATED_NORMAL,
)
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import binary, unary
from gradtape.runtime.operators import operand
from gradtape.runtime.tensor import Tensor

Dims = tuple[int, ...]


# ------------------------------------------------------------------ bits, uniform and normal numbers as ops


def bits(dims: Dims, source: Source | Tensor) -> Tensor:
    """Words of 32 random bits."""
    return unary(RANDOM_BITS.bind(shape=dims), state_of(source))


def floating(dtype: Any) -> DType:
    """A floating dtype.

    Raises:
      InvalidArgumentError: for another one.
    """
    wanted = as_dtype(dtype)
    if not wanted.is_floating:
        raise InvalidArgumentError(f"Random real numbers have a floating dtype, got {wanted.name}.")
    return wanted


PRECISION = {"float16": 11, "bfloat16": 8, "float32": 24}  # as many bits as are exact: no number rounds up to 1


def unit(dims: Dims, dtype: DType, source: Source | Tensor) -> Tensor:
    """Uniform numbers in [0, 1)."""
    if dtype is float64:
        words = bits((2, *dims), source)
        return cast(words[0], float64) * 2.0**-32 + cast(words[1] // np.uint32(2048), float64) * 2.0**-53
    kept = PRECISION[dtype.name]
    return cast(cast(bits(dims, source) // np.uint32(1 << (32 - kept)), float32) * 2.0**-kept, dtype)


def normal(dims: Dims, dtype: DType, source: Source | Tensor) -> Tensor:
    """Standard normal numbers by the method of Box and Muller."""
    wide = float64 if dtype is float64 else float32
    u = unit((2, *dims), wide, source)
    return cast(sqrt(-2.0 * log(1.0 - u[0])) * cos(2.0 * math.pi * u[1]), dtype)


def scaled_normal(drawn: Tensor, mean: Any, stddev: Any) -> Tensor:
    """Standard normal numbers moved and stretched; gradients flow to both."""
    dtype = drawn._aval.dtype
    return drawn * operand(stddev, dtype) + operand(mean, dtype)


def between(drawn: Tensor, low: Any, high: Any) -> Tensor:
    """Numbers of [0, 1) moved to [low, high); gradients flow to both."""
    dtype = drawn._aval.dtype
    start = operand(low, dtype)
    return drawn * (operand(high, dtype) - start) + start


def integers_between(dims: Dims, low: int, high: int, dtype: DType, source: Source | Tensor) -> Tensor:
    """Integers in [low, high), all equally likely.

    Raises:
      ValueError: an empty range, or one that the dtype cannot hold.
    """
    if high <= low:
        raise ValueError(f"Random integers want `minval` < `maxval`, got {low} and {high}.")
    if low < dtype.min or high - 1 > dtype.max:
        raise ValueError(f"{dtype.name} does not hold all integers from {low} to {high - 1}.")
    return unary(RANDOM_INTEGERS.bind(shape=dims, low=low, span=high - low, dtype=dtype), state_of(source))


def full_integers(dims: Dims, dtype: DType, source: Source | Tensor) -> Tensor:
    """Integers of all values of a dtype."""
    return integers_between(dims, int(dtype.min), int(dtype.max) + 1, dtype, source)


def permutation(n: int, source: Source | Tensor) -> Tensor:
    """The numbers 0 to n - 1 in random order."""
    words = full_integers((n,), uint64, source)
    return cast(unary(ARGSORT.bind(axis=0, descending=False, count=n), words), int64)


def truncated_normal(dims: Dims, dtype: DType, source: Source | Tensor) -> Tensor:
    """Standard normal numbers of at most two deviations from 0."""
    return unary(RANDOM_TRUNCATED_NORMAL.bind(shape=dims, dtype=dtype), state_of(source))


def gamma(dims: Dims, alpha: Tensor, source: Source | Tensor) -> Tensor:
    """Numbers with the density x^(α-1) e^(-x) / Γ(α), for α that broadcasts to dims."""
    return binary(RANDOM_GAMMA.bind(shape=dims), state_of(source), alpha)


def poisson(dims: Dims, rate: Tensor, dtype: DType, source: Source | Tensor) -> Tensor:
    """Counts with mean and variance λ, for λ that broadcasts to dims."""
    return binary(RANDOM_POISSON.bind(shape=dims, dtype=dtype), state_of(source), rate)


def categorical(logits: Any, count: int, dtype: DType, source: Source | Tensor) -> Tensor:
    """For each row of unnormalised log probabilities `count` categories, by inversion.

    Raises:
      InvalidArgumentError: logits that are no matrix of floating numbers, or have no categories.
    """
    x = convert(logits)
    if x.ndim != 2 or not x._aval.dtype.is_floating or (not x._aval.dims[1] and count):
        raise InvalidArgumentError(
            f"`categorical` wants floating logits of shape (batch, categories), got {x._aval!r}."
        )
    wide = cast(stop_gradient(x), float64)
    top = reduce_max(wide, 1, keepdims=True)
    sums = cumsum(exp(wide - where(is_finite(top), top, 0.0)), 1)
    total = sums[:, -1:]
    points = unit((x._aval.dims[0], count), float64, source) * total
    found = binary(SEARCHSORTED.bind(right=True, dtype=int64), sums, points)
    last = binary(SEARCHSORTED.bind(right=False, dtype=int64), sums, total)  # where rounding reached beyond
    return cast(minimum(found, last), dtype)
