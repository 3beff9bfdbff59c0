"""Scopes that what comes from outside enters by a function: each tensor once, when it is used first. Floor: runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gradtape.ops.op import Step
from gradtape.runtime.dispatch import execute
from gradtape.runtime.observing import Observer
from gradtape.runtime.state import STATE, Overriding
from gradtape.runtime.tensor import SymbolicTensor, Tensor

Door = Callable[[Tensor], Tensor]


class Entering(Observer):
    """Gives the steps of a block what the `door` makes of tensors that were not made in it. Only tapes can tell the
    difference, so that nothing is done where none watches them."""

    def __init__(self, door: Door, beneath: Overriding | None) -> None:
        super().__init__(beneath)
        self.door, self.tracers = door, STATE.tracers  # what is traced in the block enters it as one step
        self.inside: dict[int, Tensor | None] = {}  # by id: what stands for a tensor in the block; None: itself

    def above(self, beneath: Overriding | None) -> Entering:
        made = Entering(self.door, beneath)
        made.inside, made.tracers = self.inside, self.tracers
        return made

    def run(self, step: Step, inputs: Sequence[Tensor]) -> Any:
        if not self._is_asked():
            return None
        operands = [self.entered(t) for t in inputs]
        here = STATE.overrides
        STATE.override(self.beneath)
        try:
            made = execute(step, operands)
        finally:
            STATE.override(here)
        made_here(made if isinstance(made, tuple) else (made,))
        return made

    def _is_asked(self) -> bool:
        """Whether somebody may see a difference: a tape, or one around the function that is being traced."""
        return STATE.tracers == self.tracers and bool(STATE.recorders or STATE.tracers)

    def _is_watched(self, t: Tensor) -> bool:
        return isinstance(t, SymbolicTensor) or any(r.is_watching(t) for r in STATE.recorders)

    def entered(self, t: Tensor) -> Tensor:
        """What stands for a tensor in the block."""
        if t._id not in self.inside and t.dtype.is_differentiable and self._is_asked() and self._is_watched(t):
            here = STATE.overrides
            STATE.override(self.beneath)  # it enters the scopes around this one first
            try:
                found = self.inside[t._id] = self.door(t)
            finally:
                STATE.override(here)
            self.inside[found._id] = None
        stands = self.inside.get(t._id)
        return t if stands is None else stands


def _scopes() -> Iterator[Entering]:
    """The scopes in force, the innermost first."""
    chain = STATE.overrides
    while isinstance(chain, Observer):
        if isinstance(chain, Entering):
            yield chain
        chain = chain.beneath


def entered(t: Tensor) -> Tensor:
    """A tensor that goes into something which is no step, such as a function with a rule of its own."""
    scope = next(_scopes(), None)
    return t if scope is None else scope.entered(t)


def made_here(results: Iterable[Tensor]) -> None:
    """Tell the scopes in force what was made in them."""
    for scope in _scopes():
        scope.inside.update((t._id, None) for t in results)
