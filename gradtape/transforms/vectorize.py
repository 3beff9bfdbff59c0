"""One row's graph becomes the graph of all rows; rules by kind, over values with structure. Floor: transforms."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.index import Index
from gradtape.ir.shapes import size_of
from gradtape.ops.call import Call, Ruled, ruled_step
from gradtape.ops.composite import Composite
from gradtape.ops.contraction import Contraction, parts
from gradtape.ops.control import Cond, Scan, StackSum, While
from gradtape.ops.opaque import Opaque
from gradtape.ops.placement import Assemble, Product, assemble_by_scatter
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction, reduced
from gradtape.ops.structural import Structural
from gradtape.transforms.rows import control, folding, loops, moves
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.entering import free, lifted
from gradtape.transforms.rows.following import follow
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.letters import Axis, Letter, pair, whole
from gradtape.transforms.rows.placing import over_all, placed
from gradtape.transforms.rows.sums import added, dropped, settled
from gradtape.transforms.rows.terms import (
    Factor,
    Item,
    Rows,
    Term,
    align,
    all_letters,
    each,
    multiplied_out,
    normal,
    number,
    relettered,
    rows_of,
    taken,
)


class NotVectorizable(Exception):
    """An op that has no rule for rows; `name` says which."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"`{name}` cannot run for all rows at once: {why}")
        self.name = name


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


def _rows(operands: Sequence[Item]) -> tuple[int, ...]:
    return next(x.rows for x in operands if isinstance(x, Rows))


def _shape(x: Item) -> tuple[int, ...]:
    return x.shape if isinstance(x, Rows) else x.aval.dims


def _dtype(x: Item) -> DType:
    return x.dtype if isinstance(x, Rows) else x.aval.dtype


# ------------------------------------------------------------------ pointwise


