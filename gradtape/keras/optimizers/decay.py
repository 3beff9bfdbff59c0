"""Weight decay that stands apart from the gradient. Floor: keras."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
        self._ids = frozenset(v._id for v in variables or ())
        words = sorted(set(names or ()))
        self._pattern = re.compile("|".join(words)) if words else None

    def __contains__(self, variable: Variable) -> bool:
        if variable._id in self._ids:
            return True
        return self._pattern is not None and self._pattern.search(variable.name) is not None
