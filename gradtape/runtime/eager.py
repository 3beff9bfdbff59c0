"""Ops that run by themselves: composed elementwise functions of large arrays as kernels, all else as the backend has
them. Floor: runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.backends.cpu import lower
from gradtape.ir.aval import Aval, aval_of
from gradtape.ir.bounded import Bounded
from gradtape.ir.graph import Graph, Value
from gradtape.kernels.spelling import spells
from gradtape.ops.call import call_step
from gradtape.ops.kernels import KernelStep
from gradtape.ops.op import Step, apply
from gradtape.ops.opaque import Opaque
from gradtape.ops.pointwise import Pointwise
from gradtape.runtime.devices import DEVICES, Placed, are_for_device, make_fractions
from gradtape.runtime.state import STATE
from gradtape.transforms.fuse import fuse

LARGE = 1 << 16  # elements from which one function is worth a kernel
KEPT = 16  # shapes of large operands that an op remembers

Run = Callable[..., Any]


def eager(step: Step) -> Run:
    """What runs a step on arrays; remembered with the step."""
    run: Run
    if DEVICES.device is None:
        run = on_cpu(step)
    else:
        goes = _goes(step)
        run = Placed(
            lambda: on_cpu(step),
            lambda lowering: lowering.alone(step),
            lambda arrays: _results_are(goes, step, arrays),
        )
    step.lowered[STATE.alone] = run
    return run


def _goes(step: Step) -> Callable[[Sequence[Aval]], bool]:
    """What results of a step whose operands are all on the host take it to the device."""
    if isinstance(step.op, KernelStep):
        return lambda avals: True
    return are_for_device if isinstance(step.op, Opaque) and step.op.source else make_fractions


def _results_are(goes: Callable[[Sequence[Aval]], bool], step: Step, arrays: Sequence[Any]) -> bool:
    """Whether a step's results are such; an empty stack says nothing of that."""
    return all(hasattr(a, "dtype") for a in arrays) and goes(step.infer(tuple(map(aval_of, arrays))))


def on_cpu(step: Step) -> Run:
    """What runs a step on the host."""
    run = lower(step)
    return OneFunction(step, run) if isinstance(step.op, Pointwise) and step.op.formula is not None else run


class OneFunction:
    """A composed elementwise function: `run` for small operands, a kernel for each shape of large ones."""

    def __init__(self, step: Step, run: Run) -> None:
        self.step, self.run = step, run
        self.programs: Bounded[Any, Run] = Bounded(KEPT)

    def __call__(self, *arrays: Any) -> Any:
        if arrays[-1].size < LARGE:
            return self.run(*arrays)
        key = tuple([(a.shape, a.dtype) for a in arrays])
        return self.programs.find(key, lambda: self._program(arrays))(*arrays)

    def _program(self, arrays: tuple[Any, ...]) -> Run:
        inputs = [Value(aval_of(a)) for a in arrays]
        fused = fuse(Graph(inputs, apply(self.step, inputs)), spells, alone=1)
        if not any(n.step.op.kind == "fused" for n in fused.nodes):
            return self.run  # half and complex types, and functions that kernels do not have
        program = lower(call_step(fused))
        return lambda *arrays: program(*arrays)[0]
