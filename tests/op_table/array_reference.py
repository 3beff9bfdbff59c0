"""What an op of arrays is, one element at a time: Python loops over arrays of mpmath numbers, by kind.

A pointwise op is its scalar reference at every place of the broadcast shape. A reduction is `functools.reduce` over
lists. A structural op is a map from places of the result to places of an operand. A contraction is the sum over all
letters. A composite is its graph, each node by its own reference: that finds an error in a kernel or in how it is put
together, and the textbook text in `ROWS` finds a wrong graph. Nothing here calls a NumPy function that computes."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradtape.ir.aval import Aval
from gradtape.ir.dtypes import DType
from gradtape.ir.graph import Graph
from gradtape.ops.composite import Composite
from gradtape.ops.contraction import Contraction, parts
from gradtape.ops.layout import Positions
from gradtape.ops.op import Constant, Step
from gradtape.ops.opaque import Opaque
from gradtape.ops.placement import Assemble
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.ops.structural import Structural
from tests.op_table.opaque_reference import OPAQUE
from tests.op_table.placement_reference import assembled
from tests.op_table.scalar_reference import INF, MP, NAN, exact, scalar
from tests.op_table.structural_reference import SOURCES, moved
from tests.op_table.window_reference import WHOLE

Places = tuple[int, ...]


def exact_array(array: Any) -> Any:
    """An array of Python and mpmath numbers."""
    array = np.asarray(array)
    return filled(array.shape, lambda at: exact(array[at]))


def filled(shape: Places, value: Callable[[Places], Any]) -> Any:
    """An array of objects, each computed from its place."""
    out = np.empty(shape, object)
    for at in np.ndindex(*shape):
        out[at] = value(at)
    return out


def evaluate(step: Step, operands: Sequence[Any], shape: Places, dtype: DType) -> Any:
    """The result of a step on arrays of exact numbers; `shape` and `dtype` are those the step infers.

    Raises:
      LookupError: when nothing but the kernel itself says what the op computes.
    """
    op = step.op
    if isinstance(op, Pointwise):
        return _pointwise(op, operands, shape, step.params)
    if isinstance(op, Reduction):
        return _reduction(op, operands[0], shape, dtype, step.params)
    if isinstance(op, Structural):
        source = _known(SOURCES, op.name, "SOURCES")
        return filled(shape, lambda at: moved(source(at, operands, step.params), operands))
    if isinstance(op, Contraction):
        return _contraction(operands, shape, step.params["subscripts"])
    if isinstance(op, Composite):
        return _composite(step, op, operands, shape)
    if isinstance(op, Opaque):
        return _known(OPAQUE, op.name, "OPAQUE")(operands, shape, **step.params)
    if isinstance(op, Constant):
        return filled(shape, lambda at: MP.mpf(step.params["value"]))
    if isinstance(op, Assemble):
        return assembled(operands, shape, step.params["terms"])
    if isinstance(op, Positions):
        return filled(shape, lambda at: step.params["value"][at[0]])
    raise LookupError(f"No reference knows the kind of `{op.name}`.")


def evaluate_all(step: Step, operands: Sequence[Any], outs: Sequence[Aval]) -> list[Any]:
    """All results of a step; only opaque ops have several, and their references answer with a tuple then."""
    if len(outs) == 1:
        return [evaluate(step, operands, outs[0].dims, outs[0].dtype)]
    rule = _known(OPAQUE, step.op.name, "OPAQUE")
    return list(rule(operands, *[out.dims for out in outs], **step.params))


def _known(table: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in table:
        raise LookupError(f"Nothing but its kernel says what `{name}` computes. Define it in `{where}`, by loops.")
    return table[name]


def _pointwise(op: Pointwise, operands: Sequence[Any], shape: Places, params: Mapping[str, Any]) -> Any:
    f = scalar(op)

    def at_place(at: Places) -> Any:
        picked = []
        for x in operands:
            tail = at[len(at) - x.ndim :]
            picked.append(x[tuple(0 if n == 1 else k for k, n in zip(tail, x.shape))])
        return f(*picked, **params)

    return filled(shape, at_place)


# ------------------------------------------------------------------ reductions


def _extreme(far: float, better: Callable[[Any, Any], bool]) -> Callable[[list[Any], DType], Any]:
    def reduce(xs: list[Any], dtype: DType) -> Any:
        start = far * INF if dtype.is_floating else (dtype.max if far > 0 else dtype.min)
        return functools.reduce(lambda a, b: b if better(b, a) else a, xs, start)

    return reduce


REDUCERS: dict[str, Callable[[list[Any], DType], Any]] = {
    "reduce_all": lambda xs, dtype: all(xs),
    "reduce_any": lambda xs, dtype: any(xs),
    "reduce_euclidean_norm": lambda xs, dtype: MP.sqrt(functools.reduce(lambda a, x: a + x * x, xs, MP.zero)),
    "reduce_logsumexp": lambda xs, dtype: MP.log(functools.reduce(lambda a, x: a + MP.exp(x), xs, MP.zero)),
    "reduce_max": _extreme(-1, operator.gt),
    "reduce_mean": lambda xs, dtype: functools.reduce(operator.add, xs) / len(xs) if xs else NAN,
    "reduce_min": _extreme(1, operator.lt),
    "reduce_prod": lambda xs, dtype: functools.reduce(operator.mul, xs, 1),
    "reduce_sum": lambda xs, dtype: functools.reduce(operator.add, xs, 0),
}


def _reduction(op: Reduction, x: Any, shape: Places, dtype: DType, params: Mapping[str, Any]) -> Any:
    """Every element is put into the list of the result that its other axes name."""
    axes, keepdims = params["axes"], params["keepdims"]
    lists: dict[Places, list[Any]] = {at: [] for at in np.ndindex(*shape)}
    for at in np.ndindex(*x.shape):
        kept = [0 if k in axes else i for k, i in enumerate(at) if keepdims or k not in axes]
        lists[tuple(kept)].append(x[at])
    reduce = _known(REDUCERS, op.name, "REDUCERS")
    return filled(shape, lambda at: reduce(lists[at], dtype))


# ------------------------------------------------------------------ contractions and composites


def _contraction(operands: Sequence[Any], shape: Places, subscripts: str) -> Any:
    left, right, out = parts(subscripts)
    a, b = operands
    sizes = dict(zip(left, a.shape)) | dict(zip(right, b.shape))
    result = filled(shape, lambda at: 0)
    letters = sorted(sizes)
    for values in itertools.product(*[range(sizes[c]) for c in letters]):
        index = dict(zip(letters, values))
        i, j, k = (tuple(index[c] for c in word) for word in (left, right, out))
        result[k] = result[k] + a[i] * b[j]
    return result


def _log_softmax(row: Sequence[Any]) -> list[Any]:
    total = MP.log(sum(MP.exp(x) for x in row))
    return [x - total for x in row]


# Functions of rows along the axis that a composite names, else the last: a second text for graphs of the table.
ROWS: dict[str, Callable[..., Any]] = {
    "log_softmax": _log_softmax,
    "softmax": lambda row: [MP.exp(x) for x in _log_softmax(row)],
    "softmax_cross_entropy": lambda labels, row: -sum(p * x for p, x in zip(labels, _log_softmax(row))),
    "sparse_softmax_cross_entropy": lambda label, row: -_log_softmax(row)[label],
}


def _logsumexp_weights(operands: Sequence[Any], shape: Places, axes: Places) -> Any:
    (x,), out = operands, np.empty(shape, object)
    for at in np.ndindex(*shape):
        group = [x[k] for k in np.ndindex(*shape) if all(k[a] == at[a] for a in range(len(shape)) if a not in axes)]
        out[at] = 1 / sum(MP.exp(y - x[at]) for y in group)
    return out


def _composite(step: Step, op: Composite, operands: Sequence[Any], shape: Places) -> Any:
    """By the textbook's function of rows, or of whole arrays."""
    if op.name == "logsumexp_weights":
        return _logsumexp_weights(operands, shape, **step.params)
    if op.name in WHOLE:
        return WHOLE[op.name](operands, shape, **step.params)
    rule = ROWS.get(op.name)
    if rule is None:
        raise LookupError(f"Nothing but its own graph says what `{op.name}` computes. Define it in `ROWS` or `WHOLE`.")
    full = operands[-1].shape
    axis = step.params.get("axis", len(full) - 1)
    out = np.empty(shape, object)
    for at in np.ndindex(*full[:axis], *full[axis + 1 :]):
        row = (*at[:axis], slice(None), *at[axis:])
        result = rule(*[list(x[row]) if x.ndim == len(full) else x[at] for x in operands])
        if shape == full:
            for k, value in enumerate(result):
                out[(*at[:axis], k, *at[axis:])] = value
        else:
            out[at] = result
    return out


def evaluate_graph(graph: Graph, operands: Sequence[Any]) -> list[Any]:
    """The results of a graph, each node by the reference of its op."""
    values = {id(v): x for v, x in zip(graph.inputs, operands, strict=True)}
    for node in graph.nodes:
        (out,) = node.outputs
        inputs = [values[id(v)] for v in node.inputs]
        values[id(out)] = evaluate(node.step, inputs, out.aval.dims, out.aval.dtype)
    return [values[id(v)] for v in graph.outputs]
