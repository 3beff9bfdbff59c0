"""Static parameters of steps as JSON, one spelling per kind of value. Floor: saving.

`null`, truth values, whole numbers, finite floats and strings stand for themselves, an array for a tuple. All else is
an object with one key, which names the kind."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import ALL, DType, StackDType, stack_of
from gradtape.ir.index import Index
from gradtape.ir.shapes import TensorShape
from gradtape.ops.placement import Place, Product
from gradtape.saving.damage import Damaged

MAX_SIZE = 1 << 48  # of a dimension, and elements of a tensor
MAX_RANK = 64
DTYPES = {d.name: d for d in ALL}


class Kind(NamedTuple):
    """A kind of values: its key in the file, its class, and both directions."""

    tag: str
    type: type
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def dtype_of(name: Any) -> DType:
    """The dtype of a name, as files have it."""
    if isinstance(name, dict) and set(name) == {"stack"}:
        return stack_of(dtype_of(name["stack"]))
    if not isinstance(name, str) or name not in DTYPES:
        raise Damaged(f"{name!r} is no dtype")
    return DTYPES[name]


def dtype_text(dtype: DType) -> Any:
    """A dtype as files have it."""
    return {"stack": dtype_text(dtype.element)} if isinstance(dtype, StackDType) else dtype.name


def aval_text(a: Aval) -> list[Any]:
    """Shape and dtype as files have them: the dtype, then the sizes (null where unknown), or null for no known rank."""
    return [dtype_text(a.dtype), *(a.shape if a.shape is not None else [{"rank": None}])]


def aval_of(text: Any) -> Aval:
    """The aval of what `aval_text` gives.

    Raises:
      Damaged: what is none: unknown dtypes, negative or huge sizes.
    """
    if not isinstance(text, list) or not text:
        raise Damaged(f"{text!r} is no shape and dtype")
    dtype, dims = dtype_of(text[0]), text[1:]
    if dims == [{"rank": None}]:
        return aval(None, dtype)
    return aval(dims_of(dims), dtype)


def dims_of(dims: Any) -> tuple[int | None, ...]:
    """Sizes that a tensor can have."""
    if not isinstance(dims, list | tuple) or len(dims) > MAX_RANK:
        raise Damaged(f"{str(dims)[:80]} are no sizes of a tensor")
    for n in dims:
        if n is not None and (type(n) is not int or not 0 <= n <= MAX_SIZE):
            raise Damaged(f"{n!r} is no size of a tensor's axis")
    if math.prod(n or 1 for n in dims) > MAX_SIZE:
        raise Damaged(f"a tensor of shape {list(dims)} is larger than any memory")
    return tuple(dims)


def _index(positions: Any) -> Index:
    if not isinstance(positions, list) or any(type(n) is not int or abs(n) > MAX_SIZE for n in positions):
        raise Damaged("positions should be whole numbers")
    return Index(np.array(positions, np.int64))


def _tuple(parts: Any, count: int) -> tuple[Any, ...]:
    found = read(parts)
    if not isinstance(found, tuple) or len(found) != count:
        raise Damaged(f"{count} values were expected, there is {str(parts)[:80]}")
    return found


def _number(text: Any) -> float:
    if text not in ("nan", "inf", "-inf"):
        raise Damaged(f"{text!r} is no number")
    return float(text)


def _complex(parts: Any) -> complex:
    real, imaginary = _tuple(parts, 2)
    if not all(type(x) in (int, float) for x in (real, imaginary)):
        raise Damaged(f"{parts!r} is no complex number")
    return complex(real, imaginary)


def _bytes(text: Any) -> bytes:
    return base64.b64decode(text, validate=True)


KINDS = (
    Kind("dtype", DType, dtype_text, dtype_of),
    Kind("aval", Aval, aval_text, aval_of),
    Kind("shape", TensorShape, lambda s: aval_text(aval(s.dims_or_none, DTYPES["bool"]))[1:], lambda s: _shape(s)),
    Kind("positions", Index, lambda v: v.array.tolist(), _index),
    Kind("place", Place, lambda v: [write(x) for x in v], lambda v: Place(*_tuple(v, 3))),
    Kind("product", Product, lambda v: [write(x) for x in v], lambda v: Product(*_tuple(v, 3))),
    Kind("complex", complex, lambda v: [write(v.real), write(v.imag)], _complex),
    Kind("bytes", bytes, lambda v: base64.b64encode(v).decode("ascii"), _bytes),
    Kind("slice", slice, lambda v: [write(x) for x in (v.start, v.stop, v.step)], lambda v: slice(*_tuple(v, 3))),
    Kind("ellipsis", type(Ellipsis), lambda v: None, lambda v: Ellipsis),
)
READERS = {k.tag: k.read for k in KINDS} | {"float": _number}


def _shape(sizes: Any) -> TensorShape:
    return TensorShape(None if sizes == [{"rank": None}] else dims_of(sizes))


def write(value: Any) -> Any:
    """A value as JSON.

    Raises:
      TypeError: a kind of value that no file holds.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, int):
        return int(value)  # of a class of its own
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    for kind in KINDS:
        if isinstance(value, kind.type):
            return {kind.tag: kind.write(value)}
    if type(value) is tuple:
        return [write(v) for v in value]
    raise TypeError(f"a {type(value).__name__} is not part of any file")


def read(text: Any) -> Any:
    """The value of what `write` gives.

    Raises:
      Damaged: what is no such thing.
    """
    if text is None or type(text) in (bool, int, float, str):
        return text
    if isinstance(text, list):
        return tuple(read(v) for v in text)
    if isinstance(text, dict) and len(text) == 1:
        ((tag, inner),) = text.items()
        if tag in READERS:
            return READERS[tag](inner)
    raise Damaged(f"{str(text)[:80]} is no value")
