"""Jacobians of recorded programs: the backward pass for all rows at once, in the cheaper mode. Floor: runtime."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtape.ir.aval import aval
from gradtape.ir.graph import Graph, Value, order
from gradtape.ops.call import HostRule
from gradtape.ops.layout import CONCAT, RESHAPE, TRANSPOSE
from gradtape.runtime.backward import PROGRAMS, CompiledGraph, gradients
from gradtape.runtime.dispatch import execute, unary
from gradtape.runtime.record import Path, Recorder, TrieNode
from gradtape.runtime.tensor import Tensor, wrap
from gradtape.transforms.cost import cost
from gradtape.transforms.differentiate import leaves, pull_back
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.letters import whole
from gradtape.transforms.rows.terms import Rows, Term, rows_of, seed
from gradtape.transforms.simplify import simplify
from gradtape.transforms.vectorize import lifted, swapped, vectorize

MODES = ("auto", "reverse", "forward")


@dataclass
class RowsProgram:
    """The Jacobians of one target: which residuals the graph reads, and which of its outputs belong to a source."""

    saved: list[int]
    compiled: CompiledGraph | None
    results: list[int | None]
    used: bool = False


class RuleOnTheWay(Exception):
    """A custom rule, which runs as Python, stands between target and sources: rows must run one by one."""


def jacobians(
    recorder: Recorder, target: int, sources: Sequence[int], batch: bool = False, mode: str = "auto"
) -> list[Tensor | None]:
    """The Jacobians of a target slot with respect to source slots: shape (target, source), or with `batch`
    (batch, rest of the target, rest of the source), where seeds sum over the batch."""
    node = recorder.node
    key = ("jacobian", target, tuple(sources), batch, mode)
    program: Any = PROGRAMS.find(node, key, functools.partial(build, node, target, tuple(sources), batch, mode))
    if program.compiled is None:
        return [None] * len(sources)
    results = program.compiled([recorder.saved[i] for i in program.saved])
    return [None if i is None else results[i] for i in program.results]


def build(end: TrieNode, target: int, sources: tuple[int, ...], batch: bool, mode: str) -> Any:
    """Differentiate, vectorize in both modes, keep the cheaper one."""
    path = Path(end, {})
    y, xs = path.values[target], [path.values[s] for s in sources]
    cotangent = Value(y.aval)
    pulled = pull_back(path.nodes, [y], [cotangent], xs)
    given = [*path.everything(), cotangent]
    if any(isinstance(n.step.op, HostRule) for n in order([p for p in pulled if p is not None], given)):
        raise RuleOnTheWay
    graphs = [
        None if p is None else _cheaper(p, y, x, cotangent, given, batch, mode) for p, x in zip(pulled, xs, strict=True)
    ]
    outputs = [g for g in graphs if g is not None]
    if not outputs:
        return RowsProgram([], None, [None] * len(sources))
    residual = leaves(outputs, path.everything())
    places = iter(range(len(outputs)))
    return RowsProgram(
        [path.kept[id(v)] for v in residual],
        CompiledGraph(Graph(residual, outputs)),
        [None if g is None else next(places) for g in graphs],
    )


def _cheaper(pulled: Value, y: Value, x: Value, cotangent: Value, given: list[Value], batch: bool, mode: str) -> Value:
    """The dense Jacobian as a graph value over residuals."""
    if batch:
        return _batch_reverse(pulled, y, cotangent, given)
    candidates = []
    if mode in ("auto", "reverse"):
        candidates.append(_reverse(pulled, y, cotangent, given))
    if mode in ("auto", "forward"):
        candidates.append(_forward(pulled, y, x, cotangent, given))
    if len(candidates) == 1:
        return candidates[0]
    return min(candidates, key=lambda v: cost(simplify(Graph(leaves([v], given), [v]))))


def _reverse(pulled: Value, y: Value, cotangent: Value, given: list[Value]) -> Value:
    b, rows = _vectorized(pulled, cotangent, seed(y.aval.dims, y.aval.dtype), given)
    return dense(b, rows)


def _forward(pulled: Value, y: Value, x: Value, cotangent: Value, given: list[Value]) -> Value:
    """A VJP is linear in its cotangent; pulled back once more, with respect to that, it is the JVP."""
    tangent = Value(x.aval)
    (pushed,) = pull_back(order([pulled], given), [pulled], [tangent], [cotangent])
    if pushed is None:
        return dense(Builder(), rows_of([], y.aval.dims, x.aval.dims, y.aval.dtype))
    b, rows = _vectorized(pushed, tangent, seed(x.aval.dims, x.aval.dtype), given)
    return dense(b, swapped(rows))


def _batch_reverse(pulled: Value, y: Value, cotangent: Value, given: list[Value]) -> Value:
    """Seeds that are the identity over all axes of the target but the first, and ones along that."""
    n, *rest = y.aval.dims
    axes = tuple(whole(d) for d in rest)
    start = [] if 0 in y.aval.dims else [Term((), axes, (whole(n), *axes))]
    b, v = _vectorized(pulled, cotangent, rows_of(start, rest, y.aval.dims, y.aval.dtype), given)
    terms = tuple(Term(t.factors, (t.own[0], *t.rows), t.own[1:]) for t in v.terms)
    return dense(b, Rows(terms, (v.shape[0], *v.rows), v.shape[1:], v.dtype))


def _vectorized(v: Value, varying: Value, seeds: Rows, given: list[Value]) -> tuple[Builder, Rows]:
    inputs = leaves([v], given)
    if not any(i is varying for i in inputs):
        inputs.append(varying)
    at = next(k for k, i in enumerate(inputs) if i is varying)
    b, (result,) = vectorize(Graph(inputs, [v]), {at: seeds})
    return b, lifted(b, result, seeds.rows)


# ------------------------------------------------------------------ one row after the other


def looped(recorder: Recorder, target: Tensor, sources: Sequence[int]) -> list[Tensor | None]:
    """The same Jacobians from one gradient per element of the target: what custom rules need, and an oracle."""
    dims = target._aval.dims
    ones = np.eye(math.prod(dims), dtype=target._aval.dtype.numpy_dtype)
    rows = [_row(recorder, target, sources, one.reshape(dims)) for one in ones]
    return [stacked([r[i] for r in rows], dims) for i in range(len(sources))]


def batch_looped(recorder: Recorder, target: Tensor, sources: Sequence[int]) -> list[Tensor | None]:
    """The batch Jacobians from one gradient per element of an example, summed over the batch."""
    n, *rest = target._aval.dims
    ones = np.eye(math.prod(rest), dtype=target._aval.dtype.numpy_dtype)
    rows = [_row(recorder, target, sources, np.tile(one.reshape(1, *rest), (n, *(1,) * len(rest)))) for one in ones]
    results = []
    for i in range(len(sources)):
        whole_result = stacked([r[i] for r in rows], tuple(rest))
        if whole_result is not None:
            k = len(rest)
            order = (k, *range(k), *range(k + 1, len(whole_result._aval.dims)))
            whole_result = unary(TRANSPOSE.bind(perm=order), whole_result)
        results.append(whole_result)
    return results


def _row(recorder: Recorder, target: Tensor, sources: Sequence[int], cotangent: Any) -> list[Tensor | None]:
    return gradients(recorder, [recorder.slots[target._id]], sources, [wrap(cotangent[()], target._aval)])


def stacked(rows: Sequence[Tensor | None], dims: tuple[int, ...]) -> Tensor | None:
    """Rows as one tensor of shape (dims, row)."""
    known = [r for r in rows if r is not None]
    if not known:
        return None
    shape = known[0]._aval.dims
    wide = [unary(RESHAPE.bind(shape=(1, *shape)), r) for r in known]
    joined = wide[0] if len(wide) == 1 else execute(CONCAT.bind(axis=0), wide)
    return unary(RESHAPE.bind(shape=(*dims, *shape)), joined)


def zeros_of(dims: tuple[int, ...], like: Any) -> Tensor:
    """Zeros of a shape, with the dtype of a source."""
    made = aval(dims, like._aval.dtype)
    return wrap(np.zeros(made.dims, made.dtype.numpy_dtype)[()], made)
