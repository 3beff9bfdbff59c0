"""`IndexedSlices`: a tensor that is zero but for some rows, as gradients of lookups are. Floor: runtime."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.dtypes import DType
from gradtape.ir.shapes import TensorShape
from gradtape.ops.arithmetic import NEGATIVE
from gradtape.ops.indexing import SCATTER_ADD
from gradtape.runtime import convert as conversion
from gradtape.runtime.convert import convert
from gradtape.runtime.devices import on_host
from gradtape.runtime.dispatch import binary, unary
from gradtape.runtime.subscript import positions
from gradtape.runtime.tensor import Tensor, from_array


class IndexedSlices:
    """Rows of a tensor, and at which positions of its first axis they stand; all other rows are zero, and rows at
    one position add up.

    The gradient of `tf.gather` along axis 0 (`tf.nn.embedding_lookup` as well) with respect to what was gathered
    from comes as this, unless something else adds to it or an outer tape records it. It becomes a tensor wherever
    one is wanted; `tf.convert_to_tensor` makes it one.

    Args:
      values: the rows, of shape (k, ...).
      indices: k positions.
      dense_shape: the shape of the whole tensor, if it is known.

    >>> import gradtape as tf
    >>> s = tf.IndexedSlices(tf.constant([[1.0], [2.0], [3.0]]), tf.constant([0, 2, 0]), tf.constant([4, 1]))
    >>> tf.convert_to_tensor(s).numpy().tolist()
    [[4.0], [0.0], [2.0], [0.0]]

    Source: `tf.IndexedSlices` of TensorFlow 2.
    """

    __slots__ = ("__weakref__", "dense_shape", "indices", "values")

    def __init__(self, values: Any, indices: Any, dense_shape: Any = None) -> None:
        self.values: Tensor = convert(values)
        self.indices: Tensor = convert(indices)
        self.dense_shape: Tensor | None = None if dense_shape is None else convert(dense_shape)

    @property
    def dtype(self) -> DType:
        return self.values.dtype

    @property
    def shape(self) -> TensorShape:
        """The shape of the whole tensor; its first dimension is unknown without `dense_shape`."""
        if self.dense_shape is not None:
            return TensorShape(self.dims)
        rows = self.values._aval.shape
        return TensorShape(None if rows is None else (None, *rows[1:]))

    def get_shape(self) -> TensorShape:
        return self.shape

    @property
    def device(self) -> str:
        return self.values.device

    @property
    def name(self) -> str:
        return "IndexedSlices"

    @property
    def dims(self) -> tuple[int, ...]:
        """The whole tensor's shape as integers.

        Raises:
          ValueError: when it is not known.
        """
        if self.dense_shape is None:
            raise ValueError(
                f"Tensor conversion requested for IndexedSlices for which dense_shape is None: {self}. Give it one: "
                "`tf.IndexedSlices(values, indices, dense_shape)`."
            )
        return tuple(int(n) for n in on_host(self.dense_shape._array))

    def dense(self) -> Tensor:
        """The whole tensor."""
        return binary(SCATTER_ADD.bind(shape=self.dims, axis=0, batch_dims=0), self.values, self.indices)

    def summed(self) -> IndexedSlices:
        """The same with each position once, in rising order, the rows at one position added up."""
        at = np.asarray(self.indices)
        places, which = np.unique(at, return_inverse=True)
        if len(places) == len(at) and np.array_equal(places, at):
            return self
        shape = (len(places), *self.values._aval.dims[1:])
        rows = binary(SCATTER_ADD.bind(shape=shape, axis=0, batch_dims=0), self.values, positions(which.reshape(-1)))
        return IndexedSlices(rows, from_array(places), self.dense_shape)

    def with_values(self, values: Tensor) -> IndexedSlices:
        """Other rows at the same positions."""
        return IndexedSlices(values, self.indices, self.dense_shape)

    def __neg__(self) -> IndexedSlices:
        return self.with_values(unary(NEGATIVE.bind(), self.values))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.dense().__array__(dtype, copy)

    def __repr__(self) -> str:
        return f"<tf.IndexedSlices: shape={self.shape}, dtype={self.dtype.name}, indices={self.indices!r}>"

    def __str__(self) -> str:
        shape = "" if self.dense_shape is None else f", dense_shape={self.dense_shape!s}"
        return f"IndexedSlices(indices={self.indices!s}, values={self.values!s}{shape})"

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexedSlices, (self.values, self.indices, self.dense_shape)


conversion.converters.append((IndexedSlices, IndexedSlices.dense))
