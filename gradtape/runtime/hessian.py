"""Hessians of recorded programs: Jacobians of the backward pass, block by block. Floor: runtime."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from gradtape.ir.graph import Graph, Value, order
from gradtape.ops.op import constant, emit
from gradtape.runtime.backward import PROGRAMS, CompiledGraph
from gradtape.runtime.jacobian import RowsProgram, cheaper
from gradtape.runtime.record import Path, Recorder, TrieNode
from gradtape.runtime.tensor import Tensor
from gradtape.transforms.differentiate import leaves, pull_back


def hessian_blocks(recorder: Recorder, target: int, sources: Sequence[int]) -> list[list[Tensor | None]]:
    """The second derivatives of a scalar target slot: block (i, j) has shape (source i, source j); None where the
    derivative by source i does not depend on source j."""
    node = recorder.node
    key = ("hessian", target, tuple(sources))
    program: Any = PROGRAMS.find(node, key, functools.partial(_build, node, target, tuple(sources)))
    n = len(sources)
    if program.compiled is None:
        return [[None] * n for _ in range(n)]
    results = program.compiled([recorder.saved[i] for i in program.saved])
    flat = [None if i is None else results[i] for i in program.results]
    return [flat[i * n : (i + 1) * n] for i in range(n)]


def _build(end: TrieNode, target: int, sources: tuple[int, ...]) -> Any:
    """Blocks on and above the diagonal; those below are their transposes, except among complex sources: there the
    first index moves along the real axis alone, the second along both."""
    path = Path(end, {})
    y, xs = path.values[target], [path.values[s] for s in sources]
    given = path.everything()
    gradients = pull_back(path.nodes, [y], [constant(1, y.aval.dtype, y.aval.dims)], xs)
    nodes = [*path.nodes, *order([g for g in gradients if g is not None], given)]
    symmetric = not any(x.aval.dtype.is_complex for x in xs)
    blocks: dict[tuple[int, int], Value] = {}
    for i, g in enumerate(gradients):
        for j in range(i if symmetric else 0, len(xs)):
            block = None if g is None else _block(nodes, g, xs[j], given)
            if block is not None:
                blocks[i, j] = block
    outputs = [blocks[k] for k in blocks]
    if not outputs:
        return RowsProgram([], None, [])
    place = {k: n for n, k in enumerate(blocks)}
    for i, j in list(blocks):
        if i != j and symmetric:
            place[j, i] = len(outputs)
            outputs.append(_transposed(blocks[i, j], len(xs[i].aval.dims)))
    residual = leaves(outputs, given)
    return RowsProgram(
        [path.kept[id(v)] for v in residual],
        CompiledGraph(Graph(residual, outputs)),
        [place.get((i, j)) for i in range(len(xs)) for j in range(len(xs))],
    )


def _block(nodes: Sequence[Any], g: Value, x: Value, given: Sequence[Value]) -> Value | None:
    cotangent = Value(g.aval)
    (pulled,) = pull_back(nodes, [g], [cotangent], [x])
    return None if pulled is None else cheaper(pulled, g, x, cotangent, [*given, cotangent], None, "auto")


def _transposed(block: Value, rank: int) -> Value:
    return emit("transpose", block, perm=(*range(rank, len(block.aval.dims)), *range(rank)))
