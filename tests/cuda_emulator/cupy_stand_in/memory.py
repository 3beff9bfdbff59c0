"""Pointers, pools and pinned memory, as in `cupy.cuda`."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_char
from typing import Any

import numpy as np

from tests.cuda_emulator.cupy_stand_in.state import device, enqueue
from tests.cuda_emulator.device import Device
from tests.cuda_emulator.faults import CaptureRefused, DeviceFault
from tests.cuda_emulator.host import Span, over, poison
from tests.cuda_emulator.memory import Buffer
from tests.cuda_emulator.streams import Stream

__all__ = [
    "MemoryPointer",
    "MemoryPool",
    "OutOfMemoryError",
    "alloc",
    "alloc_pinned_memory",
    "get_allocator",
    "get_default_memory_pool",
    "set_allocator",
    "using_allocator",
]

BLOCK = 512  # the pool's sizes are multiples of this
TOTAL_MEMORY = 16 << 30
BYTE = np.dtype(np.uint8)


class OutOfMemoryError(MemoryError):
    """As CuPy's: how much was asked for, how much the pool has, and its limit."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        limits = f", limit set to: {limit:,} bytes" if limit else ""
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes{limits}).")


class Memory:
    """One block of a pool. When nobody points to it, the pool has it back; its buffer waits for its stream.

    A block that is taken while a graph is recorded stays the pool's, as long as there is the pool: who launches the
    graph uses it again. Each launch finds poison in it where it was taken and where it was given back."""

    def __init__(self, pool: MemoryPool, size: int) -> None:
        self.pool = pool
        self.size = size
        self.device_id = 0
        self.recording = device().current_stream.recording  # the one that it was taken in
        idle = pool.idle[size] if self.recording is not None else None
        self.buffer = idle.pop() if idle else Buffer(device(), size, f"block of {size} bytes")
        self.ptr = self.buffer.address
        if self.recording is not None:
            self.buffer.is_of_graphs = True
            self.poison("a block of a pool")

    def __del__(self) -> None:
        if not hasattr(self, "ptr"):  # there was no room for it
            return
        self.pool.take_back(self.size)
        if self.recording is not None:
            self.pool.idle[self.size].append(self.buffer)
            if self.buffer.device.current_stream.recording is self.recording:
                self.poison("the end of a block of a pool")

    def poison(self, who: str) -> None:
        address, size = self.ptr, self.size  # and not the buffer, which no graph keeps
        self.buffer.device.current_stream.enqueue(lambda: poison(address, size, who))


class MemoryPointer:
    """An address in a block, which it keeps alive."""

    def __init__(self, mem: Any, offset: int) -> None:
        self.mem = mem
        self.ptr: int = mem.ptr + offset
        self.device_id = 0

    def __int__(self) -> int:
        return self.ptr

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    def __sub__(self, offset: int) -> MemoryPointer:
        return self + -offset

    def span(self, size: int) -> Span:
        return Span(self.ptr, (size,), (1,), BYTE)

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        """Fill with a byte."""
        target = self.span(size)
        with on(stream):
            enqueue("memset", lambda: target.written("memset").fill(value))

    def copy_from_device_async(self, src: MemoryPointer, size: int, stream: Any = None) -> None:
        """Copy from another block, or within this one if the parts do not overlap."""
        source, target = src.span(size), self.span(size)

        def copy() -> None:
            target.written("memcpy")[...] = source.read("memcpy").copy()

        with on(stream):
            enqueue("memcpy", copy)

    def copy_from_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        """Copy from the host: pinned memory when the stream gets there, other memory as it is now."""
        address = address_of(mem)
        pinned = pinned_at(address, size)
        data = None if pinned else bytes(over(address, size))
        if data is not None and is_capturing(stream):
            raise queue_of(stream).refuse("a copy from memory of the host that is not pinned")
        target = self.span(size)

        def copy() -> None:
            if pinned and pinned() is None:
                raise DeviceFault(
                    "freed", f"copies {size} bytes from pinned memory that was freed", "copy to the device"
                )
            target.written("copy to the device")[...] = np.frombuffer(data or over(address, size), np.uint8)

        with on(stream):
            enqueue("copy to the device", copy)


@contextmanager
def on(stream: Any) -> Iterator[None]:
    """Queue on this stream, or on the current one if it is None."""
    if stream is None:
        yield
        return
    with device().using(stream.queue):
        yield


def queue_of(stream: Any) -> Stream:
    return device().current_stream if stream is None else stream.queue


def is_capturing(stream: Any) -> bool:
    return queue_of(stream).recording is not None


