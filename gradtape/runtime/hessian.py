"""Hessians of recorded programs: Jacobians of the backward pass, block by block. Floor: runtime."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from gradtape.ir.graph import Graph, Value, order
from gradtape.ops.call import HostRule
from gradtape.ops.op import constant, emit
from gradtape.runtime.backward import PROGRAMS, CompiledGraph
from gradtape.runtime.jacobian import RowsProgram, cheaper
from gradtape.runtime.record import Path, Recorder, TrieNode
from gradtape.runtime.rules import by_structure, inlined, traced_rule
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import Tensor
from gradtape.transforms.differentiate import leaves, pull_back
from gradtape.transforms.simplify import rebuild_from


def hessian_blocks(recorder: Recorder, target: int, sources: Sequence[int]) -> list[list[Tensor | None]]:
    """The second derivatives of a scalar target slot: block (i, j) has shape (source i, source j); None where the
    derivative by source i does not depend on source j."""
    node = recorder.node
    key = ("hessian", target, tuple(sources))
    program: Any = PROGRAMS.find(node, key, functools.partial(_build, node, target, tuple(sources)))
    captured: list[Tensor] = []
    if program.rules:
        program, captured = _with_rules(recorder, target, tuple(sources))
    n = len(sources)
    if program.compiled is None:
        return [[None] * n for _ in range(n)]
    results = program.compiled([*(recorder.saved[i] for i in program.saved), *captured])
    flat = [None if i is None else results[i] for i in program.results]
    return [flat[i * n : (i + 1) * n] for i in range(n)]


def _build(end: TrieNode, target: int, sources: tuple[int, ...]) -> Any:
    path = Path(end, {})
    second = SecondOrder(path, target, sources)
    outputs, results = second.blocks()
    if second.asked:
        return RowsProgram([], None, [], tuple(sorted(second.asked)))
    if not outputs:
        return RowsProgram([], None, [])
    residual = leaves(outputs, path.everything())
    return RowsProgram([path.kept[id(v)] for v in residual], CompiledGraph(Graph(residual, outputs)), results)


def _with_rules(recorder: Recorder, target: int, sources: tuple[int, ...]) -> tuple[RowsProgram, list[Tensor]]:
    """Custom rules are traced, and stand in the program as graphs. What a rule captured is the recorded value
    itself, so that its dependence on the sources is seen."""
    slots = dict(recorder.slots)  # by id of the tensor; the present values of variables among them
    outer = STATE.watchers

    def note(v: Any) -> None:
        slots.setdefault(v._snapshot._id, slots.get(v._id, 0))

    STATE.watchers = (*outer, note)
    try:
        traced = {k: traced_rule(rule, recorder.node, k) for k, rule in enumerate(recorder.hosts)}
    finally:
        STATE.watchers = outer
    path = Path(recorder.node, {k: r.absent for k, r in traced.items() if r.absent})
    tensors: dict[int, tuple[Value, Tensor]] = {}  # values that the rules mention, by id
    graphs = {}
    for k, r in traced.items():
        known = [(path.values.get(slots.get(t._id, 0), v), t) for v, t in r.captured]
        tensors.update((id(v), (v, t)) for v, t in known)
        own = r.graph.inputs[: len(r.graph.inputs) - len(r.captured)]
        graphs[k] = Graph([*own, *(v for v, _ in known)], rebuild_from(r.graph, [*own, *(v for v, _ in known)]))
    second = SecondOrder(path, target, sources, graphs, [v for v, _ in tensors.values()])
    outputs, results = second.blocks()
    if not outputs:
        return RowsProgram([], None, []), []
    read = leaves(outputs, second.given)
    kept = [v for v in read if id(v) in path.kept]
    captured = [v for v in read if id(v) not in path.kept]
    program = RowsProgram([path.kept[id(v)] for v in kept], by_structure(Graph([*kept, *captured], outputs)), results)
    return program, [tensors[id(v)][1] for v in captured]


class SecondOrder:
    """The gradient of a scalar as a program of its own, and the Jacobians of that. `rules`: the graphs of custom
    rules, by ordinal; without them, `asked` says which ones the blocks depend on."""

    def __init__(
        self,
        path: Path,
        target: int,
        sources: tuple[int, ...],
        rules: Mapping[int, Graph] | None = None,
        captured: Sequence[Value] = (),
    ) -> None:
        y, self.xs = path.values[target], [path.values[s] for s in sources]
        values = {id(v): v for v in (*path.everything(), *captured)}
        self.given = list(values.values())
        self.rules, self.asked = rules, set[int]()
        ones = constant(1, y.aval.dtype, y.aval.dims)
        self.gradients = self._inlined(pull_back(path.nodes, [y], [ones], self.xs), self.given)
        present = [g for g in self.gradients if g is not None]
        self.nodes = [*path.nodes, *(n for n in order(present, self.given))]

    def _inlined(self, values: list[Value | None], given: Sequence[Value]) -> list[Value | None]:
        if self.rules is not None:
            return inlined(values, self.rules, given)
        nodes = order([v for v in values if v is not None], given)
        self.asked |= {n.step.params["ordinal"] for n in nodes if isinstance(n.step.op, HostRule)}
        return values

    def blocks(self) -> tuple[list[Value], list[int | None]]:
        """The blocks as values, and which of them is block (i, j). Blocks on and above the diagonal are computed;
        those below are their transposes, except with custom rules, which need be no gradients, and among complex
        sources: there the first index moves along the real axis alone, the second along both."""
        n, symmetric = len(self.xs), self.rules is None and not any(x.aval.dtype.is_complex for x in self.xs)
        found = {}
        for i, g in enumerate(self.gradients):
            for j in range(i if symmetric else 0, n):
                block = None if g is None else self._block(g, self.xs[j])
                if block is not None:
                    found[i, j] = block
        outputs, place = list(found.values()), {k: at for at, k in enumerate(found)}
        for i, j in list(found):
            if i != j and symmetric:
                place[j, i] = len(outputs)
                outputs.append(_transposed(found[i, j], len(self.xs[i].aval.dims)))
        return outputs, [place.get((i, j)) for i in range(n) for j in range(n)]

    def _block(self, g: Value, x: Value) -> Value | None:
        if self.asked:
            return None
        cotangent = Value(g.aval)
        given = [*self.given, cotangent]
        (pulled,) = self._inlined(pull_back(self.nodes, [g], [cotangent], [x]), given)
        if pulled is None or self.asked:
            return None
        return cheaper(pulled, g, x, cotangent, given, None, "auto")


def _transposed(block: Value, rank: int) -> Value:
    return emit("transpose", block, perm=(*range(rank, len(block.aval.dims)), *range(rank)))
