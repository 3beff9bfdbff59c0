"""Observers: what is told of every step that is executed, while debugging. Floor: runtime.

Dispatch knows nothing of them: an observer stands where a scope of other gradients stands, lets the step run and looks
at it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.ops.call import Call
from gradtape.ops.op import Step
from gradtape.runtime.dispatch import execute
from gradtape.runtime.state import STATE, Overriding
from gradtape.runtime.tensor import Tensor


class Observer:
    """Lets steps run, with what stands beneath, and sees operands and results."""

    op_by_op = False

    def __init__(self, beneath: Overriding | None) -> None:
        self.beneath = beneath

    @property
    def scope(self) -> Any:
        """What traces of functions depend on."""
        return None if self.beneath is None else self.beneath.scope

    def above(self, beneath: Overriding | None) -> Observer:
        """The same observer with something else beneath."""
        raise NotImplementedError

    def run(self, step: Step, inputs: Sequence[Tensor]) -> Any:
        """Execute a step and look at it."""
        if isinstance(step.op, Call) and not STATE.recorders:
            return None  # a compiled graph, which knows better how it runs
        here = STATE.overrides
        STATE.override(self.beneath)
        try:
            made = execute(step, inputs)
        finally:
            STATE.override(here)
        self.saw(step, inputs, made if isinstance(made, tuple) else (made,))
        return made

    def saw(self, step: Step, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """What is done with a step that ran."""


def beneath(outer: Overriding | None, scope: Overriding) -> Overriding:
    """A scope of other gradients in the place of the one in force, observers above it."""
    return outer.above(beneath(outer.beneath, scope)) if isinstance(outer, Observer) else scope


def observed_by(kind: type[Observer], chain: Overriding | None) -> Observer | None:
    """The outermost observer of a kind."""
    while isinstance(chain, Observer):
        if isinstance(chain, kind):
            return chain
        chain = chain.beneath
    return None