class MemoryPool:
    """CuPy's pool, as far as its accounts: a freed block counts as free until somebody asks for its size again."""

    def __init__(self, allocator: Callable[[int], Any] | None = None) -> None:
        if allocator is not None:
            raise NotImplementedError("the stand-in's pool asks the emulated device itself")
        self._used = 0
        self._free: Counter[int] = Counter()
        self._limit = 0
        self.idle: defaultdict[int, list[Buffer]] = defaultdict(list)  # blocks of graphs, by size

    def malloc(self, size: int) -> MemoryPointer:
        """A block. Its bytes are poison, whether it was used before or not."""
        if is_capturing(None) and self is get_default_memory_pool():
            raise CaptureRefused(
                "an allocation from the pool that everything shares: what is freed there belongs to others when the "
                "graph is launched. Record over a pool of its own, by `using_allocator`"
            )
        rounded = -(-size // BLOCK) * BLOCK
        if self._free[rounded]:
            self._free[rounded] -= 1
        elif self.total_bytes() + rounded > (self._limit or TOTAL_MEMORY):
            self.free_all_blocks()
            if self.total_bytes() + rounded > (self._limit or TOTAL_MEMORY):
                raise OutOfMemoryError(rounded, self.total_bytes(), self._limit)
        self._used += rounded
        return MemoryPointer(Memory(self, rounded), 0)

    def take_back(self, size: int) -> None:
        self._used -= size
        self._free[size] += 1

    def free_all_blocks(self, stream: Any = None) -> None:
        self._free.clear()

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        if (size is None) == (fraction is None):
            raise ValueError("size must be specified, or fraction, and not both")
        self._limit = int(TOTAL_MEMORY * fraction) if size is None else size  # type: ignore[operator]

    def get_limit(self) -> int:
        return self._limit

    def used_bytes(self) -> int:
        return self._used

    def free_bytes(self) -> int:
        return sum(size * count for size, count in self._free.items())

    def total_bytes(self) -> int:
        return self._used + self.free_bytes()

    def n_free_blocks(self) -> int:
        return self._free.total()


_POOLS: weakref.WeakKeyDictionary[Device, MemoryPool] = weakref.WeakKeyDictionary()


def get_default_memory_pool() -> MemoryPool:
    """The pool of the device that is in use."""
    return _POOLS.setdefault(device(), MemoryPool())


def from_default_pool(size: int) -> MemoryPointer:
    return get_default_memory_pool().malloc(size)


# Of all threads, by device; without one set, its pool.
_ALLOCATORS: weakref.WeakKeyDictionary[Device, Callable[[int], MemoryPointer]] = weakref.WeakKeyDictionary()
_LOCAL = threading.local()  # `allocators`: of this thread's blocks


def get_allocator() -> Callable[[int], MemoryPointer]:
    found: list[Callable[[int], MemoryPointer]] = getattr(_LOCAL, "allocators", None) or []
    return found[-1] if found else _ALLOCATORS.get(device(), from_default_pool)


def set_allocator(allocator: Callable[[int], MemoryPointer] | None = None) -> None:
    """From now on `alloc` asks this; None stands for the driver, which the default pool plays here."""
    _ALLOCATORS[device()] = allocator or from_default_pool


@contextmanager
def using_allocator(allocator: Callable[[int], MemoryPointer] | None = None) -> Iterator[None]:
    if not hasattr(_LOCAL, "allocators"):
        _LOCAL.allocators = []
    _LOCAL.allocators.append(allocator or from_default_pool)
    try:
        yield
    finally:
        _LOCAL.allocators.pop()


def alloc(size: int) -> MemoryPointer:
    return get_allocator()(size)


# ---- pinned memory ---------------------------------------------------------------------------------------------------

_PINNED: dict[int, weakref.ref[Any]] = {}


def alloc_pinned_memory(size: int) -> Any:
    """Host memory that copies read when they run, and not when they are queued. NumPy takes it as a buffer."""
    kind = type("PinnedMemoryPointer", (c_char * max(size, 1),), {"size": lambda self: size})
    pointer = kind()
    address = pointer.ptr = ctypes.addressof(pointer)
    _PINNED[address] = weakref.ref(pointer, lambda _: _PINNED.pop(address))
    return pointer


def pinned_at(address: int, size: int) -> weakref.ref[Any] | None:
    """The pinned memory that holds these bytes."""
    for start, reference in _PINNED.items():
        memory = reference()
        if memory is not None and start <= address and address + size <= start + len(memory):
            return reference
    return None


def address_of(mem: Any) -> int:
    """A host address given as a number, a `ctypes.c_void_p`, or a pointer to pinned memory."""
    value = getattr(mem, "ptr", None) or (mem.value if isinstance(mem, ctypes.c_void_p) else mem)
    if not isinstance(value, int):
        raise TypeError(f"an address of the host is wanted, got {type(mem).__name__}")
    return value
