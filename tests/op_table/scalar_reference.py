"""What a pointwise op is, one number at a time, in 40 digits: mpmath, Python's operators, textbook definitions.

An op is looked up here by its name, then in mpmath by its name, and a formula of the table that is in neither is
evaluated as it is declared. The last finds a kernel that computes another formula, an unstable order of operations or a
lost accuracy; it cannot find a formula that is wrong itself, so `DEFINED` has another text for those that exist."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import mpmath

from gradtape.ir.dtypes import DType
from gradtape.ir.expr import Expr
from gradtape.ops.op import lookup
from gradtape.ops.pointwise import Pointwise
from tests.op_table.special_reference import references

MP = mpmath.MPContext()
MP.dps = 40
NAN, INF = MP.nan, MP.inf

Scalar = Callable[..., Any]


def exact(x: Any) -> Any:
    """A NumPy number as a Python or mpmath number of the same value."""
    kind = getattr(x, "dtype", None)
    if kind is None or kind.kind in "biu":
        return x.item() if kind is not None else x
    if kind.kind == "c":
        return MP.mpc(complex(x))
    return MP.mpf(float(x))


def _divide(x: Any, y: Any) -> Any:
    """IEEE division: a pole is infinite, of whichever sign."""
    if y == 0:
        return NAN if x == 0 or x != x else INF
    return x / y


def _pow(x: Any, y: Any) -> Any:
    if isinstance(x, int):
        return x**y
    if not isinstance(x, MP.mpc) and (x == 0 or MP.isnan(x) or MP.isinf(x) or MP.isnan(y) or MP.isinf(y) or y == 0):
        try:  # C99's special cases, of which mpmath knows only some
            return MP.mpf(math.pow(float(x), float(y)))
        except ValueError:
            return INF if x == 0 else NAN
        except OverflowError:
            return INF
    return MP.power(x, y)


def _atan2(x: Any, y: Any) -> Any:
    if x == 0 and y <= 0:
        return None  # 0 or ±π, by the signs of zeros, which mpmath's numbers do not have
    return MP.atan2(x, y) if _is_finite(x) and _is_finite(y) else MP.mpf(math.atan2(float(x), float(y)))


def _acosh_slope(x: Any) -> Any:
    return NAN if not isinstance(x, MP.mpc) and x < 1 else _divide(MP.one, MP.sqrt(x - 1) * MP.sqrt(x + 1))


def _cast(x: Any, dtype: DType) -> Any:
    if dtype.is_bool:
        return x != 0
    if not dtype.is_complex and isinstance(x, MP.mpc):
        x = x.real
    if dtype.is_integer:
        return int(x)
    return x if dtype.is_complex or not isinstance(x, bool) else int(x)


def _floordiv(x: Any, y: Any) -> Any:
    """Python's quotient, which is -1 for a number over an infinity of the other sign."""
    if isinstance(x, int):
        return x // y
    return MP.mpf(float(x) // float(y)) if MP.isinf(y) and _is_finite(x) else MP.floor(_divide(x, y))


def _floormod(x: Any, y: Any) -> Any:
    """Python's remainder, which knows infinities."""
    if isinstance(x, int):
        return x % y
    return NAN if y == 0 or MP.isinf(x) else MP.mpf(float(x) % float(y))


def _larger(x: Any, y: Any) -> Any:
    return NAN if x != x or y != y else max(x, y)


def _smaller(x: Any, y: Any) -> Any:
    return NAN if x != x or y != y else min(x, y)


def _real(z: Any) -> Any:
    return z.real if isinstance(z, MP.mpc) else z


def _is_finite(x: Any) -> bool:
    return not (MP.isnan(x) or MP.isinf(x))


# Spelled as in Python, or not known to mpmath by the op's name.
SPELLED: dict[str, Scalar] = {
    "abs": abs,
    "add": operator.add,
    "assigned": lambda x, y: y,
    "atan2": _atan2,
    "cast": _cast,
    "complex": MP.mpc,
    "complex_abs": abs,
    "divide": _divide,
    "divide_no_nan": lambda x, y: 0 * y if y == 0 else x / y,
    "equal": operator.eq,
    "floordiv": _floordiv,
    "floormod": _floormod,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "has_log": lambda x: x != 0 if isinstance(x, MP.mpc) else x > 0,
    "identity": lambda x: x,
    "imag": lambda z: z.imag,
    "is_finite": _is_finite,
    "is_inf": MP.isinf,
    "is_nan": MP.isnan,
    "less": operator.lt,
    "less_equal": operator.le,
    "log_or_zero": lambda x: MP.log(x) if (x != 0 if isinstance(x, MP.mpc) else x > 0) else MP.zero,
    "logical_and": lambda x, y: x and y,
    "logical_not": operator.not_,
    "logical_or": lambda x, y: x or y,
    "logical_xor": operator.xor,
    "maximum": _larger,
    "minimum": _smaller,
    "multiply": operator.mul,
    "multiply_no_nan": lambda x, y: 0 * y if y == 0 else x * y,
    "negative": operator.neg,
    "not_equal": operator.ne,
    "pow": _pow,
    "real": _real,
    "rint": lambda x: MP.nint(x) if _is_finite(x) else x,
    "select": lambda condition, x, y: x if condition else y,
    "sign": lambda x: x if x != x else (x > 0) - (x < 0),
    "square": lambda x: x * x,
    "step": lambda x: int(x > 0),
    "stop_gradient": lambda x: x,
    "subtract": operator.sub,
}

# Formulas of the table, as textbooks have them: no care for overflow is needed with unbounded exponents.
_SELU_SCALE, _SELU_ALPHA = MP.mpf("1.05070098735548049342"), MP.mpf("1.67326324235437728482")


def _gelu_tanh(x: Any) -> Any:
    return x * (1 + MP.tanh(MP.sqrt(2 / MP.pi) * (x + MP.mpf(0.044714998453855515) * x**3))) / 2


DEFINED: dict[str, Scalar] = {
    "elu": lambda x: MP.expm1(x) if x <= 0 else x,
    "gelu_tanh": _gelu_tanh,
    "leaky_relu": lambda x, alpha: alpha * x if x <= 0 else x,
    "log_sigmoid": lambda x: -MP.log(1 + MP.exp(-x)),
    "reciprocal": lambda x: _divide(MP.one, x),
    "relu": lambda x: _larger(x, MP.zero),
    "relu6": lambda x: _smaller(_larger(x, MP.zero), MP.mpf(6)),
    "acosh_slope": _acosh_slope,
    "atanh_slope": lambda x: _divide(MP.one, (1 - x) * (1 + x)),
    "asin_slope": lambda x: NAN if MP.isinf(x) else _divide(MP.one, MP.sqrt((1 - x) * (1 + x))),
    "rsqrt": lambda x: NAN if x == -INF else _divide(MP.one, MP.sqrt(x)),
    "selu": lambda x: _SELU_SCALE * (x if x > 0 else _SELU_ALPHA * MP.expm1(x)),
    "sigmoid": lambda x: 1 / (1 + MP.exp(-x)),
    "silu": lambda x: x / (1 + MP.exp(-x)),
    "softplus": lambda x: MP.log(1 + MP.exp(x)),
    "softsign": lambda x: x / (1 + abs(x)),
    "squared_difference": lambda x, y: (x - y) ** 2,
}

KNOWN = SPELLED | DEFINED | references(MP)


def scalar(op: Pointwise) -> Scalar:
    """The reference of an op.

    Raises:
      LookupError: when nothing but the kernel itself says what the op computes.
    """
    found: Scalar | None = KNOWN.get(op.name) or getattr(MP, op.name, None)
    if found is not None:
        return found
    if op.formula is None:
        raise LookupError(f"Nothing says what `{op.name}` computes. Define it in `SPELLED`, independently of NumPy.")
    formula = op.formula
    return lambda *xs: _evaluated(formula, dict(zip(op.operands, xs, strict=True)))


def _evaluated(e: Expr, names: dict[str, Any]) -> Any:
    """A formula on numbers, each op by its own reference."""
    if e.op == "symbol":
        return names[e.leaf]
    if e.op == "number":
        return MP.mpf(e.leaf)
    op = lookup(e.op)
    if not isinstance(op, Pointwise):
        raise TypeError(op)
    return scalar(op)(*[_evaluated(a, names) for a in e.args])
