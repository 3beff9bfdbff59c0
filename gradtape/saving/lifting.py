"""Traces in which what is computed of constants is part of the graph too, so that it can follow sizes. Floor:
saving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.ops.op import Step, apply
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import SymbolicTensor, Tensor
from gradtape.runtime.trace import Tracer
from gradtape.saving.graphs import KINDS


class Lifter:
    """Records, as a tape does, what runs while a function is traced; for the tracer, steps on tensors with values."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.slots: dict[int, int] = {}  # it watches nothing

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
        """Python asks for a value: nothing to note."""

    def looked_at(self, variable: Any, how: str) -> None:
        """The same of a variable."""

    def assigns(self, variable: Any, value: Tensor | None, how: str) -> None:
        """A variable is overwritten: its new value is an output of the graph."""


def lifted(python: Callable[[list[Tensor]], Any]) -> Callable[[list[Tensor]], Any]:
    """The function, to be traced, with a lifter at work."""

    def run(tensors: list[Tensor]) -> Any:
        outer = STATE.recorders
        STATE.recorders = (*outer, Lifter(STATE.tracers[-1]))  # type: ignore[arg-type] # it has what is asked of one
        try:
            return python(tensors)
        finally:
            STATE.recorders = outer

    return run
