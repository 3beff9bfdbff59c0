"""Backward passes: found by structure or built from a path, then run segment by segment. Floor: runtime.

A program is a list of segments (graphs) with the host rules of custom gradients between them."""

from __future__ import annotations

import functools
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gradtape.ir.graph import Graph, Node, Value, order
from gradtape.ops.call import Effectful, HostRule
from gradtape.ops.op import constant
from gradtape.runtime.collector import put_off
from gradtape.runtime.compiled import CompiledGraph
from gradtape.runtime.indexed_slices import IndexedSlices
from gradtape.runtime.record import Path, Recorder
from gradtape.runtime.sparse import Rows, as_rows
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.trie import TRIE, TrieNode
from gradtape.runtime.walk import walked
from gradtape.transforms.differentiate import leaves, pull_back

COUNTS: Counter[str] = Counter()  # plans built and plans found; tests read that caches work
MAX_PROGRAMS = 2048

Absent = dict[int, tuple[int, ...]]  # by ordinal of a custom call: the operands that its rule answers with None
HostCall = Callable[..., Sequence[Tensor | None]]


@dataclass
class Segment:
    """One graph of a backward pass: where its operands come from and where its results go."""

    compiled: CompiledGraph
    reads: list[int]  # places in the environment
    writes: list[int]


@dataclass
class Performed:
    """One rule of a traced function that has effects: what runs it, and as for a segment."""

    perform: Callable[[Sequence[Tensor]], Sequence[Tensor]]
    reads: list[int]
    writes: list[int]


@dataclass
class Host:
    """One custom rule: which one, its cotangents, and where the cotangents that it answers with go."""

    ordinal: int
    reads: list[int]
    writes: list[int]


class Sparse(NamedTuple):
    """A result that is the rows of a larger tensor: which result, which one holds the positions, the whole shape."""

    values: int
    indices: int
    shape: tuple[int, ...]


@dataclass
class Program:
    """A backward pass. Its environment begins with the residuals it needs, then the given cotangents. Its results
    are those of the sources, then the positions of those that are rows."""

    saved: list[int]
    steps: list[Segment | Performed | Host]
    results: list[int | None]
    size: int
    absent: Absent
    sparse: tuple[Sparse, ...]
    used: bool = False  # since it was last spared

    def run(self, saved: Sequence[Tensor], given: Sequence[Tensor], hosts: Sequence[HostCall]) -> Outcome:
        """The cotangents of the sources. A host rule that answers None for other operands than this program
        was built for ends the run: the outcome says for which."""
        env: list[Any] = [saved[i] for i in self.saved]
        env += given
        env += [None] * (self.size - len(env))
        absent: Absent = {}
        for step in self.steps:
            reads = [env[i] for i in step.reads]
            if isinstance(step, Segment):
                answers: Sequence[Any] = step.compiled(reads)
            elif isinstance(step, Performed):
                answers = step.perform(reads)
            else:
                answers = hosts[step.ordinal](*reads)
                absent[step.ordinal] = tuple(i for i, a in enumerate(answers) if a is None)
                if absent[step.ordinal] != self.absent.get(step.ordinal, ()):
                    return Outcome(None, self.absent | absent)
            for i, a in zip(step.writes, answers, strict=True):
                env[i] = a
        return Outcome([None if i is None else env[i] for i in self.results], absent)


@dataclass
class Outcome:
    """The results, or None where the program must be another one."""

    results: list[Tensor | None] | None
    absent: Absent


class Programs:
    """The programs in use. Programs live in the trie nodes; this bounds how many there are: the oldest is
    dropped, but one that was used in the meantime is spared once (a second chance costs no lock on use)."""

    def __init__(self) -> None:
        self.recent: OrderedDict[tuple[int, Any], TrieNode] = OrderedDict()
        self.lock = threading.Lock()

    def find(self, node: TrieNode, key: Any, build: Callable[[], Program]) -> Program:
        found: Program | None = node.plans.get(key)
        if found is not None:
            COUNTS["found"] += 1
            found.used = True
            return found
        COUNTS["built"] += 1
        with put_off():
            found = build()
        with self.lock:
            node.keep(key, found)
            if node.trie is not TRIE:  # it is gone when the function has been traced
                return found
            self.recent[id(node), key] = node
            while len(self.recent) > MAX_PROGRAMS:
                (_, old_key), old = self.recent.popitem(last=False)
                program = old.plans.get(old_key)
                if program is not None and program.used:
                    program.used = False
                    self.recent[id(old), old_key] = old
                else:
                    old.plans.pop(old_key, None)
        return found

    def clear(self) -> None:
        with self.lock:
            for (_, key), node in self.recent.items():
                node.plans.pop(key, None)
            self.recent.clear()


