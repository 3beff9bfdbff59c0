"""What is known of the counters of loops while these are traced. Floor: runtime."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ops.arithmetic import ADD, CAST, MULTIPLY, SUBTRACT
from gradtape.ops.indexing import GATHER, GATHER_ROWS
from gradtape.ops.op import Constant
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import binary
from gradtape.runtime.places import place_of, user_frame
from gradtape.runtime.tensor import SymbolicTensor, Tensor
from gradtape.runtime.trace import function_tracer


class Rows:
    """The slices of a tensor along its first axis, by their number."""

    def __init__(self, over: Tensor) -> None:
        if not over._aval.shape:
            raise TypeError(f"{place_of(user_frame())}: Cannot iterate over a scalar tensor.")
        self.over, self.count = over, over._aval.dims[0]
        self.first = convert(0)

    def more(self, k: Tensor) -> Tensor:
        return k < self.count

    def item(self, k: Tensor) -> Tensor:
        return binary(GATHER.bind(axis=0, batch_dims=0), self.over, k)

    def after(self, k: Tensor) -> Tensor:
        return k + 1

    def note(self, k: Tensor, is_sure: bool) -> None:
        """This is the number of a round. `is_sure`: the loop goes through all of them."""
        tracer = function_tracer()
        if self.count and isinstance(k, SymbolicTensor) and tracer is k._tracer:
            assert tracer is not None
            tracer.counters[id(k._value)] = self.count, is_sure


def numbers_of(t: Any) -> Any:
    """What an integer scalar may be, as an array of all that; None: nobody knows."""
    return _numbers(t._value, t._tracer, True) if isinstance(t, SymbolicTensor) else np.asarray(t)


def largest(t: Tensor) -> int | None:
    """The largest number that a scalar will have been when the loop ends whose body is being traced; None: nobody
    knows, or it may never be that."""
    tracer = function_tracer()
    if tracer is None or not isinstance(t, SymbolicTensor) or t._tracer is not tracer:
        return None
    numbers = _numbers(t._value, tracer, False)
    return None if numbers is None or not len(numbers) else int(numbers.max())


def _numbers(v: Value, tracer: Any, is_anywhere: bool) -> Any:
    """What a value is in all rounds, as an array of integers; `is_anywhere`: also of a loop around the one, or the
    branch, that is being traced."""
    count, is_sure = getattr(tracer, "counters", {}).get(id(v), (0, False))
    if count:
        return np.arange(count) if is_sure or is_anywhere else None
    if v.node is None:
        outer = captured(v, tracer) if is_anywhere else None
        return None if not isinstance(outer, SymbolicTensor) else _numbers(outer._value, outer._tracer, True)
    op, operands = v.node.step.op, v.node.inputs
    if op is CAST:
        return _numbers(operands[0], tracer, is_anywhere)
    if op in (GATHER, GATHER_ROWS):
        table, at = _known(operands[0], tracer), _numbers(operands[1], tracer, is_anywhere)
        return None if table is None or at is None or table.ndim != 1 else table[at]
    if op in _COMBINED:
        for a, b in (operands, operands[::-1]):
            moving, number = _numbers(a, tracer, is_anywhere), _known(b, tracer)
            if moving is not None and number is not None and number.ndim == 0:
                return _COMBINED[op](*((moving, number) if a is operands[0] else (number, moving)))
    return None


_COMBINED: dict[Any, Any] = {ADD: np.add, SUBTRACT: np.subtract, MULTIPLY: np.multiply}


def captured(v: Value, tracer: Any) -> Tensor | None:
    """The tensor from outside that a value stands for."""
    return next((t for t, value in tracer.captured.values() if value is v), None)


def _known(v: Value, tracer: Any) -> Any:
    """The array of a number, or of a tensor from outside, that has one."""
    if v.node is not None and isinstance(v.node.step.op, Constant) and not v.aval.shape:
        return np.asarray(v.node.step.params["value"])
    t = captured(v, tracer)
    return None if t is None or isinstance(t, SymbolicTensor) else np.asarray(t)
