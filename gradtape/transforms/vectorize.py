"""One row's graph becomes the graph of all rows; rules by kind, over values with structure. Floor: transforms."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType
from gradtape.ir.errors import NotVectorizable
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.index import Index
from gradtape.ops.call import Call, Ruled, UnknownRule, ruled_step
from gradtape.ops.composite import Composite
from gradtape.ops.contraction import Contraction
from gradtape.ops.control import Checkpoint, Cond, Scan, StackSum, While
from gradtape.ops.host import EachRow, Host, host_step
from gradtape.ops.op import apply
from gradtape.ops.opaque import Draw, Opaque, Seeding
from gradtape.ops.placement import Assemble, Product, assemble_by_scatter
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.ops.structural import Structural
from gradtape.transforms.rows import arithmetic, control, draws, folding, loops
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.entering import free, lifted
from gradtape.transforms.rows.following import follow
from gradtape.transforms.rows.items import common_rows, dtype_of, shape_of
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.placing import over_all, placed
from gradtape.transforms.rows.sums import added
from gradtape.transforms.rows.terms import (
    Item,
    Rows,
    Term,
    rows_of,
)
from gradtape.transforms.simplify import rebuild_from


def vectorize(graph: Graph, seeds: Mapping[int, Rows]) -> tuple[Builder, list[Item]]:
    """The outputs of a graph, some of whose inputs (by position) depend on rows. An output that no row reaches
    stays an ordinary value."""
    b = Builder()
    return b, vectorized(b, graph, [seeds.get(i, v) for i, v in enumerate(graph.inputs)])


def vectorized(b: Builder, graph: Graph, operands: Sequence[Item]) -> list[Item]:
    """The outputs of a graph for operands of which some depend on rows."""
    known: dict[int, Item] = {id(v): x for v, x in zip(graph.inputs, operands, strict=True)}
    _run(b, graph, known)
    return [known[id(v)] for v in graph.outputs]


def _run(b: Builder, graph: Graph, known: dict[int, Item]) -> None:
    for node in graph.nodes:
        operands = [known[id(v)] for v in node.inputs]
        if any(isinstance(x, Rows) for x in operands):
            results: Sequence[Item] = _rule(node)(b, node, operands)
        else:
            results = b.apply(node.step, [x for x in operands if isinstance(x, Value)])
        known.update((id(v), r) for v, r in zip(node.outputs, results, strict=True))


Rule = Callable[[Builder, Node, list[Item]], Sequence[Item]]


def _rule(node: Node) -> Rule:
    for kind in type(node.step.op).__mro__:
        if kind in RULES:
            return RULES[kind]
    raise NotVectorizable(node.step.name, f"its kind, {node.step.op.kind}, has no rule for rows.")


# ------------------------------------------------------------------ ops that move elements


def _moved(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    op = node.step.op
    assert isinstance(op, Structural | Opaque)
    if op.moves is None:
        return _opaque(b, node, operands)
    known = tuple(x if isinstance(x, Value) else v for x, v in zip(operands, node.inputs, strict=True))
    ways, rows = op.moves(Node(node.step, known, tuple(v.aval for v in node.outputs))), common_rows(operands)
    at = functools.partial(_positions, b, known[len(ways) :], operands[len(ways) :])
    parts = [follow(b, x, rows, way, at) for x, way in zip(operands, ways, strict=False)]
    return [parts[0] if len(parts) == 1 else added(b, parts)]


def _positions(b: Builder, indices: Sequence[Value], given: Sequence[Item], ids: Index | Value) -> Index | Item:
    """Positions that are spelled over a node's own operands, over the operands given to it here."""
    if isinstance(ids, Index):
        return ids
    (found,) = vectorized(b, Graph(indices, [ids]), given)
    return found


# ------------------------------------------------------------------ opaque ops and graphs


