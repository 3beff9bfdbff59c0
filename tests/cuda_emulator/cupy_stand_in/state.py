"""The device that the stand-in works on. CuPy has one at hand without being told, and so has this."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.cuda_emulator.device import Device
from tests.cuda_emulator.streams import Stream

__all__ = ["address_of_stream", "device", "enqueue", "stream_at", "using_device"]

_DEVICES: list[Device] = []
_STREAMS: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()


def device() -> Device:
    """The emulated device that calls go to."""
    if not _DEVICES:
        _DEVICES.append(Device())
    return _DEVICES[-1]


@contextmanager
def using_device(arch: str = "sm_80", seed: int = 0) -> Iterator[Device]:
    """A fresh device, on which nothing has happened, for the calls in this block; what is queued then is dropped."""
    _DEVICES.append(Device(arch, seed))
    try:
        yield _DEVICES[-1]
    finally:
        _DEVICES.pop().close()


def enqueue(name: str, run: Callable[[], Any]) -> None:
    """Queue a library call of this name on the current stream, and count it."""
    device().counts.library_calls.append(name)
    device().current_stream.enqueue(run)


def address_of_stream(stream: Stream) -> int:
    """The number by which libraries tell each other of a stream; 0 is the default one."""
    if stream is device().default_stream:
        return 0
    _STREAMS[id(stream)] = stream
    return id(stream)


def stream_at(address: int) -> Stream:
    """The stream of a number that `address_of_stream` gave."""
    return _STREAMS[address] if address else device().default_stream
