"""Two-byte floats widened to float32 and rounded back, as LLVM code on integers: every processor has the instructions,
and vector code comes of them. Floor: kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradtape.kernels.scalar_code import SINGLE, Code, Number, absolute, bits, from_bits, select, to_float

INFINITE, QUIET = 0x7C00, 0x7E00  # float16: infinity, and a NaN
REBIAS = (127 - 15) << 23  # between the exponents of float16 and float32


def widen_float16(h: Number) -> Number:
    """The float16 with these bits."""
    size, sign = h & 0x7FFF, (h & 0x8000) << 16
    shifted = size << 13
    normal = shifted + select(size >= INFINITE, h.like(2 * REBIAS), REBIAS)
    return from_bits(select(size < 0x0400, bits(to_float(size) * 2.0**-24), normal) | sign)


def narrow_float16(x: Number) -> Number:
    """The bits of the nearest float16, halves to even."""
    sign, size = (bits(x) >> 16) & 0x8000, absolute(x)
    shifted = bits(size) - REBIAS
    normal = (shifted + 0x0FFF + ((shifted >> 13) & 1)) >> 13
    small = bits(size * 2.0**24 + SINGLE.magic) & 0x07FF  # adding rounds to whole numbers
    found = select(size < 2.0**-14, small, normal)
    found = select(size >= 65520.0, INFINITE, found)
    return select(x != x, QUIET, found) | sign


def widen_bfloat16(h: Number) -> Number:
    return from_bits(h << 16)


def narrow_bfloat16(x: Number) -> Number:
    """The first half of the bits, rounded, halves to even; NaN stays NaN."""
    b = bits(x)
    rounded = (b + 0x7FFF + ((b >> 16) & 1)) >> 16
    return select(x != x, (b >> 16) | 0x40, rounded) & 0xFFFF


@functools.cache
def functions() -> dict[str, Any]:
    """For each of the types: from its bits (uint16) to float32, back, and float32 rounded to what it can be."""
    found: dict[str, Any] = {}
    for name, widen, narrow in (
        ("float16", widen_float16, narrow_float16),
        ("bfloat16", widen_bfloat16, narrow_bfloat16),
    ):
        found[f"widen_{name}"] = _intrinsic(widen, True, False)
        found[f"narrow_{name}"] = _intrinsic(narrow, False, True)
        found[f"round_{name}"] = _intrinsic(functools.partial(_rounded, widen, narrow), False, False)
    return found


def _rounded(widen: Callable[[Number], Number], narrow: Callable[[Number], Number], x: Number) -> Number:
    return widen(narrow(x))


def _intrinsic(function: Callable[[Number], Number], from_half: bool, to_half: bool) -> Any:
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic

    operand = types.uint16 if from_half else types.float32
    result = types.uint16 if to_half else types.float32

    def convert(context: Any, x: Any) -> Any:
        if x != operand:
            return None

        def write(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            (value,), code = values, Code(builder, SINGLE)
            whole = Number(code, "i", builder.zext(value, ir.IntType(32))) if from_half else Number(code, "f", value)
            made = function(whole).value
            return builder.trunc(made, ir.IntType(16)) if to_half else made

        return result(operand), write

    return intrinsic(convert)
