"""Scalar expressions over named ops: the unit in which values and partials are declared. Floor: ir.

An expression knows ops by name only. It is read in three ways: instantiated on graph values (to
differentiate), rendered as source text (kernels), and printed (documentation)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

MOST_SHOWN = 2000  # ops and leaves of an expression that is written out
Operand = "Expr | int | float"


@dataclass(frozen=True, eq=False)
class Expr:
    """An op applied to expressions, or a leaf: a symbol (`op == "symbol"`) or a number (`op == "number"`).

    One that is used several times is one object: whoever goes over an expression goes over each object once, since what
    a loop of a few steps writes down would be too large otherwise."""

    op: str
    args: tuple[Expr, ...] = ()
    leaf: Any = None

    def __post_init__(self) -> None:
        # Kept, because that of a polynomial of degree n would be worked out n times by whoever looks its parts up.
        object.__setattr__(self, "_hash", hash((self.op, self.args, self.leaf)))

    def __hash__(self) -> int:
        found: int = self._hash  # type: ignore[attr-defined]
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Expr):
            return NotImplemented
        seen: set[tuple[int, int]] = set()
        waiting = [(self, other)]
        while waiting:
            a, b = waiting.pop()
            if a is b or (id(a), id(b)) in seen:
                continue
            if hash(a) != hash(b) or (a.op, a.leaf, len(a.args)) != (b.op, b.leaf, len(b.args)):
                return False
            seen.add((id(a), id(b)))
            waiting += zip(a.args, b.args, strict=True)
        return True

    def __add__(self, other: Any) -> Expr:
        return call("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return call("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return call("subtract", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return call("subtract", other, self)

    def __mul__(self, other: Any) -> Expr:
        return call("multiply", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return call("multiply", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return call("divide", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return call("divide", other, self)

    def __neg__(self) -> Expr:
        return call("negative", self)

    def __pow__(self, other: Any) -> Expr:
        return call("pow", self, other)

    def __lt__(self, other: Any) -> Expr:
        return call("less", self, other)

    def __le__(self, other: Any) -> Expr:
        return call("less_equal", self, other)

    def __gt__(self, other: Any) -> Expr:
        return call("greater", self, other)

    def __ge__(self, other: Any) -> Expr:
        return call("greater_equal", self, other)

    def __str__(self) -> str:
        if _size(self) > MOST_SHOWN:
            return f"an expression of {sum(bool(e.args) for e in walk(self))} ops"
        return _text(self, 0)


def symbol(name: str) -> Expr:
    """A named operand."""
    return Expr("symbol", (), name)


def number(value: Any) -> Expr:
    """A constant, of whatever dtype its neighbours have."""
    return Expr("number", (), value)


def call(op: str, *args: Any) -> Expr:
    """`op` applied to expressions and numbers."""
    return Expr(op, tuple(a if isinstance(a, Expr) else number(a) for a in args))


class _Functions:
    """`fn.exp(x)` is `call("exp", x)`: op names as functions, for declarations that read like formulas."""

    def __getattr__(self, op: str) -> Callable[..., Expr]:
        return lambda *args: call(op, *args)


fn = _Functions()


def trace(formula: Callable[..., Any], **known: float) -> Expr:
    """The expression that a lambda over symbols writes down; its parameter names are the symbols, unless
    their numbers are known."""
    names = inspect.signature(formula).parameters
    result = formula(*[known[n] if n in known else symbol(n) for n in names])
    return result if isinstance(result, Expr) else number(result)


def walk(expr: Expr) -> Iterator[Expr]:
    """All subexpressions, operands before what uses them; an object that is used several times comes once."""
    seen: set[int] = set()
    waiting = [(expr, False)]
    while waiting:
        e, is_ready = waiting.pop()
        if is_ready:
            yield e
        elif id(e) not in seen:
            seen.add(id(e))
            waiting.append((e, True))
            waiting += [(a, False) for a in reversed(e.args)]


def mentions(expr: Expr) -> set[str]:
    """The names of the symbols in an expression."""
    return {e.leaf for e in walk(expr) if e.op == "symbol"}


_INFIX = {
    "add": ("+", 1),
    "subtract": ("-", 1),
    "multiply": ("*", 2),
    "divide": ("/", 2),
    "pow": ("**", 4),
    "less": ("<", 0),
    "less_equal": ("<=", 0),
    "greater": (">", 0),
    "greater_equal": (">=", 0),
    "equal": ("==", 0),
    "not_equal": ("!=", 0),
}


def _size(expr: Expr) -> float:
    """How many ops and leaves are written down."""
    sizes: dict[int, float] = {}
    for e in walk(expr):
        sizes[id(e)] = 1.0 + sum(sizes[id(a)] for a in e.args)
    return sizes[id(expr)]


def _text(e: Expr, outer: int) -> str:
    if e.op in ("symbol", "number"):
        return str(e.leaf)
    if e.op == "negative":
        return f"-{_text(e.args[0], 3)}"
    if e.op not in _INFIX:
        return f"{e.op}({', '.join(_text(a, 0) for a in e.args)})"
    sign, level = _INFIX[e.op]
    text = f"{_text(e.args[0], level)} {sign} {_text(e.args[1], level + 1)}"
    return f"({text})" if level < outer else text
