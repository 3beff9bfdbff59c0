"""Opaque ops: a value per backend, a VJP, and a gufunc signature that says which axes are loops. Floor: ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradtape.ir.aval import Aval
from gradtape.ir.graph import Node, Value
from gradtape.ops.moves import Move
from gradtape.ops.op import Op
from gradtape.ops.samples import BadSample, Sample

Shift = Callable[[dict[str, Any], int], dict[str, Any]]


def axes_behind(params: dict[str, Any], count: int) -> dict[str, Any]:
    """Parameters whose axis, and whose batch axes, come behind `count` more: the usual `shift`."""
    moved = {k: params[k] + count for k in ("axis", "batch_dims") if k in params}
    return params | moved


class Opaque(Op):
    """An op that no other kind describes.

    Args:
      value: (array module, *arrays, **params) to the result, or to a tuple of results.
      infer: (*avals, **params) to the avals of the results.
      vjp: (node, *cotangents) to the cotangents of the operands; None: no gradient flows.
      accumulate: sums are carried in float32 for half types.
      as_slices: the result is zeros with operand 0 added at operand 1 along axis 0 (for axis=0, batch_dims=0):
        a backward pass may hand out the operands as row-sparse slices instead.
      source: the result is made, and not of the operands' elements: it goes where new tensors go.
      shift: (params, count): the parameters for operands with `count` loop axes more in front. None: it has none.
      moves: where the op only moves the elements of its first operands: how (see `ops.moves`).
      whole: it looks at its operand, so that rows are written out for it, though it be linear.
      signature: gufunc core axes, such as `"(n,n)->(n,n)"`; axes before them are loops. A star
        behind a core means any number of such operands.
    """

    kind = "opaque"

    def __init__(
        self,
        name: str,
        value: Callable[..., Any],
        *,
        infer: Callable[..., Sequence[Aval]],
        vjp: Callable[..., Sequence[Value | None]] | None,
        signature: str,
        moves: Callable[[Node], Sequence[Sequence[Move]]] | None = None,
        accumulate: bool = False,
        as_slices: bool = False,
        source: bool = False,
        shift: Shift | None = None,
        whole: bool = False,
        samples: Iterable[Sample],
        errors: Iterable[BadSample] = (),
        doc: str = "",
        notes: str = "",
        listed: bool = True,
    ) -> None:
        self.moves, self.shift, self.whole = moves, shift, whole
        self.value, self.rule_infer, self.rule, self.signature = value, infer, vjp, signature
        self.accumulate, self.as_slices, self.source = accumulate, as_slices, source
        super().__init__(name, doc=doc, samples=samples, errors=errors, notes=notes, listed=listed)

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        try:
            return tuple(self.rule_infer(*avals, **params))
        except ValueError as e:
            raise self.invalid(str(e)) from None

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        if self.rule is None or all(g is None for g in cotangents):
            return [None] * len(node.inputs)
        pulled = self.rule(node, *cotangents)
        return [v if w else None for v, w in zip(pulled, wanted, strict=True)]


class Seeding(Opaque):
    """The key and counter of a draw that depends on a seed alone."""


class Draw(Opaque):
    """Random numbers of a `shape`, from a key and a counter (its first operand) and from parameters, whose shapes
    broadcast to that."""
