"""Arrays of the host on their way to a device while it computes: through pinned memory, on a stream of their own.
Floor: backends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtape.backends.cuda.device import Cuda

ALIGNED = 512  # bytes: where arrays begin in pinned memory


class Sent(NamedTuple):
    """Arrays of the device, and the event after which they are there."""

    arrays: list[Any]
    arrived: Any


class Slot:
    """Pinned memory for one batch at a time. It stays for the next feed when one is closed: the device may still read
    it then, and pinning takes time."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.memory: Any = None
        self.size = 0
        self.read: Any = None  # the event after which the device has read what is here

    def room(self, size: int) -> Any:
        """So many bytes that may be written to, as an array; waits until the batch that was here before is read."""
        if self.read is not None and not self.read.done:
            self.read.synchronize()
        if size > self.size:
            self.memory, self.size = self.xp.cuda.alloc_pinned_memory(size), size
        return np.frombuffer(self.memory, np.uint8, size)


class Feed:
    """What sends batches, of which `ahead` are on their way or wait while one is used; a block, behind which its pinned
    memory serves others."""

    def __init__(self, cuda: Cuda, ahead: int) -> None:
        self.xp, self.idle = cuda.xp, cuda.pinned
        self.stream = self.xp.cuda.Stream(non_blocking=True)
        self.slots = [self._slot() for _ in range(ahead + 1)]
        self.count = 0

    def _slot(self) -> Slot:
        try:
            found: Slot = self.idle.pop()
        except IndexError:
            return Slot(self.xp)
        return found

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.idle += self.slots
        self.slots = []

    def send(self, arrays: Sequence[np.ndarray[Any, Any]]) -> Sent:
        """Begin to copy arrays; nobody may use the results before `receive`."""
        slot = self.slots[self.count % len(self.slots)]
        self.count += 1
        begins = np.cumsum([0, *(-(-a.nbytes // ALIGNED) * ALIGNED for a in arrays)]).tolist()
        pinned = slot.room(max(begins[-1], 1))
        made = [self.xp.empty(a.shape, a.dtype) for a in arrays]
        # Work that is queued already may still use the memory which the new arrays have now.
        self.stream.wait_event(self.xp.cuda.get_current_stream().record(self._event()))
        for a, there, begin in zip(arrays, made, begins, strict=False):
            if a.nbytes:
                pinned[begin : begin + a.nbytes].view(a.dtype).reshape(a.shape)[...] = a
                there.data.copy_from_host_async(slot.memory.ptr + begin, a.nbytes, self.stream)
        slot.read = self.stream.record(self._event())
        return Sent(made, slot.read)

    def receive(self, sent: Sent) -> list[Any]:
        """The arrays, for work that is queued from now on."""
        self.xp.cuda.get_current_stream().wait_event(sent.arrived)
        return sent.arrays

    def _event(self) -> Any:
        return self.xp.cuda.Event(disable_timing=True)
