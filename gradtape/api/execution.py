"""Whether ops run at once, and blocks in which they do. Floor: api."""

from __future__ import annotations

import contextlib

from gradtape.runtime.control import is_staged
from gradtape.runtime.placement import device
from gradtape.runtime.trace import outside
from gradtape.tracing.conversion import native

__all__ = ["device", "executing_eagerly", "init_scope"]


def executing_eagerly() -> bool:
    """Whether ops run at once: not while a function is traced.

    >>> import gradtape as tf
    >>> tf.executing_eagerly(), bool(tf.function(lambda: tf.executing_eagerly())())
    (True, False)
    """
    return not is_staged()


@native
def init_scope() -> contextlib.AbstractContextManager[None]:
    """A block that runs at once and unrecorded, though a function is traced around it: to make variables in.

    >>> import gradtape as tf
    >>> @tf.function
    ... def f():
    ...     with tf.init_scope():
    ...         return tf.constant(tf.executing_eagerly())
    >>> bool(f())
    True
    """
    return outside()
