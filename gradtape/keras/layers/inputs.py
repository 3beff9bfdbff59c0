"""What layers expect of their inputs, and shapes of them in any spelling. Floor: keras."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gradtape.ir.shapes import TensorShape
from gradtape.runtime.tensor import Tensor

Dims = tuple[int | None, ...]


@dataclass
class InputSpec:
    """What a layer expects of its input: the number of axes, and the sizes of some of them.

    >>> import gradtape as tf
    >>> tf.keras.layers.InputSpec(min_ndim=2, axes={-1: 3})
    InputSpec(ndim=None, min_ndim=2, max_ndim=None, axes={-1: 3})
    """

    ndim: int | None = None
    min_ndim: int | None = None
    max_ndim: int | None = None
    axes: dict[int, int] = field(default_factory=dict)

    def check(self, x: Tensor, layer: str) -> None:
        """Raises ValueError when the tensor is none of the expected."""
        rank, low, high = x.ndim, self.min_ndim, self.max_ndim
        found = f"found ndim={rank}. Full shape received: {x.shape}"
        start = f"Input 0 of layer '{layer}' is incompatible with the layer:"
        if self.ndim is not None and rank != self.ndim:
            raise ValueError(f"{start} expected ndim={self.ndim}, {found}.")
        if low is not None and rank < low:
            hint = " Add a batch axis with `tf.expand_dims(x, 0)`." if rank == low - 1 else ""
            raise ValueError(f"{start} expected min_ndim={low}, {found}.{hint}")
        if high is not None and rank > high:
            raise ValueError(f"{start} expected max_ndim={high}, {found}.")
        dims = x._aval.dims
        for axis, size in self.axes.items():
            if dims[axis] != size:
                raise ValueError(
                    f"{start} expected axis {axis} of the input's shape to have value {size}, "
                    f"but received input with shape {x.shape}. A layer keeps the sizes that it was built with."
                )


def dims_of(shape: Any) -> Any:
    """A shape as a tuple; structures of shapes stay as they are."""
    if isinstance(shape, TensorShape):
        return tuple(shape.as_list())
    if isinstance(shape, list | tuple) and all(d is None or hasattr(d, "__index__") for d in shape):
        return tuple(None if d is None else int(d) for d in shape)
    return shape


def is_integer(value: Any) -> bool:
    """Whether a value is an integer, Python's or NumPy's; True and False are none."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def positive_integer(value: Any, name: str) -> int:
    """An argument that counts something.

    Raises:
      ValueError: anything but a positive integer.
    """
    if not is_integer(value) or int(value) <= 0:
        raise ValueError(f"`{name}` should be a positive integer, got {value!r} of type {type(value).__name__}.")
    return int(value)


def shapes_of(prepared: Any) -> Any:
    """The shapes of a structure of tensors."""
    if isinstance(prepared, dict):
        return {k: shapes_of(v) for k, v in prepared.items()}
    if isinstance(prepared, list | tuple):
        return [shapes_of(v) for v in prepared]
    return tuple(prepared.shape)


def dtypes_of(prepared: Any) -> Any:
    """The names of the dtypes of a structure of tensors."""
    if isinstance(prepared, dict):
        return {k: dtypes_of(v) for k, v in prepared.items()}
    if isinstance(prepared, list | tuple):
        return [dtypes_of(v) for v in prepared]
    return prepared._aval.dtype.name
