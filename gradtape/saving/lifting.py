"""Traces in which what is computed of constants is part of the graph too, so that it can follow sizes. Floor:
saving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Graph, Value
from gradtape.ops.op import Step, apply
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import SymbolicTensor, Tensor
from gradtape.runtime.trace import Tracer
from gradtape.saving import seen
from gradtape.saving.graphs import KINDS
from gradtape.transforms.dependence import leaves

MAX_ASKED = 64  # elements of a tensor that Python looks at


class Lifter:
    """Records, as a tape does, what runs while a function is traced; for the tracer, steps on tensors with values."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.slots: dict[int, int] = {}  # it watches nothing
        self.asked: dict[int, tuple[Value, list[int]]] = {}  # by id of the value: what Python saw of it
        self.seen: list[list[Any]] = []  # sizes by which Python decides something, and where

    def record(self, step: Step, inputs: Sequence[Any], outputs: Sequence[Tensor]) -> None:
        """A step as nodes of the graph, if its results have values; these stay what Python sees of them."""
        if step.op.kind in KINDS and not any(isinstance(t, SymbolicTensor) for t in (*inputs, *outputs)):
            values = apply(step, [self.tracer.value_of(t) for t in inputs])
            self.tracer.lifted.update((t._id, v) for t, v in zip(outputs, values, strict=True))

    def record_custom(self, inputs: Sequence[Any], outputs: Sequence[Tensor], rule: Callable[..., Any]) -> None:
        """A function with a rule of its own, on values: its results stay constants."""

    def read(self, variable: Any, tensor: Tensor) -> None:
        """A variable is read: it is an input of the graph as it is."""

    def is_watching(self, x: Any) -> bool:
        return False

    def left(self, t: Tensor, how: str) -> None:
        """Python asks for a value: what it does then holds for sizes that give the same answer."""
        value = self.tracer.lifted.get(t._id)
        if value is not None and t._aval.dtype.kind in "biu" and t._aval.size <= MAX_ASKED:
            self.asked[id(value)] = (value, [int(n) for n in np.asarray(t._array).reshape(-1)])

    def seeing(self, dims: Any, decides: bool) -> Any:
        """The shape that Python sees; `decides`: it sees a number, of which nobody knows what it is for."""
        if decides:
            if seen.is_users(2):
                self.note(dims[0])
            return dims
        return seen.shape_for(dims, self.note)

    def note(self, n: int) -> None:
        """Python decides something by a size."""
        self.seen.append([n, seen.where()])

    def looked_at(self, variable: Any, how: str) -> None:
        """The same of a variable."""

    def assigns(self, variable: Any, value: Tensor | None, how: str) -> None:
        """A variable is overwritten: its new value is an output of the graph."""

    def questions(self) -> tuple[Graph, list[Tensor], list[list[int]]]:
        """What Python asked for: the graph of that, the constants that it is given, and what it saw."""
        values = [v for v, _ in self.asked.values()]
        captured = list(self.tracer.captured.values())
        needed = set(map(id, leaves(values, [v for _, v in captured])))
        given = [(t, v) for t, v in captured if id(v) in needed]
        return Graph([v for _, v in given], values), [t for t, _ in given], [seen for _, seen in self.asked.values()]


class Lifted:
    """A function, to be traced, with a lifter at work."""

    lifter: Lifter

    def __init__(self, python: Callable[[list[Tensor]], Any]) -> None:
        self.python = python

    def __call__(self, tensors: list[Tensor]) -> Any:
        outer = STATE.recorders
        self.lifter = Lifter(STATE.tracers[-1])
        STATE.recorders = (*outer, self.lifter)  # type: ignore[arg-type] # it has what is asked of one
        STATE.seeing = self.lifter.seeing
        try:
            return self.python(tensors)
        finally:
            STATE.recorders, STATE.seeing = outer, None
