"""Plain Python functions of numbers as scalar expressions. Floor: tape.

The function's syntax is walked with expressions in the place of its operands. What does not depend on them is Python's,
so that loops over known numbers are unrolled; a choice that does depend on them becomes `select`, both of its sides
being computed."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gradtape.ir.expr import Expr
from gradtape.tracing.scalar_expressions import MISSING, Expressions, Inner, Scope
from gradtape.tracing.scalar_values import (
    NotNumber,
    NotScalar,
    as_expressions,
    both,
    is_symbolic,
    negated,
    select,
    truth,
)
from gradtape.tracing.sources import syntax_of

DEEPEST = 50  # calls inside calls
FELL, RETURNED, BROKE, CONTINUED = "fell", "returned", "broke", "continued"  # how statements end


def expressions(f: Callable[..., Any], given: Mapping[str, Any], name: str = "") -> Any:
    """What a function returns, as an expression or a tuple of expressions, for values of its parameters: symbols, or
    numbers that are known. `name`: as messages call it.

    Raises:
      NoSource: its source is not known.
      NotScalar: it does more than single numbers allow.
    """
    f = python_function(f)
    walk = Walk(name or f.__name__)
    try:
        return as_expressions(walk.function(f, (), given))
    except NotNumber as e:
        raise walk.refused(None, str(e)) from None


def python_function(f: Any) -> types.FunctionType:
    """The Python function of a callable: that of a function that Numba compiles is inside.

    Raises:
      NotScalar: there is none.
    """
    f = getattr(f, "py_func", f)
    if not isinstance(f, types.FunctionType):
        raise NotScalar(f"A scalar function should be a plain Python function, got {f!r}.")
    return f


class Walk(Expressions):
    """One walk through a function and those that it calls."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.depth = 0

    def function(self, f: types.FunctionType, args: Sequence[Any], given: Mapping[str, Any]) -> Any:
        """What a function returns for values by position and by name."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise NotScalar(f"`{self.name}` calls itself too deep for a scalar function.")
        code = f.__code__
        positional = code.co_varnames[: code.co_argcount]
        defaults = dict(zip(positional[code.co_argcount - len(f.__defaults__ or ()) :], f.__defaults__ or ()))
        local = defaults | (f.__kwdefaults__ or {}) | dict(zip(positional, args)) | dict(given)
        names = {*positional, *code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]}
        if set(local) != names or len(args) > len(positional) or code.co_flags & 0x0C:
            raise NotScalar(f"`{f.__name__}` takes {sorted(names)} here, got {sorted(local)}.")
        cells = zip(code.co_freevars, f.__closure__ or (), strict=True)
        around = f.__globals__ | {name: cell.cell_contents for name, cell in cells}
        made = self.body(syntax_of(f), Scope(local, around))
        self.depth -= 1
        return made

    def body(self, syntax: ast.FunctionDef | ast.Lambda, scope: Scope) -> Any:
        """What the statements of a function return."""
        if isinstance(syntax, ast.Lambda):
            return self.value(syntax.body, scope)
        end = self.block(syntax.body, scope)
        if end != RETURNED or not scope.returned:
            raise NotScalar(f"`{syntax.name}` should return a value in every case: add a `return` at its end.")
        *others, (_, value) = scope.returned
        for condition, other in reversed(others):
            value = select(condition, other, value)
        return value

    # ------------------------------------------------------------------ statements

    def block(self, statements: Iterable[ast.stmt], scope: Scope) -> str:
        """Run statements; how they ended."""
        for s in statements:
            self.step(s)
            found = STATEMENTS.get(type(s))
            if found is None:
                raise self.refused(s, f"has a statement `{type(s).__name__.lower()}`")
            end = found(self, s, scope)
            if end != FELL:
                return end
        return FELL

    def _return(self, s: ast.Return, scope: Scope) -> str:
        value = None if s.value is None else self.value(s.value, scope)
        if value is None:
            raise self.refused(s, "returns nothing")
        condition: Any = True
        for c in scope.paths:
            condition = both(condition, c)
        scope.returned.append((condition, value))
        return RETURNED

    def _if(self, s: ast.If, scope: Scope) -> str:
        condition = truth(self.value(s.test, scope))
        if not isinstance(condition, Expr):
            return self.block(s.body if condition else s.orelse, scope)
        before, ends, sides = scope.local, [], []
        for c, statements in ((condition, s.body), (negated(condition), s.orelse)):
            scope.local = dict(before)
            scope.paths.append(c)
            ends.append(self.block(statements, scope))
            scope.paths.pop()
            sides.append(scope.local)
        if BROKE in ends or CONTINUED in ends:
            raise self.refused(s, "leaves a loop under a condition that depends on an operand")
        if ends == [RETURNED, RETURNED]:
            return RETURNED
        if RETURNED in ends:
            scope.local = sides[ends.index(FELL)]
        else:
            scope.local = {
                k: _joined(condition, *(side.get(k, MISSING) for side in sides)) for k in sides[0] | sides[1]
            }
        return FELL

    def _for(self, s: ast.For, scope: Scope) -> str:
        for item in self.items(s.iter, scope):
            self.assign(s.target, item, scope)
            end = self.block(s.body, scope)
            if end == RETURNED:
                return end
            if end == BROKE:
                return FELL
        return self.block(s.orelse, scope)

    def _while(self, s: ast.While, scope: Scope) -> str:
        while True:
            condition = truth(self.value(s.test, scope))
            if isinstance(condition, Expr):
                raise self.refused(s, "has a `while` whose condition depends on an operand")
            if not condition:
                return self.block(s.orelse, scope)
            end = self.block(s.body, scope)
            if end == RETURNED:
                return end
            if end == BROKE:
                return FELL

    def _assignment(self, s: ast.Assign, scope: Scope) -> str:
        value = self.value(s.value, scope)
        for target in s.targets:
            self.assign(target, value, scope)
        return FELL

    def _annotated(self, s: ast.AnnAssign, scope: Scope) -> str:
        if s.value is not None:
            self.assign(s.target, self.value(s.value, scope), scope)
        return FELL

    def _augmented(self, s: ast.AugAssign, scope: Scope) -> str:
        if not isinstance(s.target, ast.Name):
            raise self.refused(s, "assigns to what is no name")
        self.assign(s.target, self.binary(s, s.op, scope.find(s.target.id), self.value(s.value, scope)), scope)
        return FELL

    def _definition(self, s: ast.FunctionDef, scope: Scope) -> str:
        scope.local[s.name] = Inner(self, s, scope)
        return FELL

    def _expression(self, s: ast.Expr, scope: Scope) -> str:
        self.value(s.value, scope)
        return FELL

    def _assert(self, s: ast.Assert, scope: Scope) -> str:
        if is_symbolic(holds := self.value(s.test, scope)):
            raise self.refused(s, "asserts what depends on an operand")
        if not holds:
            raise AssertionError(None if s.msg is None else self.value(s.msg, scope))
        return FELL


def _joined(condition: Expr, a: Any, b: Any) -> Any:
    """What a name stands for behind a choice."""
    if a is b:
        return a
    if a is MISSING or b is MISSING:
        return MISSING
    try:
        return select(condition, a, b)
    except NotScalar:  # an error where it is used
        return MISSING


STATEMENTS: dict[type, Callable[..., str]] = {
    ast.Return: Walk._return,
    ast.If: Walk._if,
    ast.For: Walk._for,
    ast.While: Walk._while,
    ast.Assign: Walk._assignment,
    ast.AnnAssign: Walk._annotated,
    ast.AugAssign: Walk._augmented,
    ast.FunctionDef: Walk._definition,
    ast.Expr: Walk._expression,
    ast.Assert: Walk._assert,
    ast.Pass: lambda walk, s, scope: FELL,
    ast.Break: lambda walk, s, scope: BROKE,
    ast.Continue: lambda walk, s, scope: CONTINUED,
}
