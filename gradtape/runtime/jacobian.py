"""Jacobians of recorded programs: the backward pass for all rows at once, in the cheaper mode. Floor: runtime."""

from __future__ import annotations

import functools
import gc
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import float32
from gradtape.ir.errors import NotVectorizable
from gradtape.ir.folded import Folded
from gradtape.ir.graph import Graph, Node, Value, order
from gradtape.ops.checks import CHECK_NUMERICS
from gradtape.ops.comparison import SELECT
from gradtape.ops.layout import CONCAT, RESHAPE, TRANSPOSE
from gradtape.ops.op import constant, emit
from gradtape.runtime.backward import PROGRAMS, gradients
from gradtape.runtime.compiled import CompiledGraph
from gradtape.runtime.dispatch import execute, unary
from gradtape.runtime.pullback import Backward, traced_backward
from gradtape.runtime.record import Path, Recorder
from gradtape.runtime.tensor import Tensor, from_array, wrap
from gradtape.runtime.trie import TrieNode
from gradtape.transforms.cost import cost
from gradtape.transforms.differentiate import leaves, pull_back
from gradtape.transforms.guarding import guarded
from gradtape.transforms.linearity import bent_rule, forwards
from gradtape.transforms.liveness import without_unread
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.entering import lifted
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.letters import whole
from gradtape.transforms.rows.terms import Rows, Term, rows_of, seed
from gradtape.transforms.simplify import rebuild_from, simplify
from gradtape.transforms.vectorize import swapped, vectorize

Batch = tuple[int, ...] | None  # the axes that target and source share as batch; None: a whole Jacobian
LARGE = 1500  # nodes of a graph that is worth putting away
MODES = ("auto", "reverse", "forward")


def wants_jvp(rule: str) -> str:
    """Why forward mode does not go through a custom gradient."""
    return (
        f"Forward mode wants the JVP of `{rule}`: its rule stands between sources and target, and may not be linear in "
        "its cotangents. Give the JVP with `custom_gradient(jvp=...)`, promise `kernel_op(linear=True)` where that "
        "holds, or use reverse mode."
    )


@dataclass
class RowsProgram:
    """The Jacobians of one target: which residuals the graph reads, and which of its outputs belong to a source.
    `rules`: custom rules stand on the way, by their ordinals; then the graph is made anew for each call."""

    saved: list[int]
    compiled: CompiledGraph | None
    results: list[int | None]
    rules: tuple[int, ...] = ()
    captured: Sequence[Tensor] = ()
    used: bool = False

    def run(self, saved: Sequence[Tensor]) -> list[Tensor | None]:
        if self.compiled is None:
            return [None] * len(self.results)
        found = self.compiled([*(saved[i] for i in self.saved), *self.captured])
        return [None if i is None else found[i] for i in self.results]


def jacobians(
    recorder: Recorder, target: int, sources: Sequence[int], batch: Batch = None, mode: str = "auto"
) -> list[Tensor | None]:
    """The Jacobians of a target slot with respect to source slots: shape (target, source), or with `batch`
    (batch, rest of the target, rest of the source), where seeds sum over the batch."""
    node = recorder.node
    key = ("jacobian", target, tuple(sources), batch, mode)
    program: Any = PROGRAMS.find(node, key, functools.partial(build, node, target, tuple(sources), batch, mode))
    if program.rules:
        forward = mode == "forward"
        program = _program(traced_backward(recorder, program.rules, target, tuple(sources), forward), batch, mode)
    results: list[Tensor | None] = program.run(recorder.saved)
    return results


def build(end: TrieNode, target: int, sources: tuple[int, ...], batch: Batch, mode: str) -> Any:
    """Differentiate, vectorize in both modes, keep the cheaper one."""
    backward = Backward(Path(end, {}), target, sources)
    return RowsProgram([], None, [], backward.rules) if backward.rules else _program(backward, batch, mode)


