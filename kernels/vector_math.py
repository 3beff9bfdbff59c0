"""The pointwise ops that loops compiled by Numba may call, by the names of the op table. Floor: kernels.

A loop's text names them as functions:

    from gradtape.kernels.vector_math import exp, multiply

    def loop(x_, out):
        for i in range(x_.size):
            x = x_[i]
            out[i] = multiply(x, exp(x))

They work inside compiled functions only, where each leaves its instructions in the loop. Operands are of one type,
float32 or float64 (or what `Form.kinds` says), and the result is of that type, so that a number that the text contains
has to be given as one: `float32(0.5)`. `Form` says what else to know of each op. Numba is imported when the first of
these names is asked for."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gradtape.kernels import vector_angles as angles
from gradtape.kernels import vector_arithmetic as arithmetic
from gradtape.kernels import vector_errors as errors
from gradtape.kernels import vector_exponentials as exponentials
from gradtape.kernels import vector_logarithms as logarithms
from gradtape.kernels.scalar_code import DOUBLE, INF, SINGLE, Code, Number


class Form(NamedTuple):
    """An op as code.

    Args:
      function: of numbers in code, to one.
      kinds: letters of the types that its operands may have: "f" float32 and float64, "i" int32 and int64, "b" bool.
      vector: whether a loop over it becomes vector code; otherwise it calls the C library for each element.
      limit: the size of operands up to which the result is right. A loop that calls an op with a limit also asks
        `is_beyond(x)` of the same operand, a bool: where that is true of any element, the work is done again with the
        op's form in `ANYWHERE`.
      infix: an operator that is the same on floats, for texts that are read.
      result: "same", the type of the last operand, or "bool".
      condition: the first operand is a bool.
    """

    function: Callable[..., Number]
    kinds: str = "f"
    vector: bool = True
    limit: float = INF
    infix: str = ""
    result: str = "same"
    condition: bool = False

    @property
    def operands(self) -> int:
        return len(inspect.signature(self.function).parameters)


def _plain(*functions: Callable[..., Number]) -> dict[str, Form]:
    return {f.__name__: Form(f) for f in functions}


def _limited(*functions: Callable[..., Number]) -> dict[str, Form]:
    return {f.__name__: Form(f, limit=angles.LIMIT) for f in functions}


def _comparison(function: Callable[..., Number], infix: str, kinds: str = "fi") -> Form:
    return Form(function, kinds, infix=infix, result="bool")


FORMS: dict[str, Form] = {
    **_plain(
        exponentials.exp,
        exponentials.expm1,
        exponentials.sinh,
        exponentials.cosh,
        exponentials.tanh,
        exponentials.sigmoid,
        logarithms.log,
        logarithms.log1p,
        logarithms.softplus,
        logarithms.asinh,
        logarithms.acosh,
        logarithms.atanh,
        angles.atan,
        angles.atan2,
        angles.asin,
        angles.acos,
        errors.erf,
        errors.erfc,
        errors.ndtr,
        errors.gelu,
        errors.silu,
        arithmetic.ceil,
        arithmetic.floor,
        arithmetic.rint,
        arithmetic.sqrt,
        arithmetic.rsqrt,
        arithmetic.reciprocal,
        arithmetic.step,
        arithmetic.multiply_no_nan,
        arithmetic.divide_no_nan,
        arithmetic.nextafter,
    ),
    **_limited(angles.sin, angles.cos, angles.tan),
    "pow": Form(logarithms.power),
    "add": Form(arithmetic.add, "fi", infix="+"),
    "subtract": Form(arithmetic.subtract, "fi", infix="-"),
    "multiply": Form(arithmetic.multiply, "fi", infix="*"),
    "divide": Form(arithmetic.divide, infix="/"),
    "negative": Form(arithmetic.negative, "fi", infix="-"),
    "square": Form(arithmetic.square, "fi"),
    "abs": Form(arithmetic.magnitude, "fi"),
    "sign": Form(arithmetic.sign, "fi"),
    "maximum": Form(arithmetic.maximum, "fi"),
    "minimum": Form(arithmetic.minimum, "fi"),
    "identity": Form(arithmetic.identity, "fib"),
    "stop_gradient": Form(arithmetic.identity, "fib"),
    "assigned": Form(arithmetic.latter),
    "select": Form(arithmetic.select, "fib", condition=True),
    "less": _comparison(arithmetic.less, "<"),
    "less_equal": _comparison(arithmetic.less_equal, "<="),
    "greater": _comparison(arithmetic.greater, ">"),
    "greater_equal": _comparison(arithmetic.greater_equal, ">="),
    "equal": _comparison(arithmetic.equal, "==", "fib"),
    "not_equal": _comparison(arithmetic.not_equal, "!=", "fib"),
    "is_nan": Form(arithmetic.is_nan, result="bool"),
    "is_inf": Form(arithmetic.is_inf, result="bool"),
    "is_finite": Form(arithmetic.is_finite, result="bool"),
    "has_log": Form(arithmetic.has_log, result="bool"),
    "logical_and": Form(arithmetic.both, "b"),
    "logical_or": Form(arithmetic.either, "b"),
    "logical_xor": Form(arithmetic.one_of, "b"),
    "logical_not": Form(arithmetic.inverted, "b"),
    "bitwise_and": Form(arithmetic.both, "i"),
    "bitwise_or": Form(arithmetic.either, "i"),
    "bitwise_xor": Form(arithmetic.one_of, "i"),
    "invert": Form(arithmetic.inverted, "i"),
    "floordiv": Form(arithmetic.floordiv, vector=False),
    "floormod": Form(arithmetic.floormod, vector=False),
    "truncatediv": Form(arithmetic.truncatediv, vector=False),
    "truncatemod": Form(arithmetic.truncatemod, vector=False),
}

# Ops with a limit, right everywhere and slow.
ANYWHERE: dict[str, Form] = {
    "sin": Form(angles.sin_anywhere, vector=False),
    "cos": Form(angles.cos_anywhere, vector=False),
    "tan": Form(angles.tan_anywhere, vector=False),
}

# Ops that are no functions of single numbers here, and what a loop has instead.
WITHOUT: dict[str, str] = {
    "bitcast": "changes the type: a view of the array",
    "cast": "changes the type: Numba's own conversion",
    "complex": "complex numbers",
    "complex_abs": "complex numbers",
    "conj": "complex numbers",
    "imag": "complex numbers",
    "real": "complex numbers",
    "left_shift": "integers of all widths: the array library",
    "right_shift": "integers of all widths: the array library",
}

# Functions that are no ops.
BESIDE: dict[str, Form] = {
    "is_beyond": Form(angles.is_beyond, result="bool"),
    **{f"{name}_anywhere": form for name, form in ANYWHERE.items()},
}


@functools.cache
def version() -> str:
    """Changes when any of the functions may have changed; compiled loops that are kept on disk belong to one."""
    modules = [*Path(__file__).parent.glob("vector_*.py"), Path(__file__).with_name("scalar_code.py")]
    return hashlib.sha256(b"".join(m.read_bytes() for m in sorted(modules))).hexdigest()[:16]


@functools.cache
def functions() -> dict[str, Any]:
    """All ops as Numba's intrinsic functions: the names for the text of a loop that is not a file."""
    return {name: _intrinsic(name, form) for name, form in {**FORMS, **BESIDE}.items()}


