"""Programs of small arrays as one compiled function. Floor: backends."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gradtape.backends.clusters import PATIENCE, POLICY, warn_of
from gradtape.backends.packed import Packed
from gradtape.ir.graph import Graph
from gradtape.ir.index import Index
from gradtape.kernels.arguments import answered
from gradtape.kernels.compiled import COMPILER, Ticket
from gradtape.kernels.jumps import DONE, FULL, LACKING, PAUSED
from gradtape.kernels.memory import trim

Run = Callable[..., tuple[Any, ...]]
Bind = Callable[..., Callable[[], int]]
Seen = tuple[int, int, tuple[int, ...], int]  # where a value lies: workspace and register, and its shape and size
ROWS = 64  # of a loop's stacks, to begin with
KEPT = 1 << 20  # bytes of workspaces that are kept from call to call
MOST = 1 << 27  # bytes of workspaces
MANY = 1500  # nodes whose program is laid out in about the time in which it runs sixty times
RUNS = 16  # of a program of more nodes before it is laid out: that work competes with the calls for Python's lock


class Holder(Protocol):
    """Who has a graph, and puts it away where that is large and will hardly be looked at."""

    @property
    def graph(self) -> Graph: ...

    def fold(self) -> None: ...


@dataclass
class Held:
    """A graph that is somebody else's."""

    graph: Graph

    def fold(self) -> None:
        """It stays as it is."""


class SmallProgram:
    """What runs a small graph: op by op until that has taken long enough, then one function for all of it. What runs op
    by op is let go then, and made again for operands that are beyond the function. `first` makes it as long as the
    function may come, `rest` where it will not; `estimate`: seconds of a run op by op; `pack` lays a graph out in one
    function, or answers None."""

    def __init__(
        self,
        holder: Holder,
        first: Callable[[], Run],
        rest: Callable[[], Run],
        estimate: float,
        pack: Callable[[Graph], tuple[Packed, Run] | None],
    ) -> None:
        self.holder, self.first, self.rest, self.pack = holder, first, rest, pack
        self.made: tuple[Callable[[], Run], Run] | None = None  # what runs op by op, and which of both made it
        self.estimate = estimate
        self.large = len(holder.graph.nodes) > MANY
        self.spent = 0.0
        self.begun = False
        self.waits = True  # for the function: it may come
        self.fault: Exception | None = None
        self.asked: tuple[Packed, Run, Ticket] | None = None
        self.native: Run | None = None

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        if self.waits and POLICY.compile != "never":
            self._look()
        native = self.native
        results = None if native is None else native(*arrays)
        return self.program(*arrays) if results is None else results

    @property
    def program(self) -> Run:
        """What runs op by op."""
        make, made = self.first if self.waits else self.rest, self.made
        if made is None or made[0] is not make:
            made = self.made = make, make()
        return made[1]

    def _look(self) -> None:
        """Take the function if it is there; have it laid out and compiled, in the compiler's thread, when it is worth
        that."""
        now = POLICY.compile == "now"
        self.spent += self.estimate
        if not self.begun and (now or self.spent > (RUNS * self.estimate if self.large else PATIENCE)):
            self.begun = True
            if now:
                self._ask()
            else:
                COMPILER.submit(self._ask)
        if self.fault is not None:
            fault, self.fault, self.waits = self.fault, None, False
            if now:
                raise fault
            warn_of(fault)
        asked = self.asked
        if asked is not None and (now or asked[2].done.is_set()):
            del asked
            self._take()

    def _ask(self) -> None:
        try:
            if self.large:
                _collect()  # what tracing left is room for what comes now
            laid_out = self.pack(self.holder.graph)
            if laid_out is None:
                self.waits = False
            else:
                packed, tail = laid_out
                self.asked = packed, tail, COMPILER.request(packed.program.source())
        except Exception as e:  # noqa: BLE001, told to who calls next: this may be the compiler's thread
            self.fault = e

    def _take(self) -> None:
        asked = self.asked
        if asked is None:  # another thread has taken it
            return
        packed, tail, ticket = asked
        if ticket.function is None and POLICY.compile != "now":
            self.asked, self.fault = None, RuntimeError(str(ticket.error))
            return
        bind, memory = ticket.wait().bind, Memory(packed)
        self.asked = None
        if self.large:
            del asked, packed
            self._let_go()
        self.native, self.waits, self.made = with_function(memory, bind, tail), False, None

    def _let_go(self) -> None:
        """Give back the memory of what there was on the way to the function."""
        self.made = None
        self.holder.fold()
        _collect()
        trim()


