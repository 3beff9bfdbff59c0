"""Functions over the first axis: all at once (`vectorized_map`) or one after the other (`map_fn`). Floor: api."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optree

from gradtape.api.layout import stack
from gradtape.recording import flatten
from gradtape.runtime.convert import convert
from gradtape.runtime.subscript import subscript
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.vectorized import Finish, map_elements
from gradtape.transforms.rows.leaving import dense


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
    return mapped(fn, elems)


def mapped(fn: Callable[[Any], Any], elems: Any, finish: Finish = dense) -> Any:
    """fn on all slices; `finish` says what is made of the rows of each result."""
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

    found = map_elements(of_leaves, tensors, shared, count, finish)
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
        return mapped(fn, elems)  # what fn makes of a slice is seen without a slice
    rows = []
    spec: Any = None
    for i in range(count):
        slices = [subscript(t, i) for t in tensors]
        result = fn(slices[0] if structure is None else optree.tree_unflatten(structure, slices))
        parts, spec = flatten(result)
        rows.append([convert(p) for p in parts])
    stacked = [stack(list(column)) for column in zip(*rows, strict=True)]
    return stacked[0] if spec is None else optree.tree_unflatten(spec, stacked)


def scan(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """The results of a running combination: y[i] = fn(y[i - 1], elems[i]), stacked.

    Args:
      fn: takes the result so far and one slice, and returns the next result, of one structure throughout.
      elems: a tensor, or a structure of tensors with one first dimension.
      initializer: what stands before the first result; by default the first slice is the first result.
      parallel_iterations, back_prop, swap_memory, infer_shape, name: accepted for compatibility.
      reverse: go from the last slice to the first.

    Raises:
      ValueError: no elements, or first dimensions that differ.

    >>> import gradtape as tf
    >>> print(tf.scan(lambda total, x: total + x, tf.constant([1.0, 2.0, 3.0])).numpy())
    [1. 3. 6.]
    """
    steps = _steps(fn, elems, initializer, reverse, "scan")
    if reverse:
        steps.reverse()
    leaves = [flatten(s) for s in steps]
    stacked = [stack(list(column)) for column in zip(*[parts for parts, _ in leaves], strict=True)]
    spec = leaves[0][1]
    return stacked[0] if spec is None else optree.tree_unflatten(spec, stacked)


def foldl(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """The last result of `scan`: slices combined from the first to the last.

    >>> import gradtape as tf
    >>> float(tf.foldl(lambda a, x: a - x, tf.constant([1.0, 2.0, 3.0])))
    -4.0
    """
    return _steps(fn, elems, initializer, False, "foldl")[-1]


def foldr(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """Slices combined from the last to the first.

    >>> import gradtape as tf
    >>> float(tf.foldr(lambda a, x: a - x, tf.constant([1.0, 2.0, 3.0])))
    0.0
    """
    return _steps(fn, elems, initializer, True, "foldr")[-1]


def _steps(fn: Callable[[Any, Any], Any], elems: Any, initializer: Any, backwards: bool, who: str) -> list[Any]:
    """All results of a running combination, in the order in which they arise."""
    leaves, structure = flatten(elems)
    tensors = [convert(t) for t in leaves]
    sizes = {t._aval.dims[0] if t.ndim else None for t in tensors}
    if len(sizes) != 1 or sizes == {None}:
        shapes = [str(t.shape) for t in tensors]
        raise ValueError(f"`{who}` wants tensors of one first dimension, got shapes {shapes}.")
    order = list(range(len(tensors[0])))
    if backwards:
        order.reverse()

    def element(i: int) -> Any:
        slices = [subscript(t, i) for t in tensors]
        return slices[0] if structure is None else optree.tree_unflatten(structure, slices)

    results: list[Any] = []
    if initializer is None:
        if not order:
            raise ValueError(f"`{who}` over no elements wants an `initializer`.")
        results.append(element(order.pop(0)))
    state = results[0] if results else initializer
    for i in order:
        state = fn(state, element(i))
        results.append(state)
    return results or [initializer]