PROGRAMS = Programs()


def gradients(
    recorder: Recorder,
    targets: Sequence[int],
    sources: Sequence[int],
    given: Sequence[Tensor | None],
    slices: bool = False,
) -> list[Any]:
    """The cotangents of the source slots for targets with these cotangents (None: ones). With `slices`, those
    that are rows of lookups and nothing else come as `IndexedSlices`, unless this is recorded or traced.

    Custom rules run once each. A rule that answers None for an operand is only known when it has run; then
    the program that takes this into account is found by that answer and its rest is run."""
    if STATE.overrides is not None and STATE.overrides.op_by_op:
        return list(walked(recorder, targets, sources, given))
    node = recorder.node
    key = (tuple(targets), tuple(sources), tuple([g is not None for g in given]))
    cotangents = [g for g in given if g is not None]
    ran: dict[int, Sequence[Tensor | None]] = {}
    saved = recorder.saved
    once = [_Once(k, rule, ran) for k, rule in enumerate(recorder.hosts)]
    absent: Absent = node.absent.get(key, {})
    while True:
        program = PROGRAMS.find(node, (*key, tuple(absent.items())), functools.partial(build, node, *key, absent))
        outcome = program.run(saved, cotangents, once)
        if outcome.results is not None:
            if outcome.absent:
                recorder.answers |= outcome.absent
            return _handed(outcome.results, program.sparse, slices) if program.sparse else outcome.results
        absent = outcome.absent
        node.expect(key, absent)


def _handed(results: list[Tensor | None], sparse: Sequence[Sparse], slices: bool) -> list[Any]:
    """Rows and their positions put together; the results of the sources alone."""
    whole: list[Any] = list(results)
    for values, indices, shape in sparse:
        rows = IndexedSlices(whole[values], whole[indices], np.array(shape, np.int32))
        whole[values] = rows if slices and not STATE.recorders and not STATE.tracers else rows.dense()
    return whole[: len(whole) - len(sparse)]


class _Once:
    """A host rule that keeps its answer, for the case that the program is run again."""

    def __init__(self, ordinal: int, rule: HostCall, ran: dict[int, Sequence[Tensor | None]]) -> None:
        self.ordinal, self.rule, self.ran = ordinal, rule, ran

    def __call__(self, *cotangents: Tensor) -> Sequence[Tensor | None]:
        if self.ordinal not in self.ran:
            self.ran[self.ordinal] = self.rule(*cotangents)
        return self.ran[self.ordinal]


def build(
    end: TrieNode,
    targets: tuple[int, ...],
    sources: tuple[int, ...],
    given: tuple[bool, ...],
    absent: Absent,
) -> Program:
    """Differentiate the recorded path and cut the result at the host rules."""
    path = Path(end, absent)
    wanted = [path.values[s] for s in targets]
    seeds = [Value(v.aval) if g else constant(1, v.aval.dtype, v.aval.dims) for v, g in zip(wanted, given, strict=True)]
    pulled = pull_back(path.nodes, wanted, seeds, [path.values[s] for s in sources])
    pulled, sparse = _with_rows(pulled)
    outputs = [*(p for p in pulled if p is not None), *path.reached]
    fed = [s for s, g in zip(seeds, given, strict=True) if g]
    residual = leaves(outputs, path.everything())
    return _cut(outputs, pulled, residual, fed, path, sparse)


def _with_rows(pulled: list[Value | None]) -> tuple[list[Value | None], tuple[Sparse, ...]]:
    """The cotangents, rows in place of those that are scattered rows; the positions of these at the end."""
    found: list[tuple[int, Rows]] = [(k, r) for k, p in enumerate(pulled) if p is not None and (r := as_rows(p))]
    values = dict(found)
    results = [values[k].values if k in values else p for k, p in enumerate(pulled)]
    sparse = tuple(Sparse(k, len(pulled) + j, r.shape) for j, (k, r) in enumerate(found))
    return [*results, *(r.indices for _, r in found)], sparse


