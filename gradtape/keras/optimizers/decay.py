"""Weight decay that stands apart from the gradient. Floor: keras."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gradtape.runtime.tensor import Tensor
from gradtape.runtime.update import update
from gradtape.runtime.variable import Variable

# Before each step (Loshchilov and Hutter, 2019), with rate α and decay λ:
#
#     x ← x - x · λ · α


def decay_rule(x: Tensor, factor: Tensor) -> tuple[Tensor]:
    """One step of decay."""
    return (x - x * factor,)


def decay(variable: Variable, factor: Tensor) -> None:
    """Make a variable smaller by this part of it."""
    update(decay_rule, [variable], [factor])


class Exclusions:
    """The variables that do not decay: some of them, and those whose name has one of some words in it."""

    def __init__(self, variables: Iterable[Variable] | None = None, names: Iterable[str] | None = None) -> None:
        self._variables = tuple(variables or ())
        self._ids = frozenset(map(id, self._variables))
        words = sorted(set(names or ()))
        self._pattern = re.compile("|".join(words)) if words else None

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Of a copy: its variables are others."""
        vars(self).update(state)
        self._ids = frozenset(map(id, self._variables))

    def __contains__(self, variable: Variable) -> bool:
        if id(variable) in self._ids:
            return True
        return self._pattern is not None and self._pattern.search(variable.name) is not None
