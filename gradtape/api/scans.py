"""Running products and running logsumexp. Floor: api."""

from __future__ import annotations

import math
from typing import Any

from gradtape.api.arguments import one_axis
from gradtape.api.creation import fill
from gradtape.ops import layout
from gradtape.ops.op import Op
from gradtape.ops.scans import CUMPROD, CUMULATIVE_LOGSUMEXP
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import binary, execute, unary
from gradtape.runtime.subscript import positions
from gradtape.runtime.tensor import Tensor


def cumprod(x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None) -> Tensor:
    """Running products along an axis. Derivatives of any order are right at zeros, too.

    Args:
      x: a numeric tensor.
      axis: along which to multiply.
      exclusive: leave each element out of its own product.
      reverse: multiply from the end.
      name: accepted for compatibility.

    Returns:
      A tensor of the same shape and dtype.

    Raises:
      InvalidArgumentError: an axis that does not exist, or a dtype that cannot be multiplied.

    >>> import gradtape as tf
    >>> print(tf.math.cumprod([2, 3, 4]).numpy(), tf.math.cumprod([2, 3, 4], exclusive=True).numpy())
    [ 2  6 24] [1 2 6]
    """
    return _scan(CUMPROD, convert(x), axis, exclusive, reverse, 1)


def cumulative_logsumexp(
    x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Running log(sum(exp(x))) along an axis, without overflow; elements of -inf have no weight.

    Args:
      x: a floating tensor.
      axis: along which to sum.
      exclusive: leave each element out of its own sum; the logarithm of a sum of nothing is -inf.
      reverse: sum from the end.
      name: accepted for compatibility.

    Returns:
      A tensor of the same shape and dtype.

    Raises:
      InvalidArgumentError: an axis that does not exist, or a dtype that is not floating.

    >>> import gradtape as tf
    >>> print(tf.math.cumulative_logsumexp([0.0, 0.0, 0.0]).numpy().round(4))
    [0.     0.6931 1.0986]
    """
    t = convert(x)
    return _scan(CUMULATIVE_LOGSUMEXP, t, axis, exclusive, reverse, -math.inf)


def _scan(op: Op, t: Tensor, axis: Any, exclusive: bool, reverse: bool, neutral: Any) -> Tensor:
    k = one_axis(axis, t.ndim)
    total = unary(op.bind(axis=k, reverse=bool(reverse)), t)
    n = t._aval.dims[k]
    return _moved_on(total, k, n, reverse, neutral) if exclusive and n else total


def _moved_on(total: Tensor, axis: int, n: int, reverse: bool, neutral: Any) -> Tensor:
    """Each result in the place of the next one, the neutral number in the first place."""
    dims = total._aval.dims
    kept = layout.SLICE.bind(axes=(axis,), sizes=(n - 1,), strides=(1,))
    part = binary(kept, total, positions((1 if reverse else 0,)))
    new = fill((*dims[:axis], 1, *dims[axis + 1 :]), convert(neutral, total._aval.dtype))
    result: Tensor = execute(layout.CONCAT.bind(axis=axis), (part, new) if reverse else (new, part))
    return result
