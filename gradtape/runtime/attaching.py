"""Objects that wait for something to be attached to them: values of a checkpoint, for variables made later. Floor:
runtime."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

# By id of the object: what is called when an attribute of it was set. Objects that are gone take theirs along.
WAITING: dict[int, tuple[Any, list[Callable[[], None]]]] = {}


def wait(owner: Any, attached: Callable[[], None]) -> None:
    """Call a function each time an attribute of an object is set."""
    key = id(owner)
    if key not in WAITING:
        WAITING[key] = (weakref.ref(owner, lambda _: WAITING.pop(key, None)), [])
    WAITING[key][1].append(attached)


def stop_waiting(owner: Any, attached: Callable[[], None]) -> None:
    """Call it no more."""
    _, waiting = WAITING.get(id(owner), (None, []))
    if attached in waiting:
        waiting.remove(attached)
    if not waiting:
        WAITING.pop(id(owner), None)


def attached(owner: Any) -> None:
    """An attribute of an object was set."""
    if id(owner) in WAITING:
        for f in list(WAITING[id(owner)][1]):
            f()


class Attaching:
    """The base of objects whose attributes others wait for."""

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if WAITING:
            attached(self)
