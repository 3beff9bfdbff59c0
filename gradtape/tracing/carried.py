"""Tensor arrays in what branches and loops hand on: as the tensors that they consist of. Floor: tape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import optree

from gradtape.ir.shapes import TensorShape, shape_text
from gradtape.runtime.places import place_of, user_frame
from gradtape.runtime.tensor import SymbolicTensorError, Tensor
from gradtape.runtime.trace import function_tracer
from gradtape.tracing.tensor_array import TensorArray

_GLOBAL = optree.registry.__GLOBAL_NAMESPACE  # structures have no namespace of their own


class _Carried:
    """An array as a part of a structure, whose leaves are tensors."""

    def __init__(self, array: TensorArray) -> None:
        self.array = array


def _flattened(carried: _Carried) -> tuple[Sequence[Tensor], Any]:
    """One tensor; none where nothing was written and nobody knows of what shape elements are."""
    a = carried.array
    whole = [] if a._rows is not None and a._known_dims() is None else [a._dense(a._known_dims())]
    dims = whole[0]._aval.dims[1:] if whole and a._infer else a._shape.dims_or_none
    count = None if whole else a._count
    return whole, (a._dtype, count, a._dynamic, a._clears, a._infer, dims)


def _rebuilt(meta: Any, tensors: Sequence[Any]) -> Any:
    dtype, count, dynamic, clears, infer, dims = meta
    made = TensorArray(dtype, count or 0, dynamic, clears, infer_shape=infer, element_shape=dims)
    if tensors:
        made._rows, made._whole = None, tensors[0]
    tracer = function_tracer()
    made._is_open = dynamic and tracer is not None and tracer.is_block
    return made


optree.register_pytree_node(_Carried, _flattened, _rebuilt, namespace=_GLOBAL)  # type: ignore[arg-type]


def expanded(structure: Any) -> Any:
    """A structure with the tensors of its arrays as leaves; what it is flattened to is rebuilt to arrays.

    Raises:
      InvalidArgumentError: elements of different shapes."""
    leaves, spec = optree.tree_flatten(structure, none_is_leaf=True)
    if not any(isinstance(x, TensorArray) for x in leaves):
        return structure
    whole: Any = optree.tree_unflatten(spec, [_Carried(x) if isinstance(x, TensorArray) else x for x in leaves])
    return whole


def settled(structure: Any) -> Any:
    """A structure whose arrays are made to wholes here."""
    leaves, spec = optree.tree_flatten(structure, none_is_leaf=True)
    if not any(isinstance(x, TensorArray) for x in leaves):
        return structure
    made: Any = optree.tree_unflatten(spec, [x._settled() if isinstance(x, TensorArray) else x for x in leaves])
    return made


class Outgrown(Exception):
    """An array is larger after a round of a loop, or it is known of what shape elements are: the loop begins with one
    like that. `after`: the structure that has such arrays."""

    def __init__(self, after: Any) -> None:
        super().__init__()
        self.after = after


def check_size(before: Sequence[Any], after: Sequence[Any]) -> None:
    """To be asked in a round, of what it changes, each a structure.

    Raises:
      Outgrown: an array is larger than before."""
    if any(_needs_more(x, y) for x, y in _pairs(before, after)):
        raise Outgrown(after)


def widened(before: Any, after: Any) -> Any:
    """A structure whose arrays have as many elements as in another one, and of the same shape; as it is, if it is like
    none.

    Raises:
      SymbolicTensorError: how many there are depends on values that are not known.
      ValueError: elements of another shape."""
    leaves, spec = optree.tree_flatten(before, none_is_leaf=True)
    others, other = optree.tree_flatten(after, none_is_leaf=True)
    if spec != other:
        return before
    wider = [_like(x, y) if isinstance(x, TensorArray) else x for x, y in zip(leaves, others, strict=True)]
    same = all(x is y for x, y in zip(leaves, wider, strict=True))
    made: Any = before if same else optree.tree_unflatten(spec, wider)
    return made


def _pairs(before: Sequence[Any], after: Sequence[Any]) -> Iterator[tuple[TensorArray, TensorArray]]:
    """Arrays that stand at one place; parts of which the structure is another one are somebody else's to refuse."""
    for whole, other in zip(before, after, strict=False):
        leaves, spec = optree.tree_flatten(whole, none_is_leaf=True)
        others, its = optree.tree_flatten(other, none_is_leaf=True)
        if spec == its:
            pairs = zip(leaves, others, strict=True)
            yield from ((x, y) for x, y in pairs if isinstance(x, TensorArray) and isinstance(y, TensorArray))


def _needs_more(x: TensorArray, y: TensorArray) -> bool:
    return x._count < y._count or (x._known_dims() is None and y._known_dims() is not None)


def _like(x: TensorArray, y: Any) -> TensorArray:
    if not isinstance(y, TensorArray) or not _needs_more(x, y):
        return x
    if y._unsure:
        raise SymbolicTensorError(
            f"{place_of(user_frame())}: how many elements a `TensorArray` of dynamic size has after a loop or a branch "
            "depends on tensors without values. Give `size`, and leave `dynamic_size` out."
        )
    made, dims = x._copied(), y._known_dims()
    if dims is not None and not x._shape.is_compatible_with(dims):
        raise ValueError(f"Incompatible shape for value ({shape_text(dims)}), expected ({x._shape}).")
    if x._known_dims() is None and dims is not None:
        made._shape = TensorShape(dims)
    if y._count > x._count:
        made._grow(y._count, True)
    return made
