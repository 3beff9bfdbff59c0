"""Makes graph nodes, each distinct one once: what is computed twice is the same value. Floor: transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.ir.dtypes import DType
from gradtape.ir.graph import Node, Value
from gradtape.ops.contraction import Contraction
from gradtape.ops.op import Constant, Step, apply, lookup
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.ops.structural import Structural


class Builder:
    """Emits nodes and remembers them, so that terms can recognise common factors by identity."""

    def __init__(self, parted: bool = False) -> None:
        self.parted = parted  # what is emitted is meant for some of the rows, though it runs for all
        self.known: dict[Any, tuple[Value, ...]] = {}
        self.zeros: set[int] = set()  # ids of values that are zeros whatever the operands
        self.taken: dict[Any, tuple[Value, tuple[int, ...]]] = {}  # arrays indexed by axes, by both

    def apply(self, step: Step, inputs: Sequence[Value]) -> tuple[Value, ...]:
        key = (step, *map(id, inputs))
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = apply(step, inputs)
            if is_zero(step, [id(v) in self.zeros for v in inputs]):
                self.zeros.update(map(id, found))
        return found

    def emit(self, name: str, *inputs: Value, **params: Any) -> Value:
        return self.apply(lookup(name).bind(**params), inputs)[0]

    def constant(self, value: Any, dtype: DType, shape: tuple[int, ...] = ()) -> Value:
        return self.emit("constant", value=value, dtype=dtype, shape=shape)

    def transpose(self, v: Value, perm: Sequence[int]) -> Value:
        return v if list(perm) == list(range(len(perm))) else self.emit("transpose", v, perm=tuple(perm))

    def reshape(self, v: Value, shape: Sequence[int]) -> Value:
        return v if v.aval.shape == tuple(shape) else self.emit("reshape", v, shape=tuple(shape))

    def scaled(self, v: Value, number: Value) -> Value:
        """A value times a number, which goes into the smallest array that the value is a product of."""
        node = v.node
        if node is not None and isinstance(node.step.op, Contraction) and self._made(node):
            small = min((0, 1), key=lambda i: node.inputs[i].aval.size)
            operands = list(node.inputs)
            if 2 * operands[small].aval.size <= v.aval.size:
                operands[small] = self.scaled(operands[small], number)
                return self.apply(node.step, operands)[0]
        return self.emit("multiply", v, number)

    def _made(self, node: Node) -> bool:
        """Whether a node was made here: others may have been computed before, and are only read."""
        return (node.step, *map(id, node.inputs)) in self.known


def is_zero(step: Step, zeros: Sequence[bool]) -> bool:
    """Whether a step's result is zeros, given which operands are: the constant, and what is linear in one of these."""
    op = step.op
    match op:
        case Constant():
            return bool(step.params["value"] == 0)
        case Pointwise():
            return any(all(zeros[i] for i in group) for group in op.linear)
        case Contraction():
            return any(zeros)
        case Reduction():
            return zeros[0] and op.coefficient(1) is not None
        case Structural():
            return all(zeros[: len(zeros) - op.indices])
    return False
