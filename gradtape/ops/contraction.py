"""The contraction: einsum of two operands. Its VJPs are contractions again. Floor: ops.

Subscripts are letters, one per axis: `"bik,bkj->bij"`. No letter repeats within one operand, and each
letter of an operand is in the other operand or in the result (what stands alone is summed before)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.graph import Node, Value
from gradtape.ir.shapes import shape_text
from gradtape.ops.op import Op, emit
from gradtape.ops.pointwise import NUMERIC, _kinds
from gradtape.ops.samples import BadSample, Sample


class Contraction(Op):
    """`contract(a, b, subscripts=)`; matmul, tensordot, einsum, outer and batched products are spellings of it."""

    kind = "contraction"

    def __init__(self, name: str, *, samples: Iterable[Sample], errors: Iterable[BadSample], doc: str) -> None:
        super().__init__(name, doc=doc, samples=samples, errors=errors)

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        a, b = avals
        left, right, out = parts(params["subscripts"])
        if a.dtype is not b.dtype:
            raise self.invalid(
                f"wants operands of one dtype, got a {a.dtype.cname} and a {b.dtype.cname} tensor. Use `tf.cast`."
            )
        if a.dtype.kind not in NUMERIC:
            raise self.invalid(f"does not take {a.dtype.cname} tensors; it takes {_kinds(NUMERIC)}.")
        sizes: dict[str, int | None] = {}
        for letters, x in ((left, a), (right, b)):
            if x.shape is not None and len(x.shape) != len(letters):
                raise self.invalid(f"`{params['subscripts']}` does not fit an operand of shape {shape_text(x.shape)}.")
            for c, n in zip(letters, x.shape or (None,) * len(letters), strict=True):
                known = sizes.get(c)
                if known is not None and n is not None and known != n:
                    raise self.invalid(
                        f"got incompatible shapes: {shape_text(a.shape)} vs. {shape_text(b.shape)} under "
                        f"`{params['subscripts']}`, where `{c}` is {known} in one and {n} in the other."
                    )
                sizes[c] = n if known is None else known
        return (aval(tuple(sizes[c] for c in out), a.dtype),)

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        (g,) = cotangents
        if g is None:
            return [None, None]
        a, b = node.inputs
        left, right, out = parts(node.step.params["subscripts"])
        return [
            emit(self.name, g, conjugate(b), subscripts=f"{out},{right}->{left}") if wanted[0] else None,
            emit(self.name, conjugate(a), g, subscripts=f"{left},{out}->{right}") if wanted[1] else None,
        ]


def conjugate(v: Value) -> Value:
    """The complex conjugate; a real value is its own."""
    return emit("conj", v) if v.aval.dtype.is_complex else v


def parts(subscripts: str) -> tuple[str, str, str]:
    """The letters of both operands and of the result."""
    ins, out = subscripts.split("->")
    left, right = ins.split(",")
    return left, right, out
