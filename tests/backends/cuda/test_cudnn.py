"""Convolutions by cuDNN, by its stand-in on the emulated device: numbers, derivatives, plans, handles, and what is done
without it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends.cuda import cudnn, nvidia
from gradtape.backends.cuda.blas import MATH
from gradtape.backends.cuda.convolution import is_for_cudnn
from gradtape.backends.cuda.cudnn import Policy
from gradtape.backends.cuda.device import Cuda
from gradtape.ir.aval import aval, aval_of
from gradtape.ir.determinism import DETERMINISM
from gradtape.ir.dtypes import DType, bfloat16, complex64, float16, float32, float64
from gradtape.ops.convolution import CONVOLVE, CONVOLVE_INPUT, CONVOLVE_KERNEL
from gradtape.runtime.devices import DEVICES, Device
from tests.api.calls import Call
from tests.api.window_calls import CONVOLUTIONS
from tests.backends.cuda.graphs import launched
from tests.backends.cuda.running import LAYOUTS, on_device, placed
from tests.cuda_emulator import cudnn_stand_in, cupy_stand_in
from tests.cuda_emulator.device import Device as EmulatedDevice
from tests.cuda_emulator.devices import emulated
from tests.kernels.cuda.test_run import assert_near
from tests.op_table.cases import CASES, Case
from tests.op_table.running import results_of

OPS = (CONVOLVE, CONVOLVE_INPUT, CONVOLVE_KERNEL)
DTYPES = (float32, float16, bfloat16)


@pytest.fixture
def device() -> Iterator[EmulatedDevice]:
    """A device for this process whose convolutions cuDNN does."""
    before = DEVICES.device
    with cupy_stand_in.using_device() as device:
        DEVICES.use(emulated(cudnn_stand_in))
        yield device
        device.synchronize("end of a test")
        DEVICES.use(None if before is None else before.cuda)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The names of the engines of all plans that are made."""
    made: list[str] = []
    build = cudnn_stand_in.pygraph.build_plans

    def noted(self: Any, policy: Any = None) -> None:
        build(self, policy)
        made.append(self._plan.engine.name)

    monkeypatch.setattr(cudnn_stand_in.pygraph, "build_plans", noted)
    return made


def used(device: EmulatedDevice) -> list[str]:
    """The kinds of convolutions that cuDNN was called for."""
    return [name.removeprefix("cudnn.conv_") for name in device.counts.library_calls if name.startswith("cudnn.")]


def numbers(*shape: int, seed: int = 0) -> Any:
    return tf.constant(np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32))


X, K = (2, 7, 6, 4), (3, 2, 2, 6)  # images, and filters of two groups


def derivatives(x: Any, k: Any, **options: Any) -> list[Any]:
    """A convolution, its gradients, and theirs."""
    options = {"strides": 2, "padding": "SAME"} | options
    with tf.GradientTape() as outer:
        outer.watch([x, k])
        with tf.GradientTape() as inner:
            inner.watch([x, k])
            y = tf.nn.conv2d(x, k, **options)
            loss = tf.reduce_sum(tf.sin(y))
        first = inner.gradient(loss, [x, k])
        again = tf.add_n([tf.reduce_sum(g * g) for g in first])
    return [y, *first, *outer.gradient(again, [x, k])]


def on_host(f: Callable[..., Any], *arrays: Any) -> list[Any]:
    with tf.device("/CPU:0"):
        return [np.asarray(a) for a in f(*(tf.constant(np.asarray(a)) for a in arrays))]


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
def test_public_functions_to_second_order(device: EmulatedDevice, call: Call) -> None:
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
    assert set(used(device)) == {"fprop", "dgrad", "wgrad"}
    for one, other in zip(found, on_host(f, *operands), strict=True):
        assert_near(one, other, call, 64)


