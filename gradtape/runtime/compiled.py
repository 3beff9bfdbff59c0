"""Graphs that run: on whatever this process has, and recorded as one step where a tape wants that. Floor: runtime."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradtape.backends.cpu import NAME, lower
from gradtape.backends.program import compile_graph, overs
from gradtape.backends.small import Held, Holder
from gradtape.ir.folded import Folded
from gradtape.ir.graph import Graph
from gradtape.ir.show import show
from gradtape.kernels.spelling import spells
from gradtape.ops.call import call_step
from gradtape.ops.kernels import holds_kernels
from gradtape.ops.op import Step
from gradtape.runtime.collector import put_off
from gradtape.runtime.devices import DEVICES, Placed, make_fractions
from gradtape.runtime.dispatch import execute, explained
from gradtape.runtime.listing import changes, plan_text
from gradtape.runtime.record import Recorder
from gradtape.runtime.small import in_one
from gradtape.runtime.state import STATE, run_apart
from gradtape.runtime.tensor import SymbolicTensorError, Tensor, wrap
from gradtape.runtime.threaded import threaded
from gradtape.runtime.trace import traced
from gradtape.transforms.device_peak import device_peak_bytes
from gradtape.transforms.differentiate import augmented
from gradtape.transforms.fuse import fuse
from gradtape.transforms.peak import peak_bytes
from gradtape.transforms.simplify import flattened, simplify
from gradtape.transforms.tiling import tiled


class CompiledGraph:
    """A graph with the function that runs it, and the steps that record it as a call, by active operands. `runs`: the
    same graph in the pieces in which it runs."""

    def __init__(self, graph: Graph) -> None:
        show("graph", "as it was made", lambda: graph)
        self._plain: Step | None = call_step(simplify(flattened(graph), changes(graph)))
        self._folded: Folded | None = None
        self.avals = tuple(v.aval for v in self.graph.outputs)
        self.recorded: dict[tuple[bool, ...], Step] = {}
        self.kernels: dict[str, Callable[..., Any]] = {}  # by what the devices of this process are

    @property
    def plain(self) -> Step:
        """The step that calls it."""
        plain = self._plain
        if plain is None:
            assert self._folded is not None
            plain = self._plain = call_step(self._folded.unfolded())
        return plain

    @property
    def graph(self) -> Graph:
        """What it computes."""
        found: Graph = self.plain.params["graph"]
        return found

    def fold(self) -> None:
        """Put the graph away until somebody asks for it."""
        self._folded = self._folded or Folded(self.graph)
        self._plain = None

    @functools.cached_property
    def runs(self) -> Graph:
        return _pieces(tiled(self.graph))

    def peak_bytes(self, again: bool = False) -> int:
        """The most memory that is held at one time while it runs where this process has its arrays, inputs not counted.
        `again`: it runs several times, and what the first left counts."""
        device = DEVICES.device
        if device is None:
            return peak_bytes(self.runs, again)
        return device_peak_bytes(device.lowering.prepared(self.graph), device.assembled_bytes)

    @property
    def kernel(self) -> Callable[..., Any]:
        """What runs the graph. Made when it first runs: a graph inside another is traced into that one, and never runs
        by itself."""
        found = self.kernels.get(STATE.alone)
        return self._made() if found is None else found

    def _made(self) -> Callable[..., Any]:
        with put_off():
            if DEVICES.device is None:
                made = self._on_cpu()
            else:
                fractions = make_fractions(self.avals) or holds_kernels(self.graph)
                made = Placed(self._on_cpu, lambda lowering: lowering.program(self.graph), lambda arrays: fractions)
            self.kernels[STATE.alone] = made
            return made

    def over(self, pairs: Mapping[int, int]) -> tuple[Callable[..., Any] | None, set[int]]:
        """What runs it on the host with results in the arrays of inputs, of pairs of numbers that it may, and those
        inputs; None where no step can do that, or it would not pay."""
        found = overs(self.runs, pairs) if pairs and DEVICES.device is None else {}
        return threaded(compile_graph(self.runs, lower, over=found), self.runs) if found else None, set(found.values())

    def _on_cpu(self) -> Callable[..., Any]:
        return _on_host(self, lambda: self.runs)

    def __call__(self, inputs: Sequence[Tensor], kernel: Callable[..., Any] | None = None) -> list[Tensor]:
        """Run on tensors; where a tape records and gradients flow through an operand, as a call that also
        returns the residuals of its own derivative. `kernel`: what runs it here, where it runs alone."""
        state = STATE
        recorders = state.recorders
        if not recorders or not any(active := _active(recorders, inputs)):
            if state.detour is not None and (made := state.detour(self.plain, inputs)) is not None:
                return _listed(made)
            try:
                operands = [t._array for t in inputs]
            except SymbolicTensorError:
                return _listed(traced(self.plain, inputs))
            kernel = kernel or self.kernels.get(state.alone) or self._made()
            try:
                arrays = state.run(kernel, *operands)
            except RuntimeError as e:
                arrays = run_apart(e, kernel, *operands)
            except MemoryError as e:
                raise explained(self.plain, inputs, e) from e
            return [wrap(_scalar(a) if not v.shape else a, v) for a, v in zip(arrays, self.avals, strict=True)]
        step = self.recorded.get(active)
        if step is None:
            step = self.recorded[active] = _fused_call(augmented(self.graph, active))
        return _listed(execute(step, inputs))[: len(self.avals)]


def _listed(results: Any) -> list[Tensor]:
    """The results of a step in a list, of which there may be one."""
    return list(results) if isinstance(results, tuple) else [results]


def _active(recorders: Sequence[Recorder], inputs: Sequence[Tensor]) -> tuple[bool, ...]:
    """Through which inputs gradients flow on some tape."""
    found = [False] * len(inputs)
    for r in recorders:
        slot = r.slots.get
        for i, t in enumerate(inputs):
            if slot(t._id, 0) > 0:
                found[i] = True
    return tuple(found)


def _fused_call(graph: Graph) -> Step:
    """A call of a graph that runs it fused, and is differentiated as it is."""
    step = call_step(graph)

    def first(*arrays: Any) -> Any:
        kernel = step.lowered[NAME] = _on_host(Held(graph), lambda: _pieces(graph))
        if DEVICES.device is None:
            step.lowered[STATE.alone] = kernel
        return kernel(*arrays)

    step.lowered[NAME] = first
    return step


def _on_host(holder: Holder, pieces: Callable[[], Graph]) -> Callable[..., Any]:
    """What runs a graph on the host; `pieces`: the same in pieces."""

    def in_pieces() -> Callable[..., Any]:
        runs = pieces()
        return threaded(compile_graph(runs, lower), runs)

    return in_one(holder, in_pieces)


def _scalar(array: Any) -> Any:
    """An array without axes as an array scalar; strings stay arrays."""
    return array[()] if type(array) is np.ndarray and not array.dtype.hasobject else array


def _pieces(graph: Graph) -> Graph:
    """A graph with its clusters as kernels: what runs."""
    runs = fuse(graph, spells)
    changes(graph)("fuse", runs)
    show("plan", "what runs", lambda: plan_text(runs))
    return runs
