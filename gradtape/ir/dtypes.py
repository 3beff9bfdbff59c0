"""Element types as TensorFlow's objects: `float32.name`, `.is_floating`, equal to their names. Floor: ir."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np


class DType:
    """The type of a tensor's elements.

    Compares equal to another `DType`, to its name and to the NumPy type it stands for.

    >>> import gradtape as tf
    >>> tf.float32 == "float32", tf.float32.is_floating, tf.float32.size
    (True, True, 4)
    """

    __slots__ = ("cname", "kind", "name", "numpy_dtype")

    def __init__(self, name: str, numpy_dtype: np.dtype[Any], kind: str, cname: str | None = None) -> None:
        self.name = name
        self.numpy_dtype = numpy_dtype
        self.kind = kind  # "f" floating, "c" complex, "i" signed, "u" unsigned, "b" bool, "s" string
        self.cname = cname or name  # the word that TensorFlow's messages use: float, double, half, ...

    @property
    def as_numpy_dtype(self) -> Any:
        """The NumPy scalar type, such as `numpy.float32` (`object` for strings)."""
        return self.numpy_dtype.type if self.kind != "s" else object

    @property
    def is_floating(self) -> bool:
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_unsigned(self) -> bool:
        return self.kind == "u"

    @property
    def is_bool(self) -> bool:
        return self.kind == "b"

    @property
    def is_differentiable(self) -> bool:
        """Whether gradients flow through tensors of this type: floating and complex types only."""
        return self.kind in "fcFC"

    @property
    def is_half(self) -> bool:
        """Two-byte floats: stored as such, accumulated in float32."""
        return self.kind == "f" and self.numpy_dtype.itemsize == 2

    @property
    def is_numpy_compatible(self) -> bool:
        return True

    @property
    def base_dtype(self) -> DType:
        return self

    @property
    def real_dtype(self) -> DType:
        """The type of the real part: float32 for complex64, float64 for complex128, else itself."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)

    @property
    def size(self) -> int:
        """Bytes per element."""
        return self.numpy_dtype.itemsize

    @property
    def min(self) -> Any:
        """The smallest finite value."""
        return _limits(self).min if self.kind != "b" else False

    @property
    def max(self) -> Any:
        """The largest finite value."""
        return _limits(self).max if self.kind != "b" else True

    def is_compatible_with(self, other: Any) -> bool:
        return self == as_dtype(other)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if other is None or isinstance(other, DType):
            return False
        try:
            return as_dtype(other) is self
        except TypeError:
            return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"tf.{self.name}"

    def __str__(self) -> str:
        return f"<dtype: '{self.name}'>"

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)


class StackDType(DType):
    """The type of stacks: as many arrays of one dtype as a loop made. Its kind is the upper-case letter of theirs."""

    __slots__ = ("element",)

    def __init__(self, element: DType) -> None:
        super().__init__(f"stack of {element.name}", element.numpy_dtype, element.kind.upper())
        self.element = element

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = DType.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return stack_of, (self.element,)


_stacks: dict[DType, StackDType] = {}


def stack_of(element: DType) -> DType:
    """The dtype of stacks of arrays of a dtype."""
    return _stacks.setdefault(element, _stacks.get(element) or StackDType(element))


def element_of(stack: DType) -> DType:
    """The dtype of a stack's arrays.

    Raises:
      TypeError: what is no stack.
    """
    if not isinstance(stack, StackDType):
        raise TypeError(f"Values of dtype {stack.name} are no stacks.")
    return stack.element


def _limits(dtype: DType) -> Any:
    if dtype.is_integer:
        return np.iinfo(dtype.numpy_dtype)
    if dtype.kind == "s":
        raise TypeError("`tf.string` has no smallest or largest value.")
    return ml_dtypes.finfo(dtype.real_dtype.numpy_dtype)


float16 = DType("float16", np.dtype(np.float16), "f", "half")
bfloat16 = DType("bfloat16", np.dtype(ml_dtypes.bfloat16), "f")
float32 = DType("float32", np.dtype(np.float32), "f", "float")
float64 = DType("float64", np.dtype(np.float64), "f", "double")
complex64 = DType("complex64", np.dtype(np.complex64), "c")
complex128 = DType("complex128", np.dtype(np.complex128), "c")
int8 = DType("int8", np.dtype(np.int8), "i")
int16 = DType("int16", np.dtype(np.int16), "i")
int32 = DType("int32", np.dtype(np.int32), "i")
int64 = DType("int64", np.dtype(np.int64), "i")
uint8 = DType("uint8", np.dtype(np.uint8), "u")
uint16 = DType("uint16", np.dtype(np.uint16), "u")
uint32 = DType("uint32", np.dtype(np.uint32), "u")
uint64 = DType("uint64", np.dtype(np.uint64), "u")
bool_ = DType("bool", np.dtype(np.bool_), "b")
string = DType("string", np.dtype(object), "s")

ALL = (
    float16,
    bfloat16,
    float32,
    float64,
    complex64,
    complex128,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    bool_,
    string,
)
FLOATING = (float16, bfloat16, float32, float64)
_BY_NUMPY = {d.numpy_dtype: d for d in ALL}
_BY_NAME = {d.name: d for d in ALL} | {"half": float16, "float": float32, "double": float64}
_BY_PYTHON: dict[Any, DType] = {
    float: float32,
    int: int32,
    bool: bool_,
    complex: complex128,
    str: string,
    bytes: string,
}


def of_numpy(dtype: np.dtype[Any]) -> DType:
    """The `DType` of a NumPy dtype.

    Raises:
      TypeError: when no tensor can hold such elements.
    """
    found = _BY_NUMPY.get(dtype)
    if found is None:
        if dtype.kind in "SU":
            return string
        if dtype.newbyteorder("=") in _BY_NUMPY:
            return _BY_NUMPY[dtype.newbyteorder("=")]
        raise TypeError(f"No tensor holds elements of NumPy dtype `{dtype}`. Use one of {', '.join(_BY_NAME)}.")
    return found


def wider(a: DType, b: DType) -> DType:
    """Of two dtypes the one that keeps more of the other's numbers: complex before floating before integer."""
    return max(a, b, key=lambda dtype: ("sbuifc".index(dtype.kind), dtype.size))


def as_dtype(type_value: Any) -> DType:
    """The `DType` that a name, a NumPy or Python type, or a `DType` stands for.

    >>> import gradtape as tf
    >>> tf.as_dtype("float64"), tf.as_dtype(int)
    (tf.float64, tf.int32)

    Raises:
      TypeError: when there is no such type.
    """
    if isinstance(type_value, DType):
        return type_value
    if isinstance(type_value, str) and type_value in _BY_NAME:
        return _BY_NAME[type_value]
    if isinstance(type_value, type) and type_value in _BY_PYTHON:
        return _BY_PYTHON[type_value]
    try:
        return of_numpy(np.dtype(type_value))
    except TypeError:
        known = ", ".join(d.name for d in ALL)
        raise TypeError(f"Cannot convert {type_value!r} to a dtype. Known dtypes: {known}.") from None
