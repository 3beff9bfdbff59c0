"""Structural ops move elements and compute nothing: each names its transpose. Floor: ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import float32
from gradtape.ir.graph import Node, Value
from gradtape.ir.shapes import Shape
from gradtape.ops.moves import Move
from gradtape.ops.op import Cotangent, Op, constant, emit
from gradtape.ops.samples import BadSample, Sample


class Structural(Op):
    """A linear op that only rearranges its first operands; trailing index operands carry no gradient.

    Args:
      value: (array module, *arrays, **params) to the result.
      shape: (*shapes, **params) to the result's shape.
      transpose: (node, cotangent) to the cotangents of the operands: an op of this kind again.
      moves: (node) to the moves of each operand's elements; the result is the sum over operands.
      indices: how many trailing operands are integer positions.
      view: the value shares memory with its operand.
      repeats: the result is the operand broadcast, so that a pointwise op may take the operand instead.
      idle: (aval, **params); whether the step leaves its operand as it is.
      both: (parameters of one step, of the next) to those of the one step that does the same.
    """

    kind = "structural"

    def __init__(
        self,
        name: str,
        value: Callable[..., Any],
        *,
        shape: Callable[..., Shape],
        transpose: Callable[[Node, Value], Sequence[Value | None]],
        moves: Callable[[Node], Sequence[Sequence[Move]]] | None = None,
        indices: int = 0,
        view: bool = True,
        repeats: bool = False,
        idle: Callable[..., bool] | None = None,
        both: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]] | None = None,
        samples: Iterable[Sample],
        errors: Iterable[BadSample] = (),
        doc: str = "",
        notes: str = "",
    ) -> None:
        self.value, self.shape, self.transpose, self.moves = value, shape, transpose, moves
        self.indices, self.view, self.repeats, self.idle, self.both = indices, view, repeats, idle, both
        super().__init__(name, doc=doc, samples=samples, errors=errors, notes=notes)

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        moved = avals[: len(avals) - self.indices]
        dtype = moved[0].dtype
        for a in moved[1:]:
            if a.dtype is not dtype:
                raise self.invalid(
                    f"wants operands of one dtype, got a {dtype.cname} and a {a.dtype.cname} tensor. Use `tf.cast`."
                )
        try:
            return (aval(self.shape(*[a.shape for a in avals], **params), dtype),)
        except ValueError as e:
            raise self.invalid(str(e)) from None

    def pull(self, node: Node, given: list[Cotangent | None], wanted: list[bool]) -> list[Cotangent | None]:
        """The mask moves as the cotangent does: as numbers, so that sums say where any part can be other than 0."""
        (c,) = given
        values = self.vjp(node, [None if c is None else c.value], wanted)
        if c is None or c.mask is None:
            return [None if v is None else Cotangent(v) for v in values]
        mask = c.mask
        if mask.aval.dims != node.outputs[0].aval.dims:
            mask = emit("broadcast_to", mask, shape=node.outputs[0].aval.dims)
        moved = self.vjp(node, [emit("cast", mask, dtype=float32)], wanted)
        zero = constant(0, float32)
        return [
            None if v is None else Cotangent(v, None if m is None else emit("greater", m, zero))
            for v, m in zip(values, moved, strict=True)
        ]

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        (g,) = cotangents
        if g is None:
            return [None] * len(node.inputs)
        pulled = [*self.transpose(node, g), *[None] * self.indices]
        return [v if w else None for v, w in zip(pulled, wanted, strict=True)]
