"""Buffers of the emulated device. What the host reads or writes goes through the device's queue, as launches do."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.cuda_emulator.native import runtime

if TYPE_CHECKING:
    from tests.cuda_emulator.device import Device

__all__ = ["Buffer", "Slice"]

MOST_BUFFERS = 4096  # from which on a device does not wait until it is waited for: each takes three maps of the host's
MOST_BYTES = 1 << 30  # of all buffers, from which on it does not wait either: the host has no more than it has


class Buffer:
    """Device memory. Its bytes are poison (NaN in every float type) until something writes them."""

    def __init__(self, device: Device, nbytes: int, name: str) -> None:
        if nbytes < 0:
            raise ValueError(f"a buffer has 0 or more bytes, got {nbytes}")
        # A device gets on with its work, and what waits to be freed is.
        if len(device.addresses) > MOST_BUFFERS or device.nbytes + nbytes > MOST_BYTES:
            device.schedule.run(lambda: False)
        address = runtime().emulator_allocate(nbytes, name.encode())
        if not address:
            raise MemoryError(f"no room for {nbytes} bytes")
        device.counts.allocations += 1
        self.device = device
        self.nbytes = nbytes
        self.name = name
        self.address: int = address
        self.freed = False
        self.stream = device.current_stream
        self.is_of_graphs = False  # launched on other streams than the one it was allocated on
        device.addresses.add(address)
        device.nbytes += nbytes

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if getattr(self, "freed", True) is False and not is_ending():
            self.release()

    def __repr__(self) -> str:
        return f"Buffer({self.name!r}, {self.nbytes} bytes{', freed' if self.freed else ''})"

    def at(self, offset: int) -> Slice:
        """A pointer into the buffer, some bytes after its start."""
        return Slice(self, offset)

    def copy_from(self, array: Any, offset: int = 0) -> Buffer:
        """Queue a copy of a host array's bytes as they are now."""
        data = np.ascontiguousarray(array).tobytes()
        if offset < 0 or offset + len(data) > self.nbytes:
            raise ValueError(f"{len(data)} bytes at byte {offset} do not fit {self!r}")
        self.device.enqueue_copy(self, data, offset)
        return self

    def to_numpy(self, dtype: Any = np.float32, shape: Any = None) -> np.ndarray:
        """Wait for the current stream, and give the bytes as a host array. Counted as a synchronisation."""
        self.device.synchronize(f"copy of `{self.name}` to the host", self.device.current_stream)
        self.require_live()
        flat = np.frombuffer(ctypes.string_at(self.address, self.nbytes), np.dtype(dtype))
        return (flat if shape is None else flat.reshape(shape)).copy()

    def free(self) -> None:
        """Free at once, waiting for nothing: what is queued already must not use the buffer."""
        if not self.freed:
            self.freed = True
            self.device.nbytes -= self.nbytes
            if self.address in self.device.addresses:
                self.device.addresses.remove(self.address)
                runtime().emulator_free(self.address)

    def release(self) -> None:
        """Free when the stream that it was allocated on gets there, as a memory pool does; memory of graphs, which goes
        back to the driver, when all streams do."""
        if self.device.is_closed:
            self.free()
        elif self.is_of_graphs:
            self.device.schedule.after_all(self.free)
        else:
            self.stream.enqueue_past_graphs(self.free)

    def require_live(self) -> None:
        if self.freed:
            raise ValueError(f"{self!r} is used after it was freed")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.address, False), "version": 3}


class Slice:
    """A pointer into a buffer."""

    def __init__(self, buffer: Buffer, offset: int) -> None:
        self.buffer = buffer
        self.address = buffer.address + offset
        self.__cuda_array_interface__ = {
            "shape": (buffer.nbytes - offset,),
            "typestr": "|u1",
            "data": (self.address, False),
            "version": 3,
        }
