"""Steps of optimizers as traced functions, one for each set of variables, so that their updates run together. Floor:
keras."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.functions import function
from gradtape.ir.bounded import Bounded
from gradtape.runtime.devices import is_on_device
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.trace import function_tracer
from gradtape.runtime.variable import Variable

MOST = 64  # sets of variables, and of an optimizer's numbers, whose functions are kept
OFTEN = 3  # steps of one set from which it is worth a function on the host, where tracing costs as much as a hundred
OWN = __name__.split(".", 1)[0] + "."
Pairs = Sequence[tuple[Tensor, Variable]]


def is_ours(method: Callable[..., Any]) -> bool:
    """Whether a method changes variables and nothing else, as those of this package do: it can be traced then."""
    return method.__module__.startswith(OWN)


class Steps:
    """Traced steps.

    Args:
      step: (rate, pairs of gradients and variables): what is traced.
    """

    def __init__(self, step: Callable[[Tensor, Pairs], None]) -> None:
        self.step = step
        self.seen: Bounded[Any, list[int]] = Bounded(MOST)
        self.functions: Bounded[Any, Callable[..., None]] = Bounded(MOST)

    def __call__(self, rate: Tensor, pairs: Pairs, numbers: Any) -> None:
        """One step; `numbers`: those that a trace holds."""
        variables = [v for _, v in pairs]
        key = (numbers, *(v._id for v in variables))
        if self._pays(key, variables):
            found = self.functions.find(key, lambda: self._traced(variables))
            found(rate, *(g for g, _ in pairs))
        else:
            self.step(rate, pairs)

    def _pays(self, key: Any, variables: Sequence[Variable]) -> bool:
        """Whether a step is worth a function: it is no part of one, and its variables are on a device or come again."""
        if function_tracer() is not None:
            return False
        if any(is_on_device(v._snapshot._array) for v in variables):
            return True
        count = self.seen.find(key, lambda: [0])
        count[0] += 1
        return count[0] >= OFTEN

    def _traced(self, variables: Sequence[Variable]) -> Callable[..., None]:
        def step(rate: Tensor, *gradients: Tensor) -> None:
            self.step(rate, list(zip(gradients, variables, strict=True)))

        # No CUDA graph: it would copy the gradients first, to where they always are.
        traced: Callable[..., None] = function(step, autograph=False, jit_compile=False)
        return traced
