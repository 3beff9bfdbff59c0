"""Functions over the first axis: all at once (`vectorized_map`) or one after the other (`map_fn`). Floor: api."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optree

from gradtape.api.layout import stack
from gradtape.ir.errors import InvalidArgumentError
from gradtape.recording import flatten
from gradtape.runtime.convert import convert
from gradtape.runtime.subscript import subscript
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.vectorized import map_elements


def vectorized_map(fn: Callable[[Any], Any], elems: Any, fallback_to_while_loop: bool = True, warn: bool = True) -> Any:
    """fn on every slice of `elems` along the first axis, computed for all slices at once.

    fn is called once, with tensors whose values are not known; what it does to one slice is done to all of them.

    Args:
      fn: takes one slice, in the structure of `elems`, and returns a structure of tensors.
      elems: a tensor, or a structure of tensors whose first dimensions agree; those of size 1 are seen by every
        slice.
      fallback_to_while_loop: accepted for compatibility; nothing falls back.
      warn: accepted for compatibility.

    Returns:
      The structure that fn returns, every tensor with a new first axis.

    Raises:
      ValueError: no elements, scalars among them, or first dimensions that differ.

    >>> import gradtape as tf
    >>> print(tf.vectorized_map(lambda row: tf.reduce_sum(row * row), tf.constant([[1.0, 2.0], [3.0, 4.0]])).numpy())
    [ 5. 25.]

    Source: `tf.vectorized_map` of TensorFlow 2.
    """
    leaves, structure = flatten(elems)
    tensors = [convert(t) for t in leaves]
    count = _common_size(tensors)
    shared = [t._aval.dims[0] == 1 and count != 1 for t in tensors]
    shapes: list[Any] = []

    def of_leaves(slices: list[Tensor]) -> list[Tensor]:
        result = fn(slices[0] if structure is None else optree.tree_unflatten(structure, slices))
        results, spec = flatten(result)
        shapes.append(spec)
        return [convert(r) for r in results]

    found = map_elements(of_leaves, tensors, shared, count)
    return found[0] if shapes[0] is None else optree.tree_unflatten(shapes[0], found)


def _common_size(tensors: list[Tensor]) -> int:
    if not tensors:
        raise ValueError("`elems` should hold at least one tensor.")
    for t in tensors:
        if not t.ndim:
            raise ValueError("`elems` should be tensors with a first axis to go over, got a scalar.")
    sizes = {t._aval.dims[0] for t in tensors} - {1}
    if len(sizes) > 1:
        raise ValueError(f"`elems` should have one first dimension (or 1), got {sorted(sizes)}.")
    return sizes.pop() if sizes else 1


def map_fn(
    fn: Callable[[Any], Any],
    elems: Any,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
    fn_output_signature: Any = None,
) -> Any:
    """fn on every slice of `elems` along the first axis, one after the other; the results are stacked.

    Args:
      fn: takes one slice, in the structure of `elems`, and returns a structure of tensors.
      elems: a tensor, or a structure of tensors with one first dimension.
      dtype, parallel_iterations, back_prop, swap_memory, infer_shape, name, fn_output_signature: accepted for
        compatibility.

    Raises:
      ValueError: no elements, or first dimensions that differ.

    >>> import gradtape as tf
    >>> print(tf.map_fn(lambda x: x * x, tf.constant([1.0, 2.0, 3.0])).numpy())
    [1. 4. 9.]
    """
    leaves, structure = flatten(elems)
    tensors = [convert(t) for t in leaves]
    sizes = {t._aval.dims[0] for t in tensors if t.ndim}
    if len(sizes) != 1 or any(not t.ndim for t in tensors):
        raise ValueError(
            f"`elems` should be tensors of one first dimension, got shapes {[str(t.shape) for t in tensors]}."
        )
    (count,) = sizes
    if not count:
        raise InvalidArgumentError("`map_fn` over no elements cannot know the shape of its result.")
    rows = []
    spec: Any = None
    for i in range(count):
        slices = [subscript(t, i) for t in tensors]
        result = fn(slices[0] if structure is None else optree.tree_unflatten(structure, slices))
        parts, spec = flatten(result)
        rows.append([convert(p) for p in parts])
    stacked = [stack(list(column)) for column in zip(*rows, strict=True)]
    return stacked[0] if spec is None else optree.tree_unflatten(spec, stacked)
