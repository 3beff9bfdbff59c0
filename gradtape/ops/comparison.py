"""Declarations: comparisons, logic, tests for special values, and the choice between two tensors. Floor: ops."""

from __future__ import annotations

from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ops.choosing import choose
from gradtape.ops.op import constant, emit
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.samples import BadSample, Sample, Spec


def _compare(name: str, ufunc: str, sign: str, accepts: str) -> Pointwise:
    return Pointwise(
        name, ufunc, [None, None], operands="x y", accepts=accepts, result="bool", doc=f"x {sign} y, elementwise."
    )


LESS = _compare("less", "less", "<", "fiu")
LESS_EQUAL = _compare("less_equal", "less_equal", "<=", "fiu")
GREATER = _compare("greater", "greater", ">", "fiu")
GREATER_EQUAL = _compare("greater_equal", "greater_equal", ">=", "fiu")
EQUAL = _compare("equal", "equal", "==", "fciubs")
NOT_EQUAL = _compare("not_equal", "not_equal", "!=", "fciubs")


def _bools(count: int) -> list[Sample]:
    return [Sample((Spec((2, 3), dtype="bool"),) * count), Sample((Spec((0,), dtype="bool"),) * count)]


def _logic(name: str, ufunc: str, count: int, doc: str) -> Pointwise:
    operands = "x y" if count == 2 else "x"
    return Pointwise(
        name,
        ufunc,
        [None] * count,
        operands=operands,
        accepts="b",
        samples=_bools(count),
        errors=[BadSample((((2,), "float32"),) * count, InvalidArgumentError, "does not take float")],
        doc=doc,
    )


LOGICAL_AND = _logic("logical_and", "logical_and", 2, "x and y, elementwise.")
LOGICAL_OR = _logic("logical_or", "logical_or", 2, "x or y, elementwise.")
LOGICAL_XOR = _logic("logical_xor", "logical_xor", 2, "Exactly one of x and y.")
LOGICAL_NOT = _logic("logical_not", "logical_not", 1, "not x, elementwise.")

IS_NAN = Pointwise("is_nan", "isnan", [None], accepts="f", result="bool", doc="Where x is NaN.")
IS_INF = Pointwise("is_inf", "isinf", [None], accepts="f", result="bool", doc="Where x is infinite.")
IS_FINITE = Pointwise("is_finite", "isfinite", [None], accepts="f", result="bool", doc="Where x is a finite number.")


def _select_vjp(node: Node, g: Value) -> list[Value | None]:
    condition = node.inputs[0]
    zero = constant(0, g.aval.dtype)
    return [None, emit("select", condition, g, zero), emit("select", condition, zero, g)]


def _select_masks(node: Node, mask: Value | None) -> list[Value | None]:
    """Each branch only where it was taken."""
    taken = node.inputs[0]
    other = emit("logical_not", taken)
    if mask is None:
        return [None, taken, other]
    return [None, emit("logical_and", mask, taken), emit("logical_and", mask, other)]


SELECT = Pointwise(
    "select",
    None,
    operands="condition x y",
    array=choose,
    accepts="fciubs",
    condition=True,
    vjp=_select_vjp,
    masks=_select_masks,
    linear=((1, 2),),
    domain=((0.0, 1.0), (-2.0, 2.0), (-2.0, 2.0)),
    errors=[
        BadSample((((2,), "float32"),) * 3, InvalidArgumentError, "bool condition"),
        BadSample((((2,), "bool"), ((2,), "float32"), ((2,), "int32")), InvalidArgumentError, "int32"),
    ],
    doc="x where the condition holds, else y.",
)
