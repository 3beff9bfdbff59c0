"""Streams and events: what is in an order, and what only seems to be."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tests.cuda_emulator import memory
from tests.cuda_emulator.device import Device
from tests.cuda_emulator.faults import DeviceFault
from tests.cuda_emulator.memory import Buffer
from tests.cuda_emulator.native import runtime
from tests.cuda_emulator.streams import Event

KERNEL = 'extern "C" __global__ void step(const float* x, float* out) { out[threadIdx.x] = 2 * x[threadIdx.x] + 1; }'


def ones(device: Device, name: str) -> Buffer:
    return device.alloc(128, name).copy_from(np.ones(32, np.float32))


def two_streams(seed: int, *, with_event: bool) -> float:
    """A kernel on another stream reads what one on the default stream writes."""
    device = Device(seed=seed)
    step = device.module(KERNEL).get_function("step")
    x, y, z = (ones(device, name) for name in "xyz")
    device.synchronize()
    other = device.new_stream("other")
    step((1,), (32,), (x, y))
    if with_event:
        event = Event()
        device.default_stream.record(event)
        other.wait_event(event)
    with device.using(other):
        step((1,), (32,), (y, z))
        return float(z.to_numpy()[0])


def test_without_an_event_any_order_comes() -> None:
    assert {two_streams(seed, with_event=False) for seed in range(8)} == {3.0, 7.0}


def test_an_event_puts_streams_in_an_order() -> None:
    assert {two_streams(seed, with_event=True) for seed in range(8)} == {7.0}


def test_waiting_for_one_stream_leaves_the_others() -> None:
    device = Device()
    step = device.module(KERNEL).get_function("step")
    x, y = ones(device, "x"), ones(device, "y")
    device.synchronize()
    event = Event()
    assert event.is_reached
    other = device.new_stream("other")
    device.default_stream.record(event)
    with device.using(other):
        step((1,), (32,), (x, y))
    device.synchronize("the event", event=event)
    assert event.is_reached
    device.synchronize("the stream", stream=other)
    assert [launch.kernel for launch in device.counts.launches] == ["step"]
    assert device.counts.synchronizations == ["synchronize", "the event", "the stream"]


def test_dropped_buffers_go_back_in_their_turn() -> None:
    device = Device()
    step = device.module(KERNEL).get_function("step")
    out = ones(device, "out")
    step((1,), (32,), (ones(device, "x"), out))
    assert len(device.addresses) == 2
    assert out.to_numpy()[0] == 3
    device.synchronize()
    assert device.addresses == {out.address}


def test_a_device_leaves_nothing_behind() -> None:
    device = Device()
    buffers = [ones(device, "x") for _ in range(3)]
    addresses = list(device.addresses)
    assert len(addresses) == 3
    held = [runtime().emulator_buffer_at(address) for address in addresses]
    assert None not in held
    del buffers, device
    gc.collect()
    assert [runtime().emulator_buffer_at(address) for address in addresses] == [None] * 3


def test_memory_is_released_on_its_own_stream() -> None:
    """The pool's owner gives it back while another stream still has to read it."""
    kinds = set()
    for seed in range(8):
        device = Device(seed=seed)
        step = device.module(KERNEL).get_function("step")
        x, y = ones(device, "x"), ones(device, "y")
        device.synchronize()
        with device.using(device.new_stream("other")):
            step((1,), (32,), (x, y))
        x.release()
        try:
            device.synchronize()
            kinds.add("none")
        except DeviceFault as fault:
            kinds.add(fault.kind)
    assert kinds == {"none", "freed"}


def test_an_event_that_was_never_recorded_holds_nobody_up() -> None:
    device = Device()
    other = device.new_stream("other")
    other.wait_event(Event())
    done = Event()
    other.record(done)
    device.synchronize()
    assert done.is_reached


def test_an_event_that_is_recorded_again_stands_for_the_new_place() -> None:
    device = Device()
    event = Event()
    device.default_stream.record(event)
    first = event.mark
    device.default_stream.record(event)
    device.synchronize("once", event=event)
    assert first.reached
    assert event.is_reached


def test_what_waits_for_dropped_work_is_told_so() -> None:
    device = Device()
    other, event = device.new_stream("other"), Event()
    device.module(KERNEL).get_function("step")((1,), (32,), (0, 0))
    device.default_stream.record(event)
    with pytest.raises(DeviceFault):
        device.synchronize()
    other.wait_event(event)
    with pytest.raises(DeviceFault, match="other: waits for an event that a fault has dropped") as caught:
        device.synchronize()
    assert caught.value.kind == "deadlock"
    device.synchronize()  # nothing is left


def test_what_waits_to_be_freed_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_BYTES", 10_000)
    device = Device()
    most = 0
    for _ in range(50):
        device.alloc(1000).release()
        most = max(most, device.nbytes)
    assert most <= 10_000
    assert not device.counts.synchronizations


def test_buffers_that_end_with_a_closed_device_are_freed_once() -> None:
    for _ in range(110):  # more than the emulator remembers of freed buffers
        device = Device()
        cycle = [device, *(device.alloc(64) for _ in range(40))]
        cycle.append(cycle)
        device.close()
        del device, cycle
        gc.collect()
    assert Device().alloc(64).copy_from(np.ones(16, np.float32)).to_numpy().sum() == 16


def test_a_device_that_is_closed_drops_what_is_queued() -> None:
    device = Device()
    buffer, ran = device.alloc(64), []
    device.current_stream.enqueue(lambda held=buffer: ran.append(held))
    device.close()
    device.synchronize("all")
    assert not ran
    address = buffer.address
    del buffer
    assert address not in device.addresses
