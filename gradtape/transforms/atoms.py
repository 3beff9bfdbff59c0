"""A graph over atoms: what is composed of other ops is written out where kernels spell all of its atoms. Floor:
transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.aval import Aval
from gradtape.ir.dtypes import DType, float32
from gradtape.ir.expr import Expr, walk
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.index import Index
from gradtape.ops.composite import Composite
from gradtape.ops.contraction import Contraction, parts
from gradtape.ops.op import Constant, Step, constant, emit
from gradtape.ops.placement import Assemble, Product
from gradtape.ops.pointwise import Pointwise, instantiate
from gradtape.ops.reduction import Reduction
from gradtape.transforms.simplify import rebuild, rebuild_from

# Whether kernels do a scalar operation: its name, and the dtypes of its operands and of its result.
Spells = Callable[[str, tuple[DType, ...]], bool]


LONG = 300  # operations of a formula that may be more than a kernel has


def in_atoms(graph: Graph, spells: Spells) -> Graph:
    """The graph with formulas and compositions in place of the ops that they stand for; equal values once. Its own
    numbers are of their dtype; those of the formulas of halves are not, since these are computed in float32."""

    def rewrite(step: Step, operands: Sequence[Value]) -> Value | None:
        if isinstance(step.op, Constant):
            return _rounded(step)
        written = _written(step, tuple(v.aval for v in operands), spells)
        return None if written is None else rebuild_from(written, operands)[0]

    return rebuild(rebuild(graph, rewrite))


def _rounded(step: Step) -> Value | None:
    """A half in place of a number that is none."""
    value, dtype, shape = (step.params[name] for name in ("value", "dtype", "shape"))
    if not dtype.is_half or type(value) is not float:
        return None
    with np.errstate(over="ignore"):
        half = float(dtype.numpy_dtype.type(value))
    return None if half == value or value != value else constant(half, dtype, shape)


def is_atom(node: Node, spells: Spells) -> bool:
    """Whether kernels do this node: as one scalar operation, or as a reduction by one monoid."""
    op = node.step.op
    dtypes = (*(v.aval.dtype for v in node.inputs), *(v.aval.dtype for v in node.outputs))
    if isinstance(op, Reduction):
        return op.monoid is not None and spells(op.monoid, dtypes)
    return isinstance(op, Pointwise) and spells(op.name, dtypes)


def _written(step: Step, avals: tuple[Aval, ...], spells: Spells) -> Graph | None:
    """What a step stands for, in atoms; None for an atom, and for what kernels cannot spell."""
    if not all(a.is_known for a in avals):
        return None
    key = ("atoms", avals, spells)
    if key not in step.cache:
        step.cache[key] = _find(step, avals, spells)
    found: Graph | None = step.cache[key]
    return found


def _find(step: Step, avals: tuple[Aval, ...], spells: Spells) -> Graph | None:
    dtypes = tuple(a.dtype for a in (*avals, *step.infer(avals)))
    if isinstance(step.op, Pointwise) and spells(step.op.name, dtypes):
        return None
    graph = _once(step, avals, spells)
    if graph is None or len(graph.outputs) != 1:
        return None

    def rewrite(step: Step, operands: Sequence[Value]) -> Value | None:
        inner = _written(step, tuple(v.aval for v in operands), spells)
        return None if inner is None else rebuild_from(inner, operands)[0]

    graph = rebuild(rebuild(graph, rewrite))
    if all(is_atom(n, spells) or n.step.op.kind in ("constant", "structural") for n in graph.nodes):
        return graph
    # Halves are rounded once for a composition, so that parts of one stay together.
    return graph if isinstance(step.op, Composite) and not any(d.is_half for d in dtypes) else None


def _once(step: Step, avals: tuple[Aval, ...], spells: Spells) -> Graph | None:
    """The graph that a step stands for by its declaration."""
    op = step.op
    if isinstance(op, Contraction) and spells("contract", tuple(a.dtype for a in avals)):
        return products_added(step.params["subscripts"], avals)
    if isinstance(op, Assemble) and spells("assemble", tuple(a.dtype for a in avals)):
        return _elements_placed(step.params, avals)
    if isinstance(op, Pointwise) and op.formula is not None:
        return _formula(op, op.formula, tuple(map(Value, avals)))
    if isinstance(op, Composite) and not op.has_host(avals, step.params):
        return op.expand(avals, **step.params)
    if isinstance(op, Reduction) and op.body is not None:
        return op.expand(avals, **step.params)
    return None


def _formula(op: Pointwise, formula: Expr, inputs: tuple[Value, ...]) -> Graph:
    """A formula over operands. One that takes several kernels hands on what a half has no room for."""
    dtype = inputs[-1].aval.dtype
    is_wide = dtype.is_half and sum(1 for _ in walk(formula)) > LONG
    given = [emit("cast", v, dtype=float32) if is_wide and v.aval.dtype is dtype else v for v in inputs]
    result = instantiate(formula, dict(zip(op.operands, given, strict=True)), given[-1].aval.dtype)
    return Graph(inputs, [emit("cast", result, dtype=dtype) if is_wide and result.aval.dtype is float32 else result])


def products_added(subscripts: str, avals: tuple[Aval, ...]) -> Graph:
    """A contraction as products of single elements and their sum."""
    left, right, out = parts(subscripts)
    letters = out + "".join(c for c in left if c not in out)
    inputs = tuple(map(Value, avals))
    factors = []
    for v, own in zip(inputs, (left, right), strict=True):
        perm = tuple(own.index(c) for c in letters if c in own)
        shape = tuple(v.aval.dims[own.index(c)] if c in own else 1 for c in letters)
        factors.append(emit("reshape", emit("transpose", v, perm=perm), shape=shape))
    product = emit("multiply", *factors)
    axes = tuple(range(len(out), len(letters)))
    return Graph(inputs, [emit("reduce_sum", product, axes=axes, keepdims=False) if axes else product])


def _elements_placed(params: dict[str, Any], avals: tuple[Aval, ...]) -> Graph | None:
    """Placed products as sums of products of single elements, where each letter runs along whole axes: one that stands
    on several is 1 where their positions agree."""
    shape, dtype, terms = params["shape"], params["dtype"], params["terms"]
    if not all(_is_plain(t, shape) for t in terms) or 0 in shape:
        return None
    inputs = tuple(map(Value, avals))
    given = iter(inputs)
    total = None
    for t in terms:
        made = _element(t, [next(given) for _ in t.factors], shape, dtype)
        total = made if total is None else emit("add", total, made)
    if total is None:
        total = constant(0, dtype)
    return Graph(inputs, [total if total.aval.shape == shape else emit("broadcast_to", total, shape=shape)])


def _is_plain(t: Product, shape: tuple[int, ...]) -> bool:
    for axis, n in zip(t.axes, shape, strict=True):
        whole = len(axis) == 1 and axis[0].where is None and axis[0].extent == n == t.sizes[axis[0].letter]
        if not whole and (axis or n != 1):
            return False
    return {p.letter for axis in t.axes for p in axis} == set(range(len(t.sizes)))


def _element(t: Product, factors: Sequence[Value], shape: tuple[int, ...], dtype: DType) -> Value:
    """One element of a placed product, for all positions."""
    places: dict[int, list[int]] = {}
    for k, axis in enumerate(t.axes):
        for p in axis:
            places.setdefault(p.letter, []).append(k)
    made: Value | None = None
    for v, letters in zip(factors, t.factors, strict=True):
        at = [places[c][0] for c in letters]
        moved = emit("transpose", v, perm=tuple(sorted(range(len(at)), key=at.__getitem__)))
        part = emit("reshape", moved, shape=tuple(n if k in at else 1 for k, n in enumerate(shape)))
        made = part if made is None else emit("multiply", made, part)
    for axes in places.values():
        for k in axes[1:]:
            agree = emit("equal", _positions(axes[0], shape), _positions(k, shape))
            part = emit("cast", agree, dtype=dtype)
            made = part if made is None else emit("multiply_no_nan", made, part)
    return constant(1, dtype) if made is None else made


def _positions(axis: int, shape: tuple[int, ...]) -> Value:
    line = emit("positions", value=Index(range(shape[axis])))
    return emit("reshape", line, shape=tuple(n if k == axis else 1 for k, n in enumerate(shape)))
