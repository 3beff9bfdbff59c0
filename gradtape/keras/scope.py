"""What a layer's call knows of the calls around it, and blocks that no tape records. Floor: keras."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from gradtape.ir.dtypes import DType
from gradtape.runtime.state import STATE


class Scope(threading.local):
    """Of the calls at work in this thread: whether they train (None: nobody said), their layers' names, and the dtype
    that the innermost one reads floating weights in (None: each in its own)."""

    def __init__(self) -> None:
        self.training: bool | None = None
        self.path: tuple[str, ...] = ()
        self.compute: DType | None = None


SCOPE = Scope()


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """A block whose weights have `name` in their path."""
    outer = SCOPE.path
    SCOPE.path = (*outer, name)
    try:
        yield
    finally:
        SCOPE.path = outer


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
    """A block that no tape of this thread records: for updates, whose assignments carry no gradient anyway."""
    outer = STATE.recorders
    STATE.recorders = ()
    try:
        yield
    finally:
        STATE.recorders = outer
