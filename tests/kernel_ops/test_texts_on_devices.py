"""What kernel ops of CUDA C++ do on a device, and what they refuse."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends.cuda.nvidia import Compiler
from gradtape.kernels.cuda_source import cuda_source, kernels_in
from gradtape.ops.op import all_ops
from gradtape.runtime.devices import DEVICES
from tests.cuda_emulator.device import Device
from tests.kernel_ops.texts import (
    DOT,
    NORMED,
    RUNNING,
    SOFT,
    WHOLE,
    dot,
    normed,
    soft,
    soft_of,
    soft_with_backward,
)
from tests.kernels.cuda.nvrtc import compiled


def drawn(*shape: int, dtype: Any = np.float64, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(0.5, 2.0, shape).astype(dtype)


# ------------------------------------------------------------------ what a device does


def test_one_launch_each_way_and_nobody_waits(device: Device) -> None:
    op = soft_with_backward()
    x, a, up = (tf.constant(drawn(40, 30, seed=k)) for k in range(3))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = op(x, a)
    g = tape.gradient(y, x, up)
    assert device.counts.synchronizations == []
    device.synchronize("all")
    assert [launch.kernel for launch in device.counts.launches] == ["soft", "soft_back"]
    assert device.counts.launches[0].grid == (5, 1, 1)
    assert g.shape == (40, 30)


def test_a_traced_gradient_is_captured_with_its_kernels(device: Device) -> None:
    op = soft_with_backward()

    @tf.function(jit_compile=True)
    def slope(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = op(x, 2.0)
        return tape.gradient(y, x)

    for seed in range(4):
        x = drawn(3, 4, seed=seed)
        np.testing.assert_allclose(slope(tf.constant(x)), 1 / (1 + np.exp(-2 * x)))
    given = tf.constant(x)
    device.synchronize("all so far")
    device.counts.clear()
    slope(given)
    assert (device.counts.graphs, device.counts.queued, device.counts.synchronizations) == (1, 0, [])


def test_single_numbers_go_to_the_device_where_there_is_no_form_for_the_host(device: Device) -> None:
    op = soft(host=None)
    for f in (op, tf.function(lambda x, a: op(x, a))):
        np.testing.assert_allclose(float(f(1.0, 2.0)), soft_of(1.0, 2.0), rtol=1e-6)


def test_shared_memory_and_grids_may_be_functions(device: Device) -> None:
    text = """__global__ void sums(const float* x, float* y, int n) {
        extern __shared__ float part[];
        part[threadIdx.x] = x[blockIdx.x * n + threadIdx.x];
        __syncthreads();
        if (threadIdx.x == 0) {
            float total = 0;
            for (int k = 0; k < n; ++k) total += part[k];
            y[blockIdx.x] = total;
        }
    }"""
    op = tf.kernel_op(text, signature="(n)->()", grid=lambda size: (size, 1), block=lambda n: n, shared=lambda n: 4 * n)
    x = drawn(3, 5, dtype=np.float32)
    np.testing.assert_allclose(op(x), x.sum(1), rtol=1e-6)
    device.synchronize("it")
    assert device.counts.launches[-1].grid == (3, 1, 1)
    assert device.counts.launches[-1].shared_bytes == 20


@pytest.mark.parametrize("size", [3 << 10, 6 << 10])
def test_shared_memory_of_both_kinds_may_be_more_than_a_block_has_without_asking(device: Device, size: int) -> None:
    text = """__global__ void turned(const float* x, float* y, int n) {
        extern __shared__ float given[];
        __shared__ float own[10 << 10];
        for (int k = threadIdx.x; k < n; k += blockDim.x) given[k] = own[k] = x[k];
        __syncthreads();
        for (int k = threadIdx.x; k < n; k += blockDim.x) y[k] = given[n - 1 - k] + own[k];
    }"""
    op = tf.kernel_op(text, signature="(n)->(n)", grid=1, block=128, shared=lambda n: 4 * n)
    x = drawn(size, dtype=np.float32)
    np.testing.assert_array_equal(op(x), x[::-1] + x)


def test_sources_that_do_not_compile_say_why(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    assert DEVICES.device is not None
    monkeypatch.setattr(DEVICES.device.cuda, "load", Compiler(None, "sm_90").code)  # the emulator's comes later
    op = tf.kernel_op("__global__ void broken(const float* x, float* y, int size) { y[0] = z; }", signature="()->()")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"`kernel_op_broken` does not compile(.|\n)*z"):
        op([1.0])


def test_numbers_that_do_not_fit_their_parameter_are_refused(device: Device) -> None:
    op = tf.kernel_op("__global__ void few(const float* x, float* y, short k) {}", signature="()->()")
    for k in (1 << 20, 0.5):
        with pytest.raises(tf.errors.InvalidArgumentError, match="`k` as int16, which does not hold"):
            op([1.0], k=k)


@pytest.mark.parametrize("text", [SOFT, DOT, NORMED, RUNNING, WHOLE])
def test_nvidia_s_compiler_takes_what_is_made_of_a_text(text: str) -> None:
    for name in kernels_in(text):
        for dtype in (tf.float32, tf.float64):
            source = cuda_source(text, name, ["T"])
            assert name in compiled(source.specialised({"T": dtype}), 90)[0]


# ------------------------------------------------------------------ wrong calls


@pytest.mark.parametrize(
    ("text", "options", "error", "says"),
    [
        (SOFT, {"signature": "()->()"}, ValueError, "have one kernel"),
        ("int x;", {"signature": "()->()"}, ValueError, "there is none"),
        (NORMED, {}, ValueError, "wants `signature`"),
        (NORMED, {"signature": "()->()", "shapes": len}, ValueError, "wants `signature`"),
        (NORMED, {"signature": "(n)->(n)"}, ValueError, "1 operands and 1 results"),
        (NORMED, {"signature": "n->n"}, ValueError, "should look like"),
        (NORMED, {"signature": "(n+1)->(n),()"}, ValueError, "a name or a number"),
        (
            DOT,
            {"name": "dot", "signature": "(n),(n)->()"},
            ValueError,
            "`const T* x` of the kernel `dot` cannot be passed",
        ),
        (DOT, {"name": "dot", "types": "T,U", "signature": "(n),(n)->()"}, TypeError, "`types` should be"),
        (
            DOT,
            {"name": "dot", "types": "T", "signature": "(n),(n)->()", "backward": "none"},
            ValueError,
            "no kernel `none`",
        ),
        (DOT, {"name": "dot", "types": "T", "signature": "(n),(n)->()", "backward": SOFT}, ValueError, "one kernel"),
        (
            DOT,
            {"name": "dot", "types": "T", "signature": "(n),(n)->()", "backward": 3},
            TypeError,
            "a kernel or a function",
        ),
        (
            DOT,
            {"name": "dot", "types": "T", "signature": "(n),(n)->()", "derivative": abs},
            TypeError,
            "single numbers",
        ),
        (DOT, {"name": "dot", "types": "T", "signature": "(n),(n)->()", "host": 3}, TypeError, "`host` of a kernel op"),
        (NORMED, {"signature": "(n)->(n),()", "backward": "normed"}, ValueError, "should have 3 operands"),
        ("__global__ void f(float* y) {}", {"signature": "()->()"}, ValueError, "0 and 1"),
        ("__global__ void f(const float* x, T* y) {}", {"signature": "()->()", "types": "T"}, ValueError, "no operand"),
        (
            "template <typename T> __global__ void f(const T* x, T* y) {}",
            {"signature": "()->()"},
            ValueError,
            "a template",
        ),
        ("__global__ void f(const float** x, float* y) {}", {"signature": "()->()"}, ValueError, "cannot be passed"),
    ],
)
def test_texts_and_options_that_do_not_fit_are_refused(text: str, options: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=re.escape(says)):
        tf.kernel_op(text, **options)


def test_operands_that_do_not_fit_are_refused(place: str) -> None:
    invalid = tf.errors.InvalidArgumentError
    with pytest.raises(invalid, match=r"wants size 3 on axis `n` of operand 1, got shape \[4\]|wants size 3"):
        dot()(drawn(3), drawn(4))
    with pytest.raises(invalid, match="loop axes that broadcast"):
        dot()(drawn(2, 3), drawn(4, 3))
    with pytest.raises(invalid, match="1 axes or more"):
        dot()(1.0, drawn(3))
    with pytest.raises(invalid, match="wants float32 for operand 0, `x`, got float64"):
        normed()(tf.constant(drawn(3)))
    with pytest.raises(invalid, match="wants float64 for operand 1"):
        dot()(tf.constant(drawn(3)), tf.constant(drawn(3), tf.float32))
    with pytest.raises(invalid, match="one of float32, float64"):
        dot()(tf.constant([1, 2]), tf.constant([1, 2]))
    with pytest.raises(TypeError, match="takes 2 operands"):
        dot()(drawn(3))
    with pytest.raises(TypeError, match=r"no parameter `epss`.*Did you mean `eps`"):
        normed()(drawn(3, dtype=np.float32), epss=1.0)
    with pytest.raises(TypeError, match="wants its parameter `eps`"):
        normed(static=None)(drawn(3, dtype=np.float32))
    with pytest.raises(TypeError, match="A tensor is an operand"):
        normed()(drawn(3, dtype=np.float32), eps=tf.constant(1.0))


def test_without_a_form_for_the_host_the_way_out_is_said() -> None:
    with tf.device("/CPU:0"), pytest.raises(tf.errors.UnimplementedError, match=r"`host=`"):
        soft(host=None)(1.0, 2.0)


def test_what_the_form_for_the_host_returns_is_checked() -> None:
    with tf.device("/CPU:0"):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"should return float64\(3,\) as result 0"):
            soft(host=lambda x, a: x[:1])(drawn(3), 2.0)
        with pytest.raises(tf.errors.InvalidArgumentError, match="should return 1 arrays"):
            soft(host=lambda x, a: (x, a))(drawn(3), 2.0)

        def writes(x: Any, a: Any) -> Any:
            x[...] = 0
            return x

        with pytest.raises(tf.errors.InvalidArgumentError, match="read-only"):
            soft(host=writes)(drawn(3), 2.0)


def test_saved_models_hold_no_code(tmp_path: Path) -> None:
    op = soft()
    module = tf.Module()
    module.f = tf.function(lambda x: op(x, 2.0), input_signature=[tf.TensorSpec([3], tf.float32)])
    with pytest.raises(ValueError, match="the kernel op `soft`, which is code"):
        tf.saved_model.save(module, str(tmp_path / "model"))


def test_ops_of_programs_are_not_in_the_table() -> None:
    before = all_ops()
    soft()
    assert all_ops() == before
