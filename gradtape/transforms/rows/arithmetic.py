"""The rules for arithmetic: pointwise ops, reductions and contractions. Floor: transforms.

What is linear in the operand that varies becomes one more factor, or takes a letter off; of anything else, all rows are
written out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradtape.ir.dtypes import DType
from gradtape.ir.errors import NotVectorizable
from gradtape.ir.graph import Node, Value
from gradtape.ir.shapes import size_of
from gradtape.ops.contraction import parts
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction, reduced
from gradtape.transforms.rows import moves
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.entering import free, lifted
from gradtape.transforms.rows.items import common_rows
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.letters import Axis, Letter, pair, whole
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

# ------------------------------------------------------------------ pointwise


def pointwise(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    """The sum over the operands that vary, where the op is linear in them together; truth values have no sums."""
    op = node.step.op
    assert isinstance(op, Pointwise)
    varying = {i for i, x in enumerate(operands) if isinstance(x, Rows)}
    group = next((g for g in op.linear if varying <= set(g)), None)
    if group is None or node.outputs[0].aval.dtype.is_bool:
        return [_pointwise_free(b, node, operands)]
    rows = common_rows(operands)
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
    rows, rank = common_rows(operands), len(node.outputs[0].aval.dims)
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


def reduction(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    """Sums and means take letters off; other reductions want all rows."""
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


def contraction(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    """An array joins the factors; two operands that vary stay apart where nothing is summed."""
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