def __getattr__(name: str) -> Any:
    if name not in FORMS and name not in BESIDE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return functions()[name]


# ------------------------------------------------------------------ Numba


def _intrinsic(name: str, form: Form) -> Any:
    from numba.core import types
    from numba.extending import intrinsic

    known = {
        types.float32: ("f", SINGLE),
        types.float64: ("f", DOUBLE),
        types.int32: ("i", SINGLE),
        types.int64: ("i", DOUBLE),
        types.boolean: ("b", SINGLE),
    }

    def infer(*given: Any) -> Any:
        """The signature and the code of a call; None where the operands' types do not fit."""
        operands = [types.unliteral(g) for g in given]
        numbers = operands[1:] if form.condition else operands
        if form.condition and operands[0] != types.boolean:
            return None
        if any(n != numbers[0] for n in numbers) or known.get(numbers[0], ("",))[0] not in tuple(form.kinds):
            return None
        result = types.boolean if form.result == "bool" else operands[-1]

        def write(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            format = known[operands[-1]][1]
            code = Code(builder, format)
            return form.function(*[Number(code, known[t][0], v) for t, v in zip(operands, values, strict=True)]).value

        return result(*operands), write

    made = {1: _of_one, 2: _of_two, 3: _of_three}[form.operands](infer)
    made.__name__ = made.__qualname__ = name
    return intrinsic(made)


# Numba reads the number of operands off a function's signature.


def _of_one(infer: Callable[..., Any]) -> Any:
    return lambda context, x: infer(x)


def _of_two(infer: Callable[..., Any]) -> Any:
    return lambda context, x, y: infer(x, y)


def _of_three(infer: Callable[..., Any]) -> Any:
    return lambda context, x, y, z: infer(x, y, z)
