"""Every op watched for NaN and infinity, forwards and backwards. Floor: runtime.

An observer that looks at each result. Graphs that were compiled run node by node meanwhile, traced functions as Python,
and backward passes record by record (`runtime/walk.py`), so that the first bad op is seen with its operands."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradtape.backends.control import Stack
from gradtape.backends.cuda.checking import all_finite
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Graph
from gradtape.ir.shapes import shape_text
from gradtape.ops.call import Call
from gradtape.ops.checks import first
from gradtape.ops.op import Step
from gradtape.ops.structural import Structural
from gradtape.runtime.devices import DEVICES, is_on_device, on_host
from gradtape.runtime.dispatch import execute
from gradtape.runtime.ledger import Ledger, begin, end, present_ledger
from gradtape.runtime.observing import Observer, observed_by
from gradtape.runtime.places import calling_place
from gradtape.runtime.state import DEFAULT, STATE, Overriding
from gradtape.runtime.tensor import SymbolicTensor, Tensor


class Checking(Observer):
    """Raises where a step makes NaN or infinity."""

    op_by_op = True

    def __init__(self, beneath: Overriding | None, part: str = "") -> None:
        super().__init__(beneath)
        self.part = part  # of what the steps are that run now, if not of the user's program

    def above(self, beneath: Overriding | None) -> Checking:
        return Checking(beneath, self.part)

    def run(self, step: Step, inputs: Sequence[Tensor]) -> Any:
        if not isinstance(step.op, Call) or any(isinstance(t, SymbolicTensor) for t in inputs):
            return super().run(step, inputs)
        with part_of(self.part or f"in a compiled graph, {calling_place()}"):
            made = interpreted(step.params["graph"], inputs)
        return made[0] if len(made) == 1 else tuple(made)

    def saw(self, step: Step, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        for k, t in enumerate(results):
            if isinstance(t, SymbolicTensor) or not t.dtype.is_differentiable or not inputs:
                continue
            if not _is_finite(t) and self._is_new(step, inputs):
                array = np.asarray(on_host(t._array))
                raise InvalidArgumentError(self._report(step, inputs, k, array, np.isfinite(array)))

    def _is_new(self, step: Step, inputs: Sequence[Tensor]) -> bool:
        """Whether a result that is not finite is told of: not where elements were only moved, nor, in the parts that
        are not the user's, where an operand was not finite already."""
        clean = all(_is_finite(t) for t in inputs if t.dtype.is_differentiable)
        return clean or not (self.part or isinstance(step.op, Structural) or step.name == "select")

    def _report(self, step: Step, inputs: Sequence[Tensor], k: int, array: Any, finite: Any) -> str:
        counts = {
            "NaN": np.isnan(array),
            "+Inf": np.isinf(array) & (array.real > 0),
            "-Inf": np.isinf(array) & (array.real < 0),
        }
        lines = [
            f"!!! Detected Infinity or NaN in output {k} of op `{step.name}` ({self.part or calling_place()}) !!!",
            f"  dtype: {array.dtype}, shape: {shape_text(array.shape)}",
            *(f"  # of {name} elements: {int(bad.sum())}" for name, bad in counts.items() if bad.any()),
            f"  {first(np, array, finite)}",
            *(f"  operand {i}: {_range(t)}" for i, t in enumerate(inputs)),
        ]
        return "\n".join(lines)


def _is_finite(t: Tensor) -> bool:
    """Whether all elements are finite; those on a device stay there."""
    array = t._array
    if is_on_device(array) and not isinstance(array, Stack):
        assert DEVICES.device is not None
        return all_finite(DEVICES.device.cuda, array)
    return bool(np.isfinite(np.asarray(on_host(array))).all())


def _range(t: Tensor) -> str:
    """What an operand is, and from where to where its elements go."""
    array, what = np.asarray(on_host(t._array)), f"{t.dtype.name} {shape_text(t._aval.shape)}"
    if array.size == 0 or array.dtype.kind not in "fiucV":
        return what
    if array.dtype.kind == "c":
        array = np.abs(array)
        what += ", absolute values"
    good = array[np.isfinite(array)]
    bad = array.size - good.size
    between = f" from {good.min():.6g} to {good.max():.6g}" if good.size else ""
    return f"{what}{between}{f', {bad} not finite' if bad else ''}"


@contextlib.contextmanager
def part_of(part: str) -> Iterator[None]:
    """A block whose steps belong to something else than the user's program."""
    outer = STATE.overrides
    if isinstance(checking := observed_by(Checking, outer), Checking):
        STATE.override(_renamed(outer, checking, part))
    try:
        yield
    finally:
        STATE.override(outer)


def _renamed(chain: Overriding | None, checking: Checking, part: str) -> Overriding | None:
    if chain is checking:
        return Checking(checking.beneath, part)
    assert isinstance(chain, Observer)
    return chain.above(_renamed(chain.beneath, checking, part))


def interpreted(graph: Graph, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a graph, node by node."""
    env = {id(v): t for v, t in zip(graph.inputs, inputs, strict=True)}
    for node in graph.nodes:
        made = execute(node.step, [env[id(v)] for v in node.inputs])
        results = made if isinstance(made, tuple) else (made,)
        env.update((id(v), t) for v, t in zip(node.outputs, results, strict=True))
    return [env[id(v)] for v in graph.outputs]


def is_checking() -> bool:
    """Whether ops are watched on this thread."""
    return observed_by(Checking, STATE.overrides) is not None


def begin_checking() -> None:
    """Watch the ops of this thread, and of those that start from now on, with a ledger for their places."""
    if is_checking():
        return
    ledger = present_ledger() or Ledger()
    if present_ledger() is None:
        begin(ledger)
    STATE.override(Checking(STATE.overrides))
    DEFAULT.overrides, DEFAULT.watchers = STATE.overrides, (ledger.read,)


def end_checking() -> None:
    """The opposite."""
    chain = STATE.overrides
    if isinstance(chain, Checking):
        STATE.override(chain.beneath)
        ledger = present_ledger()
        if ledger is not None:
            end(ledger)
    DEFAULT.overrides, DEFAULT.watchers = None, ()
