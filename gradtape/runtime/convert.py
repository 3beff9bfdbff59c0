"""What becomes a tensor, and of which dtype: TensorFlow's rules. Floor: runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gradtape.ir.aval import aval, aval_of
from gradtape.ir.dtypes import DType, as_dtype, bool_, complex128, float16, float32, float64, int32, of_numpy, string
from gradtape.ir.shapes import TensorShape
from gradtape.runtime.devices import of_others, on_host, own_copy, placed
from gradtape.runtime.state import STATE, quietly
from gradtape.runtime.tensor import Tensor, from_array, wrap

_PYTHON: dict[type, DType] = {bool: bool_, int: int32, float: float32, complex: complex128, str: string, bytes: string}
_WIDENS = {"b": "biufc", "i": "iufc", "u": "iufc", "f": "fc", "c": "c", "s": "s"}  # which kinds a kind may become
_CASTS = {"i": "b", "u": "b", "f": "iub"}  # and which besides, for arrays whose dtype was asked for by name

# Other floors register how their objects become tensors: variables, row-sparse gradients, ...
converters: list[tuple[type, Callable[[Any], Tensor]]] = []


def convert(value: Any, dtype: DType | None = None) -> Tensor:
    """A tensor of the value; of `dtype` if given.

    Raises:
      ValueError: a tensor of another dtype, or a ragged list.
      TypeError: a value that the dtype cannot hold.
    """
    if isinstance(value, Tensor):
        return _of_dtype(value, dtype)
    for kind, converter in converters:
        if isinstance(value, kind):
            return _of_dtype(converter(value), dtype)
    if type(value) in _PYTHON:
        made = _scalar(value, dtype)
        return wrap(placed(made._array), made._aval) if STATE.place else made
    if (array := of_others(value)) is not None:
        return _of_dtype(_copied(array), dtype)
    if isinstance(value, TensorShape):
        value = np.array(value.as_list(), np.int32)
    if isinstance(value, list | tuple) and _holds_tensor(value):
        return _stacked(value, dtype)
    return _array(value, dtype)


def _copied(array: Any) -> Tensor:
    """A tensor of what an array of the device holds now; whoever it belongs to may change it."""
    made = aval_of(array)
    if STATE.place == "CPU":
        return wrap(on_host(array), made)
    return wrap(own_copy(array), made)


def requested(value: Any, dtype: DType | None) -> Tensor:
    """A tensor of a dtype that was asked for by name: NumPy's arrays and numbers are cast to it, floats to integers
    too. As the other operand of an op they are not, since what is lost there was not asked for.

    Raises:
      ValueError: a tensor of another dtype, or a ragged list.
      TypeError: a value that the dtype cannot hold.
    """
    if (
        dtype is not None
        and isinstance(value, np.ndarray | np.generic)
        and dtype.kind in _CASTS.get(value.dtype.kind, "")
    ):
        value = quietly(value.astype, dtype.numpy_dtype)
    return convert(value, dtype)


def _of_dtype(t: Tensor, dtype: DType | None) -> Tensor:
    if dtype is not None and t._aval.dtype is not dtype:
        raise ValueError(
            f"Tensor conversion requested dtype {dtype.name} for Tensor with dtype {t.dtype.name}. "
            f"Use `tf.cast(x, tf.{dtype.name})`."
        )
    return t


def _scalar(value: Any, dtype: DType | None) -> Tensor:
    own = _PYTHON[type(value)]
    if own is int32 and dtype is None and not -(2**31) <= value < 2**31:
        own = of_numpy(np.dtype(np.int64))
    wanted = dtype or own
    _refuse(value, own, wanted)
    if wanted is string:
        return wrap(_bytes_array(value), aval((), string))
    try:
        number = wanted.as_numpy_dtype(value) if wanted.is_integer else _cast(np.asarray(value), wanted)[()]
    except OverflowError:
        raise _out_of_range(value, wanted) from None
    return wrap(number, aval((), wanted))


def _cast(array: Any, dtype: DType) -> Any:
    """What is too large for a floating dtype becomes infinite, without a warning."""
    return quietly(array.astype, dtype.numpy_dtype)


def _out_of_range(value: Any, dtype: DType) -> ValueError:
    return ValueError(f"Cannot convert {_short(value)} to a tensor of dtype {dtype.name}: it is out of range.")


def _refuse(value: Any, own: DType, wanted: DType) -> None:
    if wanted.kind not in _WIDENS[own.kind]:
        raise TypeError(
            f"Cannot convert {_short(value)} to EagerTensor of dtype {wanted.name}. "
            f"Write the value as {wanted.name}, or use `tf.cast`."
        )


def _bytes_array(value: Any) -> Any:
    array = np.empty((), object)
    array[()] = value.encode() if isinstance(value, str) else value
    return array


def _holds_tensor(value: Sequence[Any]) -> bool:
    return any(
        isinstance(v, Tensor)
        or (isinstance(v, list | tuple) and _holds_tensor(v))
        or any(isinstance(v, kind) for kind, _ in converters)
        for v in value
    )


# How a list of tensors is joined: set by the floor that has the ops for it.
stack_tensors: list[Callable[[list[Tensor]], Tensor]] = []


def _stacked(value: Sequence[Any], dtype: DType | None) -> Tensor:
    """A list with tensors among its elements: stacked, so that gradients flow to them."""
    dtype = dtype or _first_dtype(value)
    return stack_tensors[0]([convert(v, dtype) for v in value])


def _first_dtype(value: Sequence[Any]) -> DType | None:
    for v in value:
        if isinstance(v, Tensor):
            return v.dtype
        if isinstance(v, list | tuple):
            found = _first_dtype(v)
            if found is not None:
                return found
        for kind, converter in converters:
            if isinstance(v, kind):
                return converter(v).dtype
    return None


def _array(value: Any, dtype: DType | None) -> Tensor:
    """A copy of anything that NumPy can read."""
    try:
        array = np.array(value)
    except ValueError:
        raise ValueError(
            f"Can't convert non-rectangular Python sequence to Tensor: {_short(value)}. All rows must have one length."
        ) from None
    if _is_mixed(value, array, dtype):
        raise ValueError(
            f"Can't convert Python sequence with mixed types to Tensor: {_short(value)}. Give numbers only, truth "
            "values only or strings only."
        )
    if array.dtype.kind in "USO":
        return _strings(value, array, dtype)
    own = of_numpy(array.dtype)
    listed = isinstance(value, Sequence)
    if listed and own.is_floating and array.size and abs(array).max() >= 2.0**63 and _all_integers(value):
        raise _out_of_range(value, dtype or int32)  # NumPy has taken floats, as no integers hold them all
    if listed:
        own = _listed_dtype(value, array, own) if array.size or dtype is None else dtype
    wanted = dtype or own
    _refuse(value, own, wanted)
    if own is not wanted or array.dtype != wanted.numpy_dtype:
        if listed and wanted.is_integer and array.size and (array.min() < wanted.min or array.max() > wanted.max):
            raise _out_of_range(value, wanted)
        array = _cast(array, wanted)
    if array.dtype.itemsize and not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return from_array(array)


def _is_mixed(value: Any, array: Any, dtype: DType | None) -> bool:
    """A list of strings and numbers; of truth values and then numbers, or of real and then complex numbers, where no
    dtype says what they are."""
    if not isinstance(value, list | tuple) or not array.size:
        return False
    if array.dtype.kind in "US":
        return not all(isinstance(v, str | bytes) for v in _leaves(value))
    if dtype is not None or array.dtype.kind not in "iufc":
        return False
    first = next(_leaves(value))
    return isinstance(first, bool | np.bool_) or (array.dtype.kind == "c" and not np.iscomplexobj(first))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for v in value:
            yield from _leaves(v)
    elif isinstance(value, np.ndarray):
        yield from value.flat
    else:
        yield value


def _all_integers(value: Any) -> bool:
    return all(map(_all_integers, value)) if isinstance(value, list | tuple) else type(value) is int


def _listed_dtype(value: Sequence[Any], array: Any, own: DType) -> DType:
    """The dtype of a list of Python's numbers, NumPy's or both. Integers are int32 where they fit; among numbers with
    fractions the first decides, and only NumPy's float64 and float16 are more and less than float32."""
    kind = array.dtype.kind
    if not array.size:
        return int32 if isinstance(value, range) else float32
    if kind in "iu" and array.min() >= -(2**31) and array.max() < 2**31:
        return int32
    if kind == "f":
        first = next(_leaves(value))
        return float64 if isinstance(first, np.float64) else float16 if isinstance(first, np.float16) else float32
    return complex128 if kind == "c" else own


