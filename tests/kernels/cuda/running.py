"""Rendered programs on the emulated device, and what their launches moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradtape.ir.cluster import Cluster
from gradtape.ir.graph import Graph
from gradtape.kernels.cuda_launch import Buffer, CudaProgram, Number
from gradtape.kernels.cuda_render import TEMPLATES, render_cuda
from gradtape.kernels.cuda_teams import SHARED
from gradtape.transforms.fuse import fused_nodes
from tests.cuda_emulator.device import Device
from tests.op_table.running import results_of

Run = Callable[[Cluster, Sequence[Any], Sequence[Any]], list[Any]]
HEADERS = {file.name: file.read_text(encoding="utf-8") for file in sorted(Path(TEMPLATES).glob("*.cuh"))}


class Emulated:
    """A device, and the kernels that were compiled for it."""

    def __init__(self, seed: int = 0, watch_warps: bool = False, arch: str = "sm_80") -> None:
        self.device = Device(arch, seed, watch_warps=watch_warps)
        self.functions: dict[str, Any] = {}

    def compile(self, programs: Sequence[CudaProgram]) -> None:
        """All kernels that are not there yet, in one call of the compiler."""
        texts = dict.fromkeys(t for p in programs for t in p.texts)
        module = self.device.module("\n".join(texts), headers=HEADERS)
        self.functions.update((name, module.get_function(name)) for name in module.source.kernels)

    def compile_all(self, graphs: Iterable[Graph]) -> None:
        """The kernels of graphs, in one call of the compiler."""
        self.compile([rendered(n.step.params["cluster"]) for g in graphs for n in fused_nodes(g)])

    def run(
        self, program: CudaProgram, arrays: Sequence[Any], outputs: Sequence[tuple[Any, Any]], offset: int = 0
    ) -> list[Any]:
        """What a program gives for host arrays, one for each operand; `outputs` are shapes and dtypes. Operands begin
        `offset` bytes behind an aligned place."""
        if any(launch.kernel not in self.functions for launch in program.launches):
            self.compile([program])
        self.device.counts.clear()
        memory: dict[tuple[str, int], Any] = {}
        for k, a in enumerate(arrays):
            a = np.ascontiguousarray(a)
            memory["operand", k] = self.device.alloc(a.nbytes + offset, f"operand {k}").copy_from(a, offset)
        for k, (shape, dtype) in enumerate(outputs):
            memory["result", k] = self.device.alloc(int(np.prod(shape)) * np.dtype(dtype).itemsize, f"result {k}")
        for k, s in enumerate(program.scratch):
            memory["scratch", k] = self.device.alloc(s.size * s.dtype.size, f"scratch {k}")
        for launch in program.launches:
            given = [_given(a, memory, offset) for a in launch.arguments]
            function = self.functions[launch.kernel]
            if launch.shared > SHARED:
                function.max_dynamic_shared_size_bytes = launch.shared
            function((launch.grid,), (launch.block,), given, shared_mem=launch.shared)
        found = [memory["result", k].to_numpy(dtype, shape) for k, (shape, dtype) in enumerate(outputs)]
        for buffer in memory.values():
            buffer.free()
        return found

    def cluster(self, cluster: Cluster, operands: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        """What a cluster gives."""
        return self.run(rendered(cluster), operands, outputs)

    def graph(self, graph: Graph, arrays: Sequence[Any], run: Run | None = None) -> list[Any]:
        """What a graph gives whose fused nodes run on the device, the others on the host; `run`: how clusters do."""
        run = run or self.cluster
        values = {id(v): a for v, a in zip(graph.inputs, arrays, strict=True)}
        for node in graph.nodes:
            operands = [values[id(v)] for v in node.inputs]
            if node.step.op.kind == "fused":
                outputs = [(v.aval.dims, v.aval.dtype.numpy_dtype) for v in node.outputs]
                found = run(node.step.params["cluster"], operands, outputs)
            else:
                found = results_of(node.step, operands)
            values.update((id(v), _scalar(a)) for v, a in zip(node.outputs, found, strict=True))
        return [values[id(v)] for v in graph.outputs]


def _given(argument: Buffer | Number, memory: dict[tuple[str, int], Any], offset: int) -> Any:
    if isinstance(argument, Buffer):
        buffer = memory[argument.kind, argument.number]
        return buffer.at(offset) if argument.kind == "operand" and offset else buffer
    value = argument.dtype.numpy_dtype.type(argument.value)
    # A structure of two numbers, as the kernel declares it.
    return np.void(value.tobytes()) if argument.dtype.is_complex else value


def _scalar(a: Any) -> Any:
    """What has no axes as an array scalar, as the host's functions want it."""
    return np.asarray(a)[()]


def rendered(cluster: Cluster, shared: int = SHARED) -> CudaProgram:
    """The program of a cluster for blocks with so much shared memory; each time the same."""
    program = render_cuda(cluster, shared)
    assert render_cuda(cluster, shared) == program
    return program
