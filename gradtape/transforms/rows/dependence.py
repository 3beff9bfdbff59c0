"""On which examples each element of a value may depend: the algebra without its numbers. Floor: transforms.

A pattern is a `Rows` with one row axis, the examples, and no factors: an element may depend on an example where their
positions agree in some term. Rules answer for one operand of one op; they may say too much, never too little."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gradtape.ir.dtypes import float32
from gradtape.ir.graph import Node, Value
from gradtape.ir.index import Index
from gradtape.ops.contraction import Contraction, parts
from gradtape.ops.moves import Gather, Move, Scatter
from gradtape.ops.opaque import Opaque
from gradtape.ops.placement import Assemble
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.ops.structural import Structural
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.following import follow
from gradtape.transforms.rows.letters import Array, Axis, Letter, known, whole
from gradtape.transforms.rows.loops import core_positions
from gradtape.transforms.rows.moves import broadcast
from gradtape.transforms.rows.placing import over_all, placed
from gradtape.transforms.rows.terms import Rows, Term, rows_of

MANY = 256  # terms of a pattern, above which only what is said of examples is kept

Positions = Callable[[Value], Index | None]  # numbers of an index vector, where they are known


class NotSaid(Exception):
    """An op, or positions, that say nothing of where an example goes."""


def starting(shape: Sequence[int], axis: int) -> Rows:
    """The source itself: its element along an axis is the example."""
    axes = tuple(whole(n) for n in shape)
    return rows_of([Term((), (axes[axis],), axes)], [shape[axis]], shape, float32)


def depending_on_all(v: Rows, shape: Sequence[int]) -> Rows:
    """Every element of a value of this shape on every example that v depends on."""
    return replace(v, terms=tuple(replace(t, own=tuple(map(whole, shape))) for t in v.terms), shape=tuple(shape))


# ------------------------------------------------------------------ what one operand passes on


def passed_on(b: Builder, node: Node, i: int, v: Rows, positions: Positions) -> list[Rows]:
    """The patterns of all results of a node, from that of operand i alone.

    Raises:
      NotSaid: nothing is known of where examples go."""
    op = node.step.op
    match op:
        case Pointwise():
            return [broadcast(b, v, out.aval.dims) for out in node.outputs]
        case Reduction():
            return [_reduced(v, node.step.params["axes"], node.step.params["keepdims"])]
        case Contraction():
            return [_contracted(node, i, v)]
        case Assemble():
            return [_assembled(b, node, i, v, positions)]
        case Opaque() if "batch_dims" in node.step.params and (op.moves is None or node.step.params["batch_dims"]):
            return [_at_own_positions(node, v)]
        case Structural() | Opaque() if op.moves is not None:
            return [_moved(b, v, op.moves(node)[i], positions)]
        case Opaque():
            return [_along_loops(b, node, i, j, v) for j in range(len(node.outputs))]
    raise NotSaid


def _reduced(v: Rows, axes: Sequence[int], keepdims: bool) -> Rows:
    kept = [k for k in range(len(v.shape)) if keepdims or k not in axes]
    shape = [1 if k in axes else v.shape[k] for k in kept]
    return _on_axes(v, shape, lambda own: [() if k in axes else own[k] for k in kept])


def _contracted(node: Node, i: int, v: Rows) -> Rows:
    left, right, out = parts(node.step.params["subscripts"])
    ins = (left, right)[i]
    dims = node.outputs[0].aval.dims

    def rule(own: Sequence[Axis]) -> list[Axis]:
        stay = dict(zip(ins, own, strict=True))
        return [stay[c] if c in stay else whole(n) for c, n in zip(out, dims, strict=True)]

    return _on_axes(v, dims, rule)


def _moved(b: Builder, v: Rows, way: Sequence[Move], positions: Positions) -> Rows:
    """Moves one by one. Where positions are not known, an axis that the example does not need stands for all of it.

    Raises:
      NotSaid: the example's place hangs on positions that are not known."""
    for step in way:
        if isinstance(step, Gather | Scatter) and not isinstance(step.ids, Index):
            numbers = positions(step.ids)
            if numbers is None:
                v = _spread(v, step.axis, step.count if isinstance(step, Gather) else step.n)
                continue
            step = replace(step, ids=numbers)
        v = follow(b, v, v.rows, [step])
    return _plain(v)


def _assembled(b: Builder, node: Node, i: int, v: Rows, positions: Positions) -> Rows:
    """One factor of one product, written to its places.

    Raises:
      NotSaid: places that are not known."""
    terms, shape = node.step.params["terms"], node.outputs[0].aval.dims
    factors = [(t, letters) for t in terms for letters in t.factors]
    numbers = [positions(x) for x in node.inputs[len(factors) :]]
    t, letters = factors[i]
    used = [p.where for axis in t.axes for p in axis if isinstance(p.where, int)]
    if any(numbers[k] is None for k in used):
        raise NotSaid
    return _plain(placed(b, over_all(b, v, letters, t.sizes), t, numbers, shape))


def _spread(v: Rows, axis: int, n: int) -> Rows:
    """One axis, replaced by one of size n whose elements depend on all that its elements did."""
    if any(lost(t) < lost(replace(t, own=(*t.own[:axis], *t.own[axis + 1 :]))) for t in v.terms):
        raise NotSaid
    return _with_axes(v, axis, 1, [n])


