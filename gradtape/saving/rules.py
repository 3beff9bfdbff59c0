"""Rules of custom gradients that a file names instead of holding: known while the process lives that saved it. Floor:
saving."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from typing import Any

from gradtape.ops.call import RULED

NAMED = "registered"  # the key of a name in the place of a graph

_lock = threading.Lock()
_texts: dict[str, Any] = {}  # rules as JSON, by name
_names: dict[str, str] = {}  # and back


def without_rules(text: Any) -> Any:
    """A graph as JSON with names in the place of the graphs of rules."""
    return _changed(text, lambda rule: rule if NAMED in rule else {NAMED: _name_of(rule)})


def with_rules(text: Any) -> Any:
    """The same with the graphs that this process knows."""
    return _changed(text, _known)


def _changed(text: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    if isinstance(text, list):
        return [_changed(t, change) for t in text]
    if not isinstance(text, dict):
        return text
    if text.get("op") == RULED.name and isinstance(text.get("params"), dict):
        rule = text["params"].get("rule")
        if isinstance(rule, dict):
            return text | {"params": text["params"] | {"rule": change(rule)}}
    return {k: _changed(t, change) for k, t in text.items()}


def _name_of(rule: Any) -> str:
    """The name of a rule; it is given one the first time."""
    key = json.dumps(rule)
    with _lock:
        name = _names.get(key)
        if name is None:
            name = _names[key] = f"CustomGradient-{uuid.uuid4().hex}"
            _texts[name] = rule
        return name


def _known(rule: dict[str, Any]) -> Any:
    name = rule.get(NAMED)
    return _texts.get(name, rule) if isinstance(name, str) else rule
