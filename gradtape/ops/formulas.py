"""Scalar functions that a program writes down while it runs: pointwise ops outside of the table. Floor: ops.

Their derivative is that of their graph, unless partials are given: `transforms.differentiate` pulls back through it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, complex64, float32, int32, uint32
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.expr import Expr, walk
from gradtape.ir.graph import Graph, Node, Value, order
from gradtape.ops.call import ruled_step
from gradtape.ops.op import Cotangent, apply
from gradtape.ops.pointwise import Partial, Pointwise, instantiate

TRIED = {"f": float32, "c": complex64, "i": int32, "u": uint32}  # a dtype of each kind that operands may have


class ScalarFunction(Pointwise):
    """A formula over its operands.

    Args:
      name: as messages call it.
      formula: an expression that mentions every operand.
      operands: their names.
      partials: one per operand; none of them: those of the formula.

    Raises:
      InvalidArgumentError: a formula that no dtype fits.
    """

    def __init__(self, name: str, formula: Expr, operands: Sequence[str], partials: Sequence[Partial] = ()) -> None:
        kinds = "".join(k for k, d in TRIED.items() if _takes(formula, operands, d))
        if not kinds:
            _result(formula, operands, float32)  # says why
        super().__init__(
            name, formula, partials, operands=" ".join(operands), accepts=kinds, listed=False, doc=str(formula)
        )

    def result_dtype(self, source: DType, /, **params: Any) -> DType:
        assert self.formula is not None
        return _result(self.formula, self.operands, source)

    def written(self, inputs: Sequence[Value]) -> Value:
        """The formula as graph values."""
        assert self.formula is not None
        return instantiate(self.formula, dict(zip(self.operands, inputs, strict=True)), inputs[0].aval.dtype)

    def opened(self, node: Node) -> list[Node]:
        """A node of this op as nodes of the table, over its operands and to its result: those of its formula, and its
        partials as a rule."""
        value = self.written(node.inputs)
        if self.partials:
            (value,) = self._with_rule(node, value)
        *inside, last = order([value], node.inputs)
        end = Node(last.step, last.inputs, ())
        end.outputs = node.outputs
        return [*inside, end]

    def _with_rule(self, node: Node, value: Value) -> Sequence[Value]:
        """The value of the formula, connected to the operands by the partials alone."""
        operands, out = [Value(v.aval) for v in node.inputs], Value(value.aval)
        alone, cotangent = Node(node.step, tuple(operands), ()), Value(value.aval)
        alone.outputs = (out,)
        pulled = self.pull(alone, [Cotangent(cotangent)], [True] * len(operands))
        rule = Graph([cotangent, *operands, out], [c.value for c in pulled if c is not None])
        step = ruled_step(1, rule, tuple(c is not None for c in pulled), True, self.name)
        return apply(step, [value, *node.inputs, *node.inputs, value])


def _takes(formula: Expr, operands: Sequence[str], dtype: DType) -> bool:
    """Whether a formula is one of operands of a dtype; beside whole numbers there are no others."""
    if dtype.is_integer and any(e.op == "number" and type(e.leaf) is float for e in walk(formula)):
        return False
    try:
        _result(formula, operands, dtype)
    except (InvalidArgumentError, TypeError, ValueError):
        return False
    return True


def _result(formula: Expr, operands: Sequence[str], dtype: DType) -> DType:
    given = {name: Value(aval((), dtype)) for name in operands}
    return instantiate(formula, given, dtype).aval.dtype
