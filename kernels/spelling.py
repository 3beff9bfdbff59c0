"""How a rendered kernel spells its scalar operations, and what the names in its text stand for. Floor: kernels."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.cluster import Operation
from gradtape.ir.dtypes import DType, bfloat16, bool_, float16, float32, float64, int32, int64
from gradtape.kernels import vector_halves
from gradtape.kernels.vector_math import ANYWHERE, FORMS, functions

DTYPES = (float32, float64, int32, int64, bool_)
HALVES = (float16, bfloat16)
PLAIN = frozenset({0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, math.inf, -math.inf})  # numbers that stand in the text

# What the compiler may do to operations whose order is up to it. With leave to ignore signs of zeros, LLVM would also
# take what they combine apart: x - x, which is NaN where x is infinite, would vanish from a sum.
ANY_ORDER = ("reassoc", "contract")
# Per monoid: what combines two numbers, in any order, the number that changes nothing, and the kinds that it takes.
MONOIDS = {
    "sum": ("add_any({0}, {1})", "0", "fi"),
    "prod": ("multiply_any({0}, {1})", "1", "fi"),
    "max": ("largest({0}, {1})", "-inf", "fi"),
    "min": ("smallest({0}, {1})", "inf", "fi"),
    "all": ("logical_and({0}, {1})", "True", "b"),
    "any": ("logical_or({0}, {1})", "False", "b"),
}


def spells(op: str, dtypes: tuple[DType, ...]) -> bool:
    """Whether kernels do an atom, or reduce by a monoid, for operands and a result of these dtypes."""
    if op not in FORMS and op not in MONOIDS and op != "cast":
        return False
    if not all(d in DTYPES or d in HALVES for d in dtypes):
        return False
    if op == "cast":  # to a half by way of float32, which must not round on the way
        return not dtypes[1].is_half or dtypes[0] in (float32, bool_, *HALVES)
    if any(d.is_half for d in dtypes) and op in FORMS and (op == "nextafter" or not FORMS[op].vector):
        return False
    kinds = MONOIDS[op][2] if op in MONOIDS else FORMS[op].kinds
    numbers = dtypes[1:-1] if op in FORMS and FORMS[op].condition else dtypes[:-1]
    return all(d.kind in tuple(kinds) for d in numbers)


def spells_small(op: str, dtypes: tuple[DType, ...]) -> bool:
    """The same for programs of small arrays, which contract and assemble as well."""
    if op in ("contract", "assemble"):
        return all(d.is_floating and d in DTYPES for d in dtypes)
    return all(d in DTYPES for d in dtypes) and spells(op, dtypes)


def spelled(e: Operation, operands: Sequence[str], anywhere: bool) -> str:
    """One scalar operation as an expression; `anywhere`: right for operands beyond every limit too."""
    if e.op == "cast":
        return f"{e.dtype.name}({operands[0]})"
    if e.op == "round":
        return f"round_{e.leaf.name}({operands[0]})"
    form = FORMS[e.op]
    if form.infix and len(operands) == 2 and e.dtype.kind in "fb":
        return f"{operands[0]} {form.infix} {operands[1]}"
    name = f"{e.op}_anywhere" if anywhere and e.op in ANYWHERE else e.op
    return f"{name}({', '.join(operands)})"


def is_limited(op: str) -> bool:
    """Whether an operation is right up to some size of its operand only."""
    return op in ANYWHERE


def combined(monoid: str, a: str, b: str, dtype: DType) -> str:
    """Two numbers of a reduction as one of this dtype, which `a` has."""
    return MONOIDS[monoid][0].format(a, b if dtype.is_bool else f"{dtype.name}({b})")


def neutral(monoid: str, dtype: DType) -> str:
    """The number that a reduction begins with."""
    if monoid in ("max", "min") and not dtype.is_floating:
        return f"{dtype.name}({dtype.min if monoid == 'max' else dtype.max})"
    text = MONOIDS[monoid][1]
    return text if dtype.is_bool else f"{dtype.name}({text})"


def carried(monoid: str, dtype: DType) -> DType:
    """The dtype in which a reduction's result is put together."""
    if monoid != "sum":
        return dtype
    return float64 if dtype.is_floating else int64


def literal(e: Operation) -> str | None:
    """A number as text, if it is one of those that formulas are full of. Others may come from an extent, and the text
    of a kernel does not depend on extents."""
    if e.dtype.is_bool:
        return repr(bool(e.leaf))
    if e.dtype.is_complex:
        return None
    value = float(e.leaf)
    if math.isnan(value):
        return f"{e.dtype.name}(nan)"
    if value not in PLAIN or (value == 0 and math.copysign(1, value) < 0):
        return None
    return f"{e.dtype.name}({value if e.dtype.is_floating else int(value)!r})"


def environment() -> dict[str, Any]:
    """The names that a kernel's text uses."""
    types = {d.name: d.as_numpy_dtype for d in DTYPES}
    return {
        **functions(),
        **vector_halves.functions(),
        **_any_order(),
        **types,
        "empty": np.empty,
        "inf": np.inf,
        "nan": np.nan,
    }


@functools.cache
def _any_order() -> dict[str, Any]:
    """Operations of which the compiler may change the order, so that it can do several at once."""
    return {
        "add_any": _arithmetic("add"),
        "multiply_any": _arithmetic("mul"),
        "largest": _extreme("maximum", ">="),
        "smallest": _extreme("minimum", "<="),
    }


def _arithmetic(name: str) -> Any:
    from numba.core import types
    from numba.extending import intrinsic

    def combine(context: Any, a: Any, b: Any) -> Any:
        if a != b:
            return None

        def write(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            if isinstance(signature.return_type, types.Float):
                return getattr(builder, f"f{name}")(*values, flags=ANY_ORDER)
            return getattr(builder, name)(*values)

        return a(a, b), write

    return intrinsic(combine)


def _extreme(name: str, sign: str) -> Any:
    """The larger or smaller of two; NaN passes."""
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic

    def combine(context: Any, a: Any, b: Any) -> Any:
        if a != b:
            return None

        def write(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            x, y = values
            if isinstance(signature.return_type, types.Float):
                shape = ir.FunctionType(x.type, [x.type, x.type])
                function = builder.module.declare_intrinsic(f"llvm.{name}", [x.type], shape)
                return builder.call(function, [x, y], fastmath=("nsz",))
            return builder.select(builder.icmp_signed(sign, x, y), x, y)

        return a(a, b), write

    return intrinsic(combine)
