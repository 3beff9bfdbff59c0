"""The whole numbers that a traced program mentions: what it does may change at sizes near to them. Floor: saving."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np

from gradtape.custom_rules import RuledFunction
from gradtape.functions import Function
from gradtape.ir.shapes import TensorShape
from gradtape.ops.op import Step
from gradtape.runtime.places import is_own_file
from gradtape.runtime.tensor import SymbolicTensor, Tensor
from gradtape.runtime.variable import Variable
from gradtape.tracing.actions import Action, Block
from gradtape.tracing.open import Callback

MAX_VALUES = 64  # of an array whose elements count as mentioned
MAX_DEPTH = 12


def numbers_of(program: Block | Callable[..., Any]) -> set[int]:
    """The whole numbers, without their signs, in the arguments of all calls, in shapes of what they are given, and in
    Python that runs when they do."""
    found: set[int] = set()
    seen: set[int] = set()
    waiting: list[tuple[Any, int]] = [(program, 0)]
    while waiting:
        x, depth = waiting.pop()
        if id(x) in seen or depth > MAX_DEPTH:
            continue
        if isinstance(x, int | np.integer) and not isinstance(x, bool):
            found.add(abs(int(x)))
            continue
        seen.add(id(x))
        waiting += [(y, depth + 1) for y in _inside(x)]
    return found


def _inside(x: Any) -> list[Any]:
    """What a part of a program consists of."""
    if isinstance(x, Block):
        return [*x.actions, *x.outputs]
    if isinstance(x, Action):
        return [x.function, *x.arguments]
    if isinstance(x, Callback):
        return [x.block, x.f]
    if isinstance(x, Step):
        return list(x.params.values())
    if isinstance(x, slice):
        return [x.start, x.stop, x.step]
    if isinstance(x, TensorShape):
        return [n for n in x.dims_or_none or () if n is not None]
    if isinstance(x, SymbolicTensor):
        return []
    if isinstance(x, Tensor | Variable | np.ndarray):
        return _of_array(x)
    if isinstance(x, list | tuple | set | frozenset):
        return list(x)
    if isinstance(x, dict):
        return list(x.values())
    if isinstance(x, CodeType):
        return [] if is_own_file(x.co_filename) else list(x.co_consts)
    if isinstance(x, Function):
        return [x.python]
    if isinstance(x, RuledFunction):
        return [x.function]
    if inspect.ismethod(x):
        return [x.__func__]
    if inspect.isfunction(x):
        cells = [c.cell_contents for c in x.__closure__ or () if _is_filled(c)]
        named = [x.__globals__.get(n) for n in x.__code__.co_names]
        return [x.__code__, *(x.__defaults__ or ()), *cells, *([] if is_own_file(x.__code__.co_filename) else named)]
    return []


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _of_array(x: Any) -> list[Any]:
    """Its sizes; of a small constant of whole numbers its elements too."""
    is_array = isinstance(x, np.ndarray)
    sizes = list(x.shape if is_array else x._aval.dims)
    kind = x.dtype.kind if is_array else x._aval.dtype.kind
    if kind not in "iu" or isinstance(x, Variable) or not 0 < math.prod(sizes) <= MAX_VALUES:
        return sizes
    return [*sizes, *np.asarray(x).reshape(-1).tolist()]
