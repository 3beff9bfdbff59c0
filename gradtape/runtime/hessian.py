"""Hessians of recorded programs: Jacobians of the backward pass, block by block. Floor: runtime."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtape.ir.graph import Graph, Value, order
from gradtape.ir.index import Index
from gradtape.ops.call import HostRule
from gradtape.ops.op import constant, emit
from gradtape.ops.placement import Place, Product, assemble
from gradtape.runtime.backward import PROGRAMS
from gradtape.runtime.compiled import CompiledGraph
from gradtape.runtime.jacobian import RowsProgram, cheaper
from gradtape.runtime.record import Path, Recorder
from gradtape.runtime.rules import TracedRule, by_structure, inlined, traced_rule
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.trie import TrieNode
from gradtape.transforms.differentiate import leaves, pull_back
from gradtape.transforms.simplify import rebuild_from


class Part(NamedTuple):
    """A source's rows and columns of a matrix: where it stands in the list of slots (None: nothing depends on it), and
    how many elements it has."""

    at: int | None
    size: int


def hessian_blocks(recorder: Recorder, target: int, sources: Sequence[int]) -> list[list[Tensor | None]]:
    """The second derivatives of a scalar target slot: block (i, j) has shape (source i, source j); None where the
    derivative by source i does not depend on source j."""
    n, flat = len(sources), _run(recorder, target, tuple(sources), None)
    return [flat[i * n : (i + 1) * n] for i in range(n)]


def hessian_matrix(recorder: Recorder, target: int, sources: Sequence[int], parts: Sequence[Part]) -> Tensor | None:
    """The same blocks as one matrix over the elements of all parts; None where all of it is zero."""
    (matrix,) = _run(recorder, target, tuple(sources), tuple(parts))
    found: Tensor | None = matrix
    return found


def _run(recorder: Recorder, target: int, sources: tuple[int, ...], parts: tuple[Part, ...] | None) -> Any:
    node = recorder.node
    key = ("hessian", target, sources, parts)
    program: Any = PROGRAMS.find(node, key, functools.partial(_build, node, target, sources, parts))
    captured: list[Tensor] = []
    if program.rules:
        program, captured = _with_rules(recorder, target, sources, parts)
    if program.compiled is None:
        return [None] * (len(sources) ** 2 if parts is None else 1)
    results = program.compiled([*(recorder.saved[i] for i in program.saved), *captured])
    return [None if i is None else results[i] for i in program.results]


def _build(end: TrieNode, target: int, sources: tuple[int, ...], parts: tuple[Part, ...] | None) -> Any:
    path = Path(end, {})
    second = SecondOrder(path, target, sources)
    outputs, results = second.answers(parts)
    if second.asked:
        return RowsProgram([], None, [], tuple(sorted(second.asked)))
    if not outputs:
        return RowsProgram([], None, [])
    residual = leaves(outputs, path.everything())
    return RowsProgram([path.kept[id(v)] for v in residual], CompiledGraph(Graph(residual, outputs)), results)


def _with_rules(
    recorder: Recorder, target: int, sources: tuple[int, ...], parts: tuple[Part, ...] | None
) -> tuple[RowsProgram, list[Tensor]]:
    """Custom rules are traced, and stand in the program as graphs. What a rule captured is the recorded value
    itself, so that its dependence on the sources is seen."""
    slots = dict(recorder.slots)  # by id of the tensor; the present values of variables among them
    outer = STATE.watchers

    def note(v: Any) -> None:
        slots.setdefault(v._snapshot._id, slots.get(v._id, 0))

    STATE.watchers = (*outer, note)
    try:
        follows = lambda t: slots.get(t._id, 0) > 0  # noqa: E731
        traced = {k: traced_rule(rule, recorder.node, k, follows=follows) for k, rule in enumerate(recorder.hosts)}
    finally:
        STATE.watchers = outer
    path = Path(recorder.node, {k: r.absent for k, r in traced.items() if r.absent})
    tensors: dict[int, tuple[Value, Tensor]] = {}  # values that the rules mention, by id
    graphs = {}
    for k, r in traced.items():
        known = [(path.values.get(slots.get(t._id, 0), v), t) for v, t in r.captured]
        tensors.update((id(v), (v, t)) for v, t in known)
        own = r.graph.inputs[: len(r.graph.inputs) - len(r.captured)]
        inputs = [*own, *(v for v, _ in known)]
        graphs[k] = dataclasses.replace(r, graph=Graph(inputs, rebuild_from(r.graph, inputs)))
    second = SecondOrder(path, target, sources, graphs, [v for v, _ in tensors.values()])
    outputs, results = second.answers(parts)
    if not outputs:
        return RowsProgram([], None, []), []
    read = leaves(outputs, second.given)
    kept = [v for v in read if id(v) in path.kept]
    captured = [v for v in read if id(v) not in path.kept]
    program = RowsProgram([path.kept[id(v)] for v in kept], by_structure(Graph([*kept, *captured], outputs)), results)
    return program, [tensors[id(v)][1] for v in captured]


Blocks = dict[tuple[int, int], Value]


class SecondOrder:
    """The gradient of a scalar as a program of its own, and the Jacobians of that. `rules`: the graphs of custom
    rules, by ordinal; without them, `asked` says which ones the blocks depend on."""

    def __init__(
        self,
        path: Path,
        target: int,
        sources: tuple[int, ...],
        rules: Mapping[int, TracedRule] | None = None,
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

    def answers(self, parts: tuple[Part, ...] | None) -> tuple[list[Value], list[int | None]]:
        """The results of a program, and which of them is block (i, j); with `parts` the one matrix."""
        found, symmetric = self._found()
        if parts is None:
            return self._blocks(found, symmetric)
        matrix = _matrix(found, symmetric, parts)
        return ([], []) if matrix is None else ([matrix], [0])

    def _found(self) -> tuple[Blocks, bool]:
        """Blocks on and above the diagonal, of which those below are the transposes. Not so with custom rules, which
        need be no gradients, and among complex sources: there the first index moves along the real axis alone, the
        second along both."""
        n, symmetric = len(self.xs), self.rules is None and not any(x.aval.dtype.is_complex for x in self.xs)
        found = {}
        for i, g in enumerate(self.gradients):
            for j in range(i if symmetric else 0, n):
                block = None if g is None else self._block(g, self.xs[j])
                if block is not None:
                    found[i, j] = block
        return found, symmetric

    def _blocks(self, found: Blocks, symmetric: bool) -> tuple[list[Value], list[int | None]]:
        n = len(self.xs)
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


def _matrix(found: Blocks, symmetric: bool, parts: Sequence[Part]) -> Value | None:
    """All blocks written to their places in one matrix."""
    n = sum(p.size for p in parts)
    terms, factors = [], []
    for row, p in _ranges(parts):
        for column, q in _ranges(parts):
            if p.at is None or q.at is None or not p.size or not q.size:
                continue
            upper = (p.at, q.at) in found
            block = found.get((p.at, q.at)) if upper or not symmetric else found.get((q.at, p.at))
            if block is not None:
                letters = (0, 1) if upper else (1, 0)
                places = ((Place(0, row, n),), (Place(1, column, n),))
                terms.append(Product((p.size, q.size), (letters,), places))
                factors.append(emit("reshape", block, shape=tuple((p.size, q.size)[c] for c in letters)))
    return assemble(terms, factors, [], (n, n), factors[0].aval.dtype) if terms else None


def _ranges(parts: Sequence[Part]) -> Iterator[tuple[Index, Part]]:
    """The positions of each part."""
    start = 0
    for p in parts:
        yield Index(np.arange(start, start + p.size)), p
        start += p.size
