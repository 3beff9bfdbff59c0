"""Forward mode of recorded programs: tangents pushed through the transpose of the backward pass. Floor: runtime."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from gradtape.ir.graph import Graph, Value, order
from gradtape.runtime.backward import PROGRAMS
from gradtape.runtime.jacobian import RowsProgram, wants_jvp
from gradtape.runtime.pullback import Backward, traced_backward
from gradtape.runtime.record import Path, Recorder
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.trie import TrieNode
from gradtape.transforms.differentiate import leaves, pull_back
from gradtape.transforms.guarding import guarded
from gradtape.transforms.linearity import bent_rule, forwards


def pushforward(recorder: Recorder, target: int, sources: Sequence[int], tangents: Sequence[Tensor]) -> Tensor | None:
    """The tangent of a target slot for tangents of source slots; None where nothing flows.

    Raises:
      ValueError: a custom gradient on the way, which may not be linear."""
    node = recorder.node
    key = ("jvp", target, tuple(sources))
    program: Any = PROGRAMS.find(node, key, functools.partial(_build, node, target, tuple(sources)))
    if program.rules:
        program = _pushed(traced_backward(recorder, program.rules, target, tuple(sources), forward=True))
    if program.compiled is None:
        return None
    given = [tangents[i] for i in program.results]
    result: Tensor
    (result,) = program.compiled([*(recorder.saved[i] for i in program.saved), *program.captured, *given])
    return result


def _build(end: TrieNode, target: int, sources: tuple[int, ...]) -> Any:
    backward = Backward(Path(end, {}), target, sources)
    return RowsProgram([], None, [], backward.rules) if backward.rules else _pushed(backward)


def _pushed(backward: Backward) -> RowsProgram:
    """The graph from residuals and tangents to the target's tangent; `results` says which tangents it reads."""
    places = [i for i, p in enumerate(backward.pulled) if p is not None]
    live = list(zip(places, forwards([p for p in backward.pulled if p is not None], backward.given), strict=True))
    nodes = order([p for _, p in live], backward.given)
    if rule := bent_rule(nodes, backward.cotangent):
        raise ValueError(wants_jvp(rule))
    tangents = [Value(backward.xs[i].aval) for i, _ in live]
    (pushed,) = pull_back(nodes, [p for _, p in live], tangents, [backward.cotangent])
    if pushed is None:
        return RowsProgram([], None, [])
    pushed = guarded(pushed, tangents, backward.given)
    reads, read = backward.reads([pushed]), leaves([pushed], tangents)
    which: list[int | None] = [live[k][0] for k, t in enumerate(tangents) if any(t is r for r in read)]
    compiled = backward.compiler(Graph([*reads.values, *read], [pushed]))
    return RowsProgram(reads.places, compiled, which, captured=reads.captured)
