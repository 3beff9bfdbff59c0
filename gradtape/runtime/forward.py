"""Forward mode of recorded programs: tangents pushed through the transpose of the backward pass. Floor: runtime."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from gradtape.ir.graph import Graph, Value, order
from gradtape.ops.call import HostRule
from gradtape.runtime.backward import PROGRAMS, CompiledGraph
from gradtape.runtime.jacobian import RowsProgram
from gradtape.runtime.record import Path, Recorder, TrieNode
from gradtape.runtime.tensor import Tensor
from gradtape.transforms.differentiate import leaves, pull_back
from gradtape.transforms.linearity import is_bent


def pushforward(recorder: Recorder, target: int, sources: Sequence[int], tangents: Sequence[Tensor]) -> Tensor | None:
    """The tangent of a target slot for tangents of source slots; None where nothing flows."""
    node = recorder.node
    key = ("jvp", target, tuple(sources))
    program: Any = PROGRAMS.find(node, key, functools.partial(_build, node, target, tuple(sources)))
    if program.compiled is None:
        return None
    given = [tangents[i] for i in program.results]
    result: Tensor
    (result,) = program.compiled([*(recorder.saved[i] for i in program.saved), *given])
    return result


def _build(end: TrieNode, target: int, sources: tuple[int, ...]) -> Any:
    """The graph from residuals and tangents to the target's tangent; `results` says which tangents it reads."""
    path = Path(end, {})
    y, xs = path.values[target], [path.values[s] for s in sources]
    cotangent = Value(y.aval)
    given = [*path.everything(), cotangent]
    pulled = pull_back(path.nodes, [y], [cotangent], xs)
    live = [(i, p) for i, p in enumerate(pulled) if p is not None]
    backward = order([p for _, p in live], given)
    if any(isinstance(n.step.op, HostRule) for n in backward) or is_bent(backward, cotangent):
        raise ValueError(
            "A custom gradient stands between the primals and the target. Forward mode wants its JVP, which cannot be "
            "had from a rule that may not be linear: use reverse mode (`GradientTape`) here."
        )
    tangents = [Value(xs[i].aval) for i, _ in live]
    (pushed,) = pull_back(backward, [p for _, p in live], tangents, [cotangent])
    if pushed is None:
        return RowsProgram([], None, [])
    residual = leaves([pushed], path.everything())
    read = leaves([pushed], tangents)
    which: list[int | None] = [live[k][0] for k, t in enumerate(tangents) if any(t is r for r in read)]
    return RowsProgram([path.kept[id(v)] for v in residual], CompiledGraph(Graph([*residual, *read], [pushed])), which)
