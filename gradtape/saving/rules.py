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
HELD = ("rule", "forwards")  # the parameters that are kept under a name

_lock = threading.Lock()
_texts: dict[str, Any] = {}  # rules as JSON, by name
_names: dict[str, str] = {}  # and back


def without_rules(text: Any) -> Any:
    """A graph as JSON with names in the place of the graphs of rules."""
    return _changed(text, _named)


def with_rules(text: Any) -> Any:
    """The same with the graphs that this process knows."""
    return _changed(text, _known)


def _changed(text: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    if isinstance(text, list):
        return [_changed(t, change) for t in text]
    if not isinstance(text, dict):
        return text
    if text.get("op") == RULED.name and isinstance(text.get("params"), dict):
        return text | {"params": text["params"] | change(text["params"])}
    return {k: _changed(t, change) for k, t in text.items()}


def _named(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters with the name of a rule, which is given one the first time, and of what came with it."""
    if NAMED in params["rule"]:
        return params
    held = {k: params[k] for k in HELD}
    key = json.dumps(held)
    with _lock:
        name = _names.get(key)
        if name is None:
            name = _names[key] = f"CustomGradient-{uuid.uuid4().hex}"
            _texts[name] = held
    return dict.fromkeys(HELD) | {"rule": {NAMED: name}}


def _known(params: dict[str, Any]) -> dict[str, Any]:
    rule = params.get("rule")
    name = rule.get(NAMED) if isinstance(rule, dict) else None
    found: dict[str, Any] = _texts.get(name, {}) if isinstance(name, str) else {}
    return found
