"""Opaque ops that are linear in the operand that varies: letters stay on their loop axes. Floor: transforms.

The gufunc signature says which axes an op works on (its core); all others are loops. The core axes are written out;
the factor that has their letters goes through the op with all its other letters as loop axes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gradtape.ir.graph import Node, Value
from gradtape.ops.kernels import KernelStep
from gradtape.ops.opaque import Opaque
from gradtape.transforms.differentiate import residuals
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.leaving import expanded
from gradtape.transforms.rows.letters import Axis, Letter, whole
from gradtape.transforms.rows.moves import broadcast
from gradtape.transforms.rows.terms import (
    Factor,
    Item,
    Rows,
    Term,
    all_letters,
    multiplied_out,
    normal,
    rows_of,
    spread,
    taken,
)


def is_linear(node: Node, i: int) -> bool:
    """Whether the op is linear in operand i: its VJP by that operand mentions neither it nor the result. Its core
    must stand at the end of every operand, or at the one axis that is its parameter."""
    op = node.step.op
    assert isinstance(op, Opaque)
    if isinstance(op, KernelStep):
        return bool(op.signature) and op.is_linear({i}, node.step.params["static"])
    if op.shift is None and {"axis", "axes", "batch_dims"} & set(node.step.params):
        return False
    if "batch_dims" in node.step.params or len(_cores(op, len(node.inputs))[0]) != len(node.inputs):
        return False
    avals = tuple(v.aval for v in node.inputs)
    kept = residuals(node.step, avals, tuple(k == i for k in range(len(avals))))
    return kept is not None and i not in kept[0] and not kept[1]


def _cores(op: Opaque, operands: int = 0) -> tuple[list[int], list[int]]:
    """How many core axes each operand and each result has; a core with a star stands for the rest of the operands."""
    sides = [re.findall(r"\(([^)]*)\)(\*?)", s) for s in op.signature.split("->")]
    left, right = ([(len([n for n in core.split(",") if n]), bool(star)) for core, star in side] for side in sides)
    counts = [n for n, star in left for _ in range(operands - len(left) + 1 if star else 1)]
    return counts, [n for n, _ in right]


def _core_axes(node: Node, count: int, rank: int) -> list[int]:
    """The positions of the core axes of a value with this many axes."""
    axis = node.step.params.get("axis")
    if axis is not None and count == 1:
        return [axis]
    return list(range(rank - count, rank))


def core_positions(node: Node, i: int, j: int = 0) -> tuple[list[int], list[int]]:
    """The core axes of operand i and of result j.

    Raises:
      ValueError: the signature does not say where they stand."""
    op = node.step.op
    assert isinstance(op, Opaque)
    if not op.signature:
        raise ValueError(op.name)
    counts, results = _cores(op, len(node.inputs))
    if len(counts) != len(node.inputs) or "batch_dims" in node.step.params:
        raise ValueError(op.name)
    rank = len(node.inputs[i].aval.dims)
    return _core_axes(node, counts[i], rank), _core_axes(node, results[j], len(node.outputs[j].aval.dims))


def along(b: Builder, node: Node, operands: Sequence[Item], i: int) -> Rows:
    """The op on rows in operand i, all other operands being one for all rows."""
    op = node.step.op
    assert isinstance(op, Opaque)
    (out,) = node.outputs
    counts, (result_count,) = _cores(op, len(node.inputs))
    v = operands[i]
    assert isinstance(v, Rows)
    made = _core_axes(node, result_count, len(out.aval.dims))
    core = _core_axes(node, counts[i], len(v.shape))
    if "axis" not in node.step.params:  # operands broadcast along their loop axes
        loop_dims = out.aval.dims[: len(out.aval.dims) - result_count]
        v = broadcast(b, v, (*loop_dims, *(v.shape[k] for k in core)))
        core = _core_axes(node, counts[i], len(v.shape))
    for k in core:
        v = expanded(b, v, k)
    terms = [normal(b, _through(b, node, t, operands, i, counts, core, made), out.aval.dtype) for t in v.terms]
    return rows_of(terms, v.rows, out.aval.dims, out.aval.dtype)


def _through(
    b: Builder,
    node: Node,
    t: Term,
    operands: Sequence[Item],
    i: int,
    counts: Sequence[int],
    core: Sequence[int],
    made: Sequence[int],
) -> Term:
    """One term through the op."""
    dtype = node.inputs[i].aval.dtype
    inner = [p.letter for k in core for p in t.own[k]]
    loop_axes = [a for k, a in enumerate(t.own) if k not in core]
    hosts = [f for f in t.factors if any(c in f.letters for c in inner)]
    if node.outputs[0].aval.dtype is not dtype:  # linear in real numbers only: complex factors do not come out
        hosts = list(t.factors)
    host = multiplied_out(b, hosts, all_letters(t), dtype)
    others = {
        k: _of_loops(b, x, loop_axes, _core_axes(node, counts[k], len(x.aval.dims)))
        for k, x in enumerate(operands)
        if k != i and isinstance(x, Value)
    }
    own_cores = {c for _, tail in others.values() for c in tail}
    loops = [c for c in host.letters if c not in inner]
    loops += [c for f, _ in others.values() for c in f.letters if c not in own_cores]
    loops = list(dict.fromkeys(loops))
    arrays = []
    for k, x in enumerate(node.inputs):
        factor, tail = (host, inner) if k == i else others[k]
        dims = [x.aval.dims[a] for a in (core if k == i else _core_axes(node, counts[k], len(x.aval.dims)))]
        wide = spread(b, factor, [*loops, *tail])
        arrays.append(b.reshape(wide, (*(c.size for c in loops), *dims)))
    params = node.step.params | ({"axis": len(loops)} if "axis" in node.step.params else {})
    value = b.apply(node.step.op.bind(**params), arrays)[0]
    new = [whole(node.outputs[0].aval.dims[a]) for a in made]
    letters = [p.letter for a in new for p in a]
    value = b.reshape(value, [c.size for c in (*loops, *letters)])
    result = Factor(value, (*loops, *letters))
    kept = [f for f in t.factors if all(f is not h for h in hosts)]
    return Term((*kept, result), t.rows, _interleaved(loop_axes, new, made))


def _of_loops(b: Builder, x: Value, loop_axes: Sequence[Axis], core: Sequence[int]) -> tuple[Factor, list[Letter]]:
    """An operand along the loop axes of the one that varies, and the letters of its own core."""
    own = iter(loop_axes[len(loop_axes) - (len(x.aval.dims) - len(core)) :])
    fresh = {k: whole(x.aval.dims[k]) for k in core}
    axes = [fresh[k] if k in fresh else next(own) for k in range(len(x.aval.dims))]
    longer = [k for k, n in enumerate(x.aval.dims) if n != 1]
    factor = taken(b, b.reshape(x, [x.aval.dims[k] for k in longer]), [axes[k] for k in longer])
    return factor, [p.letter for k in core for p in fresh[k]]


def loops_aligned(op: Opaque, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Shapes with as many loop axes each, those of size 1 in front, so that more axes can come before them."""
    counts = _cores(op, len(shapes))[0]
    most = max(len(s) - c for s, c in zip(shapes, counts, strict=True))
    return [(*(1,) * (most - len(s) + c), *s) for s, c in zip(shapes, counts, strict=True)]


def _interleaved(loop_axes: Sequence[Axis], new: Sequence[Axis], made: Sequence[int]) -> tuple[Axis, ...]:
    """The result's axes: new core axes at their places, loop axes around them."""
    loops, cores = iter(loop_axes), dict(zip(made, new, strict=True))
    total = len(loop_axes) + len(new)
    return tuple(cores[k] if k in cores else next(loops) for k in range(total))
