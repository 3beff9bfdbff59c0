"""The arguments of functions with gradients of their own: which of them the rule answers for. Floor: tape."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from gradtape.recording import leaves_of
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable


def signature_of(f: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of f, or None where Python does not know one (then keywords cannot be bound)."""
    try:
        return inspect.signature(f)
    except (TypeError, ValueError):
        return None


def positional(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], list[str]]:
    """Keyword arguments with tensors in their places, so that the rule answers for them; others, as in TensorFlow, are
    options that no gradient is due to. How each argument came there: "by position", "by keyword", "by default"."""
    tensors = _with_tensors(kwargs)
    count = len(args)
    how = ["by position"] * count
    if tensors and (signature := signature_of(f)) is not None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        names = list(bound.arguments)
        placeable = names[: len(bound.args)]
        last = max((names.index(k) for k in tensors if k in placeable), default=-1)
        if last >= 0:
            args = bound.args[: max(last + 1, count)]
            placed = names[count : len(args)]
            how += ["by keyword" if k in kwargs else "by default" for k in placed]
            kwargs = {k: v for k, v in kwargs.items() if k not in placed}
    if left := _with_tensors(kwargs):
        raise TypeError(
            f"The keyword-only arguments {left} of a custom-gradient function are tensors, for which its rule "
            "returns no gradient. Make them positional parameters."
        )
    return args, kwargs, how


def _with_tensors(kwargs: dict[str, Any]) -> list[str]:
    return [k for k, v in kwargs.items() if any(isinstance(t, Tensor | Variable) for t in leaves_of(v))]
