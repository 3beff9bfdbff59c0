"""The verdict on a batch for a recorded program: positions are read as they were recorded. Floor: runtime."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.index import Index
from gradtape.ops.op import Constant
from gradtape.runtime.backward import PROGRAMS
from gradtape.runtime.dispatch import execute
from gradtape.runtime.record import Path, Recorder
from gradtape.runtime.tensor import SymbolicTensor, Tensor
from gradtape.runtime.trie import TrieNode
from gradtape.transforms.independence import PROVED, Verdict, batch_verdict

WORSE = {"mixed": 0, "unknown": 1, "proved": 2}


def independence(recorder: Recorder, target: int, source: int, batch: tuple[int, ...]) -> Verdict:
    """Whether examples of a target slot depend on their own example of a source slot alone."""
    key = ("independence", target, source, batch)
    make: Any = functools.partial(Judge, recorder.node, target, source, batch)
    judge: Any = PROGRAMS.find(recorder.node, key, make)
    verdict: Verdict = judge.verdict(recorder)
    return verdict


class Judge:
    """The verdict on one program. It holds for all runs in which the positions that it asked for are the same."""

    def __init__(self, end: TrieNode, target: int, source: int, batch: tuple[int, ...]) -> None:
        self.used = False
        self.path = Path(end, {})
        self.source, self.target = self.path.values[source], self.path.values[target]
        self.batch = batch
        self.asked: list[tuple[Value, Mapping[int, Value], Index | None]] = []  # of the last run, with the answers
        self.last: Verdict | None = None

    def verdict(self, recorder: Recorder) -> Verdict:
        known = KnownPositions(self.path, recorder.saved)
        if self.last is None or any(known(ids, outside) != was for ids, outside, was in self.asked):
            self.asked = []
            self.last = self._found(known)
        if self.last.node is None:
            return self.last
        return replace(self.last, place=recorder.place_of(self.path.records[id(self.last.node)]))

    def _found(self, known: KnownPositions) -> Verdict:
        def noted(ids: Value, outside: Mapping[int, Value]) -> Index | None:
            answer = known(ids, outside)
            self.asked.append((ids, outside, answer))
            return answer

        found = [batch_verdict(self.path.nodes, self.source, self.target, axis, noted) for axis in self.batch]
        return min(found, key=lambda v: WORSE[v.kind], default=PROVED)


class KnownPositions:
    """Index vectors of a recorded program as numbers: what the tape kept, and what integers are made of that."""

    def __init__(self, path: Path, saved: list[Tensor]) -> None:
        self.path, self.saved = path, saved
        self.recorded = {id(v) for v in path.everything()}
        self.found: dict[int, Tensor | None] = {}

    def __call__(self, ids: Value, outside: Mapping[int, Value]) -> Index | None:
        found = self._tensor(ids, outside)
        return None if found is None else Index(np.asarray(found).reshape(-1))

    def _tensor(self, v: Value, outside: Mapping[int, Value]) -> Tensor | None:
        v = outside.get(id(v), v)
        if id(v) not in self.found:
            self.found[id(v)] = self._made(v, outside)
        return self.found[id(v)]

    def _made(self, v: Value, outside: Mapping[int, Value]) -> Tensor | None:
        if id(v) in self.path.kept:
            kept = self.saved[self.path.kept[id(v)]]
            return None if isinstance(kept, SymbolicTensor) else kept
        if v.node is None or id(v) in self.recorded or not _counts(v):
            return None
        if not all(_counts(x) for x in v.node.inputs):
            return None
        operands = [self._tensor(x, outside) for x in v.node.inputs]
        known = [t for t in operands if t is not None]
        if len(known) < len(operands):
            return None
        results = execute(v.node.step, known)
        result: Tensor = results[v.index] if isinstance(results, tuple) else results
        return result


def _counts(v: Value) -> bool:
    """Whether a value is of integers, as positions are: nothing else is computed for a verdict."""
    return v.aval.dtype.kind in "iu" or isinstance(v.node and v.node.step.op, Constant)
