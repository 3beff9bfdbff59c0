"""What a device says when its memory runs out: how much was asked for, how much is used, and how much is free. Floor:
backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gradtape.ir.errors import ResourceExhaustedError

WAY_OUT = (
    "Let go of tensors that are not needed, take smaller batches, or keep less for gradients: `tf.recompute_grad`. "
    "Jacobians come in chunks: `tape.jacobian(y, x, memory=0.5)`."
)
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


class OutOfMemoryError(ResourceExhaustedError, MemoryError):
    """A device has no room for an array."""


class Room(NamedTuple):
    """The bytes of a device's memory that arrays hold, that a new one could have, and that there are for both."""

    used: int
    free: int
    total: int


def room(xp: Any) -> Room:
    """The present device's. What the pool keeps for new arrays is free; its limit, if it has one, is all there is."""
    pool = xp.get_default_memory_pool()
    free, total = xp.cuda.Device().mem_info
    used, kept, limit = pool.used_bytes(), pool.free_bytes(), pool.get_limit()
    return Room(used, min(free + kept, limit - used), limit) if limit else Room(used, free + kept, total)


class Allocator:
    """What CuPy asks for memory: `inner`, with an error that says more."""

    def __init__(self, xp: Any, name: str, inner: Callable[[int], Any]) -> None:
        self.xp, self.name, self.inner = xp, name, inner

    def __call__(self, size: int) -> Any:
        try:
            return self.inner(size)
        except MemoryError as e:
            used, free, total = map(_text, room(self.xp))
            raise OutOfMemoryError(
                f"Out of memory allocating {size:,} bytes ({_text(size)}) on {self.name}: arrays hold {used}, and "
                f"{free} of {total} are free, perhaps not in one piece. {WAY_OUT}"
            ) from e


def install(xp: Any, name: str) -> None:
    """Let CuPy's errors say more, whatever it asks for memory."""
    now = xp.cuda.get_allocator()
    xp.cuda.set_allocator(Allocator(xp, name, now.inner if isinstance(now, Allocator) else now))


def _text(size: float) -> str:
    """A number of bytes in the largest unit of which there is one."""
    unit = 0
    while abs(size) >= 1024 and unit + 1 < len(UNITS):
        size, unit = size / 1024, unit + 1
    return f"{size:.4g} {UNITS[unit]}"
