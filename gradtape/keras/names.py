"""Names: unique ones for layers and optimizers, and things that are chosen by name. Floor: keras."""

from __future__ import annotations

import collections
import difflib
import re
import threading
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_used: collections.Counter[str] = collections.Counter()


def snake_case(name: str) -> str:
    """`BatchNormalization` as `batch_normalization`."""
    parted = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", parted).lower()


def unique_name(kind: type) -> str:
    """`dense`, then `dense_1`, `dense_2`, ... for a class `Dense`."""
    name = snake_case(kind.__name__.lstrip("_"))
    with _lock:
        count = _used[name]
        _used[name] += 1
    return f"{name}_{count}" if count else name


def by_name(what: str, known: Mapping[str, T], name: Any) -> T:
    """The entry of that name.

    Raises:
      ValueError: an unknown name; the message lists the known ones and the nearest.
    """
    found = known.get(name) if isinstance(name, str) else None
    if found is not None:
        return found
    near = difflib.get_close_matches(name, known, 1) if isinstance(name, str) else []
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(
        f"Could not interpret {what} {name!r} of type {type(name).__name__}.{hint} "
        f"Known names: {', '.join(sorted(known))}."
    )
