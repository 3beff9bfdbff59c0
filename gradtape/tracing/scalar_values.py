"""Values of scalar functions: expressions, and numbers that are known. Floor: tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gradtape.ir.expr import Expr, call, number
from gradtape.ops.op import lookup
from gradtape.ops.pointwise import Pointwise


class OfScalars(NamedTuple):
    """What a function is of values of which some are expressions, and of numbers alone."""

    expressions: Callable[..., Any]
    numbers: Callable[..., Any]


# By function; the floor that has the functions puts them here.
OF_SCALARS: dict[Any, OfScalars] = {}


class NotScalar(TypeError):
    """A function is no function of single numbers; the message says where, and what to do."""


class NotNumber(NotScalar):
    """A value is no number; the message goes on from the name of the function that computes with it."""


POWERS: dict[Any, Callable[[Expr], Expr]] = {  # that are products
    1: lambda x: x,
    2: lambda x: call("square", x),
    3: lambda x: call("multiply", call("square", x), x),
    4: lambda x: call("square", call("square", x)),
}


def as_expressions(value: Any) -> Any:
    """What a function returns: an expression, or a tuple of them."""
    if isinstance(value, tuple | list):
        return tuple(as_expressions(v) for v in value)
    return value if isinstance(value, Expr) else number(plain(value))


def plain(value: Any) -> Any:
    """A number of Python's.

    Raises:
      NotScalar: it is none.
    """
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.ndim):
        value = value.item()
    if not isinstance(value, bool | int | float):
        raise NotNumber(f"computes with {value!r}, which is no single number (make tensors and variables arguments)")
    return value


def is_symbolic(value: Any) -> bool:
    """Whether a value, or one of several, depends on operands."""
    if isinstance(value, tuple | list):
        return any(map(is_symbolic, value))
    return isinstance(value, Expr)


def is_truth(e: Any) -> bool:
    """Whether a value is true or false, and no number."""
    if not isinstance(e, Expr):
        return isinstance(e, bool | np.bool)
    if e.op in ("symbol", "number"):
        return e.op == "number" and isinstance(e.leaf, bool)
    op = lookup(e.op)
    return isinstance(op, Pointwise) and (op.result == "bool" or op.accepts == "b")


def truth(value: Any) -> Any:
    """A value as a condition, of which `if` asks."""
    if isinstance(value, Expr):
        return value if is_truth(value) else call("not_equal", value, 0)
    return bool(value)


def both(a: Any, b: Any) -> Any:
    """a and b, of conditions."""
    if not isinstance(a, Expr) or not isinstance(b, Expr):
        return (b if a else False) if not isinstance(a, Expr) else (a if b else False)
    return call("logical_and", a, b)


def either(a: Any, b: Any) -> Any:
    """a or b, of conditions."""
    return negated(both(negated(a), negated(b)))


def negated(a: Any) -> Any:
    """not a, of a condition."""
    if not isinstance(a, Expr):
        return not a
    return a.args[0] if a.op == "logical_not" else call("logical_not", a)


def select(condition: Any, a: Any, b: Any) -> Any:
    """a where the condition holds, else b."""
    condition = truth(condition)
    if not isinstance(condition, Expr):
        return a if condition else b
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        if len(a) != len(b):
            raise NotNumber(f"has {len(a)} values on one side of a choice, and {len(b)} on the other")
        return tuple(select(condition, x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, tuple | list) or isinstance(b, tuple | list):
        raise NotNumber("has several values on one side of a choice, and one on the other")
    if a is b:
        return a
    if is_truth(a) and is_truth(b):
        return either(both(condition, truth(a)), both(negated(condition), truth(b)))
    a, b = as_number(a), as_number(b)
    if isinstance(a, Expr) or isinstance(b, Expr) or plain(a) != plain(b):
        return call("select", condition, *(v if isinstance(v, Expr) else plain(v) for v in (a, b)))
    return a


def applied(op: str, *values: Any) -> Any:
    """An op of expressions and numbers; true and false count as they do in Python, as 1 and 0."""
    known = lookup(op)
    assert isinstance(known, Pointwise)
    if len(values) != len(known.operands):
        raise NotScalar(f"`{op}` takes {len(known.operands)} numbers, got {len(values)}")
    if known.accepts == "b":
        values = tuple(map(truth, values))
    given = values if "b" in known.accepts else [as_number(v) for v in values]
    if op == "pow" and isinstance(given[0], Expr) and type(given[1]) in (int, float) and given[1] in POWERS:
        return POWERS[given[1]](given[0])
    return call(op, *(v if isinstance(v, Expr) else plain(v) for v in given))


def as_number(value: Any) -> Any:
    """A value to compute with: 1 for what is true, 0 for what is not."""
    if not is_truth(value):
        return value
    return select(value, 1, 0) if isinstance(value, Expr) else int(value)
