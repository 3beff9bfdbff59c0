"""`tf.TensorArray`: a list of tensors that loops of graphs carry along. Floor: tape."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.dtypes import DType, as_dtype, int32
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import TensorShape
from gradtape.ops.indexing import GATHER
from gradtape.ops.layout import CONCAT, RESHAPE
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import binary, execute, unary
from gradtape.runtime.places import place_of, user_frame
from gradtape.runtime.subscript import subscript
from gradtape.runtime.tensor import SymbolicTensorError, Tensor
from gradtape.runtime.trace import function_tracer
from gradtape.tracing.elements import Elements, known

_PICK = GATHER.bind(axis=0, batch_dims=0)


class TensorArray(Elements):
    """Tensors by position, written one at a time: what a loop collects, or walks through.

    Outside of `tf.function` a write changes the array itself, as in TensorFlow; in functions that are traced it gives
    another array, and the old one stays. So always go on with what `write`, `unstack`, `scatter` and `split` return.
    Loops of tensors carry arrays (`for` and `while` in a traced function, `tf.while_loop`); a write costs them as much
    as its row, forwards and backwards.

    Args:
      dtype: of all elements.
      size: how many there are, an integer.
      dynamic_size: whether writing behind the end makes the array larger. In a loop of tensors how large it becomes
        must be known while tracing: it is for writes at the counter of a `for` over a known range; else the function
        runs op by op.
      clear_after_read: whether an element is dropped once it was read, so that it cannot be read again. It is by
        default, but not in traced functions.
      infer_shape: whether all elements must have the shape of the first one.
      element_shape: what shape elements have; None for what is not known.
      tensor_array_name, handle, flow, colocate_with_first_write_call, name: accepted for compatibility.

    Raises:
      ValueError: no size, or a negative one.
      TypeError: a size that is no integer, or no dtype.

    >>> import gradtape as tf
    >>> @tf.function
    ... def powers(x, n):
    ...     found = tf.TensorArray(tf.float32, size=3)
    ...     power = tf.ones_like(x)
    ...     for i in tf.range(3):
    ...         power *= x
    ...         found = found.write(i, power)
    ...     return found.stack()
    >>> print(powers(tf.constant(2.0), 3).numpy())
    [2. 4. 8.]

    Source: `tf.TensorArray` of TensorFlow 2.
    """

    def __init__(
        self,
        dtype: Any,
        size: Any = None,
        dynamic_size: bool | None = None,
        clear_after_read: bool | None = None,
        tensor_array_name: str | None = None,
        handle: Any = None,
        flow: Any = None,
        infer_shape: bool = True,
        element_shape: Any = None,
        colocate_with_first_write_call: bool = True,
        name: str | None = None,
    ) -> None:
        if dtype is None:
            raise TypeError("`dtype` of a `TensorArray` must be given, such as `tf.float32`.")
        if size is None:
            raise ValueError("`size` of a `TensorArray` must be given: 0 with `dynamic_size=True` for one that grows.")
        count = known(size, "size")
        if not isinstance(count, int):
            raise SymbolicTensorError(
                f"{place_of(user_frame())}: the size of a `TensorArray` depends on a tensor without a value."
            )
        if count < 0:
            raise ValueError(f"`size` of a `TensorArray` should be 0 or more, got {count}.")
        self._clears = clear_after_read is None or bool(clear_after_read)
        super().__init__(as_dtype(dtype), count, TensorShape(element_shape), bool(dynamic_size), bool(infer_shape))

    # ------------------------------------------------------------------ what it is

    @property
    def dtype(self) -> DType:
        """The dtype of all elements."""
        return self._dtype

    @property
    def element_shape(self) -> TensorShape:
        """What is known of the shape of elements."""
        return self._shape

    @property
    def dynamic_size(self) -> bool:
        """Whether it grows."""
        return self._dynamic

    def size(self, name: str | None = None) -> Tensor:
        """How many elements there are, an int32 scalar.

        >>> import gradtape as tf
        >>> int(tf.TensorArray(tf.float32, size=3).size())
        3
        """
        self._check_closed()
        return convert(self._count, int32)

    def __repr__(self) -> str:
        return f"<tf.TensorArray of {self._count} {self._dtype.name} elements of shape {self._shape}>"

    # ------------------------------------------------------------------ single elements

    def write(self, index: Any, value: Any, name: str | None = None) -> TensorArray:
        """The array with an element at a position.

        Raises:
          OutOfRangeError: a position that does not exist; `InvalidArgumentError` while tracing, and in graphs.
          InvalidArgumentError: another dtype.
          ValueError: another shape than elements have.

        >>> import gradtape as tf
        >>> found = tf.TensorArray(tf.float32, size=2)
        >>> found = found.write(0, 3.0).write(1, 4.0)
        >>> print(found.stack().numpy())
        [3. 4.]
        """
        at, row = known(index, "index"), self._element(value)
        self._expect(row._aval.dims)
        made = self._next()
        if isinstance(at, int):
            made._put(at, row)
        else:
            made._put_later(at, row)
        return made

    def read(self, index: Any, name: str | None = None) -> Tensor:
        """The element at a position; zeros where none was written, if the shape is known.

        Raises:
          OutOfRangeError: a position that does not exist; `InvalidArgumentError` while tracing, and in graphs.
          InvalidArgumentError: an element that was dropped when it was read before.
          ValueError: an element that was not written, of a shape that is not known.

        >>> import gradtape as tf
        >>> float(tf.TensorArray(tf.float32, size=2).write(1, 3.0).read(1))
        3.0
        """
        at = known(index, "index")
        if not isinstance(at, int):
            return binary(_PICK, self._dense(), at)
        if at < 0:
            raise self._refusal(f"Reading from negative indices (index {at}) is not allowed.")
        if at >= self._count:
            raise self._refusal(f"Tried to read from index {at} but array size is: {self._count}.")
        if function_tracer() is None:
            self._list()
        if self._rows is None:
            assert self._whole is not None
            return subscript(self._whole, at)
        if at in self._cleared and self._rows[at] is None:
            raise InvalidArgumentError(
                f"Could not read index {at} twice because it was cleared after a previous read (perhaps try setting "
                "clear_after_read = false?)."
            )
        found = self._row(at)
        if self._clears and function_tracer() is None:
            self._rows[at] = None
            self._cleared.add(at)
        return found

    # ------------------------------------------------------------------ many elements

    def stack(self, name: str | None = None) -> Tensor:
        """All elements joined along a new first axis; zeros for those that were not written.

        Raises:
          ValueError: nothing was written, and the shape of elements is not known.
          InvalidArgumentError: elements of different shapes.

        >>> import gradtape as tf
        >>> print(tf.TensorArray(tf.float32, size=2).write(1, 3.0).stack().numpy())
        [0. 3.]
        """
        self._check_closed()
        return self._dense()

    def gather(self, indices: Any, name: str | None = None) -> Tensor:
        """The elements at some positions, joined along a new first axis.

        Raises:
          InvalidArgumentError: a position that does not exist.

        >>> import gradtape as tf
        >>> print(tf.TensorArray(tf.float32, size=2).unstack([3.0, 4.0]).gather([1, 0, 1]).numpy())
        [4. 3. 4.]
        """
        return binary(_PICK, self._dense(), convert(indices))

    def concat(self, name: str | None = None) -> Tensor:
        """All elements joined along their first axis, which need not have the same size in each.

        Raises:
          InvalidArgumentError: scalars, or shapes that differ elsewhere.

        >>> import gradtape as tf
        >>> found = tf.TensorArray(tf.float32, size=2, infer_shape=False)
        >>> print(found.write(0, [1.0]).write(1, [2.0, 3.0]).concat().numpy())
        [1. 2. 3.]
        """
        self._check_closed()
        if self._rows is None:
            dims = self._dense()._aval.dims
            if len(dims) > 1:
                return unary(RESHAPE.bind(shape=(dims[0] * dims[1], *dims[2:])), self._dense())
        rows = [self._row(k) for k in range(self._count)]
        for k, row in enumerate(rows):
            if not row._aval.dims:
                raise InvalidArgumentError(
                    f"Concat saw a scalar shape at index {k} but requires at least vectors. Use `stack`."
                )
        if not rows:
            return self._dense()
        found: Tensor = execute(CONCAT.bind(axis=0), rows)
        return found

    def unstack(self, value: Any, name: str | None = None) -> TensorArray:
        """An array of the slices of a tensor along its first axis.

        Raises:
          ValueError: more slices than the array has room for, or a scalar.

        >>> import gradtape as tf
        >>> float(tf.TensorArray(tf.float32, size=2).unstack([3.0, 4.0]).read(1))
        4.0
        """
        whole = self._element(value)
        dims = whole._aval.dims
        if not dims:
            raise ValueError("`unstack` wants a tensor with at least one axis, got a scalar.")
        if dims[0] > self._count and not self._dynamic:
            raise ValueError(
                f"Cannot unstack {dims[0]} tensors into a TensorArray of static size {self._count}. Make it of that "
                "size, or with `dynamic_size=True`."
            )
        self._expect(dims[1:])
        made = self._next()
        made._rows, made._whole, made._cleared = None, whole, set()
        return made

    def scatter(self, indices: Any, value: Any, name: str | None = None) -> TensorArray:
        """The array with the slices of a tensor at some positions; of several at one the last one stays. Errors as of
        `write`.

        >>> import gradtape as tf
        >>> print(tf.TensorArray(tf.float32, size=3).scatter([2, 0], [3.0, 4.0]).stack().numpy())
        [4. 0. 3.]
        """
        at, slices = convert(indices), self._element(value)
        if at._aval.dims != slices._aval.dims[:1]:
            raise InvalidArgumentError(
                f"`scatter` wants a vector of as many positions as there are slices, got {at.shape} for {slices.shape}."
            )
        made = self
        for k in range(at._aval.dims[0]):
            made = made.write(subscript(at, k), subscript(slices, k))
        return made

    def split(self, value: Any, lengths: Any, name: str | None = None) -> TensorArray:
        """An array of pieces of a tensor along its first axis.

        Raises:
          InvalidArgumentError: lengths that do not add up, or another number of them than the array has elements.

        >>> import gradtape as tf
        >>> print(tf.TensorArray(tf.float32, size=2).split([1.0, 2.0, 3.0], [1, 2]).read(1).numpy())
        [2. 3.]
        """
        whole, sizes = self._element(value), np.asarray(convert(lengths))
        if sizes.ndim != 1:
            raise InvalidArgumentError(f"Expected lengths to be a vector, received shape: {list(sizes.shape)}.")
        if not whole._aval.dims:
            raise InvalidArgumentError("Expected value to be at least a vector, but received shape: [].")
        if sizes.sum() != whole._aval.dims[0]:
            raise InvalidArgumentError(
                f"Expected sum of lengths to be equal to values.shape[0], but sum of lengths is {sizes.sum()} and "
                f"value's shape is: {list(whole._aval.dims)}."
            )
        if len(sizes) != self._count and not self._dynamic and function_tracer() is None:
            raise InvalidArgumentError(
                f"TensorArray's size is not equal to the size of lengths ({self._count} vs. {len(sizes)}), and the "
                "TensorArray is not marked as dynamically resizeable."
            )
        ends = np.cumsum(sizes).tolist()
        made = self._next()
        made._rows = [subscript(whole, slice(e - n, e)) for e, n in zip(ends, sizes.tolist(), strict=True)]
        made._whole, made._cleared = None, set()
        if len(set(sizes.tolist())) == 1:
            made._expect((int(sizes[0]), *whole._aval.dims[1:]))
        return made

    def identity(self) -> TensorArray:
        """The same array, which stays as it is when this one is written to."""
        return self._copied()

    def close(self, name: str | None = None) -> None:
        """Drop all elements."""
        self._rows, self._whole = [], None
