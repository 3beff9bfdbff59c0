"""A caching pool for large host arrays: fresh pages cost more than the arithmetic that fills them. Floor: backends.

A pooled array is a view of a block that a `Lease` holds. NumPy keeps the lease alive as the base of the array and
of all its views; when the last of them is gone, the block returns to the pool."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

LARGE = 1 << 20  # bytes from which arrays are pooled
SLACK = 1.25  # a block may be this much larger than what is asked for
KEPT = 1 << 31  # bytes of free blocks that are kept at most, unless a quarter of the memory is less


def _limit() -> int:
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not a POSIX system: it does not say
        return KEPT
    return min(KEPT, total // 4)


class Pool:
    """Free blocks, the most recently used first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.free: list[np.ndarray[Any, Any]] = []
        self.bytes = 0
        self.hits = 0
        self.lock = threading.Lock()

    def take(self, size: int) -> np.ndarray[Any, Any]:
        """A block of at least this many bytes, with anything in it."""
        with self.lock:
            for i in range(len(self.free) - 1, -1, -1):
                if size <= self.free[i].nbytes <= SLACK * size:
                    block = self.free.pop(i)
                    self.bytes -= block.nbytes
                    self.hits += 1
                    return block
        return np.empty(size, np.uint8)

    def give(self, block: np.ndarray[Any, Any]) -> None:
        """Take a block back; the oldest ones are dropped for it."""
        with self.lock:
            if block.nbytes > self.limit:
                return
            self.free.append(block)
            self.bytes += block.nbytes
            while self.bytes > self.limit:
                self.bytes -= self.free.pop(0).nbytes

    def clear(self) -> None:
        """Drop all free blocks."""
        with self.lock:
            self.free.clear()
            self.bytes = 0


POOL = Pool(_limit())


class Lease:
    """Holds a block for an array; NumPy reads its memory through the array interface."""

    __slots__ = ("__array_interface__", "block", "pool")

    def __init__(self, pool: Pool, block: np.ndarray[Any, Any], size: int) -> None:
        self.pool, self.block = pool, block
        data = (block.__array_interface__["data"][0], False)
        self.__array_interface__ = {"data": data, "shape": (size,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        self.pool.give(self.block)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array with anything in it; a large one comes from the pool."""
    size = dtype.itemsize
    for n in shape:
        size *= n
    if size < LARGE:
        return np.empty(shape, dtype)
    return np.asarray(Lease(POOL, POOL.take(size), size)).view(dtype).reshape(shape)
