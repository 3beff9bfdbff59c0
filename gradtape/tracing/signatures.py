"""What of its arguments a traced function depends on: shapes and dtypes of tensors, values of all else. Floor: tape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import as_dtype, float32
from gradtape.ir.shapes import TensorShape
from gradtape.runtime.convert import convert
from gradtape.runtime.devices import of_others
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable


class TensorSpec:
    """What a tensor must be: its shape (None for what may be anything) and dtype.

    >>> import gradtape as tf
    >>> tf.TensorSpec([None, 2], tf.float32)
    TensorSpec(shape=(None, 2), dtype=tf.float32, name=None)
    """

    def __init__(self, shape: Any, dtype: Any = float32, name: str | None = None) -> None:
        self.shape = TensorShape(shape)
        self.dtype = as_dtype(dtype)
        self.name = name

    @classmethod
    def from_tensor(cls, tensor: Any, name: str | None = None) -> TensorSpec:
        return cls(tensor.shape, tensor.dtype, name)

    @classmethod
    def from_spec(cls, spec: Any, name: str | None = None) -> TensorSpec:
        return cls(spec.shape, spec.dtype, name or spec.name)

    @property
    def aval(self) -> Aval:
        return aval(self.shape.dims_or_none, self.dtype)

    def is_compatible_with(self, other: Any) -> bool:
        """Whether a tensor or spec is one of these."""
        return bool(self.dtype is other.dtype and self.shape.is_compatible_with(other.shape))

    def most_specific_compatible_type(self, other: Any) -> TensorSpec:
        """The narrowest spec that both are of.

        Raises:
          ValueError: another dtype.
        """
        if self.dtype is not other.dtype:
            raise ValueError(f"No TensorSpec is compatible with both {self} and {other}.")
        return TensorSpec(common_shape(self.shape.dims_or_none, other.shape.dims_or_none), self.dtype, self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorSpec) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype!r}, name={self.name!r})"


def common_shape(a: Any, b: Any) -> tuple[int | None, ...] | None:
    """The shape with what two shapes agree on; None where not even the ranks do."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(m if m == n else None for m, n in zip(a, b, strict=True))


def as_argument(x: Any) -> Any:
    """An argument as the function gets it: arrays are tensors."""
    if isinstance(x, np.ndarray | np.generic):
        return convert(x)
    return x if isinstance(x, Tensor | Variable) or of_others(x) is None else convert(x)


def key_of(x: Any) -> Any:
    """What of an argument is part of the signature: of tensors and specs the aval."""
    if isinstance(x, Tensor):
        found: Aval = x._aval
        return found
    if isinstance(x, TensorSpec):
        return x.aval
    if isinstance(x, Variable):
        return ("variable", x._id)
    if isinstance(x, set):
        return ("set", frozenset(x))
    if isinstance(x, bytearray):
        return ("bytearray", bytes(x))
    try:
        hash(x)
    except TypeError:
        return _Itself(x)
    return (type(x), x)


class _Itself:
    """An object that has no hash, as part of a signature: equal to itself alone. It is held, so that no other object
    can take its place."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.held is self.held

    def __hash__(self) -> int:
        return id(self.held)


Key = tuple[Any, tuple[Any, ...]]  # the structure of all arguments, and a key for each leaf


def holds(general: Key, key: Key) -> bool:
    """Whether a trace for `general`, some of whose dimensions are unknown, is one for `key`."""
    if general[0] != key[0] or len(general[1]) != len(key[1]):
        return False
    return all(_holds(g, k) for g, k in zip(general[1], key[1], strict=True))


def _holds(general: Any, key: Any) -> bool:
    if not isinstance(general, Aval) or not isinstance(key, Aval):
        return bool(general == key)
    if general.dtype is not key.dtype:
        return False
    if general.shape is None:
        return True
    if key.shape is None or len(general.shape) != len(key.shape):
        return False
    return all(m is None or m == n for m, n in zip(general.shape, key.shape, strict=True))


def generalised(key: Key, others: Sequence[Key]) -> Key:
    """The narrowest signature that is also that of all others which differ from it in shapes alone."""
    leaves = list(key[1])
    for structure, other in others:
        if structure != key[0] or not all(_differ_in_shape(a, b) for a, b in zip(leaves, other, strict=True)):
            continue
        leaves = [_common(a, b) for a, b in zip(leaves, other, strict=True)]
    return key[0], tuple(leaves)


def _differ_in_shape(a: Any, b: Any) -> bool:
    if isinstance(a, Aval) and isinstance(b, Aval):
        return a.dtype is b.dtype
    return bool(a == b)


def _common(a: Any, b: Any) -> Any:
    return aval(common_shape(a.shape, b.shape), a.dtype) if isinstance(a, Aval) else a
