"""`tf.Module`: an object that knows the variables in its attributes. Floor: tape."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from gradtape.runtime.attaching import Attaching
from gradtape.runtime.variable import Variable


class Module(Attaching):
    """The base of objects that hold variables, functions and other modules.

    Args:
      name: a Python identifier; by default the class' name in snake case.

    Raises:
      ValueError: a name that is no identifier.

    >>> import gradtape as tf
    >>> class Scale(tf.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = tf.Variable(2.0)
    >>> [v.numpy().item() for v in Scale().trainable_variables]
    [2.0]

    Source: `tf.Module` of TensorFlow 2.
    """

    def __init__(self, name: str | None = None) -> None:
        chosen = re.sub(r"(?<!^)(?=[A-Z][a-z])|(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()
        self._name = chosen if name is None else name
        if not self._name.isidentifier():
            raise ValueError(f"{self._name!r} is not a valid module name: it should be a Python identifier.")

    @property
    def name(self) -> str:
        return self._name

    @property
    def name_scope(self) -> contextlib.AbstractContextManager[str]:
        """A block named after the module; names of variables do not change in it."""
        return contextlib.nullcontext(self._name + "/")

    @classmethod
    def with_name_scope(cls, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method that runs in the module's name scope."""
        return method

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables of this module, then those of its submodules: attributes in the order of their names."""
        return tuple(_unique(v for v in self._walk() if isinstance(v, Variable)))

    @property
    def trainable_variables(self) -> tuple[Variable, ...]:
        """Those variables that are trainable."""
        return tuple(v for v in self.variables if v.trainable)

    @property
    def non_trainable_variables(self) -> tuple[Variable, ...]:
        """Those variables that are not trainable."""
        return tuple(v for v in self.variables if not v.trainable)

    @property
    def submodules(self) -> tuple[Module, ...]:
        """All modules inside this one."""
        return tuple(_unique(m for m in self._walk() if isinstance(m, Module)))

    def _walk(self, seen: set[int] | None = None) -> Iterator[Any]:
        """Variables and modules among the attributes, what is in modules after what is here."""
        seen = {id(self)} if seen is None else seen
        inside: list[Module] = []
        for key in sorted(vars(self)):
            for leaf in _leaves(vars(self)[key]):
                if isinstance(leaf, Variable):
                    yield leaf
                elif isinstance(leaf, Module) and id(leaf) not in seen:
                    seen.add(id(leaf))
                    yield leaf
                    inside.append(leaf)
                elif hasattr(leaf, "variables") and not isinstance(leaf, Module | type):
                    yield from leaf.variables
        for module in inside:
            yield from module._walk(seen)


def _leaves(value: Any) -> Iterator[Any]:
    """What is in nested lists, tuples and dicts (by sorted keys)."""
    if isinstance(value, list | tuple):
        for v in value:
            yield from _leaves(v)
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from _leaves(value[key])
    else:
        yield value


def _unique(items: Iterator[Any]) -> list[Any]:
    found: dict[int, Any] = {}
    for x in items:
        found.setdefault(id(x), x)
    return list(found.values())
