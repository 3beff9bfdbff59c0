"""Programs of small arrays as one compiled function. Floor: backends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.backends.clusters import PATIENCE, POLICY, warn_of
from gradtape.backends.packed import Packed
from gradtape.ir.graph import Graph
from gradtape.ir.index import Index
from gradtape.kernels.compiled import COMPILER, Ticket
from gradtape.kernels.jumps import FAR, FULL, LACKING, PAUSED

Run = Callable[..., tuple[Any, ...]]
ROWS = 64  # of a loop's stacks, to begin with
MOST = 1 << 27  # bytes of workspaces
MANY = 1500  # nodes whose program is laid out in about the time in which it runs sixty times


class SmallProgram:
    """What runs a small graph: `program` op by op until that has taken long enough, then one function for all of it.
    `estimate`: seconds of a run op by op; `pack` lays a graph out in one function, or answers None."""

    def __init__(
        self, graph: Graph, program: Run, estimate: float, pack: Callable[[Graph], tuple[Packed, Run] | None]
    ) -> None:
        self.graph, self.program, self.pack = graph, program, pack
        self.estimate = estimate
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
            self.native = with_function(packed, ticket.wait(), tail, Memory(packed))


class Memory:
    """The workspaces of a packed graph: what is in them when a call begins, and behind it the rows of stacks. How many
    rows there may be is found out by running short of them."""

    def __init__(self, packed: Packed) -> None:
        self.packed = packed
        self.spaces = list(packed.program.spaces)
        self.templates = [np.zeros(packed.sizes.get(d, 0), d.numpy_dtype) for d in self.spaces]
        self.moves = bool(packed.program.jumps)
        self.lock = threading.Lock()
        self.rows = dict.fromkeys((room for room, _ in packed.rooms), ROWS)
        self.now = self._laid_out(self.rows)
        for v, (dtype, register) in packed.constants:
            if dtype in self.spaces and v.node is not None:
                at = packed.registers[register]
                space = self.templates[self.spaces.index(dtype)]
                space[at : at + v.aval.size] = _numbers(v.node.step.params["value"])

    def _laid_out(self, rows: dict[int, int]) -> tuple[Any, list[int]]:
        """The registers for so many rows, and the sizes of the workspaces."""
        registers = np.array(self.packed.registers, np.int64)
        sizes = {d: len(t) for d, t in zip(self.spaces, self.templates, strict=True)}
        for room, stacks in self.packed.rooms:
            registers[room] = rows[room]
            for first, dtype, size in stacks:
                registers[first] = sizes[dtype]
                sizes[dtype] += rows[room] * size
        return registers, list(sizes.values())

    def take(self) -> tuple[list[Any], Any]:
        """Workspaces and registers for one call."""
        registers, sizes = self.now
        if not self.rows:
            return [t.copy() for t in self.templates], registers.copy() if self.moves else registers
        spaces = [np.empty(n, t.dtype) for n, t in zip(sizes, self.templates, strict=True)]
        for space, t in zip(spaces, self.templates, strict=True):
            space[: len(t)] = t
        return spaces, registers.copy()

    def enlarge(self, registers: Any) -> bool:
        """Have more room next time than a call with these registers had; whether there may be more."""
        room = int(registers[LACKING])
        with self.lock:
            if self.rows[room] > registers[room]:  # another thread was here
                return True
            rows = self.rows | {room: 4 * self.rows[room]}
            now = self._laid_out(rows)
            if sum(n * t.itemsize for n, t in zip(now[1], self.templates, strict=True)) > MOST:
                return False
            self.rows, self.now = rows, now
            return True


def with_function(packed: Packed, function: Callable[..., int], tail: Run, memory: Memory) -> Run:
    """The program of arrays; None where an operand was beyond what its operations take, or loops were longer than
    there is room for. `tail` makes the results from what they show."""
    number = {d: k for k, d in enumerate(memory.spaces)}
    starts = [(k, size, d, packed.registers[r]) for k, (size, (d, r)) in enumerate(packed.inputs) if d in number]
    inputs = [(k, number[d], at, at + size) for k, size, d, at in starts]
    outputs = [(number[d], register, size, dims) for dims, size, (d, register) in packed.outputs]
    table, numbers = packed.program.table(packed.registers), np.array(packed.program.numbers, np.float64)
    passed = packed.passed

    def run(*arrays: Any) -> Any:
        while True:
            spaces, registers = memory.take()
            for k, space, start, stop in inputs:
                a = arrays[k]
                spaces[space][start:stop] = a.reshape(-1) if isinstance(a, np.ndarray) else a
            ended = PAUSED
            while ended == PAUSED:  # in between Python sees whether it should stop
                ended = function(*spaces, table, numbers, registers)
            if ended != FULL:
                break
            if not memory.enlarge(registers):
                return None
        if ended == FAR:
            return None
        made = (
            spaces[space][(at := registers[register]) : at + size].reshape(dims).copy()
            if dims
            else spaces[space][registers[register]]
            for space, register, size, dims in outputs
        )
        return tail(*(next(made) if k is None else arrays[k] for k in passed))

    return run


def _numbers(value: Any) -> Any:
    return list(value) if isinstance(value, Index | tuple) else value
