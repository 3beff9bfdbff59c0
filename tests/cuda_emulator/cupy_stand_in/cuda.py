"""`cupy.cuda`: streams, events, graphs, the device, and what `memory.py` has."""

from __future__ import annotations

from typing import Any

from tests.cuda_emulator import limits, streams
from tests.cuda_emulator.cupy_stand_in import memory
from tests.cuda_emulator.cupy_stand_in.memory import (
    MemoryPointer,
    MemoryPool,
    alloc,
    alloc_pinned_memory,
    get_allocator,
    set_allocator,
    using_allocator,
)
from tests.cuda_emulator.cupy_stand_in.state import address_of_stream, device

__all__ = [
    "Device",
    "Event",
    "Graph",
    "MemoryPointer",
    "MemoryPool",
    "Stream",
    "alloc",
    "alloc_pinned_memory",
    "get_allocator",
    "get_current_stream",
    "is_available",
    "memory",
    "runtime",
    "set_allocator",
    "using_allocator",
]


class Event:
    """A place in a stream."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self._event = streams.Event()

    def record(self, stream: Stream | None = None) -> None:
        (stream or get_current_stream()).queue.record(self._event)

    def synchronize(self) -> None:
        device().synchronize("event", event=self._event)

    @property
    def done(self) -> bool:
        return self._event.is_reached


class Graph:
    """Recorded work; whoever launches it keeps its memory alive."""

    def __init__(self, graph: streams.Graph) -> None:
        self._graph = graph

    def launch(self, stream: Stream | None = None) -> None:
        device().launch_graph(self._graph, (stream or get_current_stream()).queue)

    def upload(self, stream: Stream | None = None) -> None:
        """Nothing to do here."""


class Stream:
    """Work in an order of its own. In a `with` block, or after `use`, it is the current one."""

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: int | None = None
    ) -> None:
        self.is_non_blocking = non_blocking
        self.queue = device().default_stream if null else device().new_stream("a stream")
        self._before: list[streams.Stream] = []

    @classmethod
    def _of(cls, queue: streams.Stream) -> Stream:
        stream = cls.__new__(cls)
        stream.is_non_blocking, stream.queue, stream._before = False, queue, []
        return stream

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.queue is self.queue

    def __hash__(self) -> int:
        return hash(self.queue)

    @property
    def ptr(self) -> int:
        return address_of_stream(self.queue)

    @property
    def done(self) -> bool:
        return not self.queue.steps

    def use(self) -> Stream:
        device().current_stream = self.queue
        return self

    def __enter__(self) -> Stream:
        self._before.append(device().current_stream)
        return self.use()

    def __exit__(self, *_: object) -> None:
        device().current_stream = self._before.pop()

    def synchronize(self) -> None:
        device().synchronize("stream", self.queue)

    def record(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        self.queue.wait_event(event._event)

    def begin_capture(self, mode: Any = None) -> None:
        if not self.ptr:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        self.queue.begin_capture()

    def end_capture(self) -> Graph:
        return Graph(self.queue.end_capture())

    def is_capturing(self) -> bool:
        return self.queue.recording is not None


def get_current_stream(device_id: int = -1) -> Stream:
    return Stream._of(device().current_stream)


class Device:
    """The one device."""

    def __init__(self, device: int | None = None) -> None:
        if device not in (None, 0):
            raise RuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
        self.id = 0

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        """There is no other device to go back to."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device)

    def __hash__(self) -> int:
        return self.id

    def use(self) -> Device:
        return self

    def synchronize(self) -> None:
        device().synchronize("device")

    @property
    def compute_capability(self) -> str:
        return device().arch.removeprefix("sm_")

    @property
    def mem_info(self) -> tuple[int, int]:
        return runtime.memGetInfo()


class Runtime:
    """`cupy.cuda.runtime`, as far as anybody asks."""

    @staticmethod
    def getDeviceCount() -> int:
        return 1

    @staticmethod
    def deviceGetAttribute(attrib: int, device_id: int) -> int:
        most_shared = 97  # cudaDevAttrMaxSharedMemoryPerBlockOptin
        return {most_shared: limits.SHARED_BY_OPT_IN[device().arch]}[attrib]

    @staticmethod
    def deviceSynchronize() -> None:
        device().synchronize("device")

    @staticmethod
    def memGetInfo() -> tuple[int, int]:
        return memory.TOTAL_MEMORY - memory.get_default_memory_pool().total_bytes(), memory.TOTAL_MEMORY


runtime = Runtime


def is_available() -> bool:
    return True