def _opaque(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    """Where the op is linear in the operand that varies, structure along its loop axes stays; else all rows are
    written out and become loop axes in front."""
    op = node.step.op
    assert isinstance(op, Structural | Opaque)
    varying = [i for i, x in enumerate(operands) if isinstance(x, Rows)]
    alone = isinstance(op, Opaque) and len(varying) == 1 and len(node.outputs) == 1 and not op.whole
    if alone and loops.is_linear(node, varying[0]):
        return [loops.along(b, node, operands, varying[0])]
    rows = common_rows(operands)
    step = op.bind(**_shifted(op, node.step.params, len(rows)))
    wide = [dense(b, lifted(b, x, rows)) for x in operands]
    if isinstance(op, Opaque) and op.shift is None:
        shapes = loops.loops_aligned(op, [shape_of(x) for x in operands])
        wide = [b.reshape(v, (*rows, *s)) for v, s in zip(wide, shapes, strict=True)]
    return [free(b, v, rows) for v in b.apply(step, wide)]


def _shifted(op: Structural | Opaque, params: dict[str, Any], count: int) -> dict[str, Any]:
    """Parameters for operands with more loop axes in front; an op without axes among them needs no change."""
    shift = getattr(op, "shift", None)
    if shift is not None:
        moved: dict[str, Any] = shift(params, count)
        return moved
    if {"axis", "axes", "batch_dims", "shape", "perm"} & set(params) or isinstance(op, Structural):
        raise NotVectorizable(op.name, "it does not say how it runs with more axes in front.")
    return params


def _composite(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    op = node.step.op
    assert isinstance(op, Composite)
    inside = vectorized(b, op.expand(tuple(v.aval for v in node.inputs), **node.step.params), operands)
    at_once = folding.folded(b, node, operands)
    if at_once is None:
        return inside
    return [folding.cheaper(b, node, operands, [lifted(b, inside[0], at_once.rows), at_once])]


def _call(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    return vectorized(b, node.step.params["graph"], operands)


def _ruled(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    """A rule is one row's, and done to each: its graph is that of all rows."""
    rows, p = common_rows(operands), node.step.params
    count, answers = p["results"], p["answers"]
    operands = [lifted(b, x, rows) if k < count else x for k, x in enumerate(operands)]
    given = [x for x in operands[:count] if dtype_of(x).is_differentiable]
    read = [*given, *operands[count + len(answers) :]]
    answered = [x for x, a in zip(operands[count:], answers, strict=False) if a]
    rule = _of_all_rows(p["rule"], read, answered, rows)
    forwards = None if p["forwards"] is None else _of_all_rows(p["forwards"], read, answered, rows)
    step = ruled_step(count, rule, answers, p["linear"], p["name"], forwards)
    return [free(b, v, rows) for v in b.apply(step, [dense(b, x) if isinstance(x, Rows) else x for x in operands])]


def _unknown(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    assert isinstance(node.step.op, UnknownRule)
    raise node.step.op.error(node.step)


def _hosted(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    """A Python function runs once for each row, in their order."""
    rows, p = common_rows(operands), node.step.params
    ordered = p["ordered"]
    if ordered and b.parted:
        raise NotVectorizable(
            node.step.name,
            "only some slices come to this `tf.print`, assertion or Python function: it is in a branch or "
            "a loop whose condition differs between them.",
        )
    each = EachRow(p["function"], [isinstance(x, Rows) for x in operands], rows, ordered, p["results"])
    results = [
        v.aval if ordered and not k else aval((*rows, *v.aval.dims), v.aval.dtype) for k, v in enumerate(node.outputs)
    ]
    rule = None if p["rule"] is None else functools.partial(_host_rule, node, operands, rows)
    step = host_step(each, results, rule, ordered)
    made = b.apply(step, [dense(b, x) if isinstance(x, Rows) else x for x in operands])
    return [v if ordered and not k else free(b, v, rows) for k, v in enumerate(made)]


def _host_rule(
    of_one: Node,
    operands: Sequence[Item],
    rows: tuple[int, ...],
    node: Node,
    cotangents: list[Value | None],
    wanted: list[bool],
) -> Sequence[Value | None]:
    """The rule of a Python function, done to each row."""
    inputs = [Value(v.aval) for v in of_one.inputs]
    inner = apply(of_one.step, inputs)[0].node
    assert inner is not None
    ups = [None if g is None else Value(v.aval) for g, v in zip(cotangents, of_one.outputs, strict=True)]
    pulled = list(of_one.step.params["rule"](inner, ups, wanted))
    reached = [k for k, v in enumerate(pulled) if v is not None]
    given = [v for v in ups if v is not None]
    graph = Graph([*inputs, *given], [v for v in pulled if v is not None])
    read = [*operands, *(rows_of([], rows, v.aval.dims, v.aval.dtype) for v in given)]
    wide = _of_all_rows(graph, read, [operands[k] for k in reached], rows)
    for k, v in zip(
        reached, rebuild_from(wide, [*node.inputs, *(g for g in cotangents if g is not None)]), strict=True
    ):
        pulled[k] = v
    return pulled


def _of_all_rows(rule: Graph, read: Sequence[Item], answered: Sequence[Item], rows: tuple[int, ...]) -> Graph:
    """A rule's graph for all rows: cotangents of what is one for all of them are summed."""
    b = Builder()
    inputs = [Value(aval((*rows, *shape_of(x)) if isinstance(x, Rows) else shape_of(x), dtype_of(x))) for x in read]
    items: list[Item] = [free(b, v, rows) if isinstance(x, Rows) else v for v, x in zip(inputs, read, strict=True)]
    found = [lifted(b, y, rows) for y in vectorized(b, rule, items)]
    over = tuple(range(len(rows)))
    outputs = [
        dense(b, y) if isinstance(x, Rows) else b.emit("reduce_sum", dense(b, y), axes=over, keepdims=False)
        for x, y in zip(answered, found, strict=True)
    ]
    return Graph(inputs, outputs)


# ------------------------------------------------------------------ assemble: rows of placed products


def _assemble(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    terms: Sequence[Product] = node.step.params["terms"]
    count = sum(len(t.factors) for t in terms)
    vectors = operands[count:]
    rows, (out,) = common_rows(operands), node.outputs
    if any(isinstance(x, Rows) for x in vectors):
        inputs, dtype = node.inputs, out.aval.dtype
        written = assemble_by_scatter(terms, inputs[:count], inputs[count:], out.aval.dims, dtype)
        return vectorized(b, Graph(inputs, [written]), operands)
    parts, first = [], 0
    for t in terms:
        own = operands[first : first + len(t.factors)]
        first += len(own)
        known = [x for x in vectors if isinstance(x, Value)]
        parts.append(placed(b, _product(b, t, own, rows, out.aval.dtype), t, known, out.aval.dims))
    return [added(b, parts)]


def _product(b: Builder, t: Product, own: Sequence[Item], rows: tuple[int, ...], dtype: DType) -> Rows:
    """The factors of one term multiplied, over all of its letters."""
    wide = [over_all(b, lifted(b, x, rows), letters, t.sizes) for x, letters in zip(own, t.factors, strict=True)]
    if not wide:
        return lifted(b, b.constant(1, dtype, t.sizes), rows)
    return functools.reduce(functools.partial(_times_rows, b), wide)


def _times_rows(b: Builder, v: Rows, w: Rows) -> Rows:
    """The product of two values that depend on rows, written out."""
    return free(b, b.emit("multiply", dense(b, v), dense(b, w)), v.rows)


RULES: dict[type, Rule] = {
    Pointwise: arithmetic.pointwise,
    Reduction: arithmetic.reduction,
    Contraction: arithmetic.contraction,
    Structural: _moved,
    Opaque: _moved,
    Draw: draws.drawn,
    Seeding: draws.seeded,
    Composite: _composite,
    Call: _call,
    Checkpoint: _call,
    Cond: functools.partial(control.cond, vectorized),
    While: functools.partial(control.loop, vectorized),
    Scan: functools.partial(control.loop, vectorized),
    StackSum: control.added_stacks,
    Ruled: _ruled,
    UnknownRule: _unknown,
    Host: _hosted,
    Assemble: _assemble,
}


def swapped(v: Rows) -> Rows:
    """Rows and own axes exchanged: the rows of forward mode run over sources, a Jacobian's over targets."""
    return Rows(tuple(Term(t.factors, t.own, t.rows) for t in v.terms), v.shape, v.rows, v.dtype)