def _cut(
    outputs: list[Value],
    pulled: list[Value | None],
    residual: list[Value],
    fed: list[Value],
    path: Path,
    sparse: tuple[Sparse, ...],
) -> Program:
    """The backward pass as segments with the host rules between them."""
    lost = [v for v in residual if id(v) not in path.kept]
    if lost:
        raise RuntimeError(f"The backward pass needs {lost}, which recording did not keep. Please report this.")
    given = [*residual, *fed]
    place = {id(v): i for i, v in enumerate(given)}
    nodes = order(outputs, given)
    hosts = _in_turn(nodes)
    stages = _stages(nodes, hosts, outputs)
    steps: list[Segment | Performed | Host] = []
    for k, inside in enumerate(stages):
        made = _segment(inside, nodes, outputs, place)
        steps += [made] if made else []
        steps += [_host(n, place) for n in hosts[k : k + 1]]
    results = [None if p is None else place[id(p)] for p in pulled]
    return Program([path.kept[id(v)] for v in residual], steps, results, len(place), dict(path.absent), sparse)


def _in_turn(nodes: Sequence[Node]) -> list[Node]:
    """The rules that are Python, or have effects, in the order in which they run: those of functions latest first, of
    which none depends on one of a function that was called later; the others where they are due."""
    hosts = sorted((n for n in nodes if isinstance(n.step.op, HostRule)), key=lambda n: -n.step.params["ordinal"])
    effects = [n for n in nodes if isinstance(n.step.op, Effectful)]
    if not effects:
        return hosts
    needs: dict[int, set[int]] = {}
    for n in nodes:
        needs[id(n)] = set().union(*({id(v.node)} | needs.get(id(v.node), set()) for v in n.inputs))
    turns: list[Node] = []
    waiting = [*effects, *hosts]
    while waiting:
        first = next(n for n in waiting if not any(id(w) in needs[id(n)] for w in waiting))
        turns.append(first)
        waiting.remove(first)
    return turns


def _stages(nodes: Sequence[Node], hosts: Sequence[Node], outputs: Sequence[Value]) -> list[list[Node]]:
    """The nodes that run before the first rule, those that need its answers but not the second's, ... What only a later
    stage reads is part of that one, where it can be fused with what reads it."""
    rules = {id(n): k for k, n in enumerate(hosts)}
    level: dict[int, int] = {}
    for n in nodes:
        made = max((level.get(id(v.node), 0) for v in n.inputs), default=0)
        level[id(n)] = 1 + rules[id(n)] if id(n) in rules else made
    ends = {id(v.node) for v in outputs}
    readers: dict[int, list[int]] = {}
    for n in reversed(nodes):
        if id(n) not in rules and id(n) not in ends and readers.get(id(n)):
            level[id(n)] = min(readers[id(n)])
        for v in n.inputs:
            readers.setdefault(id(v.node), []).append(rules.get(id(n), level[id(n)]))
    stages: list[list[Node]] = [[] for _ in range(len(hosts) + 1)]
    for n in nodes:
        if id(n) not in rules:
            stages[level[id(n)]].append(n)
    return stages


def _segment(
    inside: Sequence[Node], nodes: Sequence[Node], outputs: Sequence[Value], place: dict[int, int]
) -> Segment | None:
    """The nodes of one stage as a graph: it reads what was made before and writes what is needed later."""
    own = set(map(id, inside))
    made = [v for n in inside for v in n.outputs]
    later = {id(v) for n in nodes if id(n) not in own for v in n.inputs} | set(map(id, outputs))
    writes = [v for v in made if id(v) in later]
    if not writes:
        return None
    mine = set(map(id, made))
    reads = list({id(v): v for n in inside for v in n.inputs if id(v) not in mine}.values())
    compiled = CompiledGraph(Graph(reads, writes))
    for v in writes:
        place.setdefault(id(v), len(place))
    return Segment(compiled, [place[id(v)] for v in reads], [place[id(v)] for v in writes])


def _host(node: Node, place: dict[int, int]) -> Performed | Host:
    for v in node.outputs:
        place.setdefault(id(v), len(place))
    reads, writes = ([place[id(v)] for v in side] for side in (node.inputs, node.outputs))
    if isinstance(node.step.op, Effectful):
        return Performed(node.step.params["effect"].perform, reads, writes)
    return Host(node.step.params["ordinal"], reads, writes)
