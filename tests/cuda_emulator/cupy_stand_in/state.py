"""The device that the stand-in works on. CuPy has one at hand without being told, and so has this."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.cuda_emulator.device import Device

__all__ = ["device", "enqueue", "using_device"]

_DEVICES: list[Device] = []


def device() -> Device:
    """The emulated device that calls go to."""
    if not _DEVICES:
        _DEVICES.append(Device())
    return _DEVICES[-1]


@contextmanager
def using_device(arch: str = "sm_80", seed: int = 0) -> Iterator[Device]:
    """A fresh device, on which nothing has happened, for the calls in this block."""
    _DEVICES.append(Device(arch, seed))
    try:
        yield _DEVICES[-1]
    finally:
        _DEVICES.pop()


def enqueue(name: str, run: Callable[[], Any]) -> None:
    """Queue a library call of this name on the current stream, and count it."""
    device().counts.library_calls.append(name)
    device().current_stream.enqueue(run)
