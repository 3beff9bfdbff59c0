"""Moving averages of the variables that an optimizer trains. Floor: keras."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.api.creation import constant
from gradtape.api.elementwise import where
from gradtape.keras.arguments import part
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.update import update
from gradtape.runtime.variable import Variable
from gradtape.tracing.branching import cond

# After each step (Polyak and Juditsky, 1992, with weights that fade), with momentum μ, which is 0 at the first step:
#
#     a ← a · μ + x · (1 - μ)


def average_rule(average: Tensor, x: Tensor, momentum: Tensor) -> tuple[Tensor]:
    """One step of a moving average."""
    return (average * momentum + x * (1.0 - momentum),)


def pace(momentum: Any, every: Any) -> tuple[float, int | None]:
    """How slowly averages follow, and after how many steps they take the variables' place.

    Raises:
      ValueError: a momentum that is no number from 0 to 1, a frequency that is no positive integer and not None.
    """
    if every is not None and (isinstance(every, bool) or not isinstance(every, int | np.integer) or every < 1):
        raise ValueError(f"`ema_overwrite_frequency` should be a positive integer or None, got {every!r}.")
    return part("ema_momentum", momentum), None if every is None else int(every)


class Averages:
    """Moving averages of variables, which may take the variables' place every so many steps."""

    def __init__(self) -> None:
        self.variables: list[Variable] = []
        self.averages: list[Variable] = []

    def build(self, variables: Sequence[Variable], state: Callable[[Variable], Variable]) -> None:
        """Make the averages' state."""
        self.variables, self.averages = list(variables), [state(v) for v in variables]

    def follow(self, iterations: Variable, momentum: float, every: int | None) -> None:
        """The averages' step, after that of the variables; `iterations` counts the steps before this one."""
        for average, v in zip(self.averages, self.variables, strict=True):
            keep = where(iterations.read() > 0, constant(momentum, v._aval.dtype), constant(0.0, v._aval.dtype))
            update(average_rule, [average], [v.read(), keep])
        if every is not None:
            is_due = (iterations.read() + 1) % every == 0
            cond(is_due, lambda: self.take_place(self.variables), lambda: None, "apply", both=True)

    def take_place(self, variables: Sequence[Any]) -> None:
        """Give variables the values of their averages.

        Raises:
          ValueError: other variables than the averaged ones.
        """
        known = {id(v): average for v, average in zip(self.variables, self.averages, strict=True)}
        if any(id(v) not in known for v in variables):
            raise ValueError("Only variables that the optimizer was built with have averages.")
        for v in variables:
            v.assign(known[id(v)].read())
