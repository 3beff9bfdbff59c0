"""Programs of small arrays as one compiled function: values lie in one workspace for each dtype. Floor: backends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.backends.clusters import PATIENCE, PER_CALL, POLICY, warn_of
from gradtape.ir.dtypes import DType
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.index import Index
from gradtape.kernels.compiled import COMPILER, Ticket
from gradtape.kernels.programs import Program
from gradtape.ops.fused import Fused
from gradtape.ops.structural import Structural

Run = Callable[..., tuple[Any, ...]]
WIDTH = 16  # elements to which places in a workspace are aligned
MANY = 1500  # nodes whose program is laid out in about the time in which it runs sixty times


class SmallProgram:
    """What runs a small graph: `program` op by op until that has taken long enough, then one function for all of it.
    `pack` lays a graph out for that, or answers None."""

    def __init__(self, graph: Graph, program: Run, pack: Callable[[Graph], tuple[Packed, Run] | None]) -> None:
        self.graph, self.program, self.pack = graph, program, pack
        self.estimate = PER_CALL * len(graph.nodes)
        self.size = max(1.0, len(graph.nodes) / MANY)
        self.spent = 0.0
        self.begun = False
        self.fault: Exception | None = None
        self.asked: tuple[Packed, Run, Ticket] | None = None
        self.native: Run | None = None

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        if self.native is None and POLICY.compile != "never":
            self._look()
        native = self.native
        results = None if native is None else native(*arrays)
        return self.program(*arrays) if results is None else results

    def _look(self) -> None:
        """Take the function if it is there; have it laid out and compiled, in the compiler's thread, when it is worth
        that."""
        now = POLICY.compile == "now"
        self.spent += self.estimate
        if not self.begun and (now or self.spent > PATIENCE * self.size):
            self.begun = True
            if now:
                self._ask()
            else:
                COMPILER.submit(self._ask)
        if self.fault is not None:
            fault, self.fault = self.fault, None
            if now:
                raise fault
            warn_of(fault)
        if self.asked is not None:
            packed, tail, ticket = self.asked
            if now or ticket.done.is_set():
                self._take(packed, tail, ticket)

    def _ask(self) -> None:
        try:
            laid_out = self.pack(self.graph)
            if laid_out is not None:
                packed, tail = laid_out
                self.asked = packed, tail, COMPILER.request(packed.program.source())
        except Exception as e:  # noqa: BLE001, told to who calls next: this may be the compiler's thread
            self.fault = e

    def _take(self, packed: Packed, tail: Run, ticket: Ticket) -> None:
        if ticket.function is None and POLICY.compile != "now":
            self.asked, self.fault = None, RuntimeError(str(ticket.error))
        else:
            self.native = packed.with_function(ticket.wait(), tail)


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
        given = {id(v): k for k, v in enumerate(graph.inputs)}
        self.inputs = [(v.aval.size, *self._at(v)) for v in graph.inputs]
        self.outputs = [(v.aval.dims, v.aval.size, *self._at(v)) for v in bases if id(v) not in given]
        self.passed = [given.get(id(v)) for v in bases]  # inputs that are results themselves

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

    def with_function(self, function: Callable[..., int], tail: Run) -> Run:
        """The program of arrays; None where an operand was beyond what its operations take. `tail` makes the results
        from what they show."""
        spaces = list(self.program.spaces)
        templates = [np.zeros(self.sizes[d], d.numpy_dtype) for d in spaces]
        number = {d: k for k, d in enumerate(spaces)}
        for v in self.constants:
            dtype, at = self.places[id(v)]
            assert v.node is not None
            templates[number[dtype]][at : at + v.aval.size] = _numbers(v.node.step.params["value"])
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
            made = (
                memory[space][start:stop].reshape(shape).copy() if shape else memory[space][start]
                for space, start, stop, shape in outputs
            )
            return tail(*(next(made) if k is None else arrays[k] for k in self.passed))

        return run


def _numbers(value: Any) -> Any:
    return list(value) if isinstance(value, Index | tuple) else value


def is_packable(graph: Graph) -> bool:
    """Whether a fused graph has nothing but fused steps, numbers, and views of these that no step reads."""

    def is_known(v: Value) -> bool:
        return v.node is None or v.node.step.op.kind in ("fused", "constant")

    def fits(node: Node) -> bool:
        op = node.step.op
        if isinstance(op, Fused):
            return all(map(is_known, node.inputs))
        return op.kind == "constant" or (isinstance(op, Structural) and op.view and not op.indices)

    return all(map(fits, graph.nodes))
