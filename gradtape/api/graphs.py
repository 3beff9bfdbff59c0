"""`tf.Graph` and what of TensorFlow 1 programs need to run in one, in their eager meaning. Floor: api.

There are no graphs to build here: what stands in a graph's block runs at once, and a session hands values out."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import optree

from gradtape.overrides import gradient_override_map
from gradtape.runtime.convert import convert
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable

__all__ = ["Graph", "Operation", "Session", "get_default_graph", "global_variables_initializer"]


class Graph:
    """A scope of TensorFlow 1 programs: operations in it run at once.

    >>> import gradtape as tf
    >>> @tf.RegisterGradient("NoSlope")
    ... def none(op, grad):
    ...     return tf.constant(0)
    >>> with tf.Graph().as_default() as g:
    ...     x = tf.Variable(5.0)
    ...     with g.gradient_override_map({"Square": "NoSlope"}), tf.GradientTape() as tape:
    ...         y = tf.square(x, name="Square")
    ...     with tf.compat.v1.Session() as session:
    ...         print(float(session.run(tape.gradient(y, x))))
    0.0

    Source: `tf.Graph` of TensorFlow 2.
    """

    @contextlib.contextmanager
    def as_default(self) -> Iterator[Graph]:
        """The block whose `tf.compat.v1.get_default_graph()` is this graph."""
        outer = _DEFAULT.graph
        _DEFAULT.graph = self
        try:
            yield self
        finally:
            _DEFAULT.graph = outer

    def gradient_override_map(self, op_type_map: Mapping[str, str]) -> contextlib.AbstractContextManager[None]:
        """A scope with registered gradients for built-in ops; see `tf.gradient_override_map`."""
        return gradient_override_map(op_type_map)


class _Default(threading.local):
    def __init__(self) -> None:
        self.graph = Graph()


_DEFAULT = _Default()


def get_default_graph() -> Graph:
    """The graph in whose `as_default` block this is called; outside of all, one of the thread.

    >>> import gradtape as tf
    >>> with tf.Graph().as_default() as g:
    ...     print(tf.compat.v1.get_default_graph() is g)
    True
    """
    return _DEFAULT.graph


class Operation:
    """Something that a session can run for its effect, which has happened already."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<operation '{self.name}', which has run>"


def global_variables_initializer() -> Operation:
    """What gives variables their first values: they have them from the beginning.

    >>> import gradtape as tf
    >>> tf.compat.v1.global_variables_initializer()
    <operation 'init', which has run>
    """
    return Operation("init")


class Session:
    """Hands out the values of tensors and variables.

    Args:
      target, graph, config: accepted for compatibility.

    >>> import gradtape as tf
    >>> with tf.compat.v1.Session() as session:
    ...     print(session.run({"y": tf.constant([1.0, 2.0]) * 2.0}))
    {'y': array([2., 4.], dtype=float32)}
    """

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None) -> None:
        self.graph = graph if graph is not None else get_default_graph()
        self._closed = False

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """The values of a structure of tensors and variables as arrays; None for operations.

        Raises:
          RuntimeError: the session is closed.
          ValueError: values are fed: nothing is computed here that could take them.
          TypeError: something that has no value, such as None.
        """
        if self._closed:
            raise RuntimeError("Attempted to use a closed Session.")
        if feed_dict:
            raise ValueError(
                "`feed_dict` has no meaning here, since tensors have their values already. Write the program as a "
                "function of what is fed."
            )
        return optree.tree_map(_value, fetches, none_is_leaf=True)

    def close(self) -> None:
        """End the session."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _value(x: Any) -> Any:
    if isinstance(x, Operation):
        return None
    if isinstance(x, Tensor | Variable):
        return convert(x).numpy()
    raise TypeError(
        f"A session runs tensors, variables and operations, got {type(x).__name__}"
        + (", which is what an unconnected gradient is." if x is None else ".")
    )
