"""A cache of bounded size: what was not used for longest goes first. Floor: ir."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """At most `limit` values by key; it may be used from several threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made if there is none. Nobody waits while it is made; what was made first stays."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        made = make()
        with self._lock:
            found = self._values.setdefault(key, made)
            self._values.move_to_end(key)
            while len(self._values) > self.limit:
                self._values.popitem(last=False)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is another cache, with nothing in it."""
        return type(self), (self.limit,)

    def __len__(self) -> int:
        return len(self._values)
