"""Scaling tensors down to a norm, one by one or all together. Floor: api."""

from __future__ import annotations

from typing import Any

from gradtape.api.elementwise import abs, maximum
from gradtape.api.layout import stack
from gradtape.api.reductions import reduce_euclidean_norm
from gradtape.runtime.convert import convert, convert_all
from gradtape.runtime.indexed_slices import IndexedSlices
from gradtape.runtime.operators import operand
from gradtape.runtime.tensor import Tensor


def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str | None = None) -> Any:
    """The tensor scaled down to a norm of at most `clip_norm`.

    Args:
      t: a floating tensor, or `tf.IndexedSlices` (rows at one position are added up before).
      clip_norm: the largest norm; a number, or a tensor that broadcasts against the norms. A negative one is taken
        for 0.
      axes: over which norms are taken; by default over all.
      name: accepted for compatibility.

    Returns:
      A tensor of the same shape and dtype, or `tf.IndexedSlices`. The gradient of the norm at 0 is 0.

    >>> import gradtape as tf
    >>> print(tf.clip_by_norm([3.0, 4.0], 1.0).numpy())
    [0.6 0.8]
    """
    if isinstance(t, IndexedSlices):
        rows = t.summed()
        return rows.with_values(clip_by_norm(rows.values, clip_norm, axes))
    x = convert(t)
    limit = maximum(operand(clip_norm, x._aval.dtype), 0)
    return x * (limit / maximum(_norm(x, axes, True), limit))


def _norm(x: Tensor, axes: Any = None, keepdims: bool = False) -> Tensor:
    return reduce_euclidean_norm(abs(x) if x._aval.dtype.is_complex else x, axes, keepdims)


def global_norm(t_list: Any, name: str | None = None) -> Tensor:
    """The root of the sum of squares over a list of tensors.

    Args:
      t_list: floating tensors of one dtype, or `tf.IndexedSlices` (rows at one position are added up before);
        None entries count as nothing.
      name: accepted for compatibility.

    Raises:
      ValueError: no tensor at all.

    >>> import gradtape as tf
    >>> print(tf.linalg.global_norm([[3.0], [4.0]]).numpy())
    5.0
    """
    parts = [t.summed().values if isinstance(t, IndexedSlices) else t for t in t_list if t is not None]
    if not parts:
        raise ValueError("`global_norm` wants a list with at least one tensor.")
    return _norm(stack([_norm(t) for t in convert_all(parts)]))


def clip_by_global_norm(
    t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None
) -> tuple[list[Any], Tensor]:
    """A list of tensors scaled by one factor so that their global norm is at most `clip_norm`, and that norm.

    Args:
      t_list: as for `global_norm`.
      clip_norm: the largest norm.
      use_norm: the global norm, if it is known already.
      name: accepted for compatibility.

    Returns:
      The scaled tensors (None where there was None, `tf.IndexedSlices` for such), all NaN where the norm is not
      finite; and the norm before scaling.

    >>> import gradtape as tf
    >>> parts, size = tf.clip_by_global_norm([[3.0], [4.0]], 1.0)
    >>> [p.numpy().round(6).tolist() for p in parts], float(size)
    ([[0.6000000238418579], [0.800000011920929]], 5.0)
    """
    size = global_norm(t_list) if use_norm is None else convert(use_norm)
    limit = operand(clip_norm, size._aval.dtype)
    # size - size is 0, or NaN where the norm is not finite
    scale = limit / maximum(size, limit) + (size - size)
    return [_scaled(t, scale) for t in t_list], size


def _scaled(t: Any, scale: Tensor) -> Any:
    if isinstance(t, IndexedSlices):
        return t.with_values(t.values * scale)
    return None if t is None else convert(t) * scale


def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """A number times a tensor, or times the rows of `tf.IndexedSlices`.

    Raises:
      ValueError: a `scalar` that is none.

    >>> import gradtape as tf
    >>> print(tf.math.scalar_mul(2.0, [1.0, 2.0]).numpy())
    [2. 4.]
    """
    rows = convert(x.values if isinstance(x, IndexedSlices) else x)
    factor = operand(scalar, rows._aval.dtype)
    if factor.ndim:
        raise ValueError(f"Only scalar multiply works, got a `scalar` of shape {factor.shape}. Use `tf.multiply`.")
    return x.with_values(factor * rows) if isinstance(x, IndexedSlices) else factor * rows
