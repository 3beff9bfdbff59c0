"""Composite ops whose value is a function of their own: rows become a part of a loop axis. Floor: transforms.

The op's `axes` spell which axes stand for each other. One that the result has too is a loop: what lies at each of its
positions is computed by itself, so that any letters may lie there side by side; (rows, batch) is one long batch. Which
loop axis takes a letter is decided by who must be repeated for it: the letter has to lie there in every operand that
varies with it, and operands that have the axis and not the letter are repeated. Core axes have to vary freely."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradtape.ir.graph import Node, Value, order
from gradtape.ops.composite import Composite, Names
from gradtape.transforms.cost import NANOSECONDS_PER_ELEMENT, cost_of
from gradtape.transforms.differentiate import residuals
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.entering import free, lifted
from gradtape.transforms.rows.leaving import dense, written_out
from gradtape.transforms.rows.letters import Axis, Letter, whole
from gradtape.transforms.rows.terms import (
    Factor,
    Item,
    Rows,
    Term,
    all_letters,
    multiplied_out,
    normal,
    rows_of,
    size,
    spread,
    taken,
)


def folded(b: Builder, node: Node, operands: Sequence[Item]) -> Rows | None:
    """The op itself on operands of which some are rows; None where it does not say how its axes are spelled, or no loop
    axis can take what varies."""
    op = node.step.op
    assert isinstance(op, Composite)
    if op.axes is None or len(node.outputs) != 1:
        return None
    ins, out = op.names([len(v.aval.dims) for v in (*node.inputs, *node.outputs)])
    varying = [i for i, x in enumerate(operands) if isinstance(x, Rows)]
    if len(varying) > 1 or not _is_linear(node, varying[0]):
        return _folded_whole(b, node, operands, ins, out)
    i = varying[0]
    v = operands[i]
    assert isinstance(v, Rows)
    core = [k for k, name in enumerate(ins[i]) if name is None or name not in out]
    if len(v.terms) > 1 or not _are_free(v, core):
        v = written_out(b, v)
        if not _are_free(v, core):
            return None
    terms = []
    for t in v.terms:
        made = _through(b, node, t, [x if k != i else t for k, x in enumerate(operands)], i, ins, out)
        if made is None:
            return None
        terms.append(normal(b, made, node.outputs[0].aval.dtype))
    return rows_of(terms, v.rows, node.outputs[0].aval.dims, node.outputs[0].aval.dtype)


def cheaper(b: Builder, node: Node, operands: Sequence[Item], ways: Sequence[Rows]) -> Rows:
    """The one of several ways to compute a result that costs less, what it hands on included."""
    given = [*node.inputs]
    for x in operands:
        given += [f.value for t in x.terms for f in t.factors] if isinstance(x, Rows) else [x]

    def price(v: Rows) -> float:
        values = [f.value for t in v.terms for f in t.factors]
        handed = sum(x.aval.size for x in values)
        return cost_of(order(values, given)) + NANOSECONDS_PER_ELEMENT * handed

    return min(ways, key=price)


def _is_linear(node: Node, i: int) -> bool:
    """Whether the op is linear in operand i: its VJP by that operand mentions neither it nor the result."""
    avals = tuple(v.aval for v in node.inputs)
    kept = residuals(node.step, avals, tuple(k == i for k in range(len(avals))))
    return kept is not None and i not in kept[0] and not kept[1]


def _are_free(v: Rows, axes: Sequence[int]) -> bool:
    """Whether the letters on these own axes stand at their own positions, and nowhere else."""
    for t in v.terms:
        pairs = [p for k in axes for p in t.own[k]]
        elsewhere = {p.letter for a in t.rows for p in a}
        elsewhere |= {p.letter for k, a in enumerate(t.own) if k not in axes for p in a}
        letters = {p.letter for p in pairs}
        if len(letters) < len(pairs) or letters & elsewhere or any(p.where is not None for p in pairs):
            return False
    return True


# ------------------------------------------------------------------ linear in one operand


@dataclass
class _Placed:
    """An operand as a factor, and which of its letters lie on its core axes; `names`: how its axes are spelled."""

    factor: Factor
    cores: dict[int, list[Letter]]
    names: Names

    @property
    def loose(self) -> list[Letter]:
        """Its letters that lie on no core axis: a loop axis has to take them."""
        inner = {c for letters in self.cores.values() for c in letters}
        return [c for c in self.factor.letters if c not in inner]


def _through(
    b: Builder, node: Node, t: Term, operands: Sequence[Item | Term], i: int, ins: Sequence[Names], out: Names
) -> Term | None:
    """One term of operand i through the op."""
    own = {name: t.own[k] for k, name in enumerate(ins[i]) if name is not None and name in out}
    placed: list[_Placed] = []
    hosts: list[Factor] = []
    for k, x in enumerate(operands):
        if k == i:
            cores = {a: [p.letter for p in t.own[a]] for a, name in enumerate(ins[i]) if name not in own}
            inner = {c for letters in cores.values() for c in letters}
            hosts = [f for f in t.factors if any(c in inner for c in f.letters)]
            placed.append(_Placed(multiplied_out(b, hosts, all_letters(t), node.inputs[i].aval.dtype), cores, ins[i]))
        else:
            assert isinstance(x, Value)
            placed.append(_constant(b, x, ins[k], out, own))
    groups = _groups(placed, out, own)
    if groups is None:
        return None
    dims = node.outputs[0].aval.dims
    axes = tuple(own[name] if name is not None and name in own else whole(n) for name, n in zip(out, dims, strict=True))
    result = _applied(b, node, placed, groups, out, axes)
    kept = [f for f in t.factors if all(f is not h for h in hosts)]
    return Term((*kept, result), t.rows, axes)


def _constant(b: Builder, x: Value, names: Names, out: Names, own: dict[str, Axis]) -> _Placed:
    """An operand that is one for all rows, at the positions where the one that varies has its loop axes; `own` gets
    the axes of its own loops."""
    axes, cores = [], {}
    for k, (name, n) in enumerate(zip(names, x.aval.dims, strict=True)):
        if name is not None and name in out:
            axes.append(own.setdefault(name, whole(n)))
        else:
            axes.append(whole(n))
            cores[k] = [p.letter for p in axes[k]]
    longer = [k for k, n in enumerate(x.aval.dims) if n != 1]
    squeezed = b.reshape(x, [x.aval.dims[k] for k in longer])
    return _Placed(taken(b, squeezed, [axes[k] for k in longer]), cores, names)


def _groups(placed: Sequence[_Placed], out: Names, own: Mapping[str, Axis]) -> dict[str, list[Letter]] | None:
    """Which letters lie on each loop axis; None where one finds no place."""
    found: dict[str, list[Letter]] = {name: [] for name in out if name is not None}
    for c in dict.fromkeys(c for p in placed for c in p.loose):
        best: tuple[int, bool, str] | None = None
        for name in found:
            has = [name in p.names for p in placed]
            if not all(h for h, p in zip(has, placed, strict=True) if c in p.loose):
                continue
            repeated = sum(p.factor.value.aval.size for h, p in zip(has, placed, strict=True) if h and c not in p.loose)
            stands = any(q.letter is c for q in own[name])
            if best is None or (repeated, not stands) < best[:2]:
                best = (repeated, not stands, name)
        if best is None:
            return None
        found[best[2]].append(c)
    return found


def _applied(
    b: Builder,
    node: Node,
    placed: Sequence[_Placed],
    groups: Mapping[str, list[Letter]],
    out: Names,
    axes: Sequence[Axis],
) -> Factor:
    arrays = []
    for p, v in zip(placed, node.inputs, strict=True):
        letters: list[Letter] = []
        dims = []
        for k, name in enumerate(p.names):
            lying = p.cores[k] if k in p.cores else groups[name or ""]
            letters += lying
            dims.append(v.aval.dims[k] if k in p.cores else size(lying))
        arrays.append(b.reshape(spread(b, p.factor, letters), dims))
    value = b.apply(node.step, arrays)[0]
    letters = []
    for name, axis in zip(out, axes, strict=True):
        letters += [p.letter for p in axis] if name is None else groups[name]
    return Factor(b.reshape(value, [c.size for c in letters]), tuple(letters))


# ------------------------------------------------------------------ any other


def _folded_whole(b: Builder, node: Node, operands: Sequence[Item], ins: Sequence[Names], out: Names) -> Rows | None:
    """All rows written out, and put on a loop axis that every operand that varies has; others that have it are
    repeated."""
    varying = [i for i, x in enumerate(operands) if isinstance(x, Rows)]
    shared = [name for name in out if name is not None and all(name in ins[i] for i in varying)]
    if not shared:
        return None
    first = operands[varying[0]]
    assert isinstance(first, Rows)
    rows = first.rows

    def repeated(name: str) -> int:
        return sum(x.aval.size for x, names in zip(node.inputs, ins, strict=True) if name in names)

    at = min(shared, key=repeated)
    arrays = []
    for x, names in zip(operands, ins, strict=True):
        if at not in names:
            assert isinstance(x, Value)
            arrays.append(x)
            continue
        k = names.index(at)
        wide = dense(b, lifted(b, x, rows))
        lead = len(rows)
        perm = (*range(lead, lead + k), *range(lead), *range(lead + k, len(wide.aval.dims)))
        dims = list(wide.aval.dims[lead:])
        dims[k] *= math.prod(rows)
        arrays.append(b.reshape(b.transpose(wide, perm), dims))
    value = b.apply(node.step, arrays)[0]
    k, sizes = out.index(at), node.outputs[0].aval.dims
    apart = b.reshape(value, (*sizes[:k], *rows, *sizes[k:]))
    lead = len(rows)
    perm = (*range(k, k + lead), *range(k), *range(k + lead, len(apart.aval.dims)))
    return free(b, b.transpose(apart, perm), rows)
