"""`tf.autograph`; in traced functions, what built-in functions of Python are of tensors without values. Floor: api."""

from __future__ import annotations

import builtins
from typing import Any

from gradtape.api import autograph_experimental as experimental
from gradtape.api.creation import range, shape
from gradtape.api.elementwise import cast
from gradtape.api.sorting import sort
from gradtape.ir.dtypes import float32, int32
from gradtape.runtime.convert import convert
from gradtape.runtime.tensor import Tensor
from gradtape.tracing.builtins import OF_TENSORS
from gradtape.tracing.conversion import to_code, to_graph

__all__ = ["experimental", "to_code", "to_graph"]


def _int(x: Any) -> Tensor:
    return cast(x, int32)


def _float(x: Any) -> Tensor:
    return cast(x, float32)


def _len(x: Any) -> Tensor:
    t = convert(x)
    if t._aval.ndim == 0:
        raise ValueError("`len` wants a tensor with dimensions, got a scalar.")
    return shape(t)[0]


def _sorted(x: Any, reverse: bool = False) -> Tensor:
    return sort(x, axis=0, direction="DESCENDING" if reverse else "ASCENDING")


OF_TENSORS.update(
    {builtins.range: range, builtins.int: _int, builtins.float: _float, builtins.len: _len, builtins.sorted: _sorted}
)
