"""When the device's memory runs out: the error says what was asked for, used and free; chunks of Jacobians get smaller;
budgets are fractions of what is free there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.runtime import chunks
from gradtape.runtime.devices import DEVICES
from tests.backends.cuda.test_launches import drawn
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.device import Counts

MIB = 1 << 20


def limit(more: int) -> None:
    """Leave so many bytes free on the device, in blocks of any size."""
    cupy_stand_in.device().synchronize("before a limit")
    pool = cupy_stand_in.get_default_memory_pool()
    pool.free_all_blocks()
    pool.set_limit(pool.used_bytes() + more)


@tf.function
def squared(x: Any) -> Any:
    return tf.matmul(x, x) + 1.0


def gradient(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(tf.tanh(x))
    limit(MIB // 2)
    return tape.gradient(y, x)


WAYS: dict[str, Callable[[Any], Any]] = {
    "a new array": lambda x: tf.zeros([512, 512]),
    "a copy": lambda x: tf.constant(np.zeros([512, 512])),
    "an op": lambda x: tf.exp(x),
    "a product": lambda x: tf.matmul(x, x),
    "a sort": lambda x: tf.argsort(tf.reshape(x, [-1])),
    "a traced function": squared,
    "a gradient": gradient,
    "an assignment": lambda x: tf.Variable(x),
}


@pytest.mark.parametrize("name", WAYS)
def test_the_error_says_what_was_asked_for_used_and_free(name: str, counts: Counts) -> None:
    x = drawn(512, 512)
    limit((3 if name == "a gradient" else 1) * MIB - 512)
    with pytest.raises(tf.errors.ResourceExhaustedError) as caught:
        WAYS[name](x)
    said = str(caught.value)
    for part in (r"bytes (", "on GPU:0: arrays hold ", " free, perhaps not in one piece. ", "memory=0.5"):
        assert part in said, said
    if name == "an op":
        assert said.startswith("`exp` of float32(512, 512) ran out of memory: Out of memory allocating 1,048,576 bytes")
        assert "(1 MiB)" in said and "arrays hold 1 MiB" in said
    cupy_stand_in.get_default_memory_pool().set_limit(0)
    assert tf.exp(x).shape == (512, 512)


def test_room(counts: Counts) -> None:
    assert DEVICES.device is not None
    x, cuda = drawn(256, 256), DEVICES.device.cuda
    used, free, total = cuda.room()
    assert used >= x._array.nbytes and free + used == total == cupy_stand_in.cuda.Device().mem_info[1]
    assert chunks.available() == free and chunks.budget_of(0.5) == free // 2
    limit(3 * MIB)
    assert cuda.room().free == 3 * MIB and cuda.room().total == cuda.room().used + 3 * MIB


def test_chunks_get_smaller_until_they_fit(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = drawn(96), drawn(96, 128)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.sin(tf.linalg.matvec(w, tf.tanh(x), transpose_a=True)) * tf.reduce_sum(x * x)
    want = tape.jacobian(y, x).numpy()
    counted: list[int] = []
    plan = chunks.ChunkProgram.plan
    monkeypatch.setattr(chunks.ChunkProgram, "plan", lambda self, n: (counted.append(n), plan(self, n))[1])
    tape.jacobian(y, x, parallel_iterations=128)
    assert counted == [128]
    limit(want.nbytes + want.nbytes // 2)
    found = tape.jacobian(y, x, parallel_iterations=128)
    assert counted[1] == 128 and min(counted) < 128
    cupy_stand_in.get_default_memory_pool().set_limit(0)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-5, atol=1e-6)
