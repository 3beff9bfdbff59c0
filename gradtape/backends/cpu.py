"""The CPU backend: each kind of op as a NumPy function. Floor: backends."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.backends import control, writing
from gradtape.backends.clusters import FusedKernel
from gradtape.backends.formula import HALF, compile_formula
from gradtape.backends.gemm import compile_contraction
from gradtape.backends.pieces import in_pieces
from gradtape.backends.program import compile_graph
from gradtape.ir.aval import Aval, aval_of
from gradtape.ir.graph import Graph
from gradtape.ops.assembling import assembler
from gradtape.ops.call import Call, Effectful, Ruled, UnknownRule
from gradtape.ops.composite import Composite
from gradtape.ops.contraction import Contraction
from gradtape.ops.control import Checkpoint, Cond, EmptyStack, Scan, StackSum, While
from gradtape.ops.fused import Fused
from gradtape.ops.host import Host
from gradtape.ops.layout import Positions
from gradtape.ops.op import Constant, Op, Step
from gradtape.ops.opaque import Opaque
from gradtape.ops.placement import Assemble
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.ops.structural import Structural
from gradtape.ops.tiles import Tiles

NAME = "cpu"

Kernel = Callable[..., Any]

# Python's operators reach the same loops as the ufuncs, and are ten times faster on array scalars.
OPERATORS: dict[str, Kernel] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "negative": operator.neg,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}
REDUCE: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "all": np.logical_and,
    "any": np.logical_or,
}


def lower(step: Step) -> Kernel:
    """The NumPy function of a step: arrays to an array, or to a tuple of arrays."""
    found = step.lowered.get(NAME)
    if found is None:
        found = step.lowered[NAME] = _rule(step.op)(step)
    return found


def _rule(op: Op) -> Callable[[Step], Kernel]:
    for kind in type(op).__mro__:
        if kind in RULES:
            return RULES[kind]
    raise TypeError(f"The CPU backend does not know the kind of `{op.name}`.")


def _pointwise(step: Step) -> Kernel:
    op = step.op
    if not isinstance(op, Pointwise):
        raise TypeError(op)
    if op.array is not None:
        return functools.partial(op.array, np, **step.params)
    if op.formula is not None:
        return compile_formula(op.name, op.operands, op.formula, lower)
    return OPERATORS.get(op.ufunc or "") or getattr(np, op.ufunc or "")


def _reduction(step: Step) -> Kernel:
    op, axes, keepdims = step.op, step.params["axes"], step.params["keepdims"]
    if not isinstance(op, Reduction):
        raise TypeError(op)
    if op.body is not None:
        return _expanded(lambda avals: _single(op.expand(avals, **step.params)))
    if op.value is None:
        raise TypeError(f"`{op.name}` has neither a value nor a body.")
    if isinstance(op.value, str):
        ufunc: Any = REDUCE[op.value]
        if not op.accumulate:
            return lambda x: ufunc.reduce(x, axis=axes, keepdims=keepdims)
        return _widened(lambda x: ufunc.reduce(x, axis=axes, keepdims=keepdims, dtype=x.dtype))
    value = functools.partial(op.value, np, axis=axes, keepdims=keepdims)
    return _widened(value) if op.accumulate else value


def _widened(run: Kernel) -> Kernel:
    """Half types are computed in float32, and the results rounded once at the end."""

    def wide(*arrays: Any) -> Any:
        half = next((a.dtype for a in arrays if a.dtype in HALF), None)
        if half is None:
            return run(*arrays)
        results = run(*[a.astype(np.float32) if a.dtype in HALF else a for a in arrays])
        if isinstance(results, tuple):
            return tuple(_rounded(r, half) for r in results)
        return _rounded(results, half)

    return wide


def _rounded(array: Any, half: Any) -> Any:
    return array.astype(half) if array.dtype == np.float32 else array


def _contraction(step: Step) -> Kernel:
    return compile_contraction(step.params["subscripts"])


def _with_module(step: Step) -> Kernel:
    op = step.op
    if not isinstance(op, Structural | Opaque):
        raise TypeError(op)
    value = functools.partial(op.value, np, **step.params)
    return _widened(value) if isinstance(op, Opaque) and op.accumulate else value


def _composite(step: Step) -> Kernel:
    op = step.op
    if not isinstance(op, Composite):
        raise TypeError(op)
    return _expanded(lambda avals: _composed(op, step, avals))


def _expanded(compose: Callable[[tuple[Aval, ...]], Kernel]) -> Kernel:
    """What stands for a graph, composed once for each shape."""
    programs: dict[Any, Kernel] = {}

    def run(*arrays: Any) -> Any:
        avals = tuple(map(aval_of, arrays))
        program = programs.get(avals)
        if program is None:
            program = programs[avals] = compose(avals)
        return program(*arrays)

    return _widened(run)


def _composed(op: Composite, step: Step, avals: tuple[Aval, ...]) -> Kernel:
    """The host's own function where it has one that pays, else the graph as a program."""
    if op.host is not None and op.has_host(avals, step.params):
        return functools.partial(op.host, **step.params)
    return _single(op.expand(avals, **step.params))


