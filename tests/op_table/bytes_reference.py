"""Rows of bytes read as other dtypes, by Python's `struct`: references for the op table's tests."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.dtypes import DType

LETTERS = {"int16": "h", "int32": "i", "int64": "q", "float32": "f", "float64": "d", "complex128": "dd"}


def _read(packed: bytes, dtype: DType) -> list[Any]:
    letters = LETTERS[dtype.name]
    numbers = list(struct.iter_unpack("=" + letters, packed))
    return [complex(*n) if len(n) == 2 else n[0] for n in numbers]


def _split(operands: Sequence[Any], shape: tuple[int, ...], dtype: DType) -> Any:
    (x,) = operands
    out = np.empty(shape, object)
    for at in np.ndindex(*x.shape):
        out[at] = _read(struct.pack("=q", int(x[at])), dtype)
    return out


def _join(operands: Sequence[Any], shape: tuple[int, ...], dtype: DType) -> Any:
    (x,) = operands
    out = np.empty(shape, object)
    for at in np.ndindex(*shape):
        packed = b"".join(struct.pack("=q", int(v)) for v in x[at])
        (out[at],) = _read(packed, dtype)
    return out


BYTES: dict[str, Callable[..., Any]] = {"bitcast_join": _join, "bitcast_split": _split}
