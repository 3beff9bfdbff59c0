"""Programs of small arrays as one compiled function: values lie in one workspace for each dtype. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.backends.clusters import PATIENCE, PER_CALL, POLICY
from gradtape.ir.dtypes import DType
from gradtape.ir.graph import Graph, Node, Value
from gradtape.kernels.compiled import COMPILER, Ticket
from gradtape.kernels.programs import Program
from gradtape.ops.fused import Fused
from gradtape.ops.op import Constant
from gradtape.ops.structural import Structural

Run = Callable[..., tuple[Any, ...]]
WIDTH = 16  # elements to which places in a workspace are aligned


class SmallProgram:
    """What runs a small graph: `program` op by op until that has taken long enough, then one function for all of
    `fused`, a graph of fused steps and views. `tail` makes the outputs from what they show."""

    def __init__(self, program: Run, fused: Graph, bases: Sequence[Value], tail: Run) -> None:
        self.program, self.fused, self.bases, self.tail = program, fused, bases, tail
        self.estimate = PER_CALL * sum(n.step.params["cluster"].work for n in _steps(fused))
        self.spent = 0.0
        self.asked: tuple[Packed, Ticket] | None = None
        self.native: Run | None = None

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        if self.native is None and POLICY.compile != "never":
            self._look()
        if self.native is None:
            return self.program(*arrays)
        results = self.native(*arrays)
        return self.program(*arrays) if results is None else self.tail(*results)

    def _look(self) -> None:
        self.spent += self.estimate
        now = POLICY.compile == "now"
        if self.asked is None and (now or self.spent > PATIENCE):
            packed = Packed(self.fused, self.bases)
            self.asked = packed, COMPILER.request(packed.program.source())
        if self.asked is not None:
            packed, ticket = self.asked
            if now or ticket.done.is_set():
                self.native = packed.with_function(ticket.wait())


def _steps(graph: Graph) -> list[Any]:
    return [n for n in graph.nodes if isinstance(n.step.op, Fused)]


class Packed:
    """A graph of fused steps laid out in workspaces."""

    def __init__(self, graph: Graph, bases: Sequence[Value]) -> None:
        self.program = Program()
        self.sizes: dict[DType, int] = {}
        self.places: dict[int, tuple[DType, int]] = {}
        self.constants: list[Value] = []
        for v in graph.inputs:
            self._place(v)
        for node in graph.nodes:
            if isinstance(node.step.op, Fused):
                cluster = node.step.params["cluster"]
                for v in node.outputs:
                    self._place(v)
                reads = [self._at(node.inputs[r.operand]) for r in cluster.reads]
                self.program.add(cluster, [self._at(v) for v in node.outputs], reads)
        self.inputs = [(v.aval.size, *self._at(v)) for v in graph.inputs]
        self.outputs = [(v.aval.dims, v.aval.size, *self._at(v)) for v in bases]

    def _place(self, v: Value) -> None:
        dtype, size = v.aval.dtype, v.aval.size
        at = self.sizes.get(dtype, 0)
        self.places[id(v)] = (dtype, at)
        self.sizes[dtype] = at + -(-size // WIDTH) * WIDTH

    def _at(self, v: Value) -> tuple[DType, int]:
        if id(v) not in self.places:  # a constant array
            self._place(v)
            self.constants.append(v)
        return self.places[id(v)]

    def with_function(self, function: Callable[..., bool]) -> Run:
        """The program of arrays; None where an operand was beyond what its operations take."""
        spaces = list(self.program.spaces)
        templates = [np.zeros(self.sizes[d], d.numpy_dtype) for d in spaces]
        number = {d: k for k, d in enumerate(spaces)}
        for v in self.constants:
            dtype, at = self.places[id(v)]
            assert v.node is not None
            templates[number[dtype]][at : at + v.aval.size] = v.node.step.params["value"]
        inputs = [(number[d], at, at + size) for size, d, at in self.inputs if d in number]
        used = [k for k, (_, d, _) in enumerate(self.inputs) if d in number]
        outputs = [(number[d], at, at + size, shape) for shape, size, d, at in self.outputs]
        table, numbers = self.program.table(), np.array(self.program.numbers, np.float64)

        def run(*arrays: Any) -> Any:
            memory = [t.copy() for t in templates]
            for k, (space, start, stop) in zip(used, inputs, strict=True):
                a = arrays[k]
                memory[space][start:stop] = a.reshape(-1) if isinstance(a, np.ndarray) else a
            if function(*memory, table, numbers):
                return None
            return [
                memory[space][start:stop].reshape(shape).copy() if shape else memory[space][start]
                for space, start, stop, shape in outputs
            ]

        return run


def is_packable(graph: Graph) -> bool:
    """Whether a fused graph has nothing but fused steps, numbers, and views of these that no step reads."""

    def is_known(v: Value) -> bool:
        return v.node is None or isinstance(v.node.step.op, Fused | Constant)

    def fits(node: Node) -> bool:
        op = node.step.op
        if isinstance(op, Fused):
            return all(map(is_known, node.inputs))
        return isinstance(op, Constant) or (isinstance(op, Structural) and op.view and not op.indices)

    return all(map(fits, graph.nodes))
