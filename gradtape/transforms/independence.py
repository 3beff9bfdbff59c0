"""Whether examples of a batch depend on each other, from letters over shapes alone. Floor: transforms.

The batch letter starts on the batch axis of the source and is followed through the recorded program: where a value's
element may depend on an example, the example's index and the position on some axis of the value are one letter. An op
that sums the letter away mixes examples; one that moves it elsewhere does too, unless a later one moves it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradtape.ir.dtypes import float32
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.index import Index
from gradtape.ops.call import Call, CustomCall
from gradtape.ops.composite import Composite
from gradtape.ops.contraction import Contraction, parts
from gradtape.ops.moves import Gather, Move, Scatter
from gradtape.ops.opaque import Opaque
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.ops.structural import Structural
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.following import follow
from gradtape.transforms.rows.letters import Axis, Pair, whole
from gradtape.transforms.rows.loops import core_positions
from gradtape.transforms.rows.moves import broadcast, transposed
from gradtape.transforms.rows.sums import union
from gradtape.transforms.rows.terms import Rows, Term, rows_of


@dataclass(frozen=True)
class Verdict:
    """`kind`: "proved", "mixed" (examples meet) or "unknown" (no proof either way); `op`: the op that is to blame."""

    kind: str
    op: str = ""

    def __str__(self) -> str:
        if self.kind == "mixed":
            return f"examples are mixed at op `{self.op}`"
        if self.kind == "unknown":
            return f"independence of examples could not be proved because of op `{self.op}`"
        return "examples are independent"


class _Unknown(Exception):
    """An op that letters say nothing of."""


class _Mixed(Exception):
    """An op after which an element depends on all examples."""


def batch_verdict(nodes: Sequence[Node], source: Value, target: Value, axis: int = 0) -> Verdict:
    """Whether example i of the target, along an axis, depends on example i of the source alone."""
    b = Builder()
    axes = tuple(whole(n) for n in source.aval.dims)
    start = rows_of([Term((), (axes[axis],), axes)], [source.aval.dims[axis]], source.aval.dims, float32)
    known = {id(source): start}
    blamed, moved = "", ""
    nodes = _leading_to(target, nodes)
    for node in nodes:
        if not any(id(v) in known for v in node.inputs):
            continue
        try:
            results = _patterns(b, node, [known.get(id(v)) for v in node.inputs])
        except _Unknown as e:
            return Verdict("unknown", str(e))
        except _Mixed as e:
            return Verdict("mixed", str(e))
        for v, r in zip(node.outputs, results, strict=True):
            if r is None:
                continue
            known[id(v)] = r
            if not blamed and not _is_aligned(r):
                blamed = node.step.name
            stood = all(_stand(known[id(x)], axis) for x in node.inputs if id(x) in known)
            moved = node.step.name if stood and not _stand(r, axis) else moved
    found = known.get(id(target))
    if found is None or _stand(found, axis):
        return Verdict("proved")
    return Verdict("mixed", blamed or moved)


def _leading_to(target: Value, nodes: Sequence[Node]) -> list[Node]:
    """The nodes that a value depends on: what a tape recorded beside them says nothing of it."""
    needed, found = {id(target)}, []
    for node in reversed(nodes):
        if any(id(v) in needed for v in node.outputs):
            needed.update(map(id, node.inputs))
            found.append(node)
    return found[::-1]


def _patterns(b: Builder, node: Node, operands: Sequence[Rows | None]) -> list[Rows | None]:
    """On which examples each element of the results may depend."""
    op = node.step.op
    if isinstance(op, Composite):
        return _inside(b, op.expand(tuple(v.aval for v in node.inputs), **node.step.params), operands)
    if isinstance(op, Call):
        return _inside(b, node.step.params["graph"], operands)
    if isinstance(op, CustomCall):
        raise _Unknown("a custom gradient")
    made = [_one(b, node, i, v) for i, v in enumerate(operands) if v is not None]
    if not made:
        return [None] * len(node.outputs)
    whole_pattern = union(b, made)
    for t in whole_pattern.terms:
        if not _letter_pairs(t):
            raise _Mixed(op.name)
    return [whole_pattern if v.aval.dims == whole_pattern.shape else None for v in node.outputs]


def _inside(b: Builder, graph: Graph, operands: Sequence[Rows | None]) -> list[Rows | None]:
    known = {id(v): r for v, r in zip(graph.inputs, operands, strict=True) if r is not None}
    for node in graph.nodes:
        if any(id(v) in known for v in node.inputs):
            results = _patterns(b, node, [known.get(id(v)) for v in node.inputs])
            known.update((id(v), r) for v, r in zip(node.outputs, results, strict=True) if r is not None)
    return [known.get(id(v)) for v in graph.outputs]


def _one(b: Builder, node: Node, i: int, v: Rows) -> Rows:
    """What one operand passes on."""
    op, out = node.step.op, node.outputs[0].aval.dims
    if isinstance(op, Pointwise):
        return broadcast(b, v, out)
    if isinstance(op, Reduction):
        axes = node.step.params["axes"]
        kept = _plain(transposed(b, v, [k for k in range(len(v.shape)) if k not in axes]))
        return follow_reshape(b, kept, out)
    if isinstance(op, Contraction):
        return _contracted(b, node, i, v)
    if isinstance(op, Structural | Opaque) and op.moves is not None:
        if node.step.params.get("batch_dims"):
            return _within_batch(b, node, v)
        if i >= len(op.moves(node)):
            raise _Unknown(op.name)
        return _moved(b, v, op.moves(node)[i], op.name)
    if isinstance(op, Opaque):
        return _through_opaque(b, node, i, v)
    raise _Unknown(op.name)


def _moved(b: Builder, v: Rows, way: Sequence[Move], name: str) -> Rows:
    """Moves one by one. Positions known only when running say nothing of where an example goes; of an axis without
    examples they make one that depends on all of it."""
    for step in way:
        if isinstance(step, Gather | Scatter) and not isinstance(step.ids, Index):
            if any(t.rows[0] and p in t.own[step.axis] for t in v.terms for p in _letter_pairs(t)):
                raise _Unknown(name)
            v = _renewed(b, v, [step.axis], [step.count if isinstance(step, Gather) else step.n])
        else:
            v = follow(b, v, v.rows, [step])
    return _plain(v)


def _within_batch(b: Builder, node: Node, v: Rows) -> Rows:
    """Gather and scatter with batch axes: each batch entry has positions of its own along one axis."""
    (x, indices, *_), out, p = node.inputs, node.outputs[0].aval.dims, node.step.params
    inner, axis = len(indices.aval.dims) - p["batch_dims"], p["axis"]
    picks = len(out) == len(x.aval.dims) - 1 + inner
    gone, made = (1, inner) if picks else (inner, 1)
    return _renewed(b, v, range(axis, axis + gone), out[axis : axis + made])


def _renewed(b: Builder, v: Rows, axes: Sequence[int], sizes: Sequence[int]) -> Rows:
    """Neighbouring own axes replaced by others that depend on all of them."""
    kept = _plain(transposed(b, v, [k for k in range(len(v.shape)) if k not in axes]))
    at = axes[0] if axes else 0
    shape = (*v.shape[:at], *sizes, *v.shape[at + len(axes) :])

    def rule(t: Term) -> Term:
        return replace(t, own=(*t.own[:at], *map(whole, sizes), *t.own[at:]))

    return Rows(tuple(map(rule, kept.terms)), kept.rows, shape, kept.dtype)


def follow_reshape(b: Builder, v: Rows, shape: tuple[int, ...]) -> Rows:
    """Axes of size 1 put back."""
    axes = iter(range(len(v.shape)))
    if v.shape == shape:
        return v
    places = [next(axes) if n != 1 else None for n in shape]
    if any(True for _ in axes):
        return Rows(tuple(_with_ones(t, v.shape, shape) for t in v.terms), v.rows, shape, v.dtype)
    return Rows(
        tuple(replace(t, own=tuple(() if k is None else t.own[k] for k in places)) for t in v.terms),
        v.rows,
        shape,
        v.dtype,
    )


def _with_ones(t: Term, have: tuple[int, ...], shape: tuple[int, ...]) -> Term:
    left = [a for a, n in zip(t.own, have, strict=True) if n != 1]
    own = iter(left)
    return replace(t, own=tuple(next(own) if n != 1 else () for n in shape))


def _contracted(b: Builder, node: Node, i: int, v: Rows) -> Rows:
    left, right, out = parts(node.step.params["subscripts"])
    ins = (left, right)[i]
    order = [ins.index(c) for c in out if c in ins]
    kept = _plain(transposed(b, v, order))
    dims = node.outputs[0].aval.dims
    own = [k for k, c in enumerate(out) if c in ins]

    def rule(t: Term) -> Term:
        axes = dict(zip(own, t.own, strict=True))
        return replace(t, own=tuple(axes.get(k, whole(n)) for k, n in enumerate(dims)))

    return Rows(tuple(map(rule, kept.terms)), kept.rows, dims, kept.dtype)


def _through_opaque(b: Builder, node: Node, i: int, v: Rows) -> Rows:
    """Core axes depend on all of themselves; loop axes on their own position."""
    try:
        core, made = core_positions(node, i)
    except ValueError:
        raise _Unknown(node.step.name) from None
    loops = [k for k in range(len(v.shape)) if k not in core]
    kept = _plain(transposed(b, v, loops))
    dims = node.outputs[0].aval.dims
    places = [k for k in range(len(dims)) if k not in made]
    lead = len(places) - len(loops)

    def rule(t: Term) -> Term:
        axes: dict[int, Axis] = dict(zip(places[lead:], t.own, strict=True))
        return replace(t, own=tuple(axes.get(k, whole(n)) for k, n in enumerate(dims)))

    return Rows(tuple(map(rule, kept.terms)), kept.rows, dims, kept.dtype)


def _plain(v: Rows) -> Rows:
    """The same places without factors: which entries there are, not what they are."""
    return replace(v, terms=tuple(replace(t, factors=()) for t in v.terms))


def _pairs(t: Term) -> list[Pair]:
    return [p for a in (*t.rows, *t.own) for p in a]


def _letter_pairs(t: Term) -> list[Pair]:
    """Where on the value's own axes the batch letter stands; a batch of one is everywhere."""
    if not t.rows[0]:
        return [Pair(*p) for a in t.own for p in a][:1] or [Pair(whole(2)[0].letter, None, 2)]
    letters = {p.letter for p in t.rows[0]}
    return [p for a in t.own for p in a if p.letter in letters]


def _is_aligned(v: Rows) -> bool:
    """Whether every example still stands at its own position on some axis."""
    return all(not t.rows[0] or all(p.where is None for p in (*t.rows[0], *_letter_pairs(t))) for t in v.terms)


def _stand(v: Rows, axis: int) -> bool:
    """Whether example and position along an axis are one."""
    return all(axis < len(t.own) and (not t.rows[0] or t.rows[0] == t.own[axis]) for t in v.terms)