def _program(backward: Backward, batch: Batch, mode: str) -> RowsProgram:
    y, cotangent, given = backward.y, backward.cotangent, backward.given
    return _of_graphs(
        backward,
        [
            None if p is None else cheaper(p, y, x, cotangent, given, batch, mode)
            for p, x in zip(backward.pulled, backward.xs, strict=True)
        ],
    )


def _of_graphs(backward: Backward, graphs: Sequence[Value | None]) -> RowsProgram:
    outputs = [g for g in graphs if g is not None]
    if not outputs:
        return RowsProgram([], None, [None] * len(graphs))
    reads, places = backward.reads(outputs), iter(range(len(outputs)))
    return RowsProgram(
        reads.places,
        backward.compiler(Graph(reads.values, outputs)),
        [None if g is None else next(places) for g in graphs],
        captured=reads.captured,
    )


@dataclass
class Choice:
    """A Jacobian as structured rows in the mode that was chosen, and what each mode costs."""

    mode: str
    builder: Builder
    rows: Rows
    dense: Value
    costs: dict[str, float]


def chosen(pulled: Value, y: Value, x: Value, cotangent: Value, given: Sequence[Value], mode: str = "auto") -> Choice:
    """The Jacobian of y by x from the backward pass `pulled`, in the mode whose graph costs less."""
    found: dict[str, tuple[Builder, Rows, Value]] = {}
    for k, rows_in in _ways(pulled, y, x, cotangent, given, mode).items():
        b, rows = rows_in()
        found[k] = (b, rows, dense(b, rows))
    costs = {k: cost(simplify(Graph(leaves([v], given), [v]))) for k, (_, _, v) in found.items()}
    best = min(costs, key=lambda k: costs[k])
    return Choice(best, *found[best], costs)


def _ways(
    pulled: Value, y: Value, x: Value, cotangent: Value, given: Sequence[Value], mode: str
) -> dict[str, Callable[[], tuple[Builder, Rows]]]:
    """What gives the rows in each mode that may be chosen."""
    if mode == "forward":
        (pulled,) = forwards([pulled], given)
    if mode != "reverse" and (rule := bent_rule(order([pulled], given), cotangent)):
        if mode == "forward":
            raise ValueError(wants_jvp(rule))
        mode = "reverse"
    if mode == "auto" and _looks_at_cotangents(order([pulled], given)):
        mode = "reverse"  # forward mode makes no cotangents that could be looked at
    ways = {
        "reverse": lambda: vectorized_rows(pulled, cotangent, seed(y.aval.dims, y.aval.dtype), given),
        "forward": lambda: _forward(pulled, y, x, cotangent, given),
    }
    return ways if mode == "auto" else {mode: ways[mode]}


def _looks_at_cotangents(nodes: Iterable[Node]) -> bool:
    """Whether a backward pass checks them for NaN and infinity."""
    return any(
        n.step.op is CHECK_NUMERICS
        or any(_looks_at_cotangents(g.nodes) for g in n.step.params.values() if isinstance(g, Graph))
        for n in nodes
    )


def cheaper(
    pulled: Value, y: Value, x: Value, cotangent: Value, given: Sequence[Value], batch: Batch, mode: str
) -> Value:
    """The dense Jacobian as a graph value over residuals."""
    if batch is not None:
        return dense(*_batch_rows(pulled, y, cotangent, given, batch))
    ways = _ways(pulled, y, x, cotangent, given, mode)
    if len(ways) == 1:
        return dense(*ways[mode if mode in ways else "reverse"]())
    least, best = math.inf, None
    for rows_in in ways.values():
        price, kept = _priced(dense(*rows_in()), given)
        if not isinstance(kept, Value):
            gc.collect()  # graphs are cycles: what it was made of would lie beside the other's
        if best is None or price < least:
            least, best = price, kept
    assert best is not None
    if isinstance(best, Value):
        return best
    graph, inputs = best
    (value,) = rebuild_from(graph.unfolded(), inputs)
    return value


def _priced(v: Value, given: Sequence[Value]) -> tuple[float, Value | tuple[Folded, list[Value]]]:
    """What a value costs, and the value; a large one is put away while the next is made: its graph, and what that is
    of."""
    inputs = leaves([v], given)
    graph = simplify(Graph(inputs, [v]))
    return cost(graph), v if len(graph.nodes) <= LARGE else (Folded(graph), inputs)


