"""Batches on their way to the device: what arrives, on which stream, how far ahead, and whose memory it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gradtape as tf
from gradtape.backends.cuda.feeding import Feed
from gradtape.runtime.devices import DEVICES
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.device import Counts

to_gpu = tf.data.experimental.prefetch_to_device


def batches(count: int, rows: int = 40) -> list[Any]:
    rng = np.random.default_rng(0)
    return [
        {"x": rng.normal(size=(rows, 3)).astype(np.float32), "y": (rng.integers(0, 9, [rows]), np.float64(k)), "s": "a"}
        for k in range(count)
    ]


@pytest.mark.parametrize("ahead", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_batches_arrive_in_order_on_the_device(count: int, ahead: int, counts: Counts) -> None:
    given = batches(count)
    feed = to_gpu("/GPU:0", ahead)(given)
    for _ in range(2):
        found = list(feed)
        assert len(found) == count
        for a, b in zip(found, given, strict=True):
            x, (y, k) = a["x"], a["y"]
            assert "GPU" in x.device and "GPU" in y.device and "CPU" in k.device and a["s"].numpy() == b"a"
            assert np.array_equal(x, b["x"]) and np.array_equal(y, b["y"][0]) and float(k) == b["y"][1]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.complex64, np.int8, np.bool_])
def test_dtypes_layouts_and_what_is_there_already(dtype: Any, counts: Counts) -> None:
    a = (np.arange(12).reshape(3, 4) % 5).astype(dtype)
    there = tf.zeros([100])
    ((x, y, empty, z),) = to_gpu("GPU:0")([(a.T, a[:, ::2], a[:0], there)])
    assert np.array_equal(x.numpy(), a.T) and np.array_equal(y.numpy(), a[:, ::2]) and z is there
    assert x.dtype == tf.as_dtype(dtype) and empty.shape == (0, 4) and "GPU" in x.device


def test_one_batch_is_copied_while_the_one_before_is_used(counts: Counts) -> None:
    taken: list[int] = []

    def source() -> Iterator[Any]:
        for k in range(4):
            taken.append(k)
            yield np.full([100], k, np.float32)

    device = cupy_stand_in.device()
    for k, x in enumerate(to_gpu("/GPU:0")(source())):
        assert taken[-1] == min(k + 1, 3)
        assert device.current_stream is device.default_stream
        assert float(tf.reduce_sum(x)) == 100.0 * k


def test_nothing_waits_but_for_pinned_memory(counts: Counts) -> None:
    """Two batches have memory of their own; the third waits until the first one is read."""
    assert DEVICES.device is not None
    feed = Feed(DEVICES.device.cuda, 1)
    array = np.ones([64], np.float32)
    first, second = feed.send([array]), feed.send([array * 2])
    assert not counts.synchronizations and feed.slots[0].memory is not feed.slots[1].memory
    held = feed.slots[0].memory
    third = feed.send([array * 3])
    assert counts.synchronizations == ["event"] and feed.slots[0].memory is held
    fourth = feed.send([np.ones([200], np.float32)])
    assert feed.slots[1].size >= 800
    (a,), (b,), (c,), (d,) = map(feed.receive, (first, second, third, fourth))
    assert np.array_equal(a.get(), array) and np.array_equal(b.get(), array * 2) and np.array_equal(c.get(), array * 3)
    assert d.shape == (200,)


def test_work_waits_for_its_batch_and_copies_for_the_memory_they_get(counts: Counts) -> None:
    """Arrays get memory that queued work still reads; and what is left half-way is not given away too early."""
    assert DEVICES.device is not None
    feed = Feed(DEVICES.device.cuda, 1)
    x = tf.constant(np.ones([512], np.float32))
    y = tf.exp(x)
    del x
    sent = feed.send([np.zeros([512], np.float32)])
    feed.stream.synchronize()
    assert [launch.kernel[:3] for launch in counts.launches] == ["exp"]
    feed.receive(sent)
    batches = iter(to_gpu("/GPU:0")(np.full([512], k, np.float32) for k in range(5)))
    first = next(batches)
    z = first + 1.0
    del batches, first
    later = tf.fill([512], 7.0)
    assert np.allclose(y.numpy(), np.e) and np.all(z.numpy() == 1.0) and np.all(later.numpy() == 7.0)


def test_on_the_host_batches_become_tensors(counts: Counts) -> None:
    for x in to_gpu("/CPU:0")([np.ones([200])]):
        assert "CPU" in x.device and x.shape == (200,)
    assert not counts.copies_to_device


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="`buffer_size` should be 1 or more, got 0"):
        to_gpu("/GPU:0", 0)
    with pytest.raises(ValueError, match="device spec"):
        to_gpu("/TPUS:0")


def test_what_is_no_iterable_is_refused() -> None:
    with pytest.raises(TypeError, match="takes an iterable of batches, got int"):
        tf.data.experimental.prefetch_to_device("/GPU:0")(3)
