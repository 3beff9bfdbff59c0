"""Convolutions by cuDNN, by its stand-in on the emulated device: numbers, derivatives, plans, handles, and what is done
without it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends.cuda.blas import MATH
from gradtape.backends.cuda.convolution import is_for_cudnn
from gradtape.backends.cuda.device import Cuda
from gradtape.ir.aval import aval_of
from gradtape.ir.determinism import DETERMINISM
from gradtape.ir.dtypes import DType, bfloat16, float16, float32
from gradtape.ops.convolution import CONVOLVE, CONVOLVE_INPUT, CONVOLVE_KERNEL
from gradtape.runtime.devices import DEVICES, Device
from tests.api.calls import Call
from tests.api.window_calls import CONVOLUTIONS
from tests.backends.cuda.convolving import K, X, derivatives, numbers, on_host, used
from tests.backends.cuda.graphs import launched
from tests.backends.cuda.running import LAYOUTS, on_device, placed
from tests.cuda_emulator import cudnn_stand_in, cupy_stand_in
from tests.cuda_emulator.device import Device as EmulatedDevice
from tests.kernels.cuda.test_run import assert_near
from tests.op_table.cases import CASES, Case
from tests.op_table.running import results_of

OPS = (CONVOLVE, CONVOLVE_INPUT, CONVOLVE_KERNEL)
DTYPES = (float32, float16, bfloat16)


# ---- numbers ---------------------------------------------------------------------------------------------------------


def call_of(case: Case, dtype: DType, layout: str) -> Callable[[Cuda], Any]:
    return lambda cuda: Device(cuda).lowering.alone(case.step)(*(placed(cuda, a, layout) for a in case.draw(dtype)))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_sample_of_the_table(op: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever operands lie."""
    known = [(c, d, layout) for c in CASES[op.name] for d in DTYPES for layout in LAYOUTS]
    run: list[str] = []
    execute = cudnn_stand_in.pygraph.execute
    monkeypatch.setattr(cudnn_stand_in.pygraph, "execute", lambda *a, **k: run.append("") or execute(*a, **k))
    for (case, dtype, layout), (found,) in zip(known, on_device([call_of(*c) for c in known], 0, cudnn_stand_in)):
        (wanted,) = results_of(case.step, case.draw(dtype))
        assert_near(found, wanted, (case, dtype.name, layout))
    by_rule = [c for c, d, _ in known if is_for_cudnn(op, tuple(map(aval_of, c.draw(d))), c.sample.params)]
    assert len(run) == 2 * len(by_rule) > 0, "each runs twice: to find the texts of kernels, and for its numbers"


@pytest.mark.parametrize("call", CONVOLUTIONS, ids=str)
def test_public_functions_to_second_order(cudnn_device: EmulatedDevice, call: Call) -> None:
    def f(*operands: Any) -> list[Any]:
        with tf.GradientTape() as outer:
            outer.watch(operands)
            with tf.GradientTape() as inner:
                inner.watch(operands)
                y = call.run(operands)
                loss = tf.reduce_sum(tf.sin(y))
            first = inner.gradient(loss, operands)
            again = tf.add_n([tf.reduce_sum(g * g) for g in first])
        return [y, *first, *outer.gradient(again, operands)]

    operands = [np.float32(a) for a in call.operands]
    found = [a.numpy() for a in f(*map(tf.constant, operands))]
    assert set(used(cudnn_device)) == {"fprop", "dgrad", "wgrad"}
    for one, other in zip(found, on_host(f, *operands), strict=True):
        assert_near(one, other, call, 64)


@pytest.mark.parametrize("format", ["NHWC", "NCHW"])
def test_the_order_of_axes(cudnn_device: EmulatedDevice, format: str) -> None:
    x, k = numbers(*(X if format == "NHWC" else (2, 4, 7, 6))), numbers(*K)
    found = derivatives(x, k, data_format=format)
    for one, other in zip(found, on_host(lambda x, k: derivatives(x, k, data_format=format), x, k), strict=True):
        assert_near(one.numpy(), other, format, 64)


def test_jacobians(cudnn_device: EmulatedDevice) -> None:
    """Rows lie side by side in the batch."""

    def f(x: Any, k: Any) -> list[Any]:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([x, k])
            y = tf.nn.conv2d(x, k, 2, "SAME")
        return [tape.jacobian(y, x), tape.jacobian(y, k), tape.batch_jacobian(y, x)]

    x, k = numbers(2, 4, 3, 2), numbers(2, 2, 2, 3)
    found = f(x, k)
    assert used(cudnn_device)
    for one, other in zip(found, on_host(f, x, k), strict=True):
        assert_near(one.numpy(), other, "a Jacobian")


# ---- plans -----------------------------------------------------------------------------------------------------------


def test_a_plan_is_made_once(cudnn_device: EmulatedDevice, plans: list[str]) -> None:
    x, k = numbers(*X), numbers(*K)
    for _ in range(3):
        derivatives(x, k)
    assert len(plans) == 3
    derivatives(numbers(5, *X[1:]), k)
    assert len(plans) == 6
    assert DEVICES.device is not None
    assert len(DEVICES.device.cuda.kept) <= DEVICES.device.cuda.kept.limit


