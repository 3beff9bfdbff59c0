"""Python's collector of cycles, put off while large graphs are made. Floor: runtime."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """A block without collections: while a graph grows, they would look at all of it again and again and find nothing.
    Where they are off already, they stay so."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