def _single(graph: Graph) -> Kernel:
    """The program of a graph; one result is no tuple."""
    program = compile_graph(graph, lower)
    return (lambda *arrays: program(*arrays)[0]) if len(graph.outputs) == 1 else program


def _call(step: Step) -> Kernel:
    return compile_graph(step.params["graph"], lower)


def _tiles(step: Step) -> Kernel:
    p = step.params
    results = [(a.dims, a.dtype.numpy_dtype) for a in step.infer(())]
    return in_pieces(compile_graph(p["graph"], lower), p["count"], p["inputs"], p["outputs"], results)


def _ruled(step: Step) -> Kernel:
    count = step.params["results"]
    return (lambda x, *others: x) if count == 1 else (lambda *arrays: arrays[:count])


def _unknown(step: Step) -> Kernel:
    op = step.op
    assert isinstance(op, UnknownRule)

    def refuse(*arrays: Any) -> Any:
        raise op.error(step)

    return refuse


def _fused(step: Step) -> Kernel:
    return FusedKernel(step, compile_graph(step.params["graph"], lower))


def _assemble(step: Step) -> Kernel:
    p = step.params
    return assembler(np, writing, p["shape"], p["dtype"], p["terms"])


def _constant(step: Step) -> Kernel:
    dtype = step.params["dtype"].numpy_dtype
    value = np.asarray(step.params["value"]).astype(dtype)[()]
    shape = step.params["shape"]
    if not shape:
        return lambda: value
    return lambda: np.full(shape, value, dtype)


def _positions(step: Step) -> Kernel:
    value = np.array(list(step.params["value"]), np.int64)
    return value.copy  # a program may write over what its nodes make


def _around_graphs(rule: Callable[[Step, control.Compile], Kernel]) -> Callable[[Step], Kernel]:
    """The function of a branch or a loop, which runs the programs of its graphs."""
    program_of = control.Compile(lambda graph: graph, lambda graph: compile_graph(graph, lower))
    return lambda step: rule(step, program_of)


RULES: dict[type, Callable[[Step], Kernel]] = {
    Pointwise: _pointwise,
    Reduction: _reduction,
    Contraction: _contraction,
    Structural: _with_module,
    Opaque: _with_module,
    Composite: _composite,
    Call: _call,
    Cond: _around_graphs(control.cond),
    While: _around_graphs(control.while_loop),
    Scan: _around_graphs(control.scan),
    Checkpoint: _around_graphs(control.checkpoint),
    StackSum: lambda step: control.stack_adder(np.add),
    EmptyStack: lambda step: control.Stack,
    Host: lambda step: step.params["function"],
    Effectful: lambda step: step.params["effect"].on_arrays,
    Ruled: _ruled,
    UnknownRule: _unknown,
    Assemble: _assemble,
    Fused: _fused,
    Tiles: _tiles,
    Constant: _constant,
    Positions: _positions,
}
