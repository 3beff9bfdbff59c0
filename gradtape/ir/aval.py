"""What is known of a value before it runs: shape and dtype, one object per pair. Floor: ir."""

from __future__ import annotations

from typing import Any

from gradtape.ir.dtypes import DType, of_numpy
from gradtape.ir.errors import UnknownShapeError
from gradtape.ir.interned import Interned
from gradtape.ir.shapes import Shape, shape_text, size_of


class Aval:
    """A shape (None where unknown) and a dtype. Interned: equal ones are the same object, so that `is`
    compares them and structural keys hash fast."""

    __slots__ = ("__weakref__", "dtype", "shape")

    shape: Shape
    dtype: DType

    @property
    def ndim(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape, known to be whole: transforms work on graphs whose shapes are all known."""
        if self.shape is None or None in self.shape:
            raise UnknownShapeError(f"A known shape is needed here, got {shape_text(self.shape)}.")
        return self.shape  # type: ignore[return-value]

    @property
    def size(self) -> int:
        return size_of(self.dims)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.size

    @property
    def is_known(self) -> bool:
        return self.shape is not None and None not in self.shape

    def __repr__(self) -> str:
        return f"{self.dtype.name}{shape_text(self.shape)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return aval, (self.shape, self.dtype)


_interned: Interned[tuple[Shape, DType], Aval] = Interned()


def aval(shape: Shape, dtype: DType) -> Aval:
    """The one `Aval` of this shape and dtype."""
    key = (shape, dtype)
    return _interned.get(key) or _interned.find(key, lambda: _new(shape, dtype))


def _new(shape: Shape, dtype: DType) -> Aval:
    fresh = Aval()
    # NumPy's integers equal Python's, and whoever asks for the same shape later would be given them.
    fresh.shape = None if shape is None else tuple(None if n is None else int(n) for n in shape)
    fresh.dtype = dtype
    return fresh


def aval_of(array: Any) -> Aval:
    """The `Aval` of an array or array scalar."""
    return aval(array.shape, of_numpy(array.dtype))