def test_plans_that_are_let_go_are_made_again(
    cudnn_device: EmulatedDevice, plans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DETERMINISM, "required", True)
    assert DEVICES.device is not None
    DEVICES.device.cuda.kept.limit = 2
    x, k = numbers(*X), numbers(*K)
    found = [derivatives(x, k) for _ in range(2)]
    assert len(plans) > 3
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_plans_follow_the_switch_of_tf32(
    cudnn_device: EmulatedDevice, plans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, k = numbers(2, 8, 8, 16), numbers(3, 3, 16, 16)
    exact = on_host(lambda x, k: [tf.nn.conv2d(x, k, 1, "SAME")], x, k)[0]
    for tf32, engine, least, most in ((False, "plain", 0.0, 1e-4), (True, "split", 1e-3, 1e-1)):
        monkeypatch.setattr(MATH, "tf32", tf32)
        off = np.abs(tf.nn.conv2d(x, k, 1, "SAME").numpy() - exact).max()
        assert (plans[-1], least <= off <= most) == (engine, True), off


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=lambda d: d.name)
def test_sums_of_halves_are_added_in_float32(cudnn_device: EmulatedDevice, plans: list[str], dtype: DType) -> None:
    """TF32 is nothing to them."""
    x, k = tf.cast(numbers(2, 8, 8, 64), dtype), tf.cast(numbers(3, 3, 64, 8), dtype)
    found = tf.nn.conv2d(x, k, 1, "SAME")
    assert plans == ["split"]
    (exact,) = on_host(lambda x, k: [tf.nn.conv2d(tf.cast(x, tf.float64), tf.cast(k, tf.float64), 1, "SAME")], x, k)
    assert_near(found.numpy(), exact.astype(dtype.numpy_dtype), dtype.name, 1)


def test_no_chance_where_there_may_be_none(
    cudnn_device: EmulatedDevice, plans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, k = numbers(4, 9, 9, 8), numbers(3, 3, 8, 8)
    bits = []
    for required in (False, True):
        monkeypatch.setattr(DETERMINISM, "required", required)
        bits.append({derivatives(x, k, strides=1)[2].numpy().tobytes() for _ in range(4)})
    assert plans == ["plain", "plain", "added by chance", "plain", "plain", "plain"]
    assert len(bits[0]) > 1
    assert len(bits[1]) == 1


def test_the_plans_of_the_switches_stay_apart(cudnn_device: EmulatedDevice, plans: list[str]) -> None:
    x, k = numbers(*X), numbers(*K)
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    try:
        for on in (True, False, True, False):
            tf.config.experimental.enable_tensor_float_32_execution(on)
            tf.nn.conv2d(x, k, 1, "SAME")
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)
    assert plans == ["split", "plain"]


def test_workspaces_last_until_the_work_is_done(
    cudnn_device: EmulatedDevice, plans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come from the pool, which gives them away anew while work is queued, and go back to it."""
    monkeypatch.setattr(MATH, "tf32", True)
    x, k = numbers(*X), numbers(*K)
    for _ in range(3):
        y = tf.nn.conv2d(x, k, 1, "SAME")
        z = tf.nn.conv2d_transpose(y, k, X, 1, "SAME")
        del y
    assert plans == ["split", "split"]
    assert np.isfinite(z.numpy()).all()
    assert DEVICES.device is not None
    cudnn_device.synchronize("what is freed is free")
    held = DEVICES.device.cuda.memory()[0]
    for _ in range(3):
        z = tf.nn.conv2d(x, k, 1, "SAME")
    del z
    cudnn_device.synchronize("what is freed is free")
    assert DEVICES.device.cuda.memory()[0] <= held


# ---- graphs, streams and threads -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
def test_training_steps_are_one_launch(cudnn_device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plans that a graph was recorded from live as long as it does."""
    monkeypatch.setattr(MATH, "tf32", True)  # plans that work in memory
    monkeypatch.setattr(DETERMINISM, "required", True)
    found = []
    for wanted in (None, False):
        k = tf.Variable(numbers(*K))

        @tf.function(jit_compile=wanted)
        def step(x: Any, k: Any = k) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(tf.nn.conv2d(x, k, 2, "SAME")))
            k.assign_sub(0.01 * tape.gradient(loss, k))
            return loss

        losses = [float(step(numbers(*X, seed=n))) for n in range(4)]
        if wanted is None:
            assert DEVICES.device is not None
            DEVICES.device.cuda.kept._values.clear()
            gc.collect()
            x = numbers(*X, seed=3)
            losses.append(float(launched(cudnn_device.counts, lambda step=step, x=x: step(x))))
        else:
            losses.append(float(step(numbers(*X, seed=3))))
        losses.append(float(tf.reduce_sum(tf.nn.conv2d(numbers(*X), k, 2, "SAME"))))  # the handle is back
        found.append((losses, k.numpy().tolist()))
    assert found[0] == found[1]


def test_work_is_queued_on_the_current_stream(cudnn_device: EmulatedDevice) -> None:
    x, k = numbers(*X), numbers(*K)
    (wanted,) = on_host(lambda x, k: [tf.nn.conv2d(x, k, 1, "SAME")], x, k)
    cudnn_device.synchronize("operands are there")
    stream = cupy_stand_in.cuda.Stream(non_blocking=True)
    with stream:
        y = tf.nn.conv2d(x, k, 1, "SAME")
        assert stream.queue.steps
        assert not cudnn_device.default_stream.steps
        stream.synchronize()
        assert_near(y.numpy(), wanted, "on a stream")


def test_each_thread_has_a_handle(cudnn_device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which others take over when it ends."""
    made: list[Any] = []
    create = cudnn_stand_in.create_handle
    monkeypatch.setattr(cudnn_stand_in, "create_handle", lambda: made.append(create()) or made[-1])
    x, k = numbers(*X), numbers(*K)
    found = [tf.nn.conv2d(x, k, 1, "SAME").numpy()]

    def work() -> None:
        found.append(tf.nn.conv2d(x, k, 1, "SAME").numpy())

    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(made) == 2
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
