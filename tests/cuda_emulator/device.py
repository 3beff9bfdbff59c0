"""The emulated device: memory, and a queue of launches and copies that runs when the host waits for it.

A real device runs launches some time after they are queued. The latest time is the strictest: a buffer that was freed
or changed too early shows, and every wait of the host is counted, also a hidden one.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.cuda_emulator import limits
from tests.cuda_emulator.arguments import Declared
from tests.cuda_emulator.compiler import compile_sources, line_of
from tests.cuda_emulator.faults import DeviceFault
from tests.cuda_emulator.memory import Buffer
from tests.cuda_emulator.module import Dimensions, Function, Module
from tests.cuda_emulator.native import Launch, Traffic, runtime
from tests.cuda_emulator.streams import Event, Graph, Schedule, Stream
from tests.cuda_emulator.text import Source

__all__ = ["Counts", "Device", "LaunchCount"]


@dataclass(frozen=True)
class LaunchCount:
    """What one launch did: its sizes, and the traffic with each buffer, by the parameter that points to it.

    Where several parameters point into one buffer, its traffic stands under the first."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    traffic: dict[str, Traffic]
    shared: Traffic
    warps_are_watched: bool = False

    def sectors(self, parameter: str) -> tuple[int, int]:
        """32-byte sectors that warps read and wrote, counted for each of their instructions."""
        self._refuse_unwatched()
        one = self.traffic[parameter]
        return one._sectors_read, one._sectors_written

    @property
    def bank_passes(self) -> tuple[int, int]:
        """Passes over the banks of shared memory, and the instructions of warps that they were made for."""
        self._refuse_unwatched()
        return self.shared._passes, self.shared._instructions

    def _refuse_unwatched(self) -> None:
        if not self.warps_are_watched:
            raise ValueError("nobody counted what warps touch together: make the device with `watch_warps=True`")

    @property
    def bytes_moved(self) -> int:
        """Bytes read from and written to device memory, each time counted."""
        return sum(one.bytes_read + one.bytes_written for one in self.traffic.values())


@dataclass
class Counts:
    """What the device did since `clear`."""

    launches: list[LaunchCount] = field(default_factory=list)
    synchronizations: list[str] = field(default_factory=list)  # with the reason of each
    library_calls: list[str] = field(default_factory=list)  # of the stand-in for CuPy
    queued: int = 0  # launches that the host asked for one by one
    graphs: int = 0  # those of whole graphs
    copies_to_device: int = 0
    allocations: int = 0

    def clear(self) -> None:
        self.launches.clear()
        self.synchronizations.clear()
        self.library_calls.clear()
        self.queued = self.graphs = self.copies_to_device = self.allocations = 0