@pytest.mark.parametrize("format", ["NHWC", "NCHW"])
def test_the_order_of_axes(device: EmulatedDevice, format: str) -> None:
    x, k = numbers(*(X if format == "NHWC" else (2, 4, 7, 6))), numbers(*K)
    found = derivatives(x, k, data_format=format)
    for one, other in zip(found, on_host(lambda x, k: derivatives(x, k, data_format=format), x, k), strict=True):
        assert_near(one.numpy(), other, format, 64)


def test_jacobians(device: EmulatedDevice) -> None:
    """Rows lie side by side in the batch."""

    def f(x: Any, k: Any) -> list[Any]:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([x, k])
            y = tf.nn.conv2d(x, k, 2, "SAME")
        return [tape.jacobian(y, x), tape.jacobian(y, k), tape.batch_jacobian(y, x)]

    x, k = numbers(2, 4, 3, 2), numbers(2, 2, 2, 3)
    found = f(x, k)
    assert used(device)
    for one, other in zip(found, on_host(f, x, k), strict=True):
        assert_near(one.numpy(), other, "a Jacobian")


# ---- plans -----------------------------------------------------------------------------------------------------------


def test_a_plan_is_made_once(device: EmulatedDevice, plans: list[str]) -> None:
    x, k = numbers(*X), numbers(*K)
    for _ in range(3):
        derivatives(x, k)
    assert len(plans) == 3
    derivatives(numbers(5, *X[1:]), k)
    assert len(plans) == 6
    assert DEVICES.device is not None
    assert len(DEVICES.device.cuda.kept) <= DEVICES.device.cuda.kept.limit


def test_plans_that_are_let_go_are_made_again(
    device: EmulatedDevice, plans: list[str], monkeypatch: pytest.MonkeyPatch
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
    device: EmulatedDevice, plans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, k = numbers(2, 8, 8, 16), numbers(3, 3, 16, 16)
    exact = on_host(lambda x, k: [tf.nn.conv2d(x, k, 1, "SAME")], x, k)[0]
    for tf32, engine, least, most in ((False, "plain", 0.0, 1e-4), (True, "split", 1e-3, 1e-1)):
        monkeypatch.setattr(MATH, "tf32", tf32)
        off = np.abs(tf.nn.conv2d(x, k, 1, "SAME").numpy() - exact).max()
        assert (plans[-1], least <= off <= most) == (engine, True), off


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=lambda d: d.name)
def test_sums_of_halves_are_added_in_float32(device: EmulatedDevice, plans: list[str], dtype: DType) -> None:
    """TF32 is nothing to them."""
    x, k = tf.cast(numbers(2, 8, 8, 64), dtype), tf.cast(numbers(3, 3, 64, 8), dtype)
    found = tf.nn.conv2d(x, k, 1, "SAME")
    assert plans == ["split"]
    (exact,) = on_host(lambda x, k: [tf.nn.conv2d(tf.cast(x, tf.float64), tf.cast(k, tf.float64), 1, "SAME")], x, k)
    assert_near(found.numpy(), exact.astype(dtype.numpy_dtype), dtype.name, 1)