def _pointwise(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    op = node.step.op
    assert isinstance(op, Pointwise)
    varying = {i for i, x in enumerate(operands) if isinstance(x, Rows)}
    group = next((g for g in op.linear if varying <= set(g)), None)
    if group is None:
        return [_pointwise_free(b, node, operands)]
    rows = _rows(operands)
    parts = [_linear(b, node, operands, i, lifted(b, operands[i], rows), group) for i in group]
    return [parts[0] if len(parts) == 1 else added(b, parts)]


def _linear(b: Builder, node: Node, operands: list[Item], i: int, v: Rows, group: tuple[int, ...]) -> Rows:
    """The op with operand i alone, the rest of its group being zero."""
    op, (out,) = node.step.op, node.outputs
    assert isinstance(op, Pointwise)
    v = moves.broadcast(b, v, out.aval.dims)
    if op.partials and op.partials[i] == 1:
        return v
    if op.partials and op.partials[i] == -1 and v.dtype.kind == "f":
        return each(b, v, v.shape, lambda t: _times(b, t, -1, v.dtype))
    outside = {k: x for k, x in enumerate(operands) if k not in group and isinstance(x, Value)}
    is_product = op.linear == ((0,), (1,)) and op.neutral == {0: 1, 1: 1}

    def rule(t: Term) -> Term:
        others = {k: taken(b, _squeezed(b, x), _axes(x, t)) for k, x in outside.items()}
        if is_product:
            return replace(t, factors=(*t.factors, *others.values()))
        return _on_one_factor(b, node, t, i, others, v.dtype)

    terms = [normal(b, rule(t), out.aval.dtype) for t in v.terms]
    return rows_of(terms, v.rows, v.shape, out.aval.dtype)


def _squeezed(b: Builder, x: Value) -> Value:
    return b.reshape(x, [n for n in x.aval.dims if n != 1])


def _axes(x: Value, t: Term) -> list[Axis]:
    """The own axes of a term along which an operand varies."""
    lead = len(t.own) - len(x.aval.dims)
    return [t.own[lead + k] for k, n in enumerate(x.aval.dims) if n != 1]


def _on_one_factor(b: Builder, node: Node, t: Term, i: int, others: dict[int, Factor], dtype: DType) -> Term:
    """Apply an op that is linear in operand i to the factor that shares most letters with the other operands."""
    out = node.outputs[0].aval.dtype
    letters = list(dict.fromkeys(c for f in others.values() for c in f.letters))
    factors = list(t.factors) or [number(b, 1, dtype)]
    if len(factors) > 1 and (out is not dtype or dtype.is_complex):
        factors = [multiplied_out(b, factors, all_letters(t), dtype)]
    host = max(factors, key=lambda f: sum(c in f.letters for c in letters))
    over = list(dict.fromkeys([*host.letters, *letters]))
    operands = []
    for k, x in enumerate(node.inputs):
        if k == i:
            operands.append(align(b, host, over))
        elif k in others:
            operands.append(align(b, others[k], over))
        else:
            operands.append(b.constant(0, x.aval.dtype))
    value = b.apply(node.step, operands)[0]
    shape = tuple(c.size for c in over)
    if value.aval.shape != shape:
        value = b.emit("broadcast_to", value, shape=shape)
    made = Factor(value, tuple(over))
    return replace(t, factors=tuple(made if f is host else f for f in factors))


def _pointwise_free(b: Builder, node: Node, operands: list[Item]) -> Rows:
    """Every operand written out, with axes of size 1 between its row axes and its own."""
    rows, rank = _rows(operands), len(node.outputs[0].aval.dims)
    wide = []
    for x in operands:
        if isinstance(x, Rows):
            value = dense(b, x)
            value = b.reshape(value, (*rows, *(1,) * (rank - len(x.shape)), *x.shape))
        else:
            value = x
        wide.append(value)
    return free(b, b.apply(node.step, wide)[0], rows)


# ------------------------------------------------------------------ reductions


def _reduction(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    op, (v,) = node.step.op, operands
    assert isinstance(op, Reduction) and isinstance(v, Rows)
    axes, keepdims = node.step.params["axes"], node.step.params["keepdims"]
    coefficient = op.coefficient(size_of(v.shape[k] for k in axes))
    if coefficient is None:
        lead = len(v.rows)
        step = op.bind(axes=tuple(lead + k for k in axes), keepdims=keepdims)
        return [free(b, b.apply(step, [dense(b, v)])[0], v.rows)]
    kept = [k for k in range(len(v.shape)) if k not in axes]
    total = moves.transposed(b, v, kept)
    if coefficient != 1:
        total = each(b, total, total.shape, lambda t: _times(b, t, coefficient, v.dtype))
    return [moves.reshaped(b, total, reduced(v.shape, axes, True)) if keepdims else total]


def _times(b: Builder, t: Term, coefficient: float, dtype: DType) -> Term:
    return replace(t, factors=(*t.factors, number(b, coefficient, dtype)))


# ------------------------------------------------------------------ contractions


def _contraction(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    left, right, out = parts(node.step.params["subscripts"])
    x, y = operands
    if isinstance(x, Rows) and isinstance(y, Rows):
        outer = _outer(b, x, y, left, right, out)
        return [_contraction_free(b, node, x, y) if outer is None else outer]
    if isinstance(x, Rows) and isinstance(y, Value):
        return [contracted(b, x, y, left, right, out)]
    assert isinstance(y, Rows) and isinstance(x, Value)
    return [contracted(b, y, x, right, left, out)]


def contracted(b: Builder, v: Rows, array: Value, ins: str, other: str, out: str) -> Rows:
    """Over own axes: the array becomes one more factor. Where the letter of a contracted axis also stands on a row
    axis nothing is computed: it just stays."""
    sizes = dict(zip(other, array.aval.dims, strict=True)) | dict(zip(ins, v.shape, strict=True))

    def rule(t: Term) -> Term:
        axes = dict(zip(ins, t.own, strict=True))
        for c in other:
            if c not in axes:
                axes[c] = whole(sizes[c])
        factor = taken(b, _squeezed(b, array), [axes[c] for c in other if sizes[c] != 1])
        return Term((*t.factors, factor), t.rows, tuple(axes[c] for c in out))

    return settled(b, dropped(b, v, [sizes[c] for c in out], rule))


def _outer(b: Builder, x: Rows, y: Rows, left: str, right: str, out: str) -> Rows | None:
    """An outer product in every row stays two factors; None where something is summed, or rows stand otherwise."""
    sizes = dict(zip(left + right, x.shape + y.shape, strict=True))
    met = {c for c in left + right if (c in left and c in right) or c not in out}
    if any(sizes[c] != 1 for c in met) or len(x.terms) != 1 or len(y.terms) != 1:
        return None
    (s,), (t,) = x.terms, y.terms
    ours, theirs = ([p for a in term.rows for p in a] for term in (s, t))
    plain = all(p.where is None and p.extent == p.letter.size for p in (*ours, *theirs))
    apart = len({p.letter for p in ours}) == len(ours) and len({p.letter for p in theirs}) == len(theirs)
    if not plain or not apart or [p.extent for p in ours] != [p.extent for p in theirs]:
        return None
    fresh: dict[Letter, Axis] = {c: (pair(Letter(c.size)),) for c in all_letters(t)}  # both may be one value
    t = relettered(b, t, fresh | {q.letter: (p,) for p, q in zip(ours, theirs, strict=True)})
    axes = dict(zip(left + right, (*s.own, *t.own), strict=True))
    term = Term((*s.factors, *t.factors), s.rows, tuple(axes[c] for c in out))
    return rows_of([normal(b, term, x.dtype)], x.rows, [sizes[c] for c in out], x.dtype)


def _contraction_free(b: Builder, node: Node, x: Rows, y: Rows) -> Rows:
    left, right, out = parts(node.step.params["subscripts"])
    unused = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in left + right]
    if len(unused) < len(x.rows):
        raise NotVectorizable(node.step.name, f"{len(x.rows)} row axes are more than it has letters for.")
    row = "".join(unused[: len(x.rows)])
    spelled = f"{row}{left},{row}{right}->{row}{out}"
    return free(b, b.emit(node.step.name, dense(b, x), dense(b, y), subscripts=spelled), x.rows)


# ------------------------------------------------------------------ ops that move elements


def _moved(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    op = node.step.op
    assert isinstance(op, Structural | Opaque)
    if op.moves is None:
        return _opaque(b, node, operands)
    known = tuple(x if isinstance(x, Value) else v for x, v in zip(operands, node.inputs, strict=True))
    ways, rows = op.moves(Node(node.step, known, tuple(v.aval for v in node.outputs))), _rows(operands)
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
    if isinstance(op, Opaque) and len(varying) == 1 and len(node.outputs) == 1 and loops.is_linear(node, varying[0]):
        return [loops.along(b, node, operands, varying[0])]
    rows = _rows(operands)
    step = op.bind(**_shifted(op, node.step.params, len(rows)))
    wide = [dense(b, lifted(b, x, rows)) for x in operands]
    if isinstance(op, Opaque) and op.shift is None:
        shapes = loops.loops_aligned(op, [_shape(x) for x in operands])
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
    rows, p = _rows(operands), node.step.params
    count, answers = p["results"], p["answers"]
    operands = [lifted(b, x, rows) if k < count else x for k, x in enumerate(operands)]
    given = [x for x in operands[:count] if _dtype(x).is_differentiable]
    read = [*given, *operands[count + len(answers) :]]
    answered = [x for x, a in zip(operands[count:], answers, strict=False) if a]
    step = ruled_step(count, _of_all_rows(p["rule"], read, answered, rows), answers, p["linear"])
    return [free(b, v, rows) for v in b.apply(step, [dense(b, x) if isinstance(x, Rows) else x for x in operands])]


def _of_all_rows(rule: Graph, read: Sequence[Item], answered: Sequence[Item], rows: tuple[int, ...]) -> Graph:
    """A rule's graph for all rows: cotangents of what is one for all of them are summed."""
    b = Builder()
    inputs = [Value(aval((*rows, *_shape(x)) if isinstance(x, Rows) else _shape(x), _dtype(x))) for x in read]
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
    rows, (out,) = _rows(operands), node.outputs
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
    Pointwise: _pointwise,
    Reduction: _reduction,
    Contraction: _contraction,
    Structural: _moved,
    Opaque: _moved,
    Composite: _composite,
    Call: _call,
    Cond: functools.partial(control.cond, vectorized),
    While: functools.partial(control.loop, vectorized),
    Scan: functools.partial(control.loop, vectorized),
    StackSum: control.added_stacks,
    Ruled: _ruled,
    Assemble: _assemble,
}


def swapped(v: Rows) -> Rows:
    """Rows and own axes exchanged: the rows of forward mode run over sources, a Jacobian's over targets."""
    return Rows(tuple(Term(t.factors, t.own, t.rows) for t in v.terms), v.shape, v.rows, v.dtype)
