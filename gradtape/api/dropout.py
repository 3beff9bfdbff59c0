"""Dropout. Floor: api."""

from __future__ import annotations

from typing import Any

from gradtape.api.arguments import integer
from gradtape.api.elementwise import where
from gradtape.api.sampling import uniform
from gradtape.ir.dtypes import float32, float64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import broadcast, shape_text
from gradtape.runtime.convert import convert
from gradtape.runtime.operators import operand
from gradtape.runtime.tensor import Tensor


def dropout(x: Any, rate: Any, noise_shape: Any = None, seed: int | None = None, name: str | None = None) -> Tensor:
    """Zeros at random places, and what is left scaled by 1 / (1 - rate), so that the expected sum stays the same.

    Args:
      x: a floating tensor.
      rate: the probability of a zero, at least 0 and less than 1; a number or a scalar tensor.
      noise_shape: the shape of the random choice, broadcast to x: elements along its axes of size 1 are dropped
        together. None inside it stands for the size of x.
      seed: mixed with the global seed.
      name: accepted for compatibility.

    Raises:
      ValueError: x is not floating, or `rate` is out of range.
      InvalidArgumentError: `noise_shape` does not broadcast to x.

    Source: Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting" (JMLR 2014).

    >>> import gradtape as tf
    >>> print(tf.nn.dropout([1.0, 2.0], rate=0).numpy())
    [1. 2.]
    >>> kept = tf.nn.dropout(tf.ones([1000]), rate=0.5)
    >>> print(sorted(set(kept.numpy().tolist())))
    [0.0, 2.0]
    """
    x = convert(x)
    dtype = x._aval.dtype
    if not dtype.is_floating:
        raise ValueError(f"`x` of `dropout` should be a floating tensor, as it is scaled, got a {dtype.cname} one.")
    known = isinstance(rate, int | float)
    if known and not 0 <= rate < 1:
        raise ValueError(f"`rate` should be a scalar tensor or a number in the range [0, 1), got {rate}.")
    shape = _noise_shape(x, noise_shape)
    if known and rate == 0:
        return x
    wide = float64 if dtype is float64 else float32
    keep = uniform(shape, dtype=wide, seed=seed) >= operand(rate, wide)
    scale = 1.0 / (1.0 - rate)
    return where(keep, x * operand(scale, dtype), operand(0, dtype))


def _noise_shape(x: Tensor, noise_shape: Any) -> tuple[int, ...]:
    dims = x._aval.dims
    if noise_shape is None:
        return dims
    found = noise_shape.numpy().tolist() if isinstance(noise_shape, Tensor) else list(noise_shape)
    if len(found) == len(dims):
        found = [n if k is None else k for k, n in zip(found, dims, strict=True)]
    shape = tuple(integer(n, "noise_shape") for n in found)
    try:
        fits = broadcast(shape, dims) == dims
    except ValueError:
        fits = False
    if not fits:
        raise InvalidArgumentError(f"`noise_shape` {list(found)} does not broadcast to shape {shape_text(dims)}.")
    return shape
