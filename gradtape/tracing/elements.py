"""The elements of a `tf.TensorArray`: a list while all positions are known, else one tensor. Floor: tape."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType
from gradtape.ir.errors import InvalidArgumentError, OutOfRangeError
from gradtape.ir.shapes import TensorShape, shape_text
from gradtape.ops.layout import CONCAT
from gradtape.ops.op import CONSTANT
from gradtape.ops.row_updates import SET_ROW
from gradtape.runtime.control import zeros_of_aval
from gradtape.runtime.convert import convert
from gradtape.runtime.counting import largest
from gradtape.runtime.dispatch import execute
from gradtape.runtime.places import place_of, user_frame
from gradtape.runtime.subscript import subscript
from gradtape.runtime.tensor import SymbolicTensor, SymbolicTensorError, Tensor
from gradtape.runtime.trace import function_tracer
from gradtape.runtime.variable import Variable

_SET = SET_ROW.bind(over=False)


class Elements:
    """Tensors by position, written one at a time.

    As a whole they are one tensor with a row for each; a write at a position without a value replaces a row of it."""

    def __init__(self, dtype: DType, count: int, shape: TensorShape, dynamic: bool, infer: bool) -> None:
        self._dtype, self._shape, self._dynamic, self._infer = dtype, shape, dynamic, infer
        self._rows: list[Tensor | None] | None = [None] * count
        self._whole: Tensor | None = None
        self._cleared: set[int] = set()  # positions that were read
        self._is_open = False  # it grows in a loop around: how large it is now is not known
        self._unsure = False  # it may not have grown as far as it seems

    @property
    def _count(self) -> int:
        if self._rows is not None:
            return len(self._rows)
        assert self._whole is not None
        return self._whole._aval.dims[0]

    def _copied(self) -> Self:
        made = copy.copy(self)
        made._rows = None if self._rows is None else list(self._rows)
        made._cleared = set(self._cleared)
        return made

    def _next(self) -> Self:
        """What a write changes."""
        return self if function_tracer() is None else self._copied()

    def _refusal(self, text: str) -> Exception:
        return OutOfRangeError(text) if function_tracer() is None else InvalidArgumentError(text)

    def _element(self, value: Any) -> Tensor:
        """A value as a tensor of the array's dtype."""
        if not isinstance(value, Tensor | Variable):
            return convert(value, self._dtype)
        row = convert(value)
        if row._aval.dtype is not self._dtype:
            raise InvalidArgumentError(
                f"TensorArray dtype is {self._dtype.name} but Op is trying to write dtype {row._aval.dtype.name}. Use "
                "`tf.cast`."
            )
        return row

    def _expect(self, dims: tuple[int, ...]) -> None:
        """Elements of this shape from now on.

        Raises:
          ValueError: they have another one."""
        if not self._shape.is_compatible_with(dims):
            raise ValueError(f"Incompatible shape for value ({shape_text(dims)}), expected ({self._shape}).")
        if self._infer:
            self._shape = TensorShape(dims)

    def _check_closed(self) -> None:
        if self._is_open:
            raise SymbolicTensorError(
                f"{place_of(user_frame())}: how many elements a `TensorArray` of dynamic size has in a loop depends on "
                "tensors without values. Give `size`, and leave `dynamic_size` out."
            )

    def _put(self, at: int, row: Tensor) -> None:
        if at < 0:
            raise self._refusal(f"Writing to negative indices (index {at}) is not allowed.")
        if at >= self._count:
            if not self._dynamic:
                raise self._refusal(
                    f"Tried to write to index {at} but array is not resizeable and size is: {self._count}."
                )
            tracer = function_tracer()
            is_sure = tracer is None or not tracer.is_block or any(sure for _, sure in tracer.counters.values())
            self._grow(at + 1, is_sure)
        if function_tracer() is None:
            self._list()
        if self._rows is not None:
            self._rows[at] = row
            return
        assert self._whole is not None
        self._whole = execute(_SET, (self._whole, row, convert(at)))

    def _put_later(self, at: Tensor, row: Tensor) -> None:
        """Write at a position without a value."""
        if self._dynamic:
            last = largest(at)
            if last is None:
                raise SymbolicTensorError(
                    f"{place_of(user_frame())}: how far a `TensorArray` of dynamic size grows depends on a tensor "
                    "without a value. Give `size`, and leave `dynamic_size` out."
                )
            if last >= self._count:
                self._grow(last + 1, True)
        self._whole = execute(_SET, (self._dense(row._aval.dims), row, at))
        self._rows = None

    def _grow(self, count: int, is_sure: bool) -> None:
        """Have so many elements."""
        self._unsure = self._unsure or not is_sure
        if self._rows is not None:
            self._rows += [None] * (count - len(self._rows))
            return
        assert self._whole is not None
        more = self._zeros((count - self._count, *self._whole._aval.dims[1:]))
        self._whole = execute(CONCAT.bind(axis=0), (self._whole, more))

    def _list(self) -> None:
        """Have elements apart from each other."""
        if self._rows is None:
            assert self._whole is not None
            self._rows, self._whole = [subscript(self._whole, k) for k in range(self._count)], None

    def _row(self, k: int) -> Tensor:
        if self._rows is None:
            assert self._whole is not None
            return subscript(self._whole, k)
        found = self._rows[k]
        return self._zeros(self._dims()) if found is None else found

    def _dims(self) -> tuple[int, ...]:
        """The shape of elements.

        Raises:
          ValueError: it is not known; `InvalidArgumentError` while tracing."""
        if not self._shape.is_fully_defined():
            kind = ValueError if function_tracer() is None else InvalidArgumentError
            raise kind(
                f"An element of a `TensorArray` that was not written cannot be zeros of a shape that is not known: "
                f"{self._shape}. Give `element_shape`."
            )
        return tuple(n for n in self._shape.as_list() if n is not None)

    def _known_dims(self) -> tuple[int, ...] | None:
        if self._shape.is_fully_defined():
            return self._dims()
        shapes = {row._aval.dims for row in self._rows or () if row is not None}
        if self._whole is not None:
            shapes = {self._whole._aval.dims[1:]}
        return shapes.pop() if len(shapes) == 1 else None

    def _zeros(self, dims: Sequence[int]) -> Tensor:
        """Zeros, which a graph knows to be zeros."""
        made, tracer = aval(tuple(dims), self._dtype), function_tracer()
        if tracer is None:
            return zeros_of_aval(made)
        zero = b"" if self._dtype.kind == "s" else 0
        return tracer.apply(CONSTANT.bind(value=zero, dtype=self._dtype, shape=made.dims), ())[0]

    def _settled(self) -> Self:
        """The same as a whole, where that can be."""
        if self._rows is None or self._known_dims() is None:
            return self
        made = self._copied()
        made._rows, made._whole = None, self._dense(self._known_dims())
        return made

    def _dense(self, dims: tuple[int, ...] | None = None) -> Tensor:
        """The whole; `dims`: the shape of elements, where it is known."""
        if self._rows is None:
            assert self._whole is not None
            return self._whole
        rows = self._rows
        written = len(rows)
        while written and rows[written - 1] is None:
            written -= 1
        if not rows and self._known_dims() is None and dims is None:
            return self._zeros((0,))
        behind = (len(rows) - written, *(dims or self._dims())) if written < len(rows) or not rows else None
        parts = [] if behind is None else [self._zeros(behind)]
        if written:
            parts.insert(0, convert([self._zeros(dims or self._dims()) if r is None else r for r in rows[:written]]))
        found: Tensor = parts[0] if len(parts) == 1 else execute(CONCAT.bind(axis=0), parts)
        return found


def known(index: Any, what: str) -> Any:
    """An integer, or a scalar tensor of one without a value.

    Raises:
      TypeError: something else."""
    if isinstance(index, int) and not isinstance(index, bool):
        return index
    t = convert(index)
    if t._aval.shape not in ((), None) or not t._aval.dtype.is_integer:
        raise TypeError(f"`{what}` of a `TensorArray` should be an integer scalar, got {index!r}.")
    return t if isinstance(t, SymbolicTensor) else int(t)
