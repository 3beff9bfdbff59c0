"""A caching pool for large host arrays: fresh pages cost more than the arithmetic that fills them. Floor: kernels.

A pooled array is a view of a block that a `Lease` holds. NumPy keeps the lease alive as the base of the array and
of all its views; when the last of them is gone, the block returns to the pool."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

LARGE = 1 << 20  # bytes from which arrays are pooled
SLACK = 1.25  # a block may be this much larger than what is asked for
LINE = 64  # bytes of a line of the cache
KEPT = 1 << 31  # bytes of free blocks that are kept at most, unless a quarter of the memory is less

Block = np.ndarray[Any, Any]


def _limit() -> int:
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not a POSIX system: it does not say
        return KEPT
    return min(KEPT, total // 4)


class Pool:
    """Free blocks, the most recently used first, each with what is known of it. An array may end at any moment, in the
    middle of `take` too, so that giving back never waits."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.free: list[tuple[Block, Any]] = []
        self.returned: deque[tuple[Block, Any]] = deque()
        self.bytes = 0
        self.hits = 0
        self.lock = threading.Lock()

    def take(self, size: int) -> tuple[Block, Any] | None:
        """A free block of at least this many bytes, if there is one."""
        with self.lock:
            self._sort_in()
            for i in range(len(self.free) - 1, -1, -1):
                if size <= self.free[i][0].nbytes <= SLACK * size:
                    found = self.free.pop(i)
                    self.bytes -= found[0].nbytes
                    self.hits += 1
                    return found
        return None

    def give(self, block: Block, written: Any = None) -> None:
        """Take a block back; the oldest ones are dropped for it."""
        if block.nbytes > self.limit:
            return
        self.returned.append((block, written))
        if self.lock.acquire(blocking=False):  # else whoever holds it, or the next one, will look
            try:
                self._sort_in()
            finally:
                self.lock.release()

    def _sort_in(self) -> None:
        while self.returned:
            found = self.returned.popleft()
            self.free.append(found)
            self.bytes += found[0].nbytes
        while self.bytes > self.limit:
            self.bytes -= self.free.pop(0)[0].nbytes

    def clear(self) -> None:
        """Drop all free blocks."""
        with self.lock:
            self.returned.clear()
            self.free.clear()
            self.bytes = 0


POOL = Pool(_limit())


def _trimmer() -> Any:
    try:
        return getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):  # Windows has no library of the whole process
        return None


TRIMMER = _trimmer()  # of GNU's C library


def trim() -> None:
    """Have the C library give back what it keeps of arrays that are gone: up to 64 MiB, where it is GNU's."""
    if TRIMMER is not None:
        TRIMMER(0)


class Lease:
    """Holds a block for an array; NumPy reads its memory through the array interface."""

    __slots__ = ("__array_interface__", "block", "pool", "written")

    def __init__(self, pool: Pool, block: Block, size: int, written: Any = None) -> None:
        self.pool, self.block, self.written = pool, block, written
        data = (block.__array_interface__["data"][0], False)
        self.__array_interface__ = {"data": data, "shape": (size,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        self.pool.give(self.block, self.written)


def bytes_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    size = dtype.itemsize
    for n in shape:
        size *= n
    return size


def fresh(size: int, made: Callable[..., Block] = np.empty) -> Block:
    """A new block of so many bytes, from the beginning of a line of the cache on."""
    whole = made(size + LINE, np.uint8)
    start = -whole.ctypes.data % LINE
    return whole[start : start + size]


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Block:
    """An array with anything in it; a large one comes from the pool."""
    size = bytes_of(shape, dtype)
    if size < LARGE:
        return np.empty(shape, dtype)
    found = POOL.take(size)
    block = fresh(size) if found is None else found[0]
    return np.asarray(Lease(POOL, block, size)).view(dtype).reshape(shape)


def lined(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Block:
    """The same, from the beginning of a line of the cache on."""
    found = empty(shape, dtype)
    return found if found.ctypes.data % LINE == 0 else fresh(found.nbytes).view(dtype).reshape(shape)


class _Holder:
    def __init__(self, of: Any) -> None:
        self.of = of


def _references() -> int:
    """What `sys.getrefcount` counts for an object held by one attribute and one local name. Python versions differ in
    whether the call itself counts."""
    holder = _Holder(object())
    held = holder.of
    return sys.getrefcount(held)


UNSHARED = _references()


def is_sole(array: Block) -> bool:
    """Whether an array may be written to, and its memory is its own, with no other array that shows some of it. Views
    of a pooled array all have the same base, which holds the lease."""
    base: Any = array.base
    if base is None:
        return array.flags.writeable
    pooled = isinstance(base, np.ndarray) and isinstance(base.base, Lease) and array.flags.writeable
    return pooled and sys.getrefcount(base) <= UNSHARED and is_whole(array)


def is_whole(array: Block) -> bool:
    """Whether an array is all of the memory that it keeps alive, in order."""
    if not array.flags.c_contiguous:
        return False
    holder: Any = array.base
    while isinstance(holder, np.ndarray):
        holder = holder.base
    if isinstance(holder, Lease):
        return bool(holder.block.nbytes <= SLACK * array.nbytes)
    return array.base is None
