"""What is known of the counters of loops while these are traced. Floor: tape."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ops.arithmetic import ADD, CAST, SUBTRACT
from gradtape.ops.indexing import GATHER, GATHER_ROWS
from gradtape.ops.op import Constant
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import binary
from gradtape.runtime.places import place_of, user_frame
from gradtape.runtime.tensor import SymbolicTensor, Tensor
from gradtape.runtime.trace import FunctionTracer, function_tracer


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

    def note(self, k: Tensor) -> None:
        """All of these numbers will have been this one for certain."""
        tracer = function_tracer()
        if self.count and isinstance(k, SymbolicTensor) and tracer is k._tracer:
            assert tracer is not None
            tracer.counters[id(k._value)] = self.count


def largest(t: Tensor) -> int | None:
    """The largest number that a scalar will have been when the loop ends whose body is being traced; None: nobody
    knows, or it may never be that."""
    tracer = function_tracer()
    if tracer is None or not isinstance(t, SymbolicTensor) or t._tracer is not tracer:
        return None
    numbers = _numbers(t._value, tracer)
    return None if numbers is None or not len(numbers) else int(numbers.max())


def _numbers(v: Value, tracer: FunctionTracer) -> Any:
    """What a value is in all rounds, as an array of integers."""
    if id(v) in tracer.counters:
        return np.arange(tracer.counters[id(v)])
    if v.node is None:
        return None
    op, operands = v.node.step.op, v.node.inputs
    if op is CAST:
        return _numbers(operands[0], tracer)
    if op in (GATHER, GATHER_ROWS):
        table, at = _known(operands[0], tracer), _numbers(operands[1], tracer)
        return None if table is None or at is None or table.ndim != 1 else table[at]
    if op in (ADD, SUBTRACT):
        for a, b in (operands, operands[::-1]):
            moving, number = _numbers(a, tracer), _known(b, tracer)
            if moving is not None and number is not None and number.ndim == 0 and (op is ADD or a is operands[0]):
                return moving + number if op is ADD else moving - number
    return None


def _known(v: Value, tracer: FunctionTracer) -> Any:
    """The array of a number, or of a tensor from outside, that has one."""
    if v.node is not None and isinstance(v.node.step.op, Constant) and not v.aval.shape:
        return np.asarray(v.node.step.params["value"])
    for t, value in tracer.captured.values():
        if value is v and not isinstance(t, SymbolicTensor):
            return np.asarray(t)
    return None
