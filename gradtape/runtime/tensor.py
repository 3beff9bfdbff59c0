"""The immutable `Tensor`: an array, its aval and an id; `runtime.operators` attaches operators. Floor: runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from gradtape.ir.aval import Aval, aval_of
from gradtape.ir.dtypes import DType
from gradtape.ir.errors import OperatorNotAllowedInGraphError
from gradtape.ir.shapes import TensorShape, shape_text
from gradtape.runtime.devices import DEVICES, is_on_device, on_host, placed
from gradtape.runtime.places import asked_by_user, note_on, place_of, user_frame
from gradtape.runtime.state import STATE, new_id


class Operators:
    """Python's operators, which `runtime.operators` attaches to every subclass: declared for type checkers."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __rfloordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __rmod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __rmatmul__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __rand__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __ror__(self, other: Any) -> Tensor: ...
        def __xor__(self, other: Any) -> Tensor: ...
        def __rxor__(self, other: Any) -> Tensor: ...
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __pos__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __getitem__(self, key: Any) -> Tensor: ...
        def __iter__(self) -> Iterator[Tensor]: ...


# NumPy habits that a tensor does not share, with the way out.
HINTS = {
    "astype": "tf.cast(x, dtype)",
    "ravel": "tf.reshape(x, [-1])",
    "flatten": "tf.reshape(x, [-1])",
    "reshape": "tf.reshape(x, shape)",
    "transpose": "tf.transpose(x)",
    "T": "tf.transpose(x)",
    "sum": "tf.reduce_sum(x)",
    "mean": "tf.reduce_mean(x)",
    "max": "tf.reduce_max(x)",
    "min": "tf.reduce_min(x)",
    "size": "tf.size(x)",
    "tolist": "x.numpy().tolist()",
    "data": "x.numpy()",
    "item": "x.numpy().item()",
    "copy": "tf.identity(x)",
    "clip": "tf.clip_by_value(x, low, high)",
    "assign": "a tf.Variable, which can be assigned to",
    "backward": "tape.gradient(y, x)",
    "grad": "tape.gradient(y, x)",
    "detach": "tf.stop_gradient(x)",
}


