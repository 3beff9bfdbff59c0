"""Which objects have state, and what is in them: shared by saved models and checkpoints. Floor: saving."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from gradtape.api.generators import Generator
from gradtape.functions import Function
from gradtape.keras.layers import Layer
from gradtape.keras.optimizers import Optimizer
from gradtape.module import Module
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable
from gradtape.tracing.concrete import ConcreteFunction

OBJECTS: list[type] = [Module, Layer, Optimizer, Generator]  # the checkpoint adds itself
PLAIN = (bool, int, float, complex, str, bytes, type(None))


def has_state(x: Any) -> bool:
    """Whether something is an object whose attributes are looked through."""
    return isinstance(x, tuple(OBJECTS))


def is_function(x: Any) -> bool:
    """Whether something is a traced function."""
    return isinstance(x, Function | ConcreteFunction)


def is_plain(x: Any) -> bool:
    """Whether something is a Python value without identity."""
    return isinstance(x, PLAIN) and type(x) in PLAIN


def own(x: Any) -> dict[str, Any]:
    """The attributes of an object itself that count as its own; a checkpoint says which."""
    if hasattr(type(x), "tracked"):
        found: dict[str, Any] = x.tracked()
        return found
    return {k: v for k, v in vars(x).items() if k not in getattr(x, "NOT_SAVED", ())}


def attributes(x: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an object by name, those that its class has as traced methods among them."""
    here = own(x)
    yield from here.items()
    for name in dir(type(x)):
        if name not in here and isinstance(inspect.getattr_static(type(x), name), Function):
            yield name, getattr(x, name)


def parts(container: Any) -> Iterator[tuple[Any, Any]]:
    """What is in a list, tuple or dictionary, by place."""
    return iter(container.items()) if isinstance(container, dict) else enumerate(container)


def holds_state(x: Any, seen: frozenset[int] = frozenset()) -> bool:
    """Whether there is a variable, a function or an object with state in something, however deep in containers."""
    if isinstance(x, Variable) or has_state(x) or is_function(x):
        return True
    if isinstance(x, list | tuple | dict) and id(x) not in seen:
        return any(holds_state(v, seen | {id(x)}) for _, v in parts(x))
    return False


def is_data(x: Any) -> bool:
    """Whether something is a value without state, in containers or not."""
    if isinstance(x, list | tuple | dict):
        return all(is_data(v) for _, v in parts(x))
    return is_plain(x) or isinstance(x, Tensor)
