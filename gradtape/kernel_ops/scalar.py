"""Plain Python functions of numbers as elementwise ops. Floor: api."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from gradtape.api.layout import broadcast_to
from gradtape.ir.bounded import Bounded
from gradtape.ir.expr import Expr, call, mentions, number, symbol
from gradtape.ir.shapes import broadcast
from gradtape.kernel_ops.base import KernelOp
from gradtape.ops.formulas import ScalarFunction
from gradtape.ops.op import Step
from gradtape.runtime.convert import convert_all
from gradtape.runtime.dispatch import execute
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable
from gradtape.tracing.scalars import expressions, python_function

KEPT = 64  # values of static parameters for which formulas are remembered
OUT = "out"  # what derivatives call the result


class ScalarKernel(KernelOp):
    """An elementwise op whose value is a scalar function."""

    def __init__(self, name: str, function: Callable[..., Any], derivative: Any) -> None:
        self.function = python_function(function)
        self.derivative = derivative
        self.not_inside = None if derivative is None else "has a derivative of its own, which would be lost inside"
        if derivative is None:
            self.py_func = self.function
        self.signature = inspect.signature(self.function)
        kinds = {p.kind for p in self.signature.parameters.values()}
        if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.VAR_KEYWORD in kinds:
            raise TypeError(f"The scalar function `{name}` should name its parameters, without * and **.")
        super().__init__(name, _names_of(self.signature, True), _names_of(self.signature, False))
        if not self.names:
            raise TypeError(f"The scalar function `{name}` should have a parameter that is an operand.")
        self.symbols = {n: symbol(f"x{k}") for k, n in enumerate(self.names)}
        self.formulas: Bounded[Any, Formula] = Bounded(KEPT)
        self.usual: Formula | None = None  # that of a call without static parameters
        functools.update_wrapper(self, self.function, assigned=("__doc__", "__module__"), updated=())

    def __call__(self, *operands: Any, **static: Any) -> Any:
        if self.usual is not None and not static and len(operands) == len(self.names):
            return self.usual(operands)
        try:
            bound = self.signature.bind(*operands, **static)
        except TypeError as e:
            raise TypeError(f"`{self.name}` takes {self.signature}: {e}.") from None
        bound.apply_defaults()
        known = {n: v for n, v in bound.arguments.items() if n not in self.symbols}
        for n, v in known.items():
            if isinstance(v, Tensor | Variable) or type(v).__hash__ is None:
                raise TypeError(
                    f"The parameters of `{self.name}` that are given by name should be numbers, got "
                    f"{type(v).__name__} for `{n}`. Tensors are operands: put `{n}` before the `*`."
                )
        formula = self.formulas.find(tuple(known.items()), lambda: self._formula(known))
        if not static:
            self.usual = formula
        return formula([bound.arguments[n] for n in self.names])

    def _formula(self, known: dict[str, Any]) -> Formula:
        found = expressions(self.function, self.symbols | known, self.name)
        results = found if isinstance(found, tuple) else (found,)
        names = [s.leaf for s in self.symbols.values()]
        partials = self._partials(known, len(results))
        whole = [_whole(e, self.name) for e in results]
        steps = [ScalarFunction(f"kernel_op_{self.name}", e, names, partials).bind() for e in whole]
        return Formula(steps, isinstance(found, tuple), all(mentions(e) >= set(names) for e in results))

    def _partials(self, known: dict[str, Any], results: int) -> Sequence[Expr | None]:
        """The derivative that was given, one expression for each operand."""
        if self.derivative is None:
            return ()
        if results != 1:
            raise TypeError(f"`derivative` is for one result, and `{self.name}` has {results}. Leave it out.")
        return partials_of(self.derivative, self.symbols, known, self.name)


class Formula:
    """A scalar function for given parameters: one op for each result."""

    def __init__(self, steps: Sequence[Step], several: bool, is_whole: bool) -> None:
        self.steps, self.several, self.is_whole = steps, several, is_whole

    def __call__(self, given: Sequence[Any]) -> Any:
        operands = convert_all(given)
        if not self.is_whole:
            operands = _same_shape(operands)
        made = tuple([execute(step, operands) for step in self.steps])
        return made if self.several else made[0]


def _names_of(signature: inspect.Signature, positional: bool) -> list[str]:
    """The parameters that are operands; or those that are given by name only."""
    return [n for n, p in signature.parameters.items() if (p.kind is not p.KEYWORD_ONLY) == positional]


def partials_of(derivative: Any, symbols: dict[str, Expr], known: dict[str, Any], name: str) -> Sequence[Expr | None]:
    """The partials that a scalar function, or one for each operand, writes down. They may call the result `out`.

    Raises:
      TypeError: parameters that the op does not have, or another number of partials.
    """
    there = symbols | known | {OUT: symbol(OUT)}
    functions = list(derivative) if isinstance(derivative, tuple | list) else [derivative]
    found: list[Expr | None] = []
    for f in functions:
        if f is None:
            found.append(None)
            continue
        wanted = inspect.signature(f).parameters
        if unknown := [n for n in wanted if n not in there]:
            raise TypeError(
                f"The derivative of `{name}` has parameters {unknown}; it may have {list(there)}, which are those of "
                f"the op and the result, `{OUT}`."
            )
        made = expressions(f, {n: there[n] for n in wanted})
        found += made if isinstance(made, tuple) else [made]
    if len(found) != len(symbols):
        raise TypeError(
            f"The derivative of `{name}` should give a partial for each of its operands {list(symbols)}, got "
            f"{len(found)}. Give a function for each of them (None: no gradient), or one that returns as many."
        )
    return [number(float(p.leaf)) if p is not None and p.op == "number" else p for p in found]


def _whole(e: Expr, name: str) -> Expr:
    """A formula that computes something.

    Raises:
      ValueError: it does not depend on operands.
    """
    if not mentions(e):
        raise ValueError(f"The scalar function `{name}` gives {e}, whatever its operands are. Use `tf.fill`.")
    return call("identity", e) if e.op == "symbol" else e


def _same_shape(operands: Sequence[Tensor]) -> list[Tensor]:
    """Operands of the shape that all of them have together, since a formula does not mention each."""
    shape: Any = ()
    for t in operands:
        shape = broadcast(shape, t._aval.shape)
    return [t if t._aval.shape == shape else broadcast_to(t, shape) for t in operands]