class Tensor(Operators):
    """A multidimensional array that does not change.

    >>> import gradtape as tf
    >>> x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    >>> x.shape, x.dtype, float(x[0, 1])
    (TensorShape([2, 2]), tf.float32, 2.0)
    >>> print(x + 1)
    tf.Tensor(
    [[2. 3.]
     [4. 5.]], shape=(2, 2), dtype=float32)
    """

    __slots__ = ("__weakref__", "_array", "_aval", "_id")
    __array_priority__ = 100  # so that `array * tensor` is a tensor

    _array: Any  # a NumPy array; for scalars an array scalar
    _aval: Aval
    _id: int

    @property
    def shape(self) -> TensorShape:
        return TensorShape(self._aval.shape) if STATE.seeing is None else STATE.seeing(self._aval.shape, False)

    @property
    def dtype(self) -> DType:
        return self._aval.dtype

    @property
    def ndim(self) -> int:
        return len(self._aval.dims)

    @property
    def device(self) -> str:
        name = DEVICES.device.name if DEVICES.device and is_on_device(self._array) else "CPU:0"
        return f"/job:localhost/replica:0/task:0/device:{name}"

    def get_shape(self) -> TensorShape:
        return self.shape

    def set_shape(self, shape: Any) -> None:
        """Checks that the tensor has this shape.

        Raises:
          ValueError: when it has another.
        """
        if not self.shape.is_compatible_with(shape):
            raise ValueError(f"Tensor's shape {self.shape} is not compatible with supplied shape {TensorShape(shape)}.")

    def numpy(self) -> Any:
        """A copy as a NumPy array; for a scalar, a NumPy scalar (`bytes` for a string)."""
        if STATE.recorders:
            left(self, "`.numpy()`")
        return self._copied()

    def _copied(self) -> Any:
        """The same, for whoever does not compute with it."""
        array = on_host(self._array)
        if self._aval.shape == ():
            return array[()]
        return array.copy() if array is self._array else array

    def ref(self) -> Reference:
        """A hashable stand-in for this tensor, for sets and dicts."""
        return Reference(self)

    def experimental_ref(self) -> Reference:
        return Reference(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if STATE.recorders:
            left(self, "a NumPy function, or `np.asarray`,")
        array = np.asarray(on_host(self._array))
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"A {self.dtype.name} tensor is no {np.dtype(dtype)} array without a copy.")
            return array.astype(dtype)
        if copy:
            return array.copy()
        view = array.view()
        view.flags.writeable = False
        return view

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, **options: Any) -> Any:
        """Without a copy, and read-only for consumers that know the word (DLPack 1.0); others must not write, and get
        a copy of what is read-only for us too."""
        if STATE.recorders:
            left(self, "another library, by DLPack,")
        if is_on_device(self._array):
            return self._array.__dlpack__(max_version=max_version, **options)
        array = np.asarray(self._array)
        if max_version is not None and max_version >= (1, 0):
            return np.asarray(self).__dlpack__(max_version=max_version, **options)
        return (array if array.flags.writeable else array.copy()).__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        array = self._array
        return (array if is_on_device(array) else np.asarray(array)).__dlpack_device__()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Where the elements are on a device, without a copy; of a tensor on the host there is none."""
        if not is_on_device(self._array):
            raise AttributeError("__cuda_array_interface__: this tensor is on the host.")
        found: dict[str, Any] = self._array.__cuda_array_interface__
        return found

    def __bool__(self) -> bool:
        if self._aval.size != 1:
            raise ValueError(
                f"The truth value of a tensor with shape {shape_text(self._aval.shape)} is ambiguous: it has "
                f"{self._aval.size} elements. Use `tf.reduce_any`, `tf.reduce_all` or an index."
            )
        if STATE.recorders and not self._aval.dtype.is_differentiable:
            left(self, "`bool()`")
        return bool(on_host(self._array))

    def __float__(self) -> float:
        self._scalar("float")
        if STATE.recorders:
            left(self, "`float()`")
        return float(on_host(self._array))

    def __int__(self) -> int:
        self._scalar("int")
        if STATE.recorders:
            left(self, "`int()`")
        return int(on_host(self._array))

    def __complex__(self) -> complex:
        self._scalar("complex number")
        if STATE.recorders:
            left(self, "`complex()`")
        return complex(on_host(self._array))

    def __index__(self) -> int:
        if not self.dtype.is_integer or self._aval.shape != ():
            raise TypeError(f"Only integer scalar tensors can be used as an index, got {self._aval!r}.")
        if STATE.recorders:
            left(self, "an index")
        return int(on_host(self._array))

    def _scalar(self, what: str) -> None:
        if self._aval.shape != ():
            raise TypeError(
                f"Only scalar tensors can be converted to a {what}, got shape {shape_text(self._aval.shape)}. Use an "
                "index, `tf.squeeze`, or `x.numpy()` for all of its elements."
            )

    def __len__(self) -> int:
        if not self._aval.shape:
            raise TypeError("A scalar tensor has no `len()`.")
        if STATE.seeing is not None:
            STATE.seeing(self._aval.dims[:1], True)
        return self._aval.dims[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self._aval.shape:
            raise TypeError("Cannot iterate over a scalar tensor.")
        return (self[i] for i in range(len(self)))

    def __hash__(self) -> int:
        raise TypeError("Tensor is unhashable. Instead, use tensor.ref() as the key.")

    def __format__(self, spec: str) -> str:
        return (
            format(self._copied(), spec) if self._aval.shape == () or not spec else format(on_host(self._array), spec)
        )

    def __str__(self) -> str:
        body = str(self._copied())
        start = "\n" if "\n" in body else ""
        return f"tf.Tensor({start}{body}, shape={shape_text(self._aval.shape)}, dtype={self.dtype.name})"

    def __repr__(self) -> str:
        return f"<tf.Tensor: shape={shape_text(self._aval.shape)}, dtype={self.dtype.name}, numpy={array_text(self)}>"

    def __copy__(self) -> Tensor:
        return self

    def __deepcopy__(self, memo: Any) -> Tensor:
        return wrap(placed(np.array(on_host(self._array)))[()], self._aval)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (on_host(self._array), self._aval)

    def __getattr__(self, name: str) -> Any:
        if name == "_array":
            raise SymbolicTensorError(
                f"The value of {self!r} is not known: the function that it belongs to runs for all of its inputs at "
                "once. `.numpy()`, `bool()`, `float()` and Python's `if` want a value; use `tf.where` and other ops."
            )
        if name == "numpy":
            raise no_value(self, "`.numpy()`", NoNumpyError)
        hint = f" Use {HINTS[name]}." if name in HINTS else ""
        raise AttributeError(f"A Tensor has no attribute `{name}`.{hint}")


def left(t: Tensor, how: str) -> None:
    """Tell the tapes that the value of a tensor was asked for: what is made of it is not recorded."""
    for recorder in STATE.recorders:
        recorder.left(t, how)


class EagerTensor(Tensor):
    """A tensor whose value is there."""

    __slots__ = ()


class SymbolicTensor(Tensor):
    """A tensor of a function that is being traced: its shape and dtype are known, its value is not."""

    __slots__ = ("_place", "_tracer", "_value")

    _place: tuple[str, int] | None  # file and line where it was made, in functions
    _tracer: Any
    _value: Any

    @property
    def numpy(self) -> Any:
        raise AttributeError("numpy")  # `__getattr__` says why

    def __bool__(self) -> bool:
        raise no_value(self, "a truth value (`if`, `while`, `and`, `bool()`)", NoTruthError)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        raise no_value(self, "a NumPy array", NoArrayError)

    def __float__(self) -> float:
        raise no_value(self, "`float()`", SymbolicTensorError)

    def __int__(self) -> int:
        raise no_value(self, "`int()`", SymbolicTensorError)

    def __complex__(self) -> complex:
        raise no_value(self, "`complex()`", SymbolicTensorError)

    def __index__(self) -> int:
        raise no_value(self, "an integer, as an index or a size,", SymbolicTensorError)

    def __iter__(self) -> Iterator[Tensor]:
        if self._tracer.is_function and asked_by_user(1):
            raise no_value(self, "its elements, one by one,", NoTruthError)
        return super().__iter__()

    def __str__(self) -> str:
        return f"Tensor(shape={shape_text(self._aval.shape)}, dtype={self.dtype.name})"

    def __repr__(self) -> str:
        return f"<tf.Tensor: shape={shape_text(self._aval.shape)}, dtype={self.dtype.name}>"

    def __format__(self, spec: str) -> str:
        return str(self)


class SymbolicTensorError(TypeError):
    """The value of a tensor was asked for while the function that it belongs to is being traced. `by_user`: by the
    function itself, and not by an op that cannot do without. `says`: what a function does that raises it."""

    by_user = False
    says = "asks for the value of a tensor while it is traced"


class NoNumpyError(SymbolicTensorError, AttributeError):
    """`.numpy()` of a tensor without a value."""


class NoTruthError(SymbolicTensorError, OperatorNotAllowedInGraphError):
    """`bool()` of a tensor without a value, or a loop over its elements."""


class NoPartsError(SymbolicTensorError):
    """A Jacobian in parts of a tensor without a value."""

    says = "asks for a Jacobian in parts"


class NoArrayError(SymbolicTensorError, NotImplementedError):
    """A NumPy function of a tensor without a value."""


def no_value(t: Tensor, what: str, error: type[SymbolicTensorError]) -> SymbolicTensorError:
    """The error for asking for a value: it says where, and what to use."""
    by_user, frame = asked_by_user(2), user_frame()
    note = note_on(frame) or "Use ops of tensors: `tf.cond`, `tf.while_loop`, `tf.where`, `tf.cast`."
    made = error(
        f"{place_of(frame)} asks for {what} of {t!r}, whose value is not known while the function is traced: it "
        f"is traced once and runs for many values. {note}"
    )
    made.by_user = by_user
    return made


class Reference:
    """Compares and hashes a tensor or variable by identity; `deref()` gives it back."""

    __slots__ = ("_of",)

    def __init__(self, of: Any) -> None:
        self._of = of

    def deref(self) -> Any:
        return self._of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and self._of is other._of

    def __hash__(self) -> int:
        return id(self._of)

    def __repr__(self) -> str:
        return f"<Reference wrapping {self._of!r}>"


_new = EagerTensor.__new__


def wrap(array: Any, aval: Aval) -> EagerTensor:
    """A tensor around an array that nobody else will change, whose aval is known."""
    t = _new(EagerTensor)
    t._array = array
    t._aval = aval
    t._id = new_id()
    return t


def from_array(array: Any) -> EagerTensor:
    """A tensor around an array of the host that nobody else will change, or of a copy where new tensors go."""
    made = aval_of(array)
    if DEVICES.device is not None:
        array = placed(array)
    return wrap(array[()] if array.shape == () and not _is_text(array) else array, made)


def _is_text(array: Any) -> bool:
    """Whether it is an array of strings, which stays one without axes."""
    return isinstance(array, np.ndarray) and array.dtype.hasobject


def _restored(array: Any, made: Aval) -> EagerTensor:
    """A tensor that was pickled."""
    return wrap(placed(array), made)


def array_text(t: Tensor) -> str:
    """The value as TensorFlow's repr shows it: a bare number for scalars, else NumPy's repr; more than one line begin
    on a line of their own."""
    value = t._copied()
    if t.shape.rank:
        text = repr(value)
        return "\n" + text if "\n" in text else text
    return repr(value) if isinstance(value, bytes) else str(value)
