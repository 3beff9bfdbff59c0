"""How a Jacobian would be computed, without computing it. Floor: runtime."""

from __future__ import annotations

from typing import Any

from gradtape.ir.aval import aval
from gradtape.ir.graph import Graph
from gradtape.runtime.chunks import Chunking, chunk_program, chunks_of
from gradtape.runtime.compiled import CompiledGraph
from gradtape.runtime.record import Recorder
from gradtape.runtime.structured import structured_program
from gradtape.transforms.cost import elements, multiply_adds
from gradtape.transforms.rows.products import described


class JacobianPlan:
    """How a Jacobian would be computed: like a database's EXPLAIN. `print` it, or read its fields.

    Attributes:
      mode: "reverse", "forward", or "none" where the target does not depend on the source.
      costs: the estimate for each mode that was compared, in nanoseconds.
      structure: which axes share a letter, a term a line.
      rows, chunks: how many rows there are, and in how many parts they are computed.
      multiply_adds, elements_written, bytes: of all steps together (of one chunk where there are several).
      peak_bytes: the most memory that is held at one time, the result included, what the tape holds not.
      steps: the program, a step a line."""

    def __init__(self, recorder: Recorder, target: Any, source: Any, mode: str, how: Chunking) -> None:
        slots = recorder.slots
        program = structured_program(recorder, slots[target._id], slots[source._id], mode)
        choice = program.choice
        self.mode = choice.mode if choice else "none"
        self.costs = dict(choice.costs) if choice else {}
        self.structure = described(choice.rows) if choice else "0"
        self.rows = target._aval.size if self.mode != "forward" else source._aval.size
        self.result = aval((*target._aval.dims, *source._aval.dims), source._aval.dtype)
        self.chunks = 1
        graph = Graph([], [])
        self.peak_bytes = 0
        if choice:
            reads = program.backward.reads([choice.dense])
            compiled = CompiledGraph(Graph(reads.values, [choice.dense]))
            graph, self.peak_bytes = compiled.graph, compiled.peak_bytes()
        if choice and how.is_asked:
            self.mode = "reverse"
            self.rows = target._aval.size
            chunked = chunk_program(recorder, target, source, mode)
            count, self.chunks = chunks_of(chunked, target, source, how)
            _, compiled, most = chunked.plan(count)
            graph = compiled.graph
            self.peak_bytes = most + self.result.nbytes
        self.multiply_adds = sum(map(multiply_adds, graph.nodes))
        self.elements_written = sum(map(elements, graph.nodes))
        self.bytes = sum(v.aval.nbytes for n in graph.nodes for v in n.outputs)
        self.steps = [f"{n.step.name} {n.outputs[0].aval!r}" for n in graph.nodes]

    def __str__(self) -> str:
        why = ", ".join(f"{k} about {v / 1e3:,.0f} us" for k, v in sorted(self.costs.items()))
        lines = [
            f"Jacobian {self.result!r} in {self.mode} mode ({why})",
            f"structure: {self.structure}",
            f"rows: {self.rows:,}, chunks: {self.chunks:,}; peak memory: {self.peak_bytes:,} bytes",
            f"multiply-adds: {self.multiply_adds:,}; bytes written: {self.bytes:,}",
            "steps:",
            *(f"  {s}" for s in self.steps),
        ]
        return "\n".join(lines)

    __repr__ = __str__