def _at_own_positions(node: Node, v: Rows) -> Rows:
    """Gathers and scatters whose batch entries have positions of their own."""
    (x, indices, *_), out, p = node.inputs, node.outputs[0].aval.dims, node.step.params
    inner, axis = len(indices.aval.dims) - p["batch_dims"], p["axis"]
    gathers = node.step.name in ("gather", "gather_rows")
    gone, made = (1, inner) if gathers else (inner, 1)
    assert len(out) == len(x.aval.dims) - gone + made
    return _with_axes(v, axis, gone, out[axis : axis + made])


def _with_axes(v: Rows, at: int, gone: int, sizes: Sequence[int]) -> Rows:
    """Neighbouring own axes replaced by others that depend on all of them."""
    shape = (*v.shape[:at], *sizes, *v.shape[at + gone :])
    return _on_axes(v, shape, lambda own: [*own[:at], *map(whole, sizes), *own[at + gone :]])


def _along_loops(b: Builder, node: Node, i: int, j: int, v: Rows) -> Rows:
    """Core axes of result j depend on all core axes of operand i; loop axes on their own position."""
    try:
        core, made = core_positions(node, i, j)
    except ValueError:
        raise NotSaid from None
    dims = node.outputs[j].aval.dims
    loops = [k for k in range(len(v.shape)) if k not in core]
    places = [k for k in range(len(dims)) if k not in made]
    plain = _on_axes(v, [v.shape[k] for k in loops], lambda own: [own[k] for k in loops])
    plain = broadcast(b, plain, [dims[k] for k in places])

    def rule(own: Sequence[Axis]) -> list[Axis]:
        at = dict(zip(places, own, strict=True))
        return [at[k] if k in at else whole(n) for k, n in enumerate(dims)]

    return _on_axes(plain, dims, rule)


def _on_axes(v: Rows, shape: Sequence[int], rule: Callable[[Sequence[Axis]], Sequence[Axis]]) -> Rows:
    terms = tuple(replace(t, own=tuple(rule(t.own))) for t in v.terms)
    return replace(v, terms=terms, shape=tuple(shape))


def _plain(v: Rows) -> Rows:
    """The same places without factors: which entries there are, not what they are."""
    return replace(v, terms=tuple(replace(t, factors=()) for t in v.terms))


# ------------------------------------------------------------------ sums


def either(patterns: Sequence[Rows]) -> Rows:
    """What depends on an example in any of the patterns: equal terms once."""
    found = {_spelled(t): t for v in patterns for t in v.terms}
    joint = replace(patterns[0], terms=tuple(found.values()))
    if len(found) <= MANY:
        return joint
    coarse = [_of_examples(t, joint.shape) for t in joint.terms]
    return replace(joint, terms=tuple({_spelled(t): t for t in coarse}.values()))


def _spelled(t: Term) -> tuple[Any, ...]:
    """A term as a key: letters by the order in which they come."""
    names: dict[Letter, int] = {}
    return tuple(
        tuple((names.setdefault(p.letter, len(names)), p.letter.size, p.where, p.extent) for p in axis)
        for axis in (*t.rows, *t.own)
    )


def _of_examples(t: Term, shape: Sequence[int]) -> Term:
    """A term with a plain axis in place of each that says nothing of the example."""
    mine = _example(t)
    own = (a if any(p.letter in mine for p in a) else whole(n) for a, n in zip(t.own, shape, strict=True))
    return replace(t, own=tuple(own))


# ------------------------------------------------------------------ where the example stands


def _example(t: Term) -> set[Letter]:
    """The letters of the example's index."""
    return {p.letter for p in t.rows[0]}


def lost(t: Term) -> int:
    """How many examples one element may depend on: the product of the example's letters that no own axis has."""
    there = {p.letter for a in t.own for p in a}
    return math.prod(c.size for c in _example(t) - there)


def in_place(t: Term, axis: int) -> bool:
    """Whether the example and the position along an own axis are one."""
    if axis >= len(t.own):
        return False
    row, own = t.rows[0], t.own[axis]
    if row == own:
        return True
    mine, letters = _example(t), list(dict.fromkeys(p.letter for p in (*row, *own) if p.letter.size != 1))
    if any(c not in mine for c in letters) or any(known(p) is None for p in (*row, *own)):
        return False
    return math.prod(c.size for c in letters) <= MANY**2 and np.array_equal(_at(row, letters), _at(own, letters))


def _at(axis: Iterable[Any], letters: Sequence[Letter]) -> Array:
    """The position along an axis as a function of letters."""
    total = np.zeros([c.size for c in letters], np.int64)
    for p in axis:
        line = [-1 if c is p.letter else 1 for c in letters]
        numbers = known(p)
        assert numbers is not None
        total = total * p.extent + numbers.reshape(line)
    return total


def is_bent(t: Term) -> bool:
    """Whether the example stands at positions that an op chose."""
    mine = _example(t)
    return any(p.where is not None for a in (*t.rows, *t.own) for p in a if p.letter in mine)
