"""Functions over the first axis: all at once (`vectorized_map`) or one after the other (`map_fn`). Floor: api."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import optree

from gradtape.api.layout import stack
from gradtape.ir.dtypes import DType
from gradtape.ir.errors import InvalidArgumentError
from gradtape.recording import flatten
from gradtape.runtime.convert import as_optional_dtype, convert
from gradtape.runtime.subscript import subscript
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable
from gradtape.runtime.vectorized import Finish, map_elements
from gradtape.transforms.rows.leaving import dense


def vectorized_map(fn: Callable[[Any], Any], elems: Any, fallback_to_while_loop: bool = True, warn: bool = True) -> Any:
    """fn on every slice of `elems` along the first axis, computed for all slices at once.

    fn is called once, with tensors whose values are not known; what it does to one slice is done to all of them. Random
    numbers are drawn for each slice (also dropout, and from a `tf.random.Generator`); those of `tf.random.stateless_*`
    depend on their seed alone, and so are the same for all slices. `tf.print`, assertions and `tf.py_function` run for
    one slice after the other.

    Args:
      fn: takes one slice, in the structure of `elems`, and returns a structure of tensors.
      elems: a tensor, or a structure of tensors whose first dimensions agree; those of size 1 are seen by every
        slice.
      fallback_to_while_loop: accepted for compatibility; nothing falls back: `tf.map_fn` is that loop. Slices of a
        known size may begin where each slice of `elems` says, as in `x[i : i + 2]`.
      warn: accepted for compatibility.

    Returns:
      The structure that fn returns, every tensor with a new first axis.

    Raises:
      ValueError: no elements, scalars among them, or first dimensions that differ.
      NotVectorizable: what fn does cannot be done for all slices at once.

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
        shapes.append((spec, [r is not None for r in results]))
        return [convert(r) for r in results if r is not None]

    found = iter(map_elements(of_leaves, tensors, shared, count, finish))
    spec, present = shapes[0]
    results = [next(found) if there else None for there in present]
    return results[0] if spec is None else optree.tree_unflatten(spec, results)


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
      dtype: an older name of `fn_output_signature`.
      parallel_iterations, back_prop, swap_memory, infer_shape, name: accepted for compatibility.
      fn_output_signature: the dtypes (or `tf.TensorSpec`s) of what fn returns, in its structure. Python's numbers
        become tensors of these; without it, of the dtypes of `elems`. Tensors may have any dtype then.

    Raises:
      ValueError: no elements, first dimensions that differ, or a signature of another structure.
      InvalidArgumentError: a tensor of another dtype than the signature says.

    >>> import gradtape as tf
    >>> print(tf.map_fn(lambda x: x * x, tf.constant([1.0, 2.0, 3.0])).numpy())
    [1. 4. 9.]
    """
    slices = _Slices(elems, "map_fn")
    signature = dtype if fn_output_signature is None else fn_output_signature
    like = elems if signature is None else signature
    if not slices.count:
        return mapped(lambda e: _typed(fn(e), like, signature), elems)  # what fn makes of a slice is seen without one
    rows = [flatten(_typed(fn(slices[i]), like, signature)) for i in range(slices.count)]
    return _stacked([parts for parts, _ in rows], rows[-1][1])


class _Slices:
    """The slices of a structure of tensors along their first axis."""

    def __init__(self, elems: Any, who: str) -> None:
        leaves, self.structure = flatten(elems)
        self.tensors = [convert(t) for t in leaves]
        sizes = {t._aval.dims[0] if t.ndim else None for t in self.tensors}
        if len(sizes) != 1 or sizes == {None}:
            shapes = [str(t.shape) for t in self.tensors]
            raise ValueError(f"`elems` of `{who}` should be tensors of one first dimension, got shapes {shapes}.")
        self.count = self.tensors[0]._aval.dims[0]

    def __getitem__(self, i: int) -> Any:
        parts = [subscript(t, i) for t in self.tensors]
        return parts[0] if self.structure is None else optree.tree_unflatten(self.structure, parts)


def _stacked(rows: Sequence[Sequence[Any]], spec: Any) -> Any:
    columns = [stack([convert(x) for x in column]) for column in zip(*rows, strict=True)]
    return columns[0] if spec is None else optree.tree_unflatten(spec, columns)


def _typed(result: Any, like: Any, signature: Any) -> Any:
    """A result of `map_fn` as tensors. Python's numbers take the dtypes that the signature says, or without one those
    of the elements; tensors must have the signature's.

    Raises:
      ValueError: a signature of another structure.
      InvalidArgumentError: a tensor of another dtype than the signature says."""
    results, spec = flatten(result)
    wanted, of_wanted = optree.tree_flatten(like, none_is_leaf=True)
    if of_wanted != optree.tree_structure(result, none_is_leaf=True):
        if signature is not None:
            raise ValueError(
                f"`fn_output_signature` has another structure than what `fn` returns: {signature!r} and {result!r}."
            )
        wanted = [None] * len(results)
    made = [_of_dtype(r, _dtype_of(w), signature is not None) for r, w in zip(results, wanted, strict=True)]
    return made[0] if spec is None else optree.tree_unflatten(spec, made)


def _dtype_of(of: Any) -> DType | None:
    """The dtype of a tensor, of a `tf.TensorSpec`, or what names one."""
    found = getattr(of, "dtype", of)
    return found if isinstance(found, DType) else as_optional_dtype(found)


def _of_dtype(value: Any, dtype: DType | None, strict: bool) -> Tensor:
    if dtype is None or not isinstance(value, Tensor):
        return convert(value, None if isinstance(value, Variable) else dtype)
    if strict and value._aval.dtype is not dtype:
        raise InvalidArgumentError(
            f"`fn` returned a {value._aval.dtype.cname} tensor where `fn_output_signature` says {dtype.name}. Cast it "
            "inside `fn`, or say what it returns."
        )
    return value


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
    if leaves:
        return _stacked([parts for parts, _ in leaves], leaves[0][1])
    parts, spec = flatten(initializer)
    return _none_of(parts, spec)


def _none_of(parts: Sequence[Any], spec: Any) -> Any:
    """Stacks of no results."""
    made = [subscript(stack([convert(p)]), slice(0)) for p in parts]
    return made[0] if spec is None else optree.tree_unflatten(spec, made)


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
    return _last(fn, elems, initializer, False, "foldl")


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
    return _last(fn, elems, initializer, True, "foldr")


def _last(fn: Callable[[Any, Any], Any], elems: Any, initializer: Any, backwards: bool, who: str) -> Any:
    steps = _steps(fn, elems, initializer, backwards, who)
    parts, spec = flatten(steps[-1] if steps else initializer)
    made = [convert(p) for p in parts]
    return made[0] if spec is None else optree.tree_unflatten(spec, made)


def _steps(fn: Callable[[Any, Any], Any], elems: Any, initializer: Any, backwards: bool, who: str) -> list[Any]:
    """All results of a running combination, in the order in which they arise."""
    slices = _Slices(elems, who)
    order = list(range(slices.count))
    if backwards:
        order.reverse()
    results: list[Any] = []
    if initializer is None:
        if not order:
            raise ValueError(f"`{who}` over no elements wants an `initializer`.")
        results.append(slices[order.pop(0)])
    state = results[0] if results else initializer
    for i in order:
        state = fn(state, slices[i])
        results.append(state)
    return results
