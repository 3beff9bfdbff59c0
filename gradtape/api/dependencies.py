"""The order of effects as TensorFlow's graphs spell it. Floor: api.

Here the program says it: what prints, asserts or assigns runs in the order in which it was written, also in traced
functions."""

from __future__ import annotations

import contextlib
from typing import Any


def control_dependencies(control_inputs: Any) -> contextlib.AbstractContextManager[Any]:
    """A block that runs after what it is given; that is so anyway, since effects keep the program's order.

    Args:
      control_inputs: tensors, or None; a function is called.

    >>> import gradtape as tf
    >>> v = tf.Variable(1.0)
    >>> with tf.control_dependencies([v.assign(3.0)]):
    ...     y = v * 2.0
    >>> float(y)
    6.0

    Source: `tf.control_dependencies` of TensorFlow 2.
    """
    if callable(control_inputs):
        control_inputs()
    return contextlib.nullcontext()


def group(*inputs: Any, **options: Any) -> None:
    """Nothing: what was to be done by all of its arguments is done by then.

    Args:
      *inputs: tensors, results of assignments and structures of them.
      name: accepted for compatibility.

    Raises:
      ValueError: another option.

    >>> import gradtape as tf
    >>> v, w = tf.Variable(1.0), tf.Variable(2.0)
    >>> tf.group(v.assign(3.0), w.assign(4.0))
    >>> float(v), float(w)
    (3.0, 4.0)

    Source: `tf.group` of TensorFlow 2.
    """
    options.pop("name", None)
    if options:
        raise ValueError(f"Unknown keyword arguments: {', '.join(sorted(options))}.")


__all__ = ["control_dependencies", "group"]
