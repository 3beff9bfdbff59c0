"""How a CUDA kernel spells its scalar operations: what the functions of `kernels/cuda/` take. Floor: kernels.

Every atom of the op table is a function of its name there. So are some ops that the table composes of others, but
that CUDA's own library has, or that one function does in fewer steps."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.cluster import Operation
from gradtape.ir.dtypes import DType, bool_
from gradtape.kernels.spelling import literal
from gradtape.kernels.vector_math import FORMS

# Letters of `DType.kind` that an operand may have: of the atoms that are not functions on the CPU, and of those that
# take more here.
KINDS: dict[str, str] = {
    **{name: form.kinds.replace("i", "iu") for name, form in FORMS.items()},
    **dict.fromkeys(("add", "subtract", "multiply", "negative", "square"), "fciu"),
    **dict.fromkeys(("divide", "reciprocal", "multiply_no_nan", "divide_no_nan", "has_log", "assigned"), "fc"),
    **dict.fromkeys(("equal", "not_equal", "identity", "stop_gradient", "select"), "fciub"),
    **dict.fromkeys(("floordiv", "floormod", "truncatediv", "truncatemod"), "fiu"),
    "pow": "fciu",
    **dict.fromkeys(("exp", "expm1", "log", "log1p", "sqrt"), "fc"),
    **{a + f + h: "fc" for a in ("", "a") for f in ("sin", "cos", "tan") for h in ("", "h")},
    **dict.fromkeys(("left_shift", "right_shift"), "iu"),
    **dict.fromkeys(("real", "conj", "bitcast"), "fciu"),
    **dict.fromkeys(("imag", "cast"), "fciub"),
    "complex": "f",
    "complex_abs": "c",
    **dict.fromkeys(("lgamma", "erfinv", "erfcinv", "ndtri", "bessel_i0", "bessel_i1"), "f"),
}
# Per monoid, the structure that combines two numbers, and the kinds that it takes.
MONOIDS = {
    "sum": ("Sum", "fciu"),
    "prod": ("Prod", "fciu"),
    "max": ("Max", "fiu"),
    "min": ("Min", "fiu"),
    "all": ("All", "b"),
    "any": ("Any", "b"),
}
NOT_FINITE = {"inf": "highest", "-inf": "lowest", "nan": "not_a_number"}


def spells_cuda(op: str, dtypes: tuple[DType, ...]) -> bool:
    """Whether CUDA kernels do an atom, or reduce by a monoid, for operands and a result of these dtypes."""
    kinds = MONOIDS[op][1] if op in MONOIDS else KINDS.get(op)
    if kinds is None or any(d.kind not in tuple("fciub") for d in dtypes):
        return False
    numbers = dtypes[1:-1] if op == "select" else dtypes[:-1]
    return all(d.kind in kinds for d in numbers)


def spelled_cuda(e: Operation, operands: Sequence[str]) -> str:
    """One scalar operation as an expression."""
    if e.op == "cast" and e.leaf is not None:  # a half is made of it, which is rounded once
        return f"rounded_to_odd({operands[0]})"
    if e.op == "cast":
        return f"cast<{e.dtype.name}>({operands[0]})"
    if e.op == "bitcast":
        return _bitcast(e, operands[0])
    if e.op == "nextafter" and e.leaf is not None:
        return f"nextafter_of<{e.leaf.name}>({', '.join(operands)})"
    if e.op == "round":
        return f"round_{e.leaf.name}({operands[0]})"
    if e.op == "complex":
        return f"complex_of({', '.join(operands)})"
    infix = FORMS[e.op].infix if e.op in FORMS else ""
    if infix and len(operands) == 2 and e.dtype.kind in "fb":
        return f"{operands[0]} {infix} {operands[1]}"
    return f"{e.op}({', '.join(operands)})"


def _bitcast(e: Operation, operand: str) -> str:
    """The bits of a value; halves are float32 here."""
    source, target = e.leaf or (None, e.dtype)
    bits = f"narrow<{source.name}>({operand})" if source is not None and source.is_half else operand
    text = f"bitcast<{target.name}>({bits})"
    return f"widen({text})" if target.is_half else text


def literal_cuda(e: Operation) -> str | None:
    """A number that stands in the text; None for one that is an argument."""
    if e.dtype is bool_:
        return "true" if e.leaf else "false"
    text = literal(e)
    for number, function in NOT_FINITE.items():
        if text == f"{e.dtype.name}({number})":
            return f"{function}<{e.dtype.name}>()"
    return text
