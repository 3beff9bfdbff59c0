"""Elementwise updates of several variables in one pass, block by block in the cache. Floor: runtime.

The update is an ordinary function of tensors; it is traced once per structure. Its program runs on blocks of all
operands, and a block's results are written back before the next block is read: what an optimizer keeps is read and
written once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.backends.blocks import BLOCK
from gradtape.backends.cpu import lower
from gradtape.backends.program import Program, compile_graph
from gradtape.ir.aval import Aval, aval
from gradtape.ir.bounded import Bounded
from gradtape.ir.determinism import DETERMINISM
from gradtape.ir.graph import Graph
from gradtape.kernels.elementwise import BackgroundLoop, ElementwiseProgram, Step, source
from gradtape.ops.composite import Composite
from gradtape.ops.op import Constant
from gradtape.ops.pointwise import Pointwise
from gradtape.runtime.compiled import CompiledGraph
from gradtape.runtime.convert import convert
from gradtape.runtime.devices import is_on_device, on_host
from gradtape.runtime.state import STATE, quietly
from gradtape.runtime.tensor import Tensor, wrap
from gradtape.runtime.trace import Tracer, function_tracer
from gradtape.runtime.variable import Variable
from gradtape.transforms.simplify import simplify

MAX_UPDATES = 512
CALLS_BEFORE_COMPILING = 8  # a structure that comes back so often is worth a compiled loop
COMPILED_FROM = 1 << 14  # elements


class _Update:
    """One structure: its program over blocks, the numbers that its rule uses, and its loop once that is compiled."""

    def __init__(self, graph: Graph, numbers: list[Any], dtype: Any) -> None:
        self.graph, self.numbers, self.dtype = graph, numbers, dtype
        self.program: Program = compile_graph(graph, lower)
        self.calls = 0
        self.loop: BackgroundLoop | None = None

    def run(self, targets: Sequence[Any], arrays: Sequence[Any]) -> None:
        operands = [*arrays, *self.numbers]
        size = targets[0].size
        if size < COMPILED_FROM or DETERMINISM.required or not self._in_loop(targets, operands, size):
            quietly(_in_blocks, self.program, targets, operands)

    def _in_loop(self, targets: Sequence[Any], operands: Sequence[Any], size: int) -> bool:
        self.calls += 1
        if self.calls == CALLS_BEFORE_COMPILING:
            program = _spelled(self.graph)
            text = source(program)
            if text is not None and self.dtype in (np.float32, np.float64):
                self.loop = BackgroundLoop(text, program, np.dtype(self.dtype))
        if self.loop is None or not self.loop.is_ready():
            return False
        for target, value in zip(targets, operands, strict=False):
            if target is not value:
                np.copyto(target, value)
        wide = [*targets, *(a for a in operands[len(targets) :] if a.ndim)]
        return self.loop.run([a.reshape(-1) for a in wide], [a[()] for a in operands if not a.ndim])


def _spelled(graph: Graph) -> ElementwiseProgram:
    """A graph as names and steps; constants of graphs have no spelling, so that such graphs stay in blocks."""
    names = {id(v): f"x{i}" for i, v in enumerate(graph.inputs)}
    steps = []
    for node in graph.nodes:
        for v in node.outputs:
            names[id(v)] = f"t{len(names)}"
        steps.append(Step(names[id(node.outputs[0])], node.step.name, tuple(names[id(v)] for v in node.inputs)))
    arrays = tuple(names[id(v)] for v in graph.inputs if v.aval.shape)
    scalars = tuple(names[id(v)] for v in graph.inputs if not v.aval.shape)
    return ElementwiseProgram(arrays, scalars, tuple(steps), tuple(names[id(v)] for v in graph.outputs))


_updates: dict[Any, _Update] = {}  # by structure


def update(
    rule: Callable[..., Sequence[Tensor]], variables: Sequence[Variable], operands: Sequence[Tensor], **static: Any
) -> None:
    """Give variables of one shape the values `rule(*values, *operands, **static)`, elementwise.

    Args:
      rule: a function of tensors, made of elementwise ops; it is called when a structure is new.
      variables: of one shape.
      operands: tensors of that shape, or scalars.
      static: numbers that the rule uses, and that are part of its structure.

    Raises:
      ValueError: a rule that is not elementwise, or that returns another number of values or another shape."""
    if STATE.tracers and function_tracer() is not None:
        for v, new in zip(variables, rule(*[v.read() for v in variables], *operands, **static), strict=True):
            v.assign(new)
        return
    if any(is_on_device(v._snapshot._array) for v in variables):
        _on_device(rule, variables, operands, static)
        return
    shape = variables[0]._aval.dims
    avals = (*(v._aval for v in variables), *(t._aval for t in operands))
    key = (rule, avals, tuple(static.items()))
    found = _updates.get(key)
    if found is None:
        if len(_updates) >= MAX_UPDATES:
            _updates.clear()
        found = _updates[key] = _traced(rule, len(variables), shape, avals, static)
    targets = [_target(v) for v in variables]
    values = [np.asarray(v._snapshot._array) for v in variables]
    found.run(targets, [*values, *(np.asarray(on_host(t._array)) for t in operands)])
    for v, array in zip(variables, targets, strict=True):
        v.overwrite(array if shape else array[()])


_programs: Bounded[Any, tuple[CompiledGraph, list[Tensor]]] = Bounded(MAX_UPDATES)  # by structure, for devices


def _on_device(
    rule: Callable[..., Sequence[Tensor]],
    variables: Sequence[Variable],
    operands: Sequence[Tensor],
    static: dict[str, Any],
) -> None:
    """The rule as a program of its own, which reads and writes each element once."""
    avals = (*(v._aval for v in variables), *(t._aval for t in operands))

    def traced() -> tuple[CompiledGraph, list[Tensor]]:
        tracer = Tracer(avals)
        graph, captured = tracer.graph([convert(r) for r in tracer.run(lambda: rule(*tracer.symbols, **static))])
        return CompiledGraph(graph), captured

    program, numbers = _programs.find((rule, avals, tuple(static.items())), traced)
    values = program([*(wrap(v._snapshot._array, v._aval) for v in variables), *operands, *numbers])
    for v, new in zip(variables, values, strict=True):
        v.overwrite(new._array)


def _target(v: Variable) -> Any:
    """Where the new value is written: over the old one, if nothing else needs that."""
    array = v._owned()
    return np.empty(v._aval.dims, v._aval.dtype.numpy_dtype) if array is None else array


def _traced(
    rule: Callable[..., Sequence[Tensor]],
    count: int,
    shape: tuple[int, ...],
    avals: Sequence[Aval],
    static: dict[str, Any],
) -> _Update:
    """The rule as a program over blocks."""
    block = (BLOCK,)
    tracer = Tracer([aval(block, a.dtype) if a.dims == shape and shape else a for a in avals])
    results = [convert(r) for r in tracer.run(lambda: rule(*tracer.symbols, **static))]
    if len(results) != count:
        raise ValueError(f"The rule should return {count} values, one per variable, got {len(results)}.")
    graph, captured = tracer.graph(results)
    if any(t._aval.shape != () for t in captured):
        raise ValueError("The rule uses tensors that it was not given. Give them as operands.")
    _check(graph, avals[:count], block if shape else ())
    numbers = [np.asarray(t._array) for t in captured]
    return _Update(simplify(graph), numbers, avals[0].dtype.numpy_dtype)


def _check(graph: Graph, wanted: Sequence[Aval], shape: tuple[int, ...]) -> None:
    for node in graph.nodes:
        if not isinstance(node.step.op, Pointwise | Constant | Composite):
            raise ValueError(f"The rule uses `{node.step.name}`, which is not elementwise.")
    for v, a in zip(graph.outputs, wanted, strict=True):
        if v.aval.shape != shape or v.aval.dtype is not a.dtype:
            raise ValueError(f"The rule returned {v.aval!r} for a variable of dtype {a.dtype.name}.")


def _in_blocks(program: Program, targets: Sequence[Any], arrays: Sequence[Any]) -> None:
    flat_targets = [t.reshape(-1) for t in targets]
    size = flat_targets[0].size
    flat = [a if getattr(a, "ndim", 0) == 0 and size != 1 else np.asarray(a).reshape(-1) for a in arrays]
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        results = program(*[a if a.ndim == 0 or a.size != size else a[start:stop] for a in flat])
        for target, result in zip(flat_targets, results, strict=True):
            target[start:stop] = result