def _forward(pulled: Value, y: Value, x: Value, cotangent: Value, given: Sequence[Value]) -> tuple[Builder, Rows]:
    """A VJP is linear in its cotangent; pulled back once more, with respect to that, it is the JVP."""
    tangent = Value(x.aval)
    (pushed,) = pull_back(order([pulled], given), [pulled], [tangent], [cotangent])
    if pushed is None:
        return Builder(), rows_of([], y.aval.dims, x.aval.dims, x.aval.dtype)
    # Loops that run again for their residuals carry the cotangent, which nothing reads, and which nobody will give.
    (pushed,) = without_unread(Graph([*given, tangent], [pushed])).outputs
    pushed = guarded(pushed, [tangent], given)
    if y.aval.dtype.is_complex or x.aval.dtype.is_complex:
        tangent, pushed = _slopes(pushed, tangent, given)
    if pushed.aval.dtype is not x.aval.dtype:  # a Jacobian has its source's dtype
        pushed = emit("cast", pushed, dtype=x.aval.dtype)
    b, rows = vectorized_rows(pushed, tangent, seed(x.aval.dims, tangent.aval.dtype), given)
    return b, swapped(rows)


def _slopes(pushed: Value, tangent: Value, given: Sequence[Value]) -> tuple[Value, Value]:
    """A real tangent, and what reverse mode says of it: the slope of the target's real part along the source's real
    axis, plus i times that along its imaginary one."""
    real = Value(aval(tangent.aval.dims, tangent.aval.dtype.real_dtype))
    inputs = leaves([pushed], given)

    def along(t: Value) -> Value:
        (p,) = rebuild_from(Graph([*inputs, tangent], [pushed]), [*inputs, t])
        return emit("real", p) if p.aval.dtype.is_complex else p

    if not tangent.aval.dtype.is_complex:
        return real, along(real)
    zero = constant(0, real.aval.dtype)
    return real, emit("complex", along(emit("complex", real, zero)), along(emit("complex", zero, real)))


def _batch_rows(
    pulled: Value, y: Value, cotangent: Value, given: Sequence[Value], batch: tuple[int, ...]
) -> tuple[Builder, Rows]:
    """Seeds that are the identity over all axes of the target but the batch, and ones along that."""
    dims = y.aval.dims
    axes = tuple(whole(d) for d in dims)
    rows = tuple(a for k, a in enumerate(axes) if k not in batch)
    rest = [d for k, d in enumerate(dims) if k not in batch]
    start = [] if 0 in dims else [Term((), rows, axes)]
    b, v = vectorized_rows(pulled, cotangent, rows_of(start, rest, dims, y.aval.dtype), given)
    inside = [k for k in range(len(v.shape)) if k not in batch]

    def arranged(parts: Sequence[Any], own: Sequence[Any]) -> tuple[Any, ...]:
        return (*(own[k] for k in batch), *parts)

    terms = tuple(Term(t.factors, arranged(t.rows, t.own), tuple(t.own[k] for k in inside)) for t in v.terms)
    return b, Rows(terms, arranged(v.rows, v.shape), tuple(v.shape[k] for k in inside), v.dtype)


def vectorized_rows(v: Value, varying: Value, seeds: Rows, given: Sequence[Value]) -> tuple[Builder, Rows]:
    inputs = leaves([v], given)
    if not any(i is varying for i in inputs):
        inputs.append(varying)
    at = next(k for k, i in enumerate(inputs) if i is varying)
    b, (result,) = vectorize(Graph(inputs, [v]), {at: seeds})
    return b, lifted(b, result, seeds.rows)


# ------------------------------------------------------------------ one row after the other


