"""Public functions straight from declarations: arguments, documentation and example from one line each. Floor: api."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.ops.pointwise import Pointwise
from gradtape.runtime.convert import convert, convert_all
from gradtape.runtime.dispatch import binary, unary
from gradtape.runtime.tensor import EagerTensor, Tensor

DECLARED: dict[Callable[..., Any], Pointwise] = {}  # functions, and the ops that they are

_KINDS = {"f": "floating", "c": "complex", "i": "integer", "u": "unsigned integer", "b": "bool", "s": "string"}


def _document(f: Callable[..., Any], name: str, op: Pointwise, call: str, result: str, names: str) -> None:
    takes = ", ".join(_KINDS[k] for k in op.accepts)
    broadcast = "" if len(op.operands) == 1 else " Shapes broadcast; dtypes must agree."
    mixed = "" if len(op.operands) == 1 else ", for mixed dtypes and for shapes that do not broadcast"
    gives = {"bool": "bool", "real": "the real part's dtype", "same": "the same dtype"}[op.result]
    note = f"\n\n{op.notes}" if op.notes else ""
    shown = ".round(4)" if op.result == "same" and "f" in op.accepts else ""
    f.__name__ = f.__qualname__ = name
    DECLARED[f] = op
    f.__doc__ = f"""{op.doc}{note}

    Args:
      {names}: tensors of a {takes} dtype, or what becomes one.{broadcast}
      name: accepted for compatibility.

    Returns:
      A tensor of the (broadcast) shape; dtype: {gives}.

    Raises:
      InvalidArgumentError: for another dtype{mixed}.

    >>> import gradtape as tf
    >>> print({call}.numpy(){shown})
    {result}
    """


def of_one(name: str, op: Pointwise, call: str, result: str, operand: str = "x") -> Callable[..., Tensor]:
    """A function of one operand, under the keyword that TensorFlow has for it."""
    step = op.bind()

    def of_x(x: Any, name: str | None = None) -> Tensor:
        return unary(step, x if type(x) is EagerTensor else convert(x))

    def of_features(features: Any, name: str | None = None) -> Tensor:
        return unary(step, features if type(features) is EagerTensor else convert(features))

    def of_input(input: Any, name: str | None = None) -> Tensor:
        return unary(step, input if type(input) is EagerTensor else convert(input))

    function = {"x": of_x, "features": of_features, "input": of_input}[operand]
    _document(function, name, op, call, result, operand)
    return function


def of_two(name: str, op: Pointwise, call: str, result: str) -> Callable[..., Tensor]:
    """A function of two operands, which take each other's dtype."""
    step = op.bind()

    def function(x: Any, y: Any, name: str | None = None) -> Tensor:
        if type(x) is not EagerTensor or type(y) is not EagerTensor:
            x, y = convert_all([x, y])
        return binary(step, x, y)

    _document(function, name, op, call, result, "x, y")
    return function


def doctests(names: dict[str, Any]) -> dict[str, str]:
    """The examples of a module's functions from declarations, for its `__test__`: doctest looks for functions that were
    written in the module, and these were not."""
    made = (of_one, of_two)
    return {
        name: f.__doc__ or ""
        for name, f in names.items()
        if getattr(f, "__globals__", None) is globals() and f not in made and f is not doctests
    }
