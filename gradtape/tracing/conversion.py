"""Which functions are converted, and what is called as it is. Floor: tape."""

from __future__ import annotations

import functools
import inspect
import sys
import textwrap
import types
from collections.abc import Callable
from typing import Any

from gradtape.runtime.places import NOTES, is_own_file
from gradtape.tracing import builtins, statements
from gradtape.tracing.library import Library
from gradtape.tracing.open import OBJECTS, open_tracer
from gradtape.tracing.status import MARK, STATUS, converting, marked

NATIVE: set[int] = set()  # ids of our functions that are never noted, as they give no tensors
RAW: set[int] = set()  # ids of our functions whose function arguments stay as they are


def raw_callbacks(f: Any) -> Any:
    """One of our functions that is given functions to run as they are, and not as a part of the trace."""
    RAW.add(id(f))
    return f


def native(f: Any) -> Any:
    """One of our functions that prepares something, and computes nothing."""
    NATIVE.add(id(f))
    return f


def call(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], enabled: bool = True) -> Any:
    """f(*args, **kwargs), its statements and those of what it calls converted."""
    with converting(enabled):
        return converted_call(f, args, kwargs) if enabled else f(*args, **kwargs)


def callback(f: Any) -> Any:
    """A function that one of ours was given, as the one to call: converted, where functions are converted now."""
    if not STATUS.enabled or not isinstance(f, types.FunctionType | types.MethodType | functools.partial):
        return f
    if hasattr(f, MARK) or _is_ours(f):
        return f

    @functools.wraps(f)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return call(f, args, kwargs)

    return marked(wrapper)


def converted_call(
    f: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, caller_fn_scope: Any = None, options: Any = None
) -> Any:
    """What a call in converted code does."""
    kwargs = kwargs or {}
    if not STATUS.enabled:
        return f(*args, **kwargs)
    if _is_ours(f):
        return _called(f, args, kwargs)
    if hasattr(f, MARK):
        return f(*args, **kwargs)
    if isinstance(f, functools.partial):
        return converted_call(f.func, (*f.args, *args), {**f.keywords, **kwargs}, caller_fn_scope)
    library = loaded()
    if library.is_builtin(f):
        if (of_tensors := builtins.of_tensors(f, args)) is not None:
            return _called(of_tensors, args, kwargs)
        return builtins.called(f, args, kwargs, library, caller_fn_scope, callback)
    if inspect.isclass(f) or _is_foreign(f) or library.is_unsupported(f) or library.is_allowed(f):
        return f(*args, **kwargs)
    target, first = _code_of(f)
    made = _converted(library, target)
    return f(*args, **kwargs) if made is None else made(*first, *args, **kwargs)


def _called(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One of our own functions; those that it is given become part of the trace."""
    raw = id(getattr(f, "__func__", f)) in RAW
    if not raw:
        args, kwargs = tuple(map(callback, args)), {k: callback(v) for k, v in kwargs.items()}
    tracer = open_tracer()
    if tracer is None or _runs_itself(f):
        return f(*args, **kwargs)
    return tracer.perform(f, args, kwargs, raw)


def _runs_itself(f: Any) -> bool:
    """Whether one of our callables only prepares, or runs the user's code: what that calls is noted then."""
    if inspect.isclass(f):
        return not issubclass(f, OBJECTS)
    if id(getattr(f, "__func__", f)) in NATIVE:
        return True
    written = getattr(type(f), "call", None)
    return inspect.isfunction(written) and not is_own_file(written.__code__.co_filename)


def _is_ours(f: Any) -> bool:
    """Whether a callable is this package's: its code is, or its class."""
    if isinstance(f, functools.partial):
        return False
    code = getattr(f, "__code__", None) or getattr(getattr(f, "__func__", None), "__code__", None)
    if code is not None:
        return is_own_file(code.co_filename)
    if inspect.isclass(f):
        return f.__module__.partition(".")[0] == "gradtape"
    called = inspect.getattr_static(type(f), "__call__", None)
    return hasattr(called, "__code__") and is_own_file(called.__code__.co_filename)


def _is_foreign(f: Any) -> bool:
    """Whether a callable belongs to Python's own modules, or yields."""
    module = getattr(f, "__module__", None) or ""
    return (
        module.partition(".")[0] in sys.stdlib_module_names - {"__main__"}
        or inspect.isgeneratorfunction(f)
        or inspect.iscoroutinefunction(f)
    )


def _code_of(f: Any) -> tuple[Any, tuple[Any, ...]]:
    """The Python function behind a callable, and what it is called with first."""
    if inspect.ismethod(f):
        return f.__func__, (f.__self__,)
    if inspect.isfunction(f):
        return f, ()
    return type(f).__call__, (f,)


def _converted(library: Library, f: Any) -> Any:
    """The converted function; None, with a note of the reason, where there is none."""
    code = getattr(f, "__code__", None)
    if code is None:
        return None
    if code in NOTES:
        return None
    try:
        return library.converted(f)
    except Exception as e:  # noqa: BLE001 - whatever the library cannot read; the note says so where it matters
        NOTES[code] = _note(f, e)
        return None


def _note(f: Any, e: Exception) -> str:
    name = getattr(f, "__qualname__", f)
    if "source" in str(e).lower():
        why = f"the source of `{name}` is not available (it was typed at a prompt, or made by `exec`)"
    else:
        why = f"`{name}` could not be converted ({type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''})"
    return (
        f"Here {why}, so that its `if`, `while` and `for` are Python's. Use `tf.cond`, `tf.while_loop` and `tf.where`, "
        "or define the function in a file."
    )


def to_graph(entity: Any, recursive: bool = True, experimental_optional_features: Any = None) -> Any:
    """A function with its `if`, `while`, `for`, `and`, `or` and `not` rewritten, as `tf.function` traces it.

    Args:
      entity: a Python function.
      recursive, experimental_optional_features: accepted for compatibility.

    Raises:
      ValueError: a function whose source is not available.

    >>> import gradtape as tf
    >>> def sign(x):
    ...     return 1.0 if x > 0 else -1.0
    >>> tf.autograph.to_graph(sign)(3.0)
    1.0

    Source: `tf.autograph.to_graph` of TensorFlow 2.
    """
    if not inspect.isfunction(entity) and not inspect.ismethod(entity):
        raise ValueError(
            f"`to_graph` wants a Python function, got {entity!r}. Of a `tf.function`, give `python_function`."
        )
    made = _converted(loaded(), entity)
    if made is None:
        raise ValueError(NOTES.get(entity.__code__, "The function could not be converted."))

    @functools.wraps(entity)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return call(entity, args, kwargs)

    wrapper.ag_module = made.ag_module  # type: ignore[attr-defined]
    return marked(wrapper)


def to_code(entity: Any, recursive: bool = True, experimental_optional_features: Any = None) -> str:
    """The source of what `to_graph` makes of a function. Arguments and errors as there.

    >>> import gradtape as tf
    >>> def double(x):
    ...     return 2 * x
    >>> print(tf.autograph.to_code(double).splitlines()[0])
    def ag__double(x):

    Source: `tf.autograph.to_code` of TensorFlow 2.
    """
    return textwrap.dedent(inspect.getsource(loaded().converted(to_graph(entity).__wrapped__)))


_loaded: list[Library] = []


def loaded() -> Library:
    """The library."""
    if not _loaded:
        _loaded.append(Library({"converted_call": converted_call} | statements.NAMES))
        statements.LIBRARY.append(_loaded[0])
    return _loaded[0]
