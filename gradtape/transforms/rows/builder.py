"""Makes graph nodes, each distinct one once: what is computed twice is the same value. Floor: transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.ir.dtypes import DType
from gradtape.ir.graph import Value
from gradtape.ops.op import Step, apply, lookup


class Builder:
    """Emits nodes and remembers them, so that terms can recognise common factors by identity."""

    def __init__(self) -> None:
        self.known: dict[Any, tuple[Value, ...]] = {}
        self.taken: dict[Any, tuple[Value, tuple[int, ...]]] = {}  # arrays indexed by axes, by both

    def apply(self, step: Step, inputs: Sequence[Value]) -> tuple[Value, ...]:
        key = (step, *map(id, inputs))
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = apply(step, inputs)
        return found

    def emit(self, name: str, *inputs: Value, **params: Any) -> Value:
        return self.apply(lookup(name).bind(**params), inputs)[0]

    def constant(self, value: Any, dtype: DType, shape: tuple[int, ...] = ()) -> Value:
        return self.emit("constant", value=value, dtype=dtype, shape=shape)

    def transpose(self, v: Value, perm: Sequence[int]) -> Value:
        return v if list(perm) == list(range(len(perm))) else self.emit("transpose", v, perm=tuple(perm))

    def reshape(self, v: Value, shape: Sequence[int]) -> Value:
        return v if v.aval.shape == tuple(shape) else self.emit("reshape", v, shape=tuple(shape))
