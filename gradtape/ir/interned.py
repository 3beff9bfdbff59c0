"""One object per key, as long as somebody holds it, whichever threads ask. Floor: ir."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Interned(Generic[K, V]):
    """Objects by key. A dictionary of weak references alone would do for one thread: its `setdefault` looks first and
    stores then."""

    def __init__(self) -> None:
        self._values: weakref.WeakValueDictionary[K, V] = weakref.WeakValueDictionary()
        self.get = self._values.get  # the object of a key, or None
        self._lock = threading.RLock()  # what the garbage collector runs may ask as well

    def find(self, key: K, make: Callable[[], V]) -> V:
        """The object of a key, made if there is none; of two that are made at once the first one stays."""
        found = self.get(key)
        if found is None:
            made = make()
            with self._lock:
                found = self.get(key)
                if found is None:
                    found = self._values[key] = made
        return found
