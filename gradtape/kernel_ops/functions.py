"""Functions that scalar functions may call: those of Python, `math`, NumPy and this package that work element by
element. Floor: api.

All modules of `gradtape.api` whose functions are declared are imported before this one, by the package itself."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gradtape.api import elementwise
from gradtape.api.declared import DECLARED
from gradtape.ir.expr import Expr
from gradtape.ops.op import all_ops
from gradtape.ops.pointwise import Pointwise
from gradtape.runtime.tensor import Tensor
from gradtape.tracing.scalar_values import OF_SCALARS, NotScalar, OfScalars, applied, as_number, select, truth

LN_2, LN_10 = math.log(2.0), math.log(10.0)
OTHER_FORM = {"real", "imag"}  # their results are of another dtype than complex operands


def _op(name: str) -> Callable[..., Any]:
    return functools.partial(applied, name)


def _many(name: str) -> Callable[..., Any]:
    """An op of two numbers, of several or of a list of them."""

    def of_all(*values: Any) -> Any:
        several = values[0] if len(values) == 1 else values
        if not isinstance(several, tuple | list) or not several:
            raise NotScalar(f"`{name}` wants several numbers")
        return functools.reduce(_op(name), several)

    return of_all


def _sum(values: Iterable[Any], start: Any = 0) -> Any:
    parts = list(values) if not isinstance(start, Expr) and start == 0 else [start, *values]
    return functools.reduce(_op("add"), parts)


def _product(values: Iterable[Any]) -> Any:
    return functools.reduce(_op("multiply"), values)


def _log(x: Any, base: Any = None) -> Any:
    found = applied("log", x)
    return found if base is None else applied("divide", found, applied("log", base))


def _scaled(name: str, factor: float) -> Callable[[Any], Any]:
    return lambda x: applied("multiply", applied(name, x), factor)


def _clip(x: Any, low: Any, high: Any) -> Any:
    return applied("maximum", applied("minimum", x, high), low)


def _whole(*_: Any) -> Any:
    raise NotScalar("whole numbers of operands are not scalar functions; use `math.floor` or `round`")


PYTHON: dict[Any, Callable[..., Any]] = {
    abs: _op("abs"),
    min: _many("minimum"),
    max: _many("maximum"),
    sum: _sum,
    pow: _op("pow"),
    round: _op("rint"),
    float: as_number,
    bool: truth,
    int: _whole,
    math.log: _log,
    math.log2: _scaled("log", 1 / LN_2),
    math.log10: _scaled("log", 1 / LN_10),
    math.exp2: lambda x: applied("exp", applied("multiply", x, LN_2)),
    math.fabs: _op("abs"),
    math.fmod: _op("truncatemod"),
    math.degrees: lambda x: applied("multiply", x, 180 / math.pi),
    math.radians: lambda x: applied("multiply", x, math.pi / 180),
    math.isnan: _op("is_nan"),
    math.isinf: _op("is_inf"),
    math.isfinite: _op("is_finite"),
    math.prod: _product,
    math.fsum: _sum,
    np.where: select,
    np.clip: _clip,
    np.fabs: _op("abs"),
    np.fmod: _op("truncatemod"),
    np.mod: _op("floormod"),
    np.floor_divide: _op("floordiv"),
    np.power: _op("pow"),
    np.log1p: _op("log1p"),
    np.log2: _scaled("log", 1 / LN_2),
    np.log10: _scaled("log", 1 / LN_10),
    np.exp2: lambda x: applied("exp", applied("multiply", x, LN_2)),
    np.round: _op("rint"),
}
OF_MATH = (
    *("exp", "expm1", "log1p", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "floor", "ceil", "pow"),
)
OWN: dict[Any, Callable[..., Any]] = {
    elementwise.abs: _op("abs"),
    elementwise.divide: _op("divide"),
    elementwise.divide_no_nan: _op("divide_no_nan"),
    elementwise.squared_difference: _op("squared_difference"),
    elementwise.atan2: _op("atan2"),
    elementwise.sign: _op("sign"),
    elementwise.sigmoid: _op("sigmoid"),
    elementwise.round: _op("rint"),
    elementwise.leaky_relu: lambda x, alpha=0.2: applied("leaky_relu", x, alpha),
    elementwise.silu: lambda x, beta=1.0: applied("multiply", x, applied("sigmoid", applied("multiply", x, beta))),
    elementwise.where: select,
    elementwise.clip_by_value: _clip,
    **{f: _op(op.name) for f, op in DECLARED.items() if op.name not in OTHER_FORM},
}


def _own(f: Callable[..., Any], of_expressions: Callable[..., Any]) -> OfScalars:
    """A function of this package, which is called as it is written; of known numbers it gives a number."""
    signature = inspect.signature(f)

    def given(args: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        bound = signature.bind(*args, **named)
        bound.arguments.pop("name", None)
        return list(bound.arguments.values())

    def of_numbers(*args: Any, **named: Any) -> Any:
        wide = [np.float64(a) if type(a) in (int, float) else a for a in given(args, named)]
        made = f(*wide)
        return np.asarray(made).item() if isinstance(made, Tensor) else made

    return OfScalars(lambda *args, **named: of_expressions(*given(args, named)), of_numbers)


def fill() -> None:
    """Put the functions where scalar functions are read."""
    OF_SCALARS.update((f, OfScalars(g, f)) for f, g in PYTHON.items())
    for name in OF_MATH:
        f = getattr(math, name)
        OF_SCALARS[f] = OfScalars(_op(name), f)
    for op in all_ops():
        if isinstance(op, Pointwise) and op.ufunc and op.name not in OTHER_FORM:
            ufunc = getattr(np, op.ufunc)
            OF_SCALARS.setdefault(ufunc, OfScalars(_op(op.name), ufunc))
    OF_SCALARS.update((f, _own(f, g)) for f, g in OWN.items())


fill()
