"""The backward pass of one target as a graph, with a cotangent that is not given yet. Floor: runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gradtape.ir.graph import Graph, Value, order
from gradtape.ops.call import HostRule
from gradtape.runtime.compiled import CompiledGraph
from gradtape.runtime.record import Path, Recorder
from gradtape.runtime.rules import TracedRule, by_structure, inlined, traced_rule
from gradtape.runtime.tensor import Tensor
from gradtape.transforms.differentiate import leaves, pull_back


class Reads(NamedTuple):
    """What a graph over a recorded program reads: values, and where their tensors are: first those that the tape has
    kept, by their places, then those that custom rules captured."""

    values: list[Value]
    places: list[int]
    captured: list[Tensor]

    def tensors(self, saved: Sequence[Tensor]) -> list[Tensor]:
        return [*(saved[i] for i in self.places), *self.captured]


class Backward:
    """What is pulled back to each source. `rules`: custom rules on the way as graphs, by their ordinals; without them
    their host steps stand there."""

    def __init__(
        self, path: Path, target: int, sources: tuple[int, ...], rules: Mapping[int, TracedRule] | None = None
    ) -> None:
        self.path = path
        self.y, self.xs = path.values[target], [path.values[s] for s in sources]
        self.cotangent = Value(self.y.aval)
        self.pulled = pull_back(path.nodes, [self.y], [self.cotangent], self.xs)
        self.given = [*path.everything(), self.cotangent]
        self.captured: dict[int, tuple[Value, Tensor]] = {}
        self.compiler: Callable[[Graph], CompiledGraph] = CompiledGraph
        if rules is not None:
            self.pulled = inlined(self.pulled, rules, self.given)
            self.captured = {id(v): (v, t) for r in rules.values() for v, t in r.captured}
            self.given += [v for v, _ in self.captured.values()]
            self.compiler = by_structure  # rules are traced for each call, and are the same as a rule

    @property
    def rules(self) -> tuple[int, ...]:
        """The ordinals of the custom rules whose host steps stand in the backward pass."""
        nodes = order([p for p in self.pulled if p is not None], self.given)
        return tuple(sorted(n.step.params["ordinal"] for n in nodes if isinstance(n.step.op, HostRule)))

    def reads(self, outputs: Sequence[Value]) -> Reads:
        kept = leaves(outputs, self.path.everything())
        captured = leaves(outputs, [v for v, _ in self.captured.values()])
        places = [self.path.kept[id(v)] for v in kept]
        return Reads([*kept, *captured], places, [self.captured[id(v)][1] for v in captured])


def traced_backward(
    recorder: Recorder, rules: Sequence[int], target: int, sources: tuple[int, ...], forward: bool = False
) -> Backward:
    """The backward pass with its custom rules traced: for one row, so that what is done to all rows is done to each.
    A rule runs once for this, and may answer other than the last time. `forward`: it will be transposed, and rules that
    came with a JVP are that JVP's transpose."""
    traced = {k: traced_rule(recorder.hosts[k], recorder.node, k, forward) for k in rules}
    absent = {k: r.absent for k, r in traced.items() if r.absent}
    return Backward(Path(recorder.node, absent), target, sources, traced)
