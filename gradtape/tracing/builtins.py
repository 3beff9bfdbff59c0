"""Python's built-in functions, of tensors. Floor: tape."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from gradtape.runtime.control import is_staged, is_symbolic
from gradtape.runtime.variable import Variable

# What a built-in function is of tensors without values: the floor that has the functions puts them here.
OF_TENSORS: dict[Any, Callable[..., Any]] = {}

IN_CONTEXT = {
    builtins.eval: "eval_in_original_context",
    builtins.super: "super_in_original_context",
}
SCOPES = {builtins.globals: "globals_in_original_context", builtins.locals: "locals_in_original_context"}


def called(
    f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], library: Any, scope: Any, callback: Callable[[Any], Any]
) -> Any:
    """A built-in function, called in converted code."""
    if f in IN_CONTEXT:
        return getattr(library.builtins, IN_CONTEXT[f])(f, args, scope)
    if f in SCOPES:
        return getattr(library.builtins, SCOPES[f])(scope)
    if f in (map, filter):
        return f(callback(args[0]), *args[1:], **kwargs)
    return f(*args, **kwargs)


def of_tensors(f: Any, args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """What is called instead of a built-in function where an argument has no value; None: the function itself."""
    if not any(is_traced(x) for x in args if not isinstance(x, list | tuple)):
        return None
    if f is len and args[0].shape.rank and args[0].shape[0] is not None:
        return None
    return OF_TENSORS.get(f)


def is_traced(x: Any) -> bool:
    """Whether an argument, or one of a list of them, has no value."""
    if isinstance(x, list | tuple):
        return any(map(is_traced, x))
    return is_symbolic(x) or (isinstance(x, Variable) and is_staged())
