"""Scopes of names: what stands before the names of variables. Floor: runtime."""

from __future__ import annotations

from types import TracebackType

from gradtape.runtime.state import STATE


class name_scope:
    """A block in which names of variables begin with that of the scope.

    Args:
      name: scopes within each other are joined; with "/" at its end it is the whole name, and "" is none.

    Attributes:
      name: as it was given.

    Raises:
      ValueError: a name that is no string.

    >>> import gradtape as tf
    >>> with tf.name_scope("layers"):
    ...     with tf.name_scope("first") as scope:
    ...         v = tf.Variable(1.0, name="kernel")
    >>> scope, v.name
    ('layers/first/', 'layers/first/kernel:0')

    Source: `tf.name_scope` of TensorFlow 2.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise ValueError(f"name for name_scope must be a string, got {type(name).__name__}.")
        self._name = name
        self._outer: list[str] = []

    @property
    def name(self) -> str:
        return self._name

    def __enter__(self) -> str:
        self._outer.append(STATE.names)
        STATE.names = whole_name(self._name)
        return STATE.names

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        STATE.names = self._outer.pop()


def whole_name(name: str) -> str:
    """The name of a scope that begins here, with "/" at its end; "" for that around all."""
    if not name or name.endswith("/"):
        return name
    return f"{STATE.names}{name}/"
