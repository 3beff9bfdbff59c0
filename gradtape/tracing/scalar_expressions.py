"""Expressions in the syntax of scalar functions. Floor: tape."""

from __future__ import annotations

import ast
import builtins
import difflib
import operator
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gradtape.ir.expr import Expr
from gradtape.tracing.scalar_values import (
    OF_SCALARS,
    NotScalar,
    OfScalars,
    applied,
    as_number,
    both,
    either,
    is_symbolic,
    is_truth,
    negated,
    select,
    truth,
)

MOST_STEPS = 100_000  # statements and expressions that are walked for one function
BINARY: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("subtract", operator.sub),
    ast.Mult: ("multiply", operator.mul),
    ast.Div: ("divide", operator.truediv),
    ast.Pow: ("pow", operator.pow),
    ast.Mod: ("floormod", operator.mod),
    ast.FloorDiv: ("floordiv", operator.floordiv),
}
UNARY: dict[type, Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
COMPARISONS: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Lt: ("less", operator.lt),
    ast.LtE: ("less_equal", operator.le),
    ast.Gt: ("greater", operator.gt),
    ast.GtE: ("greater_equal", operator.ge),
    ast.Eq: ("equal", operator.eq),
    ast.NotEq: ("not_equal", operator.ne),
}
IDENTITIES: dict[type, Callable[[Any, Any], Any]] = {
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


class _Missing:
    """A name that has a value on one side of a choice only."""


MISSING = _Missing()


class Scope:
    """The names of a function, and of what is around it."""

    def __init__(self, local: dict[str, Any], around: Scope | Mapping[str, Any]) -> None:
        self.local, self.around = local, around
        self.paths: list[Any] = []  # conditions under which the walk is where it is
        self.returned: list[tuple[Any, Any]] = []  # conditions, and what is returned where they are the first to hold

    def find(self, name: str) -> Any:
        if name in self.local:
            if self.local[name] is MISSING:
                raise NotScalar(
                    f"`{name}` has a value on one side of a choice only, or values that are no numbers. Give it a "
                    "number before."
                )
            return self.local[name]
        if isinstance(self.around, Scope):
            return self.around.find(name)
        if name in self.around:
            return self.around[name]
        if not hasattr(builtins, name):
            raise NameError(f"name '{name}' is not defined")
        return getattr(builtins, name)


class Inner:
    """A function that is defined in a scalar function."""

    def __init__(self, walk: Expressions, syntax: ast.FunctionDef | ast.Lambda, around: Scope) -> None:
        self.walk, self.syntax, self.around = walk, syntax, around

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        names = self.syntax.args
        defaults = [self.walk.value(d, self.around) for d in names.defaults]
        positional = [a.arg for a in (*names.posonlyargs, *names.args)]
        given = dict(zip(positional[len(positional) - len(defaults) :], defaults, strict=True))
        given |= dict(zip(positional, args, strict=False)) | kwargs
        if set(given) != set(positional) or len(args) > len(positional):
            raise NotScalar(f"A function that is defined inside takes {positional}, got {len(args)} values.")
        return self.walk.body(self.syntax, Scope(given, self.around))


class Expressions:
    """The part of a walk that is about expressions."""

    def __init__(self, name: str) -> None:
        self.name, self.steps = name, 0

    def function(self, f: types.FunctionType, args: Sequence[Any], given: Mapping[str, Any]) -> Any:
        """What a function returns for values by position and by name."""
        raise NotImplementedError

    def body(self, syntax: ast.FunctionDef | ast.Lambda, scope: Scope) -> Any:
        """What the statements of a function return."""
        raise NotImplementedError

    def value(self, e: ast.expr, scope: Scope) -> Any:
        """The value of an expression."""
        self.step(e)
        found = EXPRESSIONS.get(type(e))
        if found is None:
            raise self.refused(e, f"has a {type(e).__name__}")
        return found(self, e, scope)

    def _name(self, e: ast.Name, scope: Scope) -> Any:
        return scope.find(e.id)

    def _values(self, e: ast.Tuple | ast.List, scope: Scope) -> Any:
        found = [self.value(x, scope) for x in e.elts]
        return tuple(found) if isinstance(e, ast.Tuple) else found

    def _of_two(self, e: ast.BinOp, scope: Scope) -> Any:
        return self.binary(e, e.op, self.value(e.left, scope), self.value(e.right, scope))

    def binary(self, where: ast.AST, op: ast.operator, a: Any, b: Any) -> Any:
        """One of Python's operators of two values."""
        known = BINARY.get(type(op))
        if known is None:
            if not is_symbolic((a, b)):
                raise self.refused(where, f"has the operator {type(op).__name__}")
            raise self.refused(where, f"has no op for the operator {type(op).__name__}")
        if isinstance(a, Expr) or isinstance(b, Expr):
            return self._made(where, known[0], a, b)
        return known[1](a, b)

    def _made(self, where: ast.AST, op: str, *values: Any) -> Any:
        try:
            return applied(op, *values)
        except NotScalar as e:
            raise self.refused(where, str(e)) from None

    def _of_one(self, e: ast.UnaryOp, scope: Scope) -> Any:
        x = self.value(e.operand, scope)
        if isinstance(e.op, ast.Not):
            return negated(truth(x))
        if not isinstance(x, Expr):
            return UNARY[type(e.op)](x)
        if isinstance(e.op, ast.Invert):
            raise self.refused(e, "has the operator ~")
        return self._made(e, "negative", x) if isinstance(e.op, ast.USub) else x

    def _truths(self, e: ast.BoolOp, scope: Scope) -> Any:
        """`and`, `or`: the value of one of them, as in Python; of conditions, a condition."""
        join, ends = (both, False) if isinstance(e.op, ast.And) else (either, True)
        asked: list[Any] = []
        for part in e.values:
            made = self.value(part, scope)
            if isinstance(made, Expr):
                asked.append(made)
            elif bool(made) == ends:
                break
        if isinstance(made, Expr):
            asked.pop()
        for x in reversed(asked):
            if is_truth(x) and is_truth(made):
                made = join(x, made)
            else:
                made = select(truth(x), *((x, made) if ends else (made, x)))
        return made

    def _comparison(self, e: ast.Compare, scope: Scope) -> Any:
        left, made = self.value(e.left, scope), True
        for op, part in zip(e.ops, e.comparators, strict=True):
            right = self.value(part, scope)
            if not isinstance(left, Expr) and not isinstance(right, Expr):
                known = IDENTITIES.get(type(op)) or COMPARISONS[type(op)][1]
                made = both(made, known(left, right))
            elif type(op) in COMPARISONS:
                made = both(made, self._made(e, COMPARISONS[type(op)][0], as_number(left), as_number(right)))
            elif isinstance(op, ast.Is | ast.IsNot):
                made = both(made, isinstance(op, ast.IsNot))
            else:
                raise self.refused(e, "looks for an operand in a list")
            left = right
        return made

    def _choice(self, e: ast.IfExp, scope: Scope) -> Any:
        condition = truth(self.value(e.test, scope))
        if not isinstance(condition, Expr):
            return self.value(e.body if condition else e.orelse, scope)
        return select(condition, self.value(e.body, scope), self.value(e.orelse, scope))

    def _attribute(self, e: ast.Attribute, scope: Scope) -> Any:
        owner = self.value(e.value, scope)
        if isinstance(owner, Expr):
            raise self.refused(e, f"asks a single number for its `{e.attr}`")
        return getattr(owner, e.attr)

    def _item(self, e: ast.Subscript, scope: Scope) -> Any:
        owner, where = self.value(e.value, scope), self.value(e.slice, scope)
        if isinstance(owner, Expr) or is_symbolic(where):
            raise self.refused(e, "takes elements of, or at, an operand, which is a single number")
        return owner[where]

    def _slice(self, e: ast.Slice, scope: Scope) -> Any:
        return slice(*(None if x is None else self.value(x, scope) for x in (e.lower, e.upper, e.step)))

    def _named(self, e: ast.NamedExpr, scope: Scope) -> Any:
        value = self.value(e.value, scope)
        self.assign(e.target, value, scope)
        return value

    def _list(self, e: ast.ListComp | ast.GeneratorExp, scope: Scope) -> list[Any]:
        made: list[Any] = []

        def nested(generators: Sequence[ast.comprehension], inside: Scope) -> None:
            if not generators:
                made.append(self.value(e.elt, inside))
                return
            first, *rest = generators
            for item in self.items(first.iter, inside):
                within = Scope({}, inside)
                self.assign(first.target, item, within)
                holds = [self.value(c, within) for c in first.ifs]
                if is_symbolic(holds):
                    raise self.refused(e, "chooses the elements of a list by an operand")
                if all(holds):
                    nested(rest, within)

        nested(e.generators, scope)
        return made

    def _lambda(self, e: ast.Lambda, scope: Scope) -> Any:
        return Inner(self, e, scope)

    def _call(self, e: ast.Call, scope: Scope) -> Any:
        f = self.value(e.func, scope)
        args: list[Any] = []
        for a in e.args:
            if isinstance(a, ast.Starred):
                args += self.items(a.value, scope)
            else:
                args.append(self.value(a, scope))
        given = {k.arg or "**": self.value(k.value, scope) for k in e.keywords}
        if isinstance(f, Inner):
            return f(*args, **given)
        known = OF_SCALARS.get(f) if type(f).__hash__ is not None else None
        if not is_symbolic([*args, *given.values()]):
            return f(*args, **given) if known is None else known.numbers(*args, **given)
        return self._called(e, f, known, args, given)

    def _called(self, e: ast.Call, f: Any, known: OfScalars | None, args: list[Any], given: dict[str, Any]) -> Any:
        """A function of values of which some depend on operands."""
        name = getattr(f, "__name__", repr(f))
        if known is not None:
            try:
                return known.expressions(*args, **given)
            except (NotScalar, TypeError) as error:
                raise self.refused(e, f"calls `{name}`: {error}") from None
        inner = getattr(f, "py_func", f)
        if isinstance(inner, types.FunctionType) and not inner.__module__.startswith(("gradtape.", "numpy.", "numba.")):
            return self.function(inner, args, given)
        if (why := getattr(f, "not_inside", None)) is not None:
            raise self.refused(e, f"calls `{name}`, a kernel op that {why}")
        there = {k.__name__ for k in OF_SCALARS}
        near = difflib.get_close_matches(name, there, 1)
        most_like = f" (the known one most like it is `{near[0]}`)" if near else ""
        raise self.refused(e, f"calls `{name}`, which is not among the functions known here{most_like},")

    def items(self, over: ast.expr, scope: Scope) -> Iterable[Any]:
        """What a loop goes over, which is known."""
        found = self.value(over, scope)
        if isinstance(found, Expr) or not isinstance(found, Iterable):
            raise self.refused(over, "goes over what depends on an operand")
        return found

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Give names values."""
        if isinstance(target, ast.Name):
            scope.local[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List) and not isinstance(value, Expr):
            values = list(value)
            if len(values) != len(target.elts):
                raise self.refused(target, f"takes {len(values)} values apart into {len(target.elts)} names")
            for t, v in zip(target.elts, values, strict=True):
                self.assign(t, v, scope)
        else:
            raise self.refused(target, "assigns to what is no name")

    # ------------------------------------------------------------------ what is refused

    def step(self, where: ast.AST) -> None:
        """Count what is walked."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise self.refused(where, f"takes more than {MOST_STEPS} steps: its loops are unrolled")

    def refused(self, where: ast.AST | None, what: str) -> NotScalar:
        """The error for what a scalar function cannot do."""
        line = getattr(where, "lineno", None)
        at = "" if line is None else f" in line {line}"
        return NotScalar(
            f"The scalar function `{self.name}` {what}{at}. It may use arithmetic, comparisons, `if`, loops over known "
            "numbers and the functions of `math`, NumPy and `tf.math` that work element by element; write anything "
            "else with `tf.` functions, or as a CUDA kernel."
        )


EXPRESSIONS: dict[type, Callable[..., Any]] = {
    ast.Constant: lambda walk, e, scope: e.value,
    ast.Name: Expressions._name,
    ast.Tuple: Expressions._values,
    ast.List: Expressions._values,
    ast.BinOp: Expressions._of_two,
    ast.UnaryOp: Expressions._of_one,
    ast.BoolOp: Expressions._truths,
    ast.Compare: Expressions._comparison,
    ast.IfExp: Expressions._choice,
    ast.Attribute: Expressions._attribute,
    ast.Subscript: Expressions._item,
    ast.Slice: Expressions._slice,
    ast.NamedExpr: Expressions._named,
    ast.ListComp: Expressions._list,
    ast.GeneratorExp: Expressions._list,
    ast.Lambda: Expressions._lambda,
    ast.Call: Expressions._call,
}
