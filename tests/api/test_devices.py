"""Names of devices, and scopes that send work to one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gradtape as tf
from gradtape.runtime.devices import DEVICES
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.devices import emulated
from tests.devices import ALIKE

ROOT = Path(__file__).parents[2]
HOST, GPU = "/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:GPU:0"


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """A process with an emulated GPU; the parameter is the seed of its order of work."""
    before = DEVICES.device
    with cupy_stand_in.using_device(seed=getattr(request, "param", 0)):
        DEVICES.use(emulated())
        yield
        DEVICES.use(None if before is None else before.cuda)


@pytest.fixture
def no_gpu() -> Iterator[None]:
    """A process without one."""
    before = DEVICES.device
    DEVICES.use(None)
    yield
    DEVICES.use(None if before is None else before.cuda)


def test_the_devices_of_a_process_with_a_gpu(gpu: None) -> None:
    assert [d.name for d in tf.config.list_physical_devices()] == ["/physical_device:CPU:0", "/physical_device:GPU:0"]
    assert [d.device_type for d in tf.config.list_physical_devices("GPU")] == ["GPU"]
    assert [d.name for d in tf.config.list_logical_devices()] == ["/device:CPU:0", "/device:GPU:0"]


def test_the_devices_of_a_process_without(no_gpu: None) -> None:
    assert tf.config.list_physical_devices("GPU") == [] and len(tf.config.list_logical_devices()) == 1


@pytest.mark.parametrize("name", ["/GPU:0", "GPU:0", "/device:GPU:0", "gpu:0", GPU])
def test_a_scope_sends_all_to_a_device(gpu: None, name: str) -> None:
    with tf.device(name):
        assert tf.constant(1).device == GPU and (tf.constant([1, 2]) + 1).device == GPU


def test_what_goes_to_the_gpu_unasked(gpu: None) -> None:
    assert tf.constant([1.0]).device == GPU and tf.Variable(1).device == GPU and tf.zeros([100], tf.int32).device == GPU
    assert tf.constant(1.0).device == HOST and tf.constant([1, 2]).device == HOST and tf.constant(["a"]).device == HOST
    assert (tf.constant([1, 2]) + 1).device == HOST and tf.cast([1, 2], tf.float32).device == GPU
    assert tf.random.normal([3]).device == GPU and tf.one_hot([0, 1], 3).device == GPU


def test_operands_on_the_host_follow_those_on_the_gpu(gpu: None) -> None:
    with tf.device("/CPU:0"):
        x = tf.constant([1.0, 2.0])
        assert x.device == HOST and (x + 1.0).device == HOST
    y = tf.constant([3.0, 4.0]) * x
    assert y.device == GPU and y.numpy().tolist() == [3.0, 8.0]


def test_strings_keep_the_work_on_the_host(gpu: None) -> None:
    mask = tf.constant([2.0, -1.0]) > 0.0
    found = tf.where(mask, tf.constant(["a", "b"]), tf.constant(["c", "d"]))
    assert mask.device == GPU and found.device == HOST and found.numpy().tolist() == [b"a", b"d"]


def test_gradtape_as_a_module_on_the_emulated_device() -> None:
    """In a process of its own: the module gives the device to all of it."""
    program = "import tests.on_emulated as tf; print(tf.constant([1.0]).device, tf.keras.__name__, tf.float32.name)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.split() == [GPU, "gradtape.keras", "float32"]


def test_what_is_left_out_on_other_devices_exists() -> None:
    missing = [name for names in ALIKE for name in names if not (ROOT / "tests" / name).exists()]
    assert not missing, f"tests/devices.py names {missing}"


def test_scopes_end(gpu: None) -> None:
    with tf.device("CPU:0"):
        with tf.device(None):
            assert tf.constant([1.0]).device == GPU
        assert tf.constant([1.0]).device == HOST
    with pytest.raises(KeyError), tf.device("CPU:0"):
        raise KeyError
    assert tf.constant([1.0]).device == GPU


def test_names_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="Write '/CPU:0' or '/GPU:0'"), tf.device("nonsense"):
        pass


def test_work_for_a_gpu_that_is_not_there(no_gpu: None) -> None:
    assert tf.config.get_soft_device_placement()
    with tf.device("/GPU:0"):
        assert tf.constant([1.0]).device == HOST
    tf.config.set_soft_device_placement(False)
    try:
        with pytest.raises(RuntimeError, match="unknown device"), tf.device("/GPU:0"):
            pass
    finally:
        tf.config.set_soft_device_placement(True)


def test_products_with_ten_bits(gpu: None) -> None:
    assert tf.config.experimental.tensor_float_32_execution_enabled() in (True, False)
    a = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    try:
        off, on = [], []
        for enabled, found in ((False, off), (True, on)):
            tf.config.experimental.enable_tensor_float_32_execution(enabled)
            found.append(np.abs((tf.constant(a) @ tf.constant(a)).numpy() - a.astype(np.float64) @ a).max())
        assert off[0] < 1e-5 < on[0] < 1e-1
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)


@pytest.mark.parametrize(
    ("name", "ufunc"),
    [
        ("scatter_add", np.add),
        ("scatter_sub", np.subtract),
        ("scatter_mul", np.multiply),
        ("scatter_div", np.divide),
        ("scatter_max", np.maximum),
        ("scatter_min", np.minimum),
        ("scatter_update", None),
    ],
)
def test_rows_go_into_variables_on_the_gpu(gpu: None, name: str, ufunc: np.ufunc | None) -> None:
    """However many meet at one position, and without a copy of the variable to the host."""
    rng = np.random.default_rng(0)
    whole, rows = (rng.uniform(0.5, 2.0, (n, 3)).astype(np.float32) for n in (6, 9))
    at = np.array([4, 1, 4, 0, 4, 1, 4, 5, 4])
    v = tf.Variable(whole)
    before, delta = v.read_value(), tf.IndexedSlices(rows, at)
    cupy_stand_in.device().counts.clear()
    getattr(v, name)(delta)
    assert not cupy_stand_in.device().counts.synchronizations and v.device == GPU
    want = whole.copy()
    if ufunc is None:
        want[at] = rows  # the last one counts
    else:
        ufunc.at(want, at, rows)
    np.testing.assert_allclose(v.numpy(), want, rtol=1e-6)
    assert np.array_equal(before.numpy(), whole), "what was read before has changed"
    getattr(v, name)(tf.IndexedSlices(rows[:0], at[:0]))
    np.testing.assert_allclose(v.numpy(), want, rtol=1e-6)


@pytest.mark.parametrize("gpu", range(4), indirect=True)
def test_other_libraries_take_tensors_as_they_are_and_in_order(gpu: None) -> None:
    """By DLPack: a consumer's own stream waits for what the tensor's numbers come from."""
    y = tf.constant(np.arange(1000, dtype=np.float32)) * 2.0 + 1.0
    theirs, counts = cupy_stand_in.cuda.Stream(non_blocking=True), cupy_stand_in.device().counts
    taken = y.__dlpack__(stream=theirs.ptr, max_version=(1, 0)).array
    assert not counts.synchronizations and not counts.launches
    with theirs:
        found = taken.get()
    assert np.array_equal(found, 2 * np.arange(1000) + 1)
    assert y.__cuda_array_interface__["data"] == (taken.data.ptr, False) and y.__dlpack_device__() == (2, 0)


def test_memory_of_a_gpu(gpu: None) -> None:
    x = tf.zeros([1000])
    found = tf.config.experimental.get_memory_info("GPU:0")
    assert found["current"] >= 4000 and found["peak"] >= found["current"] and x.device == GPU
    assert tf.config.experimental.get_memory_info("CPU:0")["current"] == 0
    tf.config.experimental.set_memory_growth(tf.config.list_physical_devices("GPU")[0], True)
