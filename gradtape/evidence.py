"""What a recorder knows of the way from a source to a target. Floor: tape.

The path of records (which holds no tensors), and beside it what recorders note of ops through which no gradient flows,
of values that were asked for, and of variables that were overwritten. While debugging, a ledger says besides where each
op was called, also of those that no tape recorded."""

from __future__ import annotations

from typing import Any

from gradtape.ir.graph import Value
from gradtape.ops.op import constant
from gradtape.runtime.ledger import Ledger
from gradtape.runtime.record import Path, Recorder
from gradtape.transforms.dependence import dependent
from gradtape.transforms.differentiate import pull_back


class Evidence:
    """What one recorder knows about a target and a source."""

    def __init__(self, recorder: Recorder, target: Any, source: Any, stops: int) -> None:
        self.recorder, self.target, self.source, self.stops = recorder, target, source, stops
        self.ledger: Ledger | None = recorder.ledger
        self.path = Path(recorder.node, recorder.answers)
        self.slots = recorder.slots
        self.rules = recorder.rules or [rule.name for rule in recorder.hosts]
        self.ids = {slot: t for t, slot in reversed(self.slots.items())}  # the first tensor or variable of a slot
        slots = [self.slots.get(t._id, 0) for t in (source, target)]
        self.x, self.y = (self.path.values[s] if s > 0 else None for s in slots)
        self.reached = set() if self.x is None else dependent(self.path.nodes, [self.x])
        self.before = self._ancestors()

    def _ancestors(self) -> set[int]:
        """The ids of the values that the target was made of."""
        found = set() if self.y is None else {id(self.y)}
        for node in reversed(self.path.nodes):
            if any(id(v) in found for v in node.outputs):
                found.update(map(id, node.inputs))
        return found

    def is_reached(self, slot: int) -> bool:
        """Whether what has a slot depends on the source."""
        return slot > 0 and id(self.path.values.get(slot)) in self.reached

    def is_the_source(self, tensor: int) -> bool:
        """Whether a tensor is what the source, a variable, was read as."""
        known = None if self.ledger is None else self.ledger.variables.get(tensor)
        return known is not None and known == self.source._id

    def is_before(self, tensor: int) -> bool:
        """Whether the target was made of a tensor or variable, or is it."""
        value = self.path.values.get(self.slots.get(tensor, 0))
        return tensor == self.target._id or (value is not None and id(value) in self.before)

    def is_late(self) -> bool:
        """Whether the target was made after the tape's block had ended."""
        return 0 < self.recorder.ended < self.target._id

    def slot_of(self, v: Value) -> int:
        """The slot of a value of the path; 0 where it has none."""
        return next((slot for slot, known in self.path.values.items() if known is v), 0)

    def place(self, tensor: int) -> str:
        """Where a tensor was made, if that is known: " (`relu` called at model.py:12)"."""
        entry = None if self.ledger is None else self.ledger.entries.get(tensor)
        return f" ({entry.place})" if entry else ""

    def made_by(self, tensor: int) -> str | None:
        """The op that made a tensor, if that is known."""
        entry = None if self.ledger is None else self.ledger.entries.get(tensor)
        return entry.name if entry else None

    def pulled(self) -> Value | None:
        """What is pulled back from target to source."""
        if self.x is None or self.y is None or not self.y.aval.dtype.is_differentiable:
            return None
        seed = constant(1, self.y.aval.dtype, self.y.aval.dims)
        return pull_back(self.path.nodes, [self.y], [seed], [self.x])[0]