def _collect() -> None:
    """Let go of graphs that nobody has any more, which are cycles."""
    if gc.isenabled():
        gc.collect()


class Memory:
    """What a packed graph is to its calls: its table and numbers; its workspaces, what is in them when a call begins,
    and behind it the rows of stacks. How many rows there may be is found out by running short of them."""

    def __init__(self, packed: Packed) -> None:
        self.constant = packed.program.table(packed.registers), np.array(packed.program.numbers, np.float64)
        self.registers, self.rooms, self.passed = np.array(packed.registers, np.int64), packed.rooms, packed.passed
        self.spaces = list(packed.program.spaces)
        self.templates = [np.zeros(packed.sizes.get(d, 0), d.numpy_dtype) for d in self.spaces]
        self.moves = bool(packed.program.jumps)
        self.lock = threading.Lock()
        self.rows = dict.fromkeys((room for room, _ in packed.rooms), ROWS)
        self.now = self._laid_out(self.rows)
        number = {d: k for k, d in enumerate(self.spaces)}
        self.inputs = [
            (k, (number[d], r, dims, size)) for k, (dims, size, (d, r)) in enumerate(packed.inputs) if d in number
        ]
        self.outputs = [(number[d], r, dims, size) for dims, size, (d, r) in packed.outputs]
        for v, (dtype, register) in packed.constants:
            if dtype in self.spaces and v.node is not None:
                at = packed.registers[register]
                space = self.templates[self.spaces.index(dtype)]
                space[at : at + v.aval.size] = _numbers(v.node.step.params["value"])

    def _laid_out(self, rows: dict[int, int]) -> tuple[Any, list[int]]:
        """The registers for so many rows, and the sizes of the workspaces."""
        registers = self.registers.copy()
        sizes = {d: len(t) for d, t in zip(self.spaces, self.templates, strict=True)}
        for room, stacks in self.rooms:
            registers[room] = rows[room]
            for first, dtype, size in stacks:
                registers[first] = sizes[dtype]
                sizes[dtype] += rows[room] * size
        return registers, list(sizes.values())

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


class Workspace:
    """The memory of one call at a time, and the call: its arguments are the same every time."""

    def __init__(self, memory: Memory, bind: Bind) -> None:
        self.layout = memory.now
        registers, sizes = self.layout
        self.spaces = [np.empty(n, t.dtype) for n, t in zip(sizes, memory.templates, strict=True)]
        self.registers = registers.copy()
        self.call = bind(*self.spaces, *memory.constant, self.registers)
        self.inputs = [(k, self.view(place)) for k, place in memory.inputs]
        self.bytes = sum(s.nbytes for s in self.spaces)
        self.begin(memory)
        self.results = self.shown(memory)

    def begin(self, memory: Memory) -> None:
        """Everything as a call finds it."""
        self.registers[:] = self.layout[0]
        for space, t in zip(self.spaces, memory.templates, strict=True):
            space[: len(t)] = t

    def view(self, place: Seen) -> Any:
        space, register, dims, size = place
        at = self.registers[register]
        return self.spaces[space][at : at + size].reshape(dims)

    def shown(self, memory: Memory) -> list[Any]:
        """The results, where they lie."""
        return [self.view(place) for place in memory.outputs]


def with_function(memory: Memory, bind: Bind, tail: Run) -> Run:
    """The program of arrays; None where an operand was beyond what its operations take, or loops were longer than
    there is room for. `bind` gives the function as a call with these arguments, `tail` makes the results from what they
    show."""
    free: list[Workspace] = []  # each is in one call at a time
    moves, passed = memory.moves, memory.passed

    def run(*arrays: Any) -> Any:
        while True:
            try:
                held = free.pop()
            except IndexError:
                held = Workspace(memory, bind)
            if held.layout is not memory.now:  # another thread needed more room
                held = Workspace(memory, bind)
            elif moves:
                held.begin(memory)
            for k, place in held.inputs:
                place[...] = arrays[k]
            ended = held.call()
            while ended == PAUSED:  # in between Python sees whether it should stop
                ended = held.call()
            if ended == DONE:
                break
            if answered(ended) != FULL or not memory.enlarge(held.registers):
                return None
        results = held.shown(memory) if moves else held.results
        made = [r.copy() if r.ndim else r[()] for r in results]
        if held.bytes <= KEPT:
            free.append(held)
        following = iter(made)
        return tail(*[next(following) if k is None else arrays[k] for k in passed])

    return run


def _numbers(value: Any) -> Any:
    return list(value) if isinstance(value, Index | tuple) else value
