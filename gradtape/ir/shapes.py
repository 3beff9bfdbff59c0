"""Shapes with unknown parts: `TensorShape` for users, plain tuples (None = unknown) inside. Floor: ir."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any

from gradtape.ir.errors import UnknownShapeError

Dims = tuple[int | None, ...]
Shape = Dims | None  # None: not even the rank is known


class TensorShape:
    """The shape of a tensor; dimensions and the rank itself may be unknown (`None`).

    >>> import gradtape as tf
    >>> s = tf.TensorShape([2, None, 3])
    >>> s.rank, s[0], s.as_list(), s.is_fully_defined()
    (3, 2, [2, None, 3], False)
    >>> s.is_compatible_with([2, 7, 3])
    True
    """

    __slots__ = ("dims_or_none",)

    def __init__(self, dims: Any = None) -> None:
        self.dims_or_none = as_dims(dims)

    @property
    def rank(self) -> int | None:
        return None if self.dims_or_none is None else len(self.dims_or_none)

    @property
    def ndims(self) -> int | None:
        return self.rank

    @property
    def dims(self) -> list[int | None] | None:
        return None if self.dims_or_none is None else list(self.dims_or_none)

    def as_list(self) -> list[int | None]:
        """The dimensions as a list.

        Raises:
          ValueError: when the rank is unknown.
        """
        if self.dims_or_none is None:
            raise ValueError("as_list() is not defined on an unknown TensorShape.")
        return list(self.dims_or_none)

    def num_elements(self) -> int | None:
        """How many elements such a tensor has; None when a dimension is unknown."""
        if not self.is_fully_defined():
            return None
        return size_of(self.as_tuple())

    def as_tuple(self) -> tuple[int, ...]:
        """The dimensions as a tuple of ints.

        Raises:
          ValueError: when anything is unknown.
        """
        if not self.is_fully_defined():
            raise UnknownShapeError(f"The shape {self} is not fully known.")
        return tuple(d for d in self.dims_or_none or () if d is not None)

    def is_fully_defined(self) -> bool:
        return self.dims_or_none is not None and None not in self.dims_or_none

    def assert_is_fully_defined(self) -> None:
        if not self.is_fully_defined():
            raise ValueError(f"Shape {self} is not fully defined.")

    def is_compatible_with(self, other: Any) -> bool:
        """Whether one tensor could have both shapes."""
        a, b = self.dims_or_none, as_dims(other)
        if a is None or b is None:
            return True
        return len(a) == len(b) and all(m is None or n is None or m == n for m, n in zip(a, b, strict=True))

    def merge_with(self, other: Any) -> TensorShape:
        """What is known from both shapes together.

        Raises:
          ValueError: when they contradict each other.
        """
        a, b = self.dims_or_none, as_dims(other)
        if not self.is_compatible_with(b):
            raise ValueError(f"Shapes {self} and {TensorShape(b)} are not compatible.")
        if a is None or b is None:
            return TensorShape(a if b is None else b)
        return TensorShape(tuple(n if m is None else m for m, n in zip(a, b, strict=True)))

    def concatenate(self, other: Any) -> TensorShape:
        a, b = self.dims_or_none, as_dims(other)
        return TensorShape(None if a is None or b is None else a + b)

    def with_rank(self, rank: int | None) -> TensorShape:
        """This shape, of which so many dimensions are known at least to be there; None: as it is.

        Raises:
          ValueError: it has another rank.
        """
        if rank is None:
            return self
        self.assert_has_rank(rank)
        return self.merge_with([None] * rank)

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """This shape, unless its rank is known to be smaller: that is a ValueError."""
        if self.rank is not None and self.rank < _rank(rank):
            raise ValueError(f"Shape {self} must have rank at least {rank}.")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """This shape, unless its rank is known to be larger: that is a ValueError."""
        if self.rank is not None and self.rank > _rank(rank):
            raise ValueError(f"Shape {self} must have rank at most {rank}.")
        return self

    def assert_has_rank(self, rank: int) -> None:
        """Raise ValueError where the rank is known to be another."""
        if self.rank not in (None, _rank(rank)):
            raise ValueError(f"Shape {self} must have rank {rank}.")

    def assert_same_rank(self, other: Any) -> None:
        """Raise ValueError where both ranks are known, and differ."""
        that = TensorShape(other)
        if None not in (self.rank, that.rank) and self.rank != that.rank:
            raise ValueError(f"Shapes {self} and {that} must have the same rank.")

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raise ValueError where no tensor has both shapes."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {TensorShape(other)} are incompatible.")

    def is_subtype_of(self, other: Any) -> bool:
        """Whether each tensor of this shape has the other one."""
        that = TensorShape(other).dims_or_none
        if that is None:
            return True
        mine = self.dims_or_none
        return mine is not None and len(mine) == len(that) and all(n in (None, m) for m, n in zip(mine, that))

    def most_specific_compatible_shape(self, other: Any) -> TensorShape:
        """The shape that all tensors of both shapes have, with the most that is known of it.

        >>> import gradtape as tf
        >>> tf.TensorShape([2, 3]).most_specific_compatible_shape([4, 3])
        TensorShape([None, 3])
        """
        mine, that = self.dims_or_none, TensorShape(other).dims_or_none
        if mine is None or that is None or len(mine) != len(that):
            return TensorShape(None)
        return TensorShape([m if m == n else None for m, n in zip(mine, that)])

    def most_specific_common_supertype(self, others: Iterable[Any]) -> TensorShape | None:
        """The same of several shapes; None where one of the others is no shape."""
        found = self
        for other in others:
            if not isinstance(other, TensorShape):
                return None
            found = found.most_specific_compatible_shape(other)
        return found

    def __len__(self) -> int:
        return len(self.as_list())

    def __iter__(self) -> Iterator[int | None]:
        return iter(self.as_list())

    def __getitem__(self, key: int | slice) -> Any:
        if self.dims_or_none is None:
            return TensorShape(None) if isinstance(key, slice) else None
        part = self.dims_or_none[key]
        return TensorShape(part) if isinstance(key, slice) else part

    def __add__(self, other: Any) -> TensorShape:
        return self.concatenate(other)

    def __radd__(self, other: Any) -> TensorShape:
        return TensorShape(other).concatenate(self)

    def __bool__(self) -> bool:
        return self.dims_or_none is not None

    def __eq__(self, other: object) -> bool:
        try:
            return self.dims_or_none == as_dims(other)
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self.dims_or_none)

    def __repr__(self) -> str:
        return f"TensorShape({None if self.dims_or_none is None else list(self.dims_or_none)})"

    def __str__(self) -> str:
        return shape_text(self.dims_or_none)

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorShape, (self.dims_or_none,)


def shape_text(shape: Shape) -> str:
    """A shape as TensorFlow prints it: `(2, None)`, `(3,)`, `<unknown>`."""
    if shape is None:
        return "<unknown>"
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def as_dims(value: Any) -> Shape:
    """A tuple of ints and Nones from whatever spells a shape; None for an unknown rank."""
    if value is None:
        return None
    if isinstance(value, TensorShape):
        return value.dims_or_none
    if isinstance(value, Iterable):
        return tuple(None if d is None else as_dim(d) for d in value)
    return (as_dim(value),)


def as_dim(value: Any) -> int:
    """One dimension as an int of 0 or more."""
    try:
        n = operator.index(value)
    except TypeError:
        raise TypeError(
            f"A dimension must be an integer or None, got {value!r} of type {type(value).__name__}."
        ) from None
    if n < 0:
        raise ValueError(f"A dimension must be 0 or more, got {n}.")
    return n


def _rank(value: Any) -> int:
    """A rank as an int."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"A rank must be an integer, got {value!r} of type {type(value).__name__}.") from None


