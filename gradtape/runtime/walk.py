"""Backward passes record by record, as tapes of old went: slow, but each cotangent is there to be looked at. Floor:
runtime."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.call import CUSTOM_CALL
from gradtape.ops.control import total
from gradtape.ops.op import Cotangent, emit
from gradtape.runtime.dispatch import execute
from gradtape.runtime.numerics import interpreted, part_of
from gradtape.runtime.record import Path, Recorder
from gradtape.runtime.tensor import Tensor
from gradtape.transforms.dependence import dependent, leaves
from gradtape.transforms.differentiate import filled_step, pull

Part = tuple[Tensor, Tensor | None]  # a cotangent, and where it can be other than 0


def walked(
    recorder: Recorder, targets: Sequence[int], sources: Sequence[int], given: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The cotangents of the source slots, for targets with these cotangents (None: ones)."""
    return Walk(recorder, sources).back(targets, given)


class Walk:
    """One backward pass: the cotangents that have arrived so far, by value."""

    def __init__(self, recorder: Recorder, sources: Sequence[int]) -> None:
        self.recorder, self.path = recorder, Path(recorder.node, {})
        self.sources = [self.path.values[s] for s in sources]
        self.active = dependent(self.path.nodes, self.sources)
        self.held: dict[int, list[Part]] = {}
        self.ids = {slot: t for t, slot in reversed(recorder.slots.items())}
        self.slots = {id(v): slot for slot, v in self.path.values.items()}

    def back(self, targets: Sequence[int], given: Sequence[Tensor | None]) -> list[Tensor | None]:
        for slot, g in zip(targets, given, strict=True):
            v = self.path.values[slot]
            self._arrive(v, (execute(filled_step(v.aval, 1), ()) if g is None else g, None))
        for node in reversed(self.path.nodes):
            reached = any(id(v) in self.held for v in node.outputs)
            if reached and any(id(v) in self.active for v in node.inputs):
                with part_of(self._named(node)):
                    found = self._by_rule(node) if node.step.op is CUSTOM_CALL else self._pulled(node)
                for v, part in zip(node.inputs, found, strict=True):
                    if part is not None:
                        self._arrive(v, part)
        return [self._total(v) if id(v) in self.active else None for v in self.sources]

    def _arrive(self, v: Value, part: Part) -> None:
        self.held.setdefault(id(v), []).append(part)

    def _named(self, node: Node) -> str:
        ledger = self.recorder.ledger
        made = None if ledger is None else ledger.entries.get(self.ids.get(self.slots.get(id(node.outputs[0]), 0), 0))
        if made is not None:
            return f"in the gradient of `{made.name}`, {made.place}"
        return f"in the gradient of `{node.step.name}`, {self.recorder.place_of(self.path.records[id(node)])}"

    def _total(self, v: Value) -> Tensor | None:
        """The sum of what has arrived at a value."""
        parts = self.held.get(id(v))
        if not parts:
            return None
        values = [Value(t._aval) for t, _ in parts]
        summed = values[0]
        for other in values[1:]:
            summed = total(summed, other)
        with part_of("in a sum of gradients"):
            return interpreted(Graph(values, [summed]), [t for t, _ in parts])[0]

    def _by_rule(self, node: Node) -> list[Part | None]:
        ordinal = node.step.params["ordinal"]
        arrived = [(v, self._total(v)) for v in node.outputs if v.aval.dtype.is_differentiable]
        ups = [execute(filled_step(v.aval, 0), ()) if up is None else up for v, up in arrived]
        answers = self.recorder.hosts[ordinal](*ups)
        self.recorder.answers[ordinal] = tuple(k for k, a in enumerate(answers) if a is None)
        return [None if a is None else (a, None) for a in answers]

    def _pulled(self, node: Node) -> list[Part | None]:
        feeds: list[tuple[Value, Tensor]] = []
        cotangents = [self._symbolic(v, feeds) for v in node.outputs]
        pulled = pull(node, cotangents, [id(v) in self.active for v in node.inputs])
        outputs = [v for c in pulled if c is not None for v in (c.value, c.mask) if v is not None]
        kept = leaves(outputs, list(dict.fromkeys([*node.inputs, *node.outputs])))
        tensors = [self.recorder.saved[self.path.kept[id(v)]] for v in kept]
        graph = Graph([*kept, *(v for v, _ in feeds)], outputs)
        made = iter(interpreted(graph, [*tensors, *(t for _, t in feeds)]))
        return [None if c is None else (next(made), None if c.mask is None else next(made)) for c in pulled]

    def _symbolic(self, v: Value, feeds: list[tuple[Value, Tensor]]) -> Cotangent | None:
        """What has arrived at a value, as the sum that its op's rule is given."""
        summed: Cotangent | None = None
        for t, mask in self.held.get(id(v), []):
            here = Cotangent(Value(t._aval), None if mask is None else Value(mask._aval))
            feeds.append((here.value, t))
            if mask is not None and here.mask is not None:
                feeds.append((here.mask, mask))
            summed = here if summed is None else _added(summed, here)
        return summed


def _added(a: Cotangent, b: Cotangent) -> Cotangent:
    mask = None if a.mask is None or b.mask is None else emit("logical_or", a.mask, b.mask)
    return Cotangent(total(a.value, b.value), mask)
