"""Arrays that other libraries have on the device become tensors there: CuPy's, and what gives itself by DLPack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.runtime.devices import DEVICES
from tests.cuda_emulator import cupy_stand_in as cupy
from tests.cuda_emulator.devices import emulated

NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def on_a_device() -> Iterator[None]:
    before = DEVICES.device
    with cupy.using_device():
        DEVICES.use(emulated())
        yield
        DEVICES.use(None if before is None else before.cuda)


class Elsewhere:
    """Another library's array, on the device or on the host."""

    def __init__(self, array: Any, kind: int = 2) -> None:
        self.array, self.kind = array, kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        assert self.kind == 1, "an array of the device was copied to the host"
        return np.array(self.array)


MAKERS: dict[str, Callable[[Any], Any]] = {
    "constant": tf.constant,
    "convert_to_tensor": tf.convert_to_tensor,
    "variable": lambda a: tf.Variable(a).value(),
    "an op": tf.identity,
    "an operand": lambda a: tf.zeros([2, 3]) + a,
    "an argument": lambda a: tf.function(lambda x: x * 1.0)(a),
}


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("kind", ["CuPy", "DLPack"])
def test_they_are_copied_on_the_device(make: str, kind: str) -> None:
    array = cupy.asarray(NUMBERS)
    cupy.device().synchronize("before")
    cupy.device().counts.clear()
    t = MAKERS[make](array if kind == "CuPy" else Elsewhere(array))
    assert t.device.endswith("GPU:0")
    assert not cupy.device().counts.synchronizations
    array.fill(-1)  # their owner may do that
    assert t.numpy().tolist() == NUMBERS.tolist()


def test_others_arrays_of_the_host_are_copied_from_there() -> None:
    t = tf.constant(Elsewhere(NUMBERS, kind=1))
    assert t.device.endswith("GPU:0") and t.numpy().tolist() == NUMBERS.tolist()


def test_on_the_host_where_that_was_asked_for() -> None:
    with tf.device("/CPU:0"):
        t = tf.constant(cupy.asarray(NUMBERS))
    assert t.device.endswith("CPU:0") and t.numpy().tolist() == NUMBERS.tolist()


def test_of_one_number_and_of_strides() -> None:
    assert float(tf.constant(cupy.asarray(NUMBERS)[1, 2])) == 5.0
    assert tf.constant(cupy.asarray(NUMBERS).T[::-1]).numpy().tolist() == NUMBERS.T[::-1].tolist()


def test_another_dtype_is_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"Use `tf.cast\(x, tf.float64\)`"):
        tf.constant(cupy.asarray(NUMBERS), tf.float64)


def test_traces_are_shared_by_arrays_of_one_shape() -> None:
    traced = []
    f = tf.function(lambda x: traced.append(1) or x + 1.0)
    for k in range(3):
        assert f(cupy.asarray(NUMBERS + k)).numpy().tolist() == (NUMBERS + k + 1).tolist()
    assert len(traced) == 1


def test_gradients_flow_from_there() -> None:
    x = tf.constant(cupy.asarray(NUMBERS))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(x * x)
    assert tape.gradient(y, x).numpy().tolist() == (2 * NUMBERS).tolist()
