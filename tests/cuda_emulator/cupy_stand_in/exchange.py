"""DLPack between arrays of the emulated device: what goes over is an object of Python, and no capsule."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.cuda_emulator.cupy_stand_in.arrays import ndarray
from tests.cuda_emulator.cupy_stand_in.state import address_of_stream, device, stream_at
from tests.cuda_emulator.streams import Event

__all__ = ["from_dlpack"]

CUDA = 2  # the kind of device, by DLPack
DEFAULT = 1  # the default stream, by DLPack; 0 says nothing
NO_WAIT = -1


class Given(NamedTuple):
    """What stands for a capsule."""

    array: ndarray


def __dlpack_device__(self: ndarray) -> tuple[int, int]:
    return CUDA, 0


def __dlpack__(
    self: ndarray, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
) -> Given:
    """As CuPy's: the consumer's stream waits for what is queued on the current one, where that is another one."""
    if copy or dl_device not in (None, (CUDA, 0)):
        raise NotImplementedError("the stand-in hands on arrays of the device, without a copy")
    if stream == 0:
        raise ValueError("0 is no stream of DLPack's: it could be the default stream of the device or of the thread")
    if stream != NO_WAIT:
        consumer, producer = stream_at(0 if stream in (None, DEFAULT) else stream), device().current_stream
        if consumer is not producer:
            event = Event()
            producer.record(event)
            consumer.wait_event(event)
    return Given(self)


ndarray.__dlpack__ = __dlpack__  # type: ignore[attr-defined]
ndarray.__dlpack_device__ = __dlpack_device__  # type: ignore[attr-defined]


def from_dlpack(array: Any, *, device: Any = None, copy: Any = None) -> ndarray:
    """An array over the memory of what has `__dlpack__`, safe to use on the current stream."""
    if array.__dlpack_device__() != (CUDA, 0):
        raise TypeError("from_dlpack wants an array of the device")
    given = array.__dlpack__(stream=_current(), max_version=(1, 0), dl_device=device, copy=copy)
    view: ndarray = given.array._view(lambda twin: twin)
    return view


def _current() -> int:
    return address_of_stream(device().current_stream) or DEFAULT
