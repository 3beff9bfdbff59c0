"""Whether calls are converted, in this thread. Floor: tape."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

MARK = "autograph_info__"  # the library's mark of functions that are not to be converted (again)


class Status(threading.local):
    """Calls are converted while a function is traced that wants it."""

    def __init__(self) -> None:
        self.enabled = False


STATUS = Status()


@contextlib.contextmanager
def converting(enabled: bool) -> Iterator[None]:
    """A block in which calls are converted, or are not."""
    outer, STATUS.enabled = STATUS.enabled, enabled
    try:
        yield
    finally:
        STATUS.enabled = outer


def marked(f: Any) -> Any:
    """The function, which is called as it is."""
    setattr(f, MARK, None)
    return f


def do_not_convert(func: Callable[..., Any] | None = None) -> Any:
    """A function that runs as it is written, and what it calls too, while `tf.function` traces it.

    >>> import gradtape as tf
    >>> @tf.autograph.experimental.do_not_convert
    ... def sign(x):
    ...     return "positive" if x > 0 else "not"
    >>> sign(1.0)
    'positive'

    Source: `tf.autograph.experimental.do_not_convert` of TensorFlow 2.
    """
    if func is None:
        return do_not_convert

    @functools.wraps(func)
    def as_written(*args: Any, **kwargs: Any) -> Any:
        with converting(False):
            return func(*args, **kwargs)

    return marked(as_written)