def _strings(value: Any, array: Any, dtype: DType | None) -> Tensor:
    flat = array.reshape(-1)
    if flat.size and all(type(v) is int for v in flat):  # NumPy found no integer dtype for them
        raise _out_of_range(value, dtype or int32)
    out = np.empty(flat.shape, object)
    for i, v in enumerate(flat):
        if not isinstance(v, str | bytes):
            raise ValueError(
                f"Attempt to convert a value ({_short(value)}) with an unsupported type ({type(value)}) to a Tensor. "
                "Give numbers, strings, arrays, tensors, or lists of one of these."
            )
        out[i] = v.encode() if isinstance(v, str) else v
    _refuse(value, string, dtype or string)
    return wrap(out.reshape(array.shape), aval(array.shape, string))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else text[:77] + "..."


def convert_or_empty(value: Any, dtype: DType) -> Tensor:
    """A tensor of the value; lists that hold nothing, from which no dtype follows, become one of `dtype`."""
    return convert(value, dtype if _holds_nothing(value) else None)


def _holds_nothing(value: Any) -> bool:
    """Whether nested lists have no element at all."""
    return isinstance(value, list | tuple) and all(_holds_nothing(v) for v in value)


def convert_all(values: Sequence[Any], dtype: DType | None = None) -> list[Tensor]:
    """Tensors of one dtype: that of the first tensor among the values, which numbers and arrays then take."""
    if dtype is None:
        dtype = _first_dtype(values)
    if dtype is not None:
        return [convert(v, None if isinstance(v, Tensor) else dtype) for v in _read(values)]
    first = convert(values[0])
    return [first, *(convert(v, first.dtype) for v in values[1:])]


def _read(values: Sequence[Any]) -> list[Any]:
    """Variables and the like as tensors, so that a mismatch of dtypes is the op's own error."""
    return [next((c(v) for kind, c in converters if isinstance(v, kind)), v) for v in values]


_shared: dict[Any, Tensor] = {}
_shared_ids: set[int] = set()
MAX_SHARED = 1024


def shared_scalar(value: Any, dtype: DType) -> Tensor:
    """A Python number as an operand of an op. One tensor, on the host, serves all uses of a number, which is safe as
    long as no user gets hold of it: watching it would watch them all."""
    key = (type(value), value, dtype)
    found = _shared.get(key) if value else None  # 0.0 and -0.0 are one key
    if found is None:
        found = _scalar(value, dtype) if type(value) in _PYTHON else convert(value, dtype)
        if value and len(_shared) < MAX_SHARED:
            _shared[key] = found
            _shared_ids.add(found._id)
    return found


def is_shared(t: Tensor) -> bool:
    """Whether a tensor stands for a number wherever that is used: nobody can ask for derivatives by it."""
    return t._id in _shared_ids


def as_optional_dtype(dtype: Any) -> DType | None:
    return None if dtype is None else as_dtype(dtype)
