"""Whether examples of a batch depend on each other, from letters over shapes alone. Floor: transforms.

The batch letter starts on the batch axis of the source and is followed through the recorded program: where a value's
element may depend on an example, the example's index and the position on some axis of the value are one letter. If
they are one on the batch axis of the target, examples are independent. If not, somebody is to blame: every value
carries the op at which its examples left their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.index import Index
from gradtape.ops.call import Call, CustomCall
from gradtape.ops.composite import Composite
from gradtape.ops.control import Checkpoint, Cond, Region
from gradtape.transforms.control import Loop
from gradtape.transforms.differentiate import residuals
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.dependence import (
    NotSaid,
    depending_on_all,
    either,
    in_place,
    is_bent,
    lost,
    passed_on,
    starting,
)
from gradtape.transforms.rows.terms import Rows, Term


@dataclass(frozen=True)
class Verdict:
    """`kind`: "proved", "mixed" (examples meet) or "unknown" (no proof either way); `op`: the op that is to blame, and
    `node`, the recorded step that it is or that contains it; `place`: where that was called, if anybody knows."""

    kind: str
    op: str = ""
    node: Node | None = None
    place: str = ""

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        if self.kind == "mixed":
            return f"examples are mixed at op `{self.op}`{where}"
        if self.kind == "unknown":
            return f"independence of examples could not be proved because of op `{self.op}`{where}"
        return "examples are independent"


PROVED = Verdict("proved")

# How far examples are from their places: on another axis, or one that is merged or cut; at positions that an op
# chose; several of them in one element.
IN_PLACE, DISPLACED, BENT, MET = range(4)
MAX_ROUNDS = 8  # of a loop, after which nothing is known of it


@dataclass(frozen=True)
class Pattern:
    """On which examples the elements of a value depend, how far these are from their places, and since which op."""

    rows: Rows
    distance: int = IN_PLACE
    blame: Verdict = PROVED


Recorded = Callable[[Value, Mapping[int, Value]], Index | None]  # as `Positions`; the second is `_Walk.outside`


def nothing_known(ids: Value, outside: Mapping[int, Value]) -> Index | None:
    """Positions that are only known when running."""
    return None


def batch_verdict(
    nodes: Sequence[Node], source: Value, target: Value, axis: int = 0, positions: Recorded = nothing_known
) -> Verdict:
    """Whether example i of the target, along an axis, depends on example i of the source alone. `positions`: the
    numbers of an index vector that is an operand, where they are known."""
    dims = source.aval.dims
    if dims[axis] == 1:
        return PROVED
    known = {id(source): Pattern(starting(dims, axis))}
    _Walk(axis, positions).through(_leading_to(target, nodes), known)
    found = known.get(id(target))
    return PROVED if found is None else found.blame


def _leading_to(target: Value, nodes: Sequence[Node]) -> list[Node]:
    """The nodes that a value depends on: what a tape recorded beside them says nothing of it."""
    needed, found = {id(target)}, []
    for node in reversed(nodes):
        if any(id(v) in needed for v in node.outputs):
            needed.update(map(id, node.inputs))
            found.append(node)
    return found[::-1]


class _Walk:
    """Patterns of values, through the nodes of a program and the graphs inside it."""

    def __init__(self, axis: int, positions: Recorded) -> None:
        self.b, self.axis, self.given = Builder(), axis, positions
        self.outside: dict[int, Value] = {}  # for values of graphs inside: the recorded ones that they are

    def through(self, nodes: Sequence[Node], known: dict[int, Pattern], recorded: Node | None = None) -> None:
        """Add to `known` what the nodes make of it. `recorded`: the recorded step whose graph this is."""
        for node in nodes:
            operands = {i: known[id(v)] for i, v in enumerate(node.inputs) if id(v) in known and _passes(node, i)}
            if not operands:
                continue
            at = recorded or node
            if isinstance(node.step.op, Call):
                found = self._inside(node, node.step.params["graph"], operands, at)
            elif isinstance(node.step.op, Region):
                found = self._region(node, operands, at)
            else:
                found = self._judged(node, operands, at)
            known.update((id(v), p) for v, p in zip(node.outputs, found, strict=True) if p is not None)

    def _inside(self, node: Node, graph: Graph, operands: dict[int, Pattern], at: Node) -> list[Pattern | None]:
        known = {id(graph.inputs[i]): p for i, p in operands.items()}
        ends = [*zip(graph.inputs, node.inputs, strict=True), *zip(graph.outputs, node.outputs, strict=True)]
        self.outside.update((id(v), self.outside.get(id(o), o)) for v, o in ends)
        self.through(graph.nodes, known, at)
        return [known.get(id(v)) for v in graph.outputs]

    def _region(self, node: Node, operands: dict[int, Pattern], at: Node) -> list[Pattern | None]:
        """Branches: what either says. Loops: what is true of the carry before the body and after it."""
        op = node.step.op
        if isinstance(op, Checkpoint):
            return self._within(node.step.params["graph"], operands, at)
        if isinstance(op, Cond):
            inside = {i - 1: p for i, p in operands.items()}
            sides = [self._within(g, inside, at) for g in op.graphs(node.step)]
            return [_joined(pair) for pair in zip(*sides, strict=True)]
        loop = Loop(node.step)
        given: dict[int, Pattern] = {i - loop.lead: p for i, p in operands.items()}
        for _ in range(MAX_ROUNDS):
            found = self._within(loop.body, given, at)
            carry = {i: p for i in range(loop.carried) if (p := _joined((given.get(i), found[i])))}
            if all(i in given and _places(p) == _places(given[i]) for i, p in carry.items()):
                pushed = found[loop.carried :]
                return [*(carry.get(i) for i in range(loop.carried)), *pushed, *[None] * (1 - loop.lead)]
            given |= carry
        return [
            Pattern(depending_on_all(given[min(given)].rows, v.aval.dims), MET, Verdict("unknown", op.name, at))
            for v in node.outputs
        ]

    def _within(self, graph: Graph, operands: dict[int, Pattern], at: Node) -> list[Pattern | None]:
        known = {id(graph.inputs[i]): p for i, p in operands.items()}
        self.through(graph.nodes, known, at)
        return [known.get(id(v)) for v in graph.outputs]

    def _judged(self, node: Node, operands: dict[int, Pattern], at: Node) -> list[Pattern | None]:
        """The patterns of a node's results, and who is to blame for where their examples stand."""
        try:
            rows = self._results(node, operands)
        except NotSaid as e:
            name = str(e) or node.step.name
            all_of_them = either([p.rows for p in operands.values()])
            blame = _worst(operands) or Verdict("unknown", name, at)
            return [Pattern(depending_on_all(all_of_them, v.aval.dims), MET, blame) for v in node.outputs]
        return [None if r is None else self._blamed(node, r, operands, at) for r in rows]

    def _blamed(self, node: Node, rows: Rows, operands: dict[int, Pattern], at: Node) -> Pattern:
        """The op that is to blame is the first of those that moved examples furthest."""
        distance = max((_distance(t, self.axis) for t in rows.terms), default=IN_PLACE)
        if distance == IN_PLACE:
            return Pattern(rows)
        further = [p for p in operands.values() if p.distance >= distance]
        worst = max(further, key=lambda p: p.distance, default=None)
        return Pattern(rows, distance, Verdict("mixed", node.step.name, at) if worst is None else worst.blame)

    def _results(self, node: Node, operands: dict[int, Pattern]) -> list[Rows | None]:
        """The patterns of a node's results; None: no example reaches it.

        Raises:
          NotSaid: nothing is known; its text names what is to blame, if that is not the op."""
        op, avals = node.step.op, tuple(v.aval for v in node.inputs)
        if isinstance(op, CustomCall):
            raise NotSaid("a custom gradient")
        if isinstance(op, Composite):
            return self._expanded(node, op.expand(avals, **node.step.params), operands)
        each = [passed_on(self.b, node, i, p.rows, self.positions) for i, p in operands.items()]
        return [either(results) for results in zip(*each, strict=True)]

    def positions(self, ids: Value) -> Index | None:
        """The numbers of an index vector, if they are known."""
        return self.given(ids, self.outside)

    def _expanded(self, node: Node, graph: Graph, operands: dict[int, Pattern]) -> list[Rows | None]:
        """The results of the graph that an op stands for; what its nodes do, the op is to blame for."""
        found = self._inside(node, graph, operands, node)
        unsaid = [p for p in found if p is not None and p.blame.kind == "unknown"]
        if unsaid and not any(p.blame.kind == "unknown" for p in operands.values()):
            raise NotSaid
        return [None if p is None else p.rows for p in found]


def _joined(parts: Sequence[Pattern | None]) -> Pattern | None:
    """What is known of a value that is one of several."""
    found = [p for p in parts if p is not None]
    if len(found) < 2:
        return found[0] if found else None
    worst = max(found, key=lambda p: p.distance)
    rows = either([p.rows for p in found])
    return None if rows is None else Pattern(rows, worst.distance, worst.blame)


def _places(p: Pattern) -> tuple[int, int]:
    """A pattern only grows: by terms, or by distance."""
    return len(p.rows.terms), p.distance


def _passes(node: Node, i: int) -> bool:
    """Whether a gradient can come from a node's results to its operand i."""
    if isinstance(node.step.op, Call):
        return True  # its own nodes say so
    marks = tuple(k == i for k in range(len(node.inputs)))
    return residuals(node.step, tuple(v.aval for v in node.inputs), marks) is not None


def _worst(operands: dict[int, Pattern]) -> Verdict | None:
    """Who is to blame for examples that had met before."""
    return next((p.blame for p in operands.values() if p.distance == MET), None)


def _distance(t: Term, axis: int) -> int:
    if in_place(t, axis):
        return IN_PLACE
    if lost(t) > 1:
        return MET
    return BENT if is_bent(t) else DISPLACED
