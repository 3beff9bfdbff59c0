"""`tf.Module`: an object that knows the variables in its attributes. Floor: tape."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

from gradtape.runtime.attaching import Attaching
from gradtape.runtime.naming import name_scope, whole_name
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
        self._scope = whole_name(self._name)

    @property
    def name(self) -> str:
        return self._name

    @property
    def name_scope(self) -> name_scope:
        """A block in which names of variables begin with the module's name."""
        return name_scope(self._scope)

    @classmethod
    def with_name_scope(cls, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method that runs in the module's name scope.

        >>> import gradtape as tf
        >>> class Line(tf.Module):
        ...     @tf.Module.with_name_scope
        ...     def build(self):
        ...         self.w = tf.Variable(1.0, name="w")
        >>> line = Line(name="first")
        >>> line.build()
        >>> line.w.name
        'first/w:0'
        """

        @functools.wraps(method)
        def named(self: Module, *args: Any, **kwargs: Any) -> Any:
            with self.name_scope:
                return method(self, *args, **kwargs)

        return named

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

    def _flatten(
        self,
        recursive: bool = True,
        predicate: Callable[[Any], bool] | None = None,
        attribute_traversal_key: Callable[[str], Any] | None = None,
        with_path: bool = False,
        expand_composites: bool = False,
    ) -> Iterator[Any]:
        """What is in the attributes, and in lists, tuples and dicts there, each thing once; what is in modules comes
        after what is here. For subclasses, as TensorFlow has it.

        Args:
          recursive: whether to look into modules.
          predicate: which things are wanted; all by default.
          attribute_traversal_key: sorts the names of attributes.
          with_path: give pairs of a path (of attributes, positions and keys) and the thing.
          expand_composites: accepted for compatibility.
        """
        yield from self._flattened((), {id(self)}, recursive, predicate, attribute_traversal_key, with_path)

    def _flattened(
        self,
        path: tuple[Any, ...],
        seen: set[int],
        recursive: bool,
        predicate: Callable[[Any], bool] | None,
        key: Callable[[str], Any] | None,
        with_path: bool,
    ) -> Iterator[Any]:
        inside = []
        for name in sorted(vars(self), key=key):
            for way, leaf in _leaves(vars(self)[name], (*path, name)):
                is_module = isinstance(leaf, Module)
                if id(leaf) in seen and (is_module or isinstance(leaf, Variable)):
                    continue
                if is_module or isinstance(leaf, Variable):
                    seen.add(id(leaf))
                if predicate is None or predicate(leaf):
                    yield (way, leaf) if with_path else leaf
                if is_module and recursive:
                    inside.append((way, leaf))
        for way, module in inside:
            yield from module._flattened(way, seen, recursive, predicate, key, with_path)

    def _walk(self, seen: set[int] | None = None) -> Iterator[Any]:
        """Variables and modules among the attributes, what is in modules after what is here."""
        seen = {id(self)} if seen is None else seen
        inside: list[Module] = []
        for key in sorted(vars(self)):
            for _, leaf in _leaves(vars(self)[key]):
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


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """What is in nested lists, tuples and dicts (by sorted keys), and the way to each."""
    if isinstance(value, list | tuple):
        for k, v in enumerate(value):
            yield from _leaves(v, (*path, k))
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from _leaves(value[key], (*path, key))
    else:
        yield path, value


def _unique(items: Iterator[Any]) -> list[Any]:
    found: dict[int, Any] = {}
    for x in items:
        found.setdefault(id(x), x)
    return list(found.values())