def test_no_chance_where_there_may_be_none(
    device: EmulatedDevice, plans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, k = numbers(4, 9, 9, 8), numbers(3, 3, 8, 8)
    bits = []
    for required in (False, True):
        monkeypatch.setattr(DETERMINISM, "required", required)
        bits.append({derivatives(x, k, strides=1)[2].numpy().tobytes() for _ in range(4)})
    assert plans == ["plain", "plain", "added by chance", "plain", "plain", "plain"]
    assert len(bits[0]) > 1
    assert len(bits[1]) == 1


def test_the_plans_of_the_switches_stay_apart(device: EmulatedDevice, plans: list[str]) -> None:
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
    device: EmulatedDevice, plans: list[str], monkeypatch: pytest.MonkeyPatch
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
    device.synchronize("what is freed is free")
    held = DEVICES.device.cuda.memory()[0]
    for _ in range(3):
        z = tf.nn.conv2d(x, k, 1, "SAME")
    del z
    device.synchronize("what is freed is free")
    assert DEVICES.device.cuda.memory()[0] <= held


# ---- graphs, streams and threads -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
def test_training_steps_are_one_launch(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
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
            losses.append(float(launched(device.counts, lambda step=step, x=x: step(x))))
        else:
            losses.append(float(step(numbers(*X, seed=3))))
        losses.append(float(tf.reduce_sum(tf.nn.conv2d(numbers(*X), k, 2, "SAME"))))  # the handle is back
        found.append((losses, k.numpy().tolist()))
    assert found[0] == found[1]


def test_work_is_queued_on_the_current_stream(device: EmulatedDevice) -> None:
    x, k = numbers(*X), numbers(*K)
    (wanted,) = on_host(lambda x, k: [tf.nn.conv2d(x, k, 1, "SAME")], x, k)
    device.synchronize("operands are there")
    stream = cupy_stand_in.cuda.Stream(non_blocking=True)
    with stream:
        y = tf.nn.conv2d(x, k, 1, "SAME")
        assert stream.queue.steps
        assert not device.default_stream.steps
        stream.synchronize()
        assert_near(y.numpy(), wanted, "on a stream")


def test_each_thread_has_a_handle(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
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


# ---- what is done without it -----------------------------------------------------------------------------------------

SPACE = {"window": (3, 3), "strides": (1, 1), "dilations": (1, 1), "low": (1, 1), "high": (1, 1)}
POINT = SPACE | {"window": (1, 1), "low": (0, 0), "high": (0, 0)}
LONG = {"window": (3,), "strides": (1,), "dilations": (1,), "low": (1,), "high": (1,)}
FOUR = {
    "window": (1, 1, 1, 2),
    **dict.fromkeys(("strides", "dilations"), (1,) * 4),
    **dict.fromkeys(("low", "high"), (0,) * 4),
}
RULES: dict[str, tuple[bool, DType, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "float32": (True, float32, (2, 5, 5, 1, 4), (3, 3, 4, 1, 8), SPACE),
    "float16": (True, float16, (2, 5, 5, 1, 4), (3, 3, 4, 1, 8), SPACE),
    "bfloat16": (True, bfloat16, (2, 5, 5, 1, 4), (3, 3, 4, 1, 8), SPACE),
    "float64": (False, float64, (2, 5, 5, 1, 4), (3, 3, 4, 1, 8), SPACE),
    "complex numbers": (False, complex64, (2, 5, 5, 1, 4), (3, 3, 4, 1, 8), SPACE),
    "groups": (True, float32, (2, 5, 5, 4, 1), (3, 3, 1, 4, 2), SPACE),
    "products of matrices": (False, float32, (2, 5, 5, 1, 4), (1, 1, 4, 1, 8), POINT),
    "single elements with steps": (True, float32, (2, 5, 5, 1, 4), (1, 1, 4, 1, 8), POINT | {"strides": (2, 2)}),
    "no images": (False, float32, (0, 5, 5, 1, 4), (3, 3, 4, 1, 8), SPACE),
    "no channels": (False, float32, (2, 5, 5, 1, 0), (3, 3, 0, 1, 8), SPACE),
    "four axes": (False, float32, (1, 2, 2, 2, 2, 1, 1), (1, 1, 1, 2, 1, 1, 1), FOUR),
    "2³¹ elements": (False, float32, (1 << 20, 1 << 11, 1, 1), (3, 1, 1, 1), LONG),
    "less than 2³¹ elements": (True, float32, ((1 << 20) - 1, 1 << 11, 1, 1), (3, 1, 1, 1), LONG),
}


@pytest.mark.parametrize("name", RULES)
def test_which_convolutions_are_for_cudnn(name: str) -> None:
    wanted, dtype, x, k, params = RULES[name]
    assert is_for_cudnn(CONVOLVE, (aval(x, dtype), aval(k, dtype)), params) == wanted


def test_others_are_done_as_without_it(device: EmulatedDevice) -> None:
    x, k = tf.cast(numbers(*X), tf.float64), tf.cast(numbers(*K), tf.float64)
    found = derivatives(x, k)
    assert not used(device)
    assert "cublasGemmStridedBatchedEx" in device.counts.library_calls
    for one, other in zip(found, on_host(derivatives, x, k), strict=True):
        assert_near(one.numpy(), other, "float64", 64)


def test_what_cudnn_refuses_is_said_once_and_done_without_it() -> None:
    """bfloat16 has no units before sm_80."""
    before = DEVICES.device
    with cupy_stand_in.using_device("sm_75") as old:
        DEVICES.use(emulated(cudnn_stand_in))
        x, k = (tf.cast(a, tf.bfloat16) for a in (numbers(*X), numbers(*K)))
        with pytest.warns(RuntimeWarning) as told:
            found = derivatives(x, k)
        (text,) = [str(w.message) for w in told]
        assert "cuDNN has no plan for fprop of bfloat16 (2, 7, 6, 4) and (6, 3, 2, 2)" in text
        assert "No valid engine configs" in text
        assert "im2col and cuBLAS do it" in text
        assert "GRADTAPE_CUDNN=never" in text
        assert not used(old)
        for one, other in zip(found, on_host(derivatives, x, k), strict=True):
            assert_near(one.numpy(), other, "refused", 64)
        DEVICES.use(None if before is None else before.cuda)


def test_never(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn.POLICY, "use", "never")
    tf.nn.conv2d(numbers(*X), numbers(*K), 1, "SAME")
    assert not used(device)


def test_the_environment_says_whether(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADTAPE_CUDNN", "never")
    assert Policy().use == "never"
    monkeypatch.setenv("GRADTAPE_CUDNN", "always")
    with pytest.raises(ValueError, match="GRADTAPE_CUDNN should be one of auto, never, got 'always'"):
        Policy()


def test_a_library_that_has_no_handle(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError("CUDNN_STATUS_NOT_INITIALIZED")

    monkeypatch.setattr(cudnn_stand_in, "create_handle", refuse)
    x, k = numbers(*X), numbers(*K)
    with pytest.warns(RuntimeWarning, match="cuDNN cannot be used.*im2col and cuBLAS.*NOT_INITIALIZED"):
        found = derivatives(x, k)
    assert not used(device)
    for one, other in zip(found, on_host(derivatives, x, k), strict=True):
        assert_near(one.numpy(), other, "without", 64)


@pytest.mark.parametrize("name", ["build_plans", "execute"])
def test_failures_are_errors(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """And no reason to do without it in silence."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")

    monkeypatch.setattr(cudnn_stand_in.pygraph, name, fail)
    with pytest.raises(RuntimeError, match=r"cuDNN failed at fprop of float32.*EXECUTION_FAILED.*GRADTAPE_CUDNN=never"):
        tf.nn.conv2d(numbers(*X), numbers(*K), 1, "SAME")


def test_the_frontend_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Any:
        raise OSError("libcudnn.so.9: cannot open shared object file")

    monkeypatch.setattr(nvidia.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(nvidia.importlib, "import_module", broken)
    with pytest.warns(RuntimeWarning, match=r"libcudnn.so.9.*gradtape\[cudnn-cu13\].*GRADTAPE_CUDNN=never"):
        assert nvidia.cudnn() is None
    monkeypatch.setattr(nvidia.importlib.util, "find_spec", lambda name: None)
    assert nvidia.cudnn() is None


def test_plans_are_shown(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from gradtape.ir.show import SHOWN

    monkeypatch.setattr(SHOWN, "words", frozenset(["plan"]))
    tf.nn.conv2d(numbers(*X), numbers(*K), 1, "SAME")
    text = capsys.readouterr().err
    assert "cudnn_fprop" in text
    assert "by cuDNN\n0 bytes of workspace" in text