class Device:
    """One device of an architecture. `seed` decides the order in which blocks and threads run.

    A block that makes more than `most_steps` loads and stores is taken for one that never ends. `watch_warps` also
    counts what the lanes of a warp touch together, which takes time and memory.
    """

    def __init__(
        self, arch: str = "sm_80", seed: int = 0, most_steps: int = 1 << 28, watch_warps: bool = False
    ) -> None:
        if arch not in limits.SHARED_BY_OPT_IN:
            raise ValueError(f"the emulator knows {', '.join(limits.SHARED_BY_OPT_IN)}, not {arch!r}")
        self.arch = arch
        self.seed = seed
        self.most_steps = most_steps
        self.watch_warps = watch_warps
        self.counts = Counts()
        self.addresses: set[int] = set()  # of live buffers
        self.nbytes = 0  # that they have together
        self.is_closed = False
        weakref.finalize(self, free_all, self.addresses)
        self.schedule = Schedule(seed)
        self.default_stream = Stream(self.schedule, "the default stream")
        self._current = threading.local()

    @property
    def current_stream(self) -> Stream:
        """This thread's."""
        found: Stream = getattr(self._current, "stream", self.default_stream)
        return found

    @current_stream.setter
    def current_stream(self, stream: Stream) -> None:
        self._current.stream = stream

    def close(self) -> None:
        """Nothing runs here any more: drop what is queued. Programs that remember the device do not keep its work."""
        self.is_closed = True
        self.schedule.drop()

    # ---- memory -----------------------------------------------------------------------------------------------------

    def alloc(self, nbytes: int, name: str | None = None) -> Buffer:
        """A new buffer, aligned to 256 bytes and poisoned."""
        return Buffer(self, nbytes, name or f"buffer {self.counts.allocations + 1}")

    # ---- modules ----------------------------------------------------------------------------------------------------

    def source(
        self, text: str, options: Sequence[str] = (), headers: dict[str, str] | None = None, name: str = "kernels.cu"
    ) -> Source:
        """A module's text for this device's architecture, for `modules`."""
        return Source(text, tuple(options), tuple(sorted((headers or {}).items())), name, self.arch)

    def module(
        self,
        text: str,
        options: Sequence[str] = (),
        headers: dict[str, str] | None = None,
        name: str = "kernels.cu",
        registers: dict[str, int] | None = None,
    ) -> Module:
        """Compile one text. `headers` are those it includes; `registers` how many each kernel is known to use."""
        source = self.source(text, options, headers, name)
        return Module(self, source, compile_sources([source])[0], registers or {})

    def modules(self, sources: Iterable[Source], wordy: bool = True) -> list[Module]:
        """Compile many texts in one call of g++, which is much faster than one after the other. Without `wordy` it
        takes a quarter less, and a fault for undefined behaviour says where it was, and not what."""
        sources = list(sources)
        found = compile_sources(sources, wordy)
        return [Module(self, source, compiled, {}) for source, compiled in zip(sources, found, strict=True)]

    # ---- streams ----------------------------------------------------------------------------------------------------

    def new_stream(self, name: str) -> Stream:
        """A stream that nothing but events puts in an order with others."""
        return Stream(self.schedule, name)

    @contextmanager
    def using(self, stream: Stream) -> Iterator[Stream]:
        """Queue on this stream what the block queues."""
        before, self.current_stream = self.current_stream, stream
        try:
            yield stream
        finally:
            self.current_stream = before

    def queue(self, launch: Callable[[], None]) -> None:
        """A launch that the host asks for, on the current stream."""
        if self.current_stream.recording is None:
            self.counts.queued += 1
        self.current_stream.enqueue(launch)

    def launch_graph(self, graph: Graph, stream: Stream) -> None:
        """Queue all that was recorded, with the arguments that it was given then."""
        self.counts.graphs += 1
        graph.launch(stream)

    def enqueue_copy(self, buffer: Buffer, data: bytes, offset: int) -> None:
        self.counts.copies_to_device += 1

        def copy() -> None:
            buffer.require_live()
            ctypes.memmove(buffer.address + offset, data, len(data))
            runtime().emulator_define(buffer.address, offset, len(data))

        self.current_stream.enqueue(copy)

    def synchronize(
        self, reason: str = "synchronize", stream: Stream | None = None, event: Event | None = None
    ) -> None:
        """Wait for all that is queued, or on one stream only, or up to an event. A fault drops what is left."""
        if self.current_stream.recording is not None:
            raise self.current_stream.refuse(f"{reason}: nobody can wait for a stream that records a graph")
        self.counts.synchronizations.append(reason)
        if stream is not None:
            self.schedule.run(lambda: not stream.steps)
        elif event is not None:
            self.schedule.run(lambda: event.is_reached)
        else:
            self.schedule.run(lambda: False)

    # ---- one launch -------------------------------------------------------------------------------------------------

    def run(self, function: Function, sizes: Dimensions, data: list[bytes]) -> None:
        """Run a launch now; `Function` queues it."""
        values = [ctypes.create_string_buffer(one, max(len(one), 1)) for one in data]
        arguments = (ctypes.c_void_p * max(len(values), 1))(*(ctypes.addressof(value) for value in values))
        launch = Launch(
            function.kernel.call,
            arguments,
            sizes.grid,
            sizes.block,
            sizes.shared_bytes,
            self.seed + len(self.counts.launches),
            function.module.static_shared(),
            function.module.variables,
            len(function.module.variables),
            limits.STATIC_SHARED,
            self._most_shared(function, sizes.shared_bytes),
            self.most_steps,
            self.watch_warps,
        )
        if runtime().emulator_launch(ctypes.byref(launch)) != 0:
            raise self._fault(function)
        self._count(function, sizes, data)

    def _most_shared(self, function: Function, dynamic: int) -> int:
        """Bytes that a block may take, dynamic and static together: static ones fit beside what was asked for."""
        asked = function.max_dynamic_shared_size_bytes
        if asked <= limits.STATIC_SHARED:
            return limits.STATIC_SHARED
        return dynamic + limits.SHARED_BY_OPT_IN[self.arch] - asked

    def _fault(self, function: Function) -> DeviceFault:
        report = runtime().emulator_report().contents
        kind, message = report.kind.decode(), report.message.decode()
        line = report.site.line or None
        if report.place:
            line = line_of(function.module.path, runtime().emulator_offset(report.place) - 1)
        thread = None if kind == "deadlock" else report.thread.as_tuple()
        return DeviceFault(kind, message, function.name, line, report.block.as_tuple(), thread)

    def _count(self, function: Function, sizes: Dimensions, data: list[bytes]) -> None:
        number = runtime().emulator_launch_number()
        traffic: dict[str, Traffic] = {}
        for owner, parameters in buffers_of(function, data).items():
            one = Traffic()
            read_and_written = runtime().emulator_traffic(owner, number, ctypes.byref(one))
            if read_and_written:
                self._refuse_broken_promise(function, parameters)
            traffic[parameters[0].name] = one
        shared = Traffic()
        runtime().emulator_shared_traffic(ctypes.byref(shared))
        self.counts.launches.append(
            LaunchCount(function.name, sizes.grid, sizes.block, sizes.shared_bytes, traffic, shared, self.watch_warps)
        )

    def _refuse_broken_promise(self, function: Function, parameters: list[Declared]) -> None:
        """`__restrict__` promises that no other pointer leads to what is written through one."""
        if len(parameters) > 1 and any(parameter.is_restricted for parameter in parameters):
            names = " and ".join(f"`{parameter.text}`" for parameter in parameters)
            raise DeviceFault(
                "aliasing", f"{names} lead to one buffer, which the launch both reads and writes", function.name
            )


def free_all(addresses: set[int]) -> None:
    """Free what a device leaves behind, and leave none of it to be freed again by buffers that end with the device."""
    while addresses:
        runtime().emulator_free(addresses.pop())


def buffers_of(function: Function, data: list[bytes]) -> dict[int, list[Declared]]:
    """The buffers that a launch is given, each by its address, with the parameters that point into it."""
    found: dict[int, list[Declared]] = {}
    for parameter, value in zip(function.parameters, data):
        if parameter.kind == "p":
            owner = runtime().emulator_buffer_at(int.from_bytes(value, "little"))
            if owner is not None:
                found.setdefault(owner, []).append(parameter)
    return found
