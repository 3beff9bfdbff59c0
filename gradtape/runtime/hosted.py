"""Steps of a traced function that are Python: with effects, in the program's order, or without. Floor: runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import int32
from gradtape.ops.host import Rule, host_step
from gradtape.runtime.dispatch import execute
from gradtape.runtime.indexed_slices import IndexedSlices
from gradtape.runtime.row_updates import scatter_into
from gradtape.runtime.state import new_id
from gradtape.runtime.tensor import Tensor, wrap
from gradtape.runtime.trace import state_tracer


class _Order:
    """What makes effects happen once each and in order, as if it were a variable: each of them takes it and gives it
    back."""

    def __init__(self) -> None:
        self._id = new_id()
        self._aval = aval((), int32)

    def read(self) -> Tensor:
        tracer = state_tracer()
        return wrap(np.int32(0), self._aval) if tracer is None else tracer.read(self)

    def assign(self, value: Tensor) -> None:
        tracer = state_tracer()
        if tracer is not None:
            tracer.assign(self, value)

    def in_map(self, tracer: Any) -> Tensor:
        """What the first effect of a map takes: effects of its slices come after those before the map."""
        with tracer.around():
            return self.read()


ORDER = _Order()


def is_at_call() -> bool:
    """Whether effects are part of what is being traced, a function or what is mapped: they happen when that runs."""
    return state_tracer() is not None


def hosted(function: Callable[..., Any], inputs: Sequence[Tensor], results: Sequence[Aval]) -> list[Tensor]:
    """What a function of arrays without effects makes of them when the traced function is called."""
    made = execute(host_step(function, results), inputs)
    return list(made) if isinstance(made, tuple) else [made]


def effect(
    function: Callable[..., Any], inputs: Sequence[Tensor], results: Sequence[Aval] = (), rule: Rule | None = None
) -> list[Tensor]:
    """The same of a function with effects: it runs in each call, after the effects that came before it in the
    program. It gets arrays and gives a tuple of them. `rule`: how cotangents are pulled back, its order being the
    first operand and the first result."""

    def run(order: Any, *arrays: Any) -> Any:
        made = function(*arrays)
        return (order, *made) if results else order

    made = execute(host_step(run, (ORDER._aval, *results), rule, ordered=True), [ORDER.read(), *inputs])
    listed = list(made) if isinstance(made, tuple) else [made]
    ORDER.assign(listed[0])
    return listed[1:]


def scattered(how: str, x: Tensor, slices: Any) -> Tensor:
    """A variable's value with rows combined into it, in a traced function."""
    if not isinstance(slices, IndexedSlices):
        scatter_into(np.empty(0), how, slices)

    def run(array: Any, values: Any, indices: Any) -> Any:
        out = np.array(array)
        scatter_into(out, how, IndexedSlices(wrap(values, slices.values._aval), wrap(indices, slices.indices._aval)))
        return out

    return hosted(run, [x, slices.values, slices.indices], [x._aval])[0]
