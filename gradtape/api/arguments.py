"""How public functions read their arguments: axes, shapes, dtypes. Floor: api."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import TensorShape, shape_text, size_of
from gradtape.runtime.contract import reshape
from gradtape.runtime.subscript import subscript
from gradtape.runtime.tensor import SymbolicTensor, SymbolicTensorError, Tensor
from gradtape.runtime.variable import Variable


def integers(value: Any, what: str) -> tuple[int, ...]:
    """A tuple of ints from an int, a list of them, a shape, an array or a tensor.

    Raises:
      TypeError: when something is no integer.
    """
    if isinstance(value, TensorShape):
        return value.as_tuple()
    if isinstance(value, list | tuple):
        return tuple(integer(v, what) for v in value)
    if isinstance(value, Tensor | Variable | np.ndarray):
        array = np.asarray(value)
        if array.dtype.kind not in "iu":
            raise TypeError(f"`{what}` should be integers, got dtype {array.dtype.name}.")
        return tuple(int(v) for v in array.reshape(-1))
    return (integer(value, what),)


def begins(value: Any) -> list[Any]:
    """Where a slice begins on each axis: integers, and scalar tensors without values."""
    if isinstance(value, SymbolicTensor):
        flat = reshape(value, (value._aval.size,))
        return [subscript(flat, k) for k in range(value._aval.size)]
    if isinstance(value, list | tuple):
        return [b if isinstance(b, SymbolicTensor) else integer(b, "begin") for b in value]
    return list(integers(value, "begin"))


def integer(value: Any, what: str) -> int:
    """One int from an int, a scalar array or a scalar tensor."""
    try:
        return int(value.__index__())
    except SymbolicTensorError:
        raise
    except (AttributeError, TypeError):
        raise TypeError(f"`{what}` should be an integer, got {value!r} of type {type(value).__name__}.") from None


def dimensions(value: Any, what: str) -> tuple[int, ...]:
    """A shape, or counts along its axes: integers of 0 or more.

    Raises:
      InvalidArgumentError: for a negative one.
    """
    found = integers(value, what)
    if any(n < 0 for n in found):
        raise InvalidArgumentError(f"`{what}` should have no negative number, got {list(found)}.")
    return found


def host(value: Tensor, op: str, instead: str) -> Any:
    """The array of a tensor whose numbers an op must read, as the shape or the order of its work depends on them.

    Raises:
      SymbolicTensorError: the tensor has no value yet; `instead` says what to do.
    """
    if isinstance(value, SymbolicTensor):
        raise SymbolicTensorError(
            f"`{op}` must read the numbers of {value!r}, which are not known: the function that it belongs to is being "
            f"traced. {instead}"
        )
    return np.asarray(value)


def one_axis(axis: Any, rank: int, what: str = "axis") -> int:
    """An axis as a number from 0 to rank - 1.

    Raises:
      InvalidArgumentError: when there is no such axis.
    """
    k = integer(axis, what)
    if not -rank <= k < rank:
        raise InvalidArgumentError(
            f"`{what}` {k} does not exist: it must be in [{-rank}, {rank}) for {rank} dimensions."
        )
    return k % rank


def axes(axis: Any, rank: int, what: str = "axis") -> tuple[int, ...]:
    """Axes in order; None stands for all of them."""
    if axis is None:
        return tuple(range(rank))
    picked = [one_axis(k, rank, what) for k in integers(axis, what)]
    if len(set(picked)) < len(picked):
        raise InvalidArgumentError(f"`{what}` names an axis twice: {list(integers(axis, what))}.")
    return tuple(sorted(picked))


def number_matrices(x: Tensor, name: str) -> None:
    """A check that a tensor holds floating or complex matrices.

    Raises:
      TypeError: another dtype.
      ValueError: fewer than two axes.
    """
    if not x._aval.dtype.is_differentiable:
        raise TypeError(f"`{name}` wants a floating or complex tensor, got a {x.dtype.cname} tensor. Use `tf.cast`.")
    if x.ndim < 2:
        raise ValueError(
            f"`{name}` wants matrices (..., m, n), got shape {shape_text(x._aval.shape)}. Use `tf.reshape`."
        )


def full_shape(shape: Any, size: int, of: Tensor) -> tuple[int, ...]:
    """A shape with its one -1 worked out for `size` elements."""
    dims = integers(shape, "shape")
    if dims.count(-1) > 1 or any(d < -1 for d in dims):
        raise InvalidArgumentError(f"`shape` may have one -1 and no other negative number, got {list(dims)}.")
    if -1 in dims:
        rest = size_of(d for d in dims if d != -1)
        if rest == 0 and size == 0:  # any number fits; TensorFlow's is what the sizes other than 0 leave
            size, rest = (size_of(d for d in sizes if d > 0) for sizes in (of._aval.dims, dims))
            return tuple(size // rest if d == -1 else d for d in dims)
        if rest == 0 or size % rest:
            raise InvalidArgumentError(
                f"`reshape` cannot turn a tensor of shape {shape_text(of._aval.shape)} ({size} elements) into "
                f"{list(dims)}: {size} is no multiple of {rest}."
            )
        return tuple(size // rest if d == -1 else d for d in dims)
    return dims


def pairs(value: Any, rank: int, what: str) -> list[tuple[int, int]]:
    """A list of (before, after) per axis."""
    array = np.asarray(value if not isinstance(value, Tensor | Variable) else value.numpy())
    if array.shape != (rank, 2):
        raise InvalidArgumentError(f"`{what}` should have shape ({rank}, 2), one pair per axis, got {array.shape}.")
    return [(int(a), int(b)) for a, b in array]


def same_rank(x: Tensor, values: Sequence[int], what: str) -> None:
    if len(values) != x.ndim:
        raise InvalidArgumentError(f"`{what}` should have one entry per axis of shape {x.shape}, got {len(values)}.")