def size_of(shape: Iterable[int]) -> int:
    """The number of elements of a known shape."""
    n = 1
    for d in shape:
        n *= d
    return n


def known(shape: Shape) -> tuple[int, ...]:
    """The shape as a tuple of ints, where rules rely on nothing being unknown."""
    if shape is None or None in shape:
        raise ValueError(f"A known shape is needed here, got {shape_text(shape)}.")
    return tuple(d for d in shape if d is not None)


def broadcast(a: Shape, b: Shape) -> Shape:
    """The shape of `a op b` under NumPy's broadcasting; unknown parts stay unknown where they must.

    Raises:
      ValueError: when the shapes do not fit.
    """
    if a is None or b is None:
        return None
    if a == b:
        return a
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    return tuple(map(_broadcast_dim, a, b))


def _broadcast_dim(m: int | None, n: int | None) -> int | None:
    if m == n:
        return m
    if m == 1:
        return n
    if n == 1:
        return m
    if m is None:
        return n
    if n is None:
        return m
    raise ValueError(f"{m} and {n} do not broadcast")


def broadcast_axes(small: tuple[int, ...], big: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of `big` along which `small` was repeated to get there."""
    lead = len(big) - len(small)
    return tuple(k for k, n in enumerate(big) if k < lead or (small[k - lead] == 1 and n != 1))
