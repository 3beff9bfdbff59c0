"""Elementwise updates of several variables in one pass, block by block in the cache. Floor: runtime.

The update is an ordinary function of tensors; it is traced once per structure. Its program runs on blocks of all
operands, and a block's results are written back before the next block is read; the kernel that takes over does the same
for each element. What an optimizer keeps is read and written once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.backends.blocks import BLOCK
from gradtape.backends.clusters import FusedKernel
from gradtape.backends.cpu import lower
from gradtape.backends.program import Program, compile_graph
from gradtape.ir.aval import Aval, aval
from gradtape.ir.bounded import Bounded
from gradtape.ir.graph import Graph, Node
from gradtape.kernels.spelling import spells
from gradtape.ops.composite import Composite
from gradtape.ops.fused import Fused
from gradtape.ops.op import Constant
from gradtape.ops.pointwise import Pointwise
from gradtape.runtime.compiled import CompiledGraph
from gradtape.runtime.convert import convert
from gradtape.runtime.devices import is_on_device, on_host
from gradtape.runtime.state import STATE, quietly
from gradtape.runtime.taking import taken
from gradtape.runtime.tensor import Tensor, wrap
from gradtape.runtime.trace import Tracer, function_tracer
from gradtape.runtime.variable import Variable
from gradtape.transforms.fuse import fuse
from gradtape.transforms.simplify import simplify

MAX_UPDATES = 512
COMPILED_FROM = 1 << 14  # elements


class _Update:
    """One structure: its program over blocks, the numbers that its rule uses, and its kernel.

    Args:
      block, whole: the rule as a graph over a block, and over all elements in a row; of the values, the operands and
        the numbers.
      count: how many values there are.
    """

    def __init__(self, block: Graph, whole: Graph, count: int, numbers: list[Any]) -> None:
        self.count, self.numbers = count, numbers
        self.program: Program = compile_graph(block, lower)
        self.kernel: FusedKernel | None = None
        runs = fuse(whole, spells)
        if len(runs.nodes) == 1 and isinstance(runs.nodes[0].step.op, Fused):
            self._take(runs.nodes[0], runs)

    def _take(self, node: Node, runs: Graph) -> None:
        """The kernel that does it all, with values in the place of old ones."""
        self.order = [next(k for k, v in enumerate(runs.inputs) if v is x) for x in node.inputs]
        made = [next((j for j, r in enumerate(node.outputs) if r is v), None) for v in runs.outputs]
        pairs = [(j, self.order.index(k)) for k, j in enumerate(made) if j is not None and k in self.order]
        if len(pairs) == self.count == len(node.outputs):
            self.made = [j for j, _ in pairs]
            self.kernel = FusedKernel(node.step, self._as_kernel).writing_over(pairs)

    def run(self, targets: Sequence[Any], arrays: Sequence[Any]) -> None:
        """Write the values to their targets, which may be the old ones."""
        operands = [*arrays, *self.numbers]
        if self.kernel is None or targets[0].size < COMPILED_FROM:
            quietly(_in_blocks, self.program, targets, operands)
            return
        for target, value in zip(targets, operands, strict=False):
            if target is not value:
                np.copyto(target, value)
        flat = [a.reshape(-1) if a.ndim else a for a in (*targets, *operands[self.count :])]
        results = quietly(self.kernel, *[flat[k] for k in self.order])
        for target, j in zip(flat, self.made, strict=False):
            if not np.may_share_memory(target, results[j]):  # a kernel that may have to run again writes elsewhere
                np.copyto(target, results[j])

    def _as_kernel(self, *arrays: Any) -> tuple[Any, ...]:
        """The program over blocks in the place of a kernel that is not there yet."""
        operands: list[Any] = [None] * len(self.order)
        for k, a in zip(self.order, arrays, strict=True):
            operands[k] = a
        targets = operands[: self.count]
        _in_blocks(self.program, targets, operands)
        results: list[Any] = [None] * self.count
        for target, j in zip(targets, self.made, strict=True):
            results[j] = target
        return tuple(results)


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
    given = [np.asarray(on_host(t._array)) for t in operands]
    with taken(variables) as own:
        if own is not None:
            values = [t._array for t in own]
            found.run(values, [*values, *given])
            return
    targets = [np.empty(v._aval.dims, v._aval.dtype.numpy_dtype) for v in variables]
    found.run(targets, [*(np.asarray(v._snapshot._array) for v in variables), *given])
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


def _traced(
    rule: Callable[..., Sequence[Tensor]],
    count: int,
    shape: tuple[int, ...],
    avals: Sequence[Aval],
    static: dict[str, Any],
) -> _Update:
    """The rule as a program over blocks."""
    block, all_ = (BLOCK,), (math.prod(shape),)

    def graph(size: tuple[int, ...]) -> tuple[Graph, list[Tensor]]:
        tracer = Tracer([aval(size, a.dtype) if a.dims == shape and shape else a for a in avals])
        results = [convert(r) for r in tracer.run(lambda: rule(*tracer.symbols, **static))]
        if len(results) != count:
            raise ValueError(f"The rule should return {count} values, one per variable, got {len(results)}.")
        made, captured = tracer.graph(results)
        return simplify(made), captured

    of_block, captured = graph(block)
    if any(t._aval.shape != () for t in captured):
        raise ValueError("The rule uses tensors that it was not given. Give them as operands.")
    _check(of_block, avals[:count], block if shape else ())
    return _Update(of_block, graph(all_)[0], count, [np.asarray(t._array) for t in captured])


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
