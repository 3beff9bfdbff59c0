"""Too little memory is TensorFlow's error, wherever the array would have been made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.runtime.devices import DEVICES
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.devices import emulated

MANY = 1 << 46


def pulled_back() -> Any:
    x = tf.constant(np.ones(4, np.float32))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(x)
    return tape.jacobian(tf.zeros([MANY, 1]) * y, x)


MAKERS: dict[str, Callable[[], Any]] = {
    "zeros": lambda: tf.zeros([MANY]),
    "an op": lambda: tf.tile(tf.constant(np.ones(100, np.float32)), [MANY // 100]),
    "a traced function": lambda: tf.function(lambda: tf.zeros([MANY]) + 1.0)(),
    "a gradient": pulled_back,
}


@pytest.mark.parametrize("name", MAKERS)
def test_on_the_host(name: str) -> None:
    with tf.device("/CPU:0"), pytest.raises(tf.errors.ResourceExhaustedError, match="memory"):
        MAKERS[name]()


@pytest.mark.parametrize("place", ["of the host", "variable", "zeros", "op", "gradient"])
def test_on_a_device_whose_pool_has_a_limit(place: str) -> None:
    before = DEVICES.device
    with cupy_stand_in.using_device():
        DEVICES.use(emulated())
        try:
            x = tf.constant(np.ones(100, np.float32))
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.tanh(x)
            makers: dict[str, Callable[[], Any]] = {
                "of the host": lambda: tf.constant(np.ones(10_000, np.float32)),
                "variable": lambda: tf.Variable(np.ones(10_000, np.float32)),
                "zeros": lambda: tf.zeros([10_000]),
                "op": lambda: tf.tile(x, [100]),
                "gradient": lambda: tape.gradient(y, x),
            }
            pool = cupy_stand_in.get_default_memory_pool()
            pool.set_limit(size=pool.used_bytes() if place == "gradient" else pool.used_bytes() + 4096)
            with pytest.raises(tf.errors.ResourceExhaustedError, match="memory"):
                makers[place]()
        finally:
            DEVICES.use(None if before is None else before.cuda)
