"""Steps of optimizers as traced functions, one for each set of variables, so that their updates run together. Floor:
keras."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.functions import function
from gradtape.ir.bounded import Bounded
from gradtape.runtime.devices import is_on_device
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.trace import function_tracer
from gradtape.runtime.variable import Variable

MOST = 64  # sets of variables, and of an optimizer's numbers, whose functions are kept
OFTEN = 8  # steps of one set from which it is worth a function on the host, where tracing costs as much as a hundred
FEW = 64  # variables up to which a function is faster on the host: Python's part of a step is little beside more
OWN = __name__.split(".", 1)[0] + "."
RULES = ("update_step", "step_size")
HARMLESS = frozenset(
    {"__init__", "__module__", "__qualname__", "__doc__", "__annotations__", "__firstlineno__", "__static_attributes__"}
)
PLAIN = (bool, int, float, str, type(None), np.generic)
Pairs = Sequence[tuple[Tensor, Variable]]


class _Same:
    """A key that is equal to itself alone, and keeps what it stands for."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __hash__(self) -> int:
        return id(self.of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.of is other.of


def numbers_of(optimizer: Any, apart: frozenset[str]) -> Any:
    """All that a step depends on besides the values of variables, as a key: an optimizer's attributes, but for those
    `apart`. None where more may happen in a step than its attributes tell, or where one of them is neither a plain
    number nor variables: a trace would miss it."""
    kind, own = type(optimizer), vars(optimizer)
    if any(name in own or not getattr(getattr(kind, name), "__module__", "").startswith(OWN) for name in RULES):
        return None
    if any(not c.__module__.startswith(OWN) and not vars(c).keys() <= HARMLESS for c in kind.__mro__[:-1]):
        return None
    key: list[Any] = []
    for name, value in own.items():
        if name in apart:
            continue
        if isinstance(value, PLAIN):
            key.append(value)
        elif name.startswith("_"):
            key.append(_Same(value))
        elif isinstance(value, list) and all(isinstance(v, Variable) for v in value):
            key += map(_Same, value)
        else:
            return None
    return tuple(key)


class Steps:
    """Traced steps of one optimizer, which they do not keep alive."""

    def __init__(self) -> None:
        self.seen: Bounded[Any, list[int]] = Bounded(MOST)
        self.functions: Bounded[Any, Callable[..., None]] = Bounded(MOST)

    def __call__(self, change: Callable[[Tensor, Pairs], None], numbers: Any, rate: Tensor, pairs: Pairs) -> None:
        """One step by a method `change` of the optimizer; `numbers`: what a trace of it holds, or None."""
        variables = [v for _, v in pairs]
        found = None if numbers is None else self._function(change, numbers, variables)
        if found is None:
            change(rate, pairs)
        else:
            found(rate, *(g for g, _ in pairs))

    def _function(
        self, change: Callable[[Tensor, Pairs], None], numbers: Any, variables: Sequence[Variable]
    ) -> Callable[..., None] | None:
        """A function for a step that is worth one: it is no part of one, and its variables are on a device, or few that
        come again and again."""
        on_device = any(is_on_device(v._snapshot._array) for v in variables)
        if function_tracer() is not None or not (on_device or len(variables) <= FEW):
            return None
        owner = weakref.WeakMethod(change)
        key = (owner, numbers, *map(_Same, variables))
        if not on_device:
            count = self.seen.find(key, lambda: [0])
            count[0] += 1
            if count[0] < OFTEN:
                return None
        return self.functions.find(key, lambda: _traced(owner, variables))


def _traced(owner: weakref.WeakMethod[Any], variables: Sequence[Variable]) -> Callable[..., None]:
    def step(rate: Tensor, *gradients: Tensor) -> None:
        change = owner()
        assert change is not None  # it is the one that calls
        change(rate, list(zip(gradients, variables, strict=True)))

    # No CUDA graph: it would copy the gradients first, to where they always are.
    traced: Callable[..., None] = function(step, autograph=False, jit_compile=False)
    return traced