def looped(recorder: Recorder, target: Tensor, sources: Sequence[int]) -> list[Tensor | None]:
    """The same Jacobians from one gradient per element of the target: `experimental_use_pfor=False`."""
    dims = target._aval.dims
    ones = np.eye(math.prod(dims), dtype=target._aval.dtype.numpy_dtype)
    rows = [_row(recorder, target, sources, one.reshape(dims)) for one in ones]
    results = [stacked([r[i] for r in rows], dims) for i in range(len(sources))]
    return [_masked(recorder, target, s, None, r) for s, r in zip(sources, results, strict=True)]


def batch_looped(
    recorder: Recorder, target: Tensor, sources: Sequence[int], batch: tuple[int, ...]
) -> list[Tensor | None]:
    """The batch Jacobians from one gradient per element of an example, summed over the batch."""
    dims = target._aval.dims
    rest = [n for k, n in enumerate(dims) if k not in batch]
    inside = [n if k not in batch else 1 for k, n in enumerate(dims)]
    ones = np.eye(math.prod(rest), dtype=target._aval.dtype.numpy_dtype)
    wide = [np.broadcast_to(one.reshape(inside), dims).copy() for one in ones]
    rows = [_row(recorder, target, sources, one) for one in wide]
    stacks = [_batch_first(stacked([r[i] for r in rows], tuple(rest)), len(rest), batch) for i in range(len(sources))]
    return [_masked(recorder, target, s, batch, r) for s, r in zip(sources, stacks, strict=True)]


def _masked(recorder: Recorder, target: Tensor, source: int, batch: Batch, result: Tensor | None) -> Tensor | None:
    """Entries that cannot be reached are zero: in a row that does not depend on a pole, 0 · inf is no number."""
    reached = None if result is None else reachable(recorder, recorder.slots[target._id], source, batch)
    if result is None or reached is None:
        return result
    zero = wrap(result._aval.dtype.numpy_dtype.type(0), aval((), result._aval.dtype))
    masked: Tensor = execute(SELECT.bind(), (reached, result, zero))
    return masked


def reachable(recorder: Recorder, target: int, source: int, batch: Batch = None) -> Tensor | None:
    """Where an entry of the Jacobian of a target slot can be other than zero; None where nothing is known of that."""
    make: Any = functools.partial(_reach, recorder.node, target, source, batch)
    program: Any = PROGRAMS.find(recorder.node, ("reach", target, source, batch), make)
    if program.compiled is None:
        return None
    found: Tensor
    (found,) = program.compiled([recorder.saved[i] for i in program.saved])
    return found


def _reach(end: TrieNode, target: int, source: int, batch: Batch) -> Any:
    """The structure of the rows without their numbers: where an entry can be other than zero. Nothing is known of that
    through a rule that is Python, or an op that knows no rows."""
    backward = Backward(Path(end, {}), target, (source,))
    (pulled,) = backward.pulled
    if backward.rules or pulled is None:
        return RowsProgram([], None, [])
    y, given = backward.y, backward.given
    try:
        if batch is None:
            b, v = vectorized_rows(pulled, backward.cotangent, seed(y.aval.dims, y.aval.dtype), given)
        else:
            b, v = _batch_rows(pulled, y, backward.cotangent, given, batch)
    except NotVectorizable:
        return RowsProgram([], None, [])
    places = Rows(tuple(Term((), t.rows, t.own) for t in v.terms), v.rows, v.shape, float32)
    return _of_graphs(backward, [b.emit("not_equal", dense(b, places), b.constant(0, float32))])


def _batch_first(result: Tensor | None, lead: int, batch: tuple[int, ...]) -> Tensor | None:
    """(rest of the target, source) as (batch, rest of the target, rest of the source)."""
    if result is None:
        return None
    at = [lead + k for k in batch]
    order = (*at, *(k for k in range(len(result._aval.dims)) if k not in at))
    return unary(TRANSPOSE.bind(perm=order), result)


def _row(recorder: Recorder, target: Tensor, sources: Sequence[int], cotangent: Any) -> list[Tensor | None]:
    return gradients(recorder, [recorder.slots[target._id]], sources, [from_array(cotangent)])


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
    return from_array(np.zeros(made.dims, made.dtype.numpy_dtype))
