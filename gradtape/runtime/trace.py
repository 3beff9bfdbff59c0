"""Tracing: tensors whose values are not known yet; ops on them become graph nodes. Floor: runtime.

A symbolic tensor has an aval and an id like any other, so that tapes record it; but it has no array. Whoever asks
for one gets `SymbolicTensorError`, and eager dispatch answers it by adding a node to the graph of the tracer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.ir.aval import Aval
from gradtape.ir.graph import Graph, Value
from gradtape.ops.op import Step, apply
from gradtape.runtime.state import STATE, new_id
from gradtape.runtime.tensor import SymbolicTensor, Tensor


class Tracer:
    """One graph in the making: its inputs, and the tensors from outside that it came to use."""

    def __init__(self, inputs: Sequence[Aval]) -> None:
        self.inputs = [Value(a) for a in inputs]
        self.symbols = [self.symbol(v) for v in self.inputs]
        self.captured: dict[int, tuple[Tensor, Value]] = {}  # by id of the tensor
        # whether anybody may ask for derivatives of the graph
        self.differentiable: bool = bool(STATE.recorders) or any(t.differentiable for t in STATE.tracers)

    def symbol(self, v: Value) -> SymbolicTensor:
        """A tensor that stands for a value of this graph."""
        t = SymbolicTensor.__new__(SymbolicTensor)
        t._aval, t._id, t._value, t._tracer = v.aval, new_id(), v, self
        return t

    def value_of(self, t: Tensor) -> Value:
        """The graph value of a tensor; one from outside becomes an input."""
        if isinstance(t, SymbolicTensor) and t._tracer is self:
            value: Value = t._value
            return value
        found = self.captured.get(t._id)
        if found is None:
            found = self.captured[t._id] = (t, Value(t._aval))
        return found[1]

    def graph(self, results: Sequence[Tensor]) -> tuple[Graph, list[Tensor]]:
        """The graph of some results over the inputs, then over what was captured; and that."""
        outputs = [self.value_of(t) for t in results]
        captured = list(self.captured.values())
        return Graph([*self.inputs, *(v for _, v in captured)], outputs), [t for t, _ in captured]

    def run(self, f: Callable[..., Any], *args: Any) -> Any:
        """f(*args) with this tracer as the innermost one."""
        outer = STATE.tracers
        STATE.tracers = (*outer, self)
        try:
            return f(*args)
        finally:
            STATE.tracers = outer


def traced(step: Step, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """A step on operands of which some are symbolic: a node in the graph of the innermost of their tracers."""
    tracer = _innermost(inputs)
    return tuple(tracer.symbol(v) for v in apply(step, [tracer.value_of(t) for t in inputs]))


def _innermost(inputs: Sequence[Tensor]) -> Tracer:
    involved = [t._tracer for t in inputs if isinstance(t, SymbolicTensor)]
    for tracer in reversed(STATE.tracers):
        if any(tracer is t for t in involved):
            return tracer
    raise ValueError(
        "A symbolic tensor was used after the function that it belongs to had been traced. Return it from that "
        "function, instead of keeping it in a variable, a list or an attribute."
    )


class FunctionTracer(Tracer):
    """The graph of a whole function, which is called again later: variables are read when it is called and given
    their new values when it ends, and random numbers are drawn anew in each call."""

    def __init__(self, inputs: Sequence[Aval]) -> None:
        super().__init__(inputs)
        self.differentiable = True
        self.variables: dict[int, tuple[Any, Value]] = {}  # by id: the variable, and its value at the beginning
        self.present: dict[int, Tensor] = {}  # its value now
        self.assigned: dict[int, Any] = {}
        self.late: dict[str, tuple[Callable[[], Tensor], SymbolicTensor]] = {}
        self.draws = 0

    def read(self, variable: Any) -> Tensor:
        """A variable's value at this point of the function."""
        found = self.present.get(variable._id)
        if found is None:
            start = Value(variable._aval)
            self.variables[variable._id] = (variable, start)
            found = self.present[variable._id] = self.symbol(start)
        return found

    def assign(self, variable: Any, value: Tensor) -> None:
        """A variable's value from this point of the function on."""
        self.read(variable)
        self.present[variable._id] = value
        self.assigned[variable._id] = variable

    def call_time(self, name: str, supplier: Callable[[], Tensor]) -> SymbolicTensor:
        """A tensor that is made anew in each call."""
        if name not in self.late:
            self.late[name] = (supplier, self.symbol(Value(supplier()._aval)))
        return self.late[name][1]


def function_tracer() -> FunctionTracer | None:
    """The tracer of the innermost function that is being traced, if nothing else is traced inside it."""
    tracers = STATE.tracers
    return tracers[-1] if tracers and isinstance(tracers[-1], FunctionTracer) else None
