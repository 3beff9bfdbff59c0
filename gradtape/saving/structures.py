"""Nested structures as JSON: lists, tuples, named tuples and dictionaries, with leaves of any kind. Floor: saving."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from gradtape.saving import values
from gradtape.saving.damage import Damaged, fields, listed

Leaf = Callable[[Any], Any]
_namedtuple: Any = collections.namedtuple  # of names that are known when running only


def write_structure(x: Any, leaf: Leaf) -> dict[str, Any]:
    """A structure; `leaf` writes what is no container."""
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        parts = [[n, write_structure(v, leaf)] for n, v in zip(x._fields, x, strict=True)]
        return {"named": {"name": type(x).__name__, "fields": parts}}
    if isinstance(x, list | tuple):
        return {"list" if isinstance(x, list) else "tuple": [write_structure(v, leaf) for v in x]}
    if isinstance(x, dict):
        return {"dict": [[values.write(k), write_structure(v, leaf)] for k, v in x.items()]}
    return {"leaf": leaf(x)}


def read_structure(text: Any, leaf: Leaf) -> Any:
    """The structure of what `write_structure` gives; `leaf` reads the rest.

    Raises:
      Damaged: what is none.
    """
    if not isinstance(text, dict) or len(text) != 1:
        raise Damaged(f"{str(text)[:80]} is no structure")
    ((kind, inner),) = text.items()
    if kind == "leaf":
        return leaf(inner)
    if kind == "named":
        return _named(inner, leaf)
    if kind == "dict":
        pairs = [_pair(p) for p in listed(inner)]
        return {values.read(k): read_structure(v, leaf) for k, v in pairs}
    if kind not in ("list", "tuple"):
        raise Damaged(f"there is no structure of kind {kind!r}")
    parts = [read_structure(v, leaf) for v in listed(inner)]
    return parts if kind == "list" else tuple(parts)


def _named(inner: Any, leaf: Leaf) -> Any:
    name, parts = fields(inner, "name", "fields")
    pairs = [_pair(p) for p in listed(parts)]
    names = [k for k, _ in pairs]
    if not all(isinstance(k, str) for k in (name, *names)):
        raise Damaged("a named tuple has a name that is no string")
    made = _namedtuple(name, names)
    return made(*(read_structure(v, leaf) for _, v in pairs))


def _pair(text: Any) -> tuple[Any, Any]:
    if not isinstance(text, list) or len(text) != 2:
        raise Damaged(f"{str(text)[:80]} is no pair")
    return text[0], text[1]
