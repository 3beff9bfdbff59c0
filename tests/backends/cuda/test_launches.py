"""How many kernels, library calls, copies and waits whole programs take on a device, counted on the emulated one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.ir.dtypes import float32
from gradtape.kernels.cuda_launch import Buffer, CudaProgram, Launch
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.device import Counts
from tests.cuda_emulator.devices import fresh

ROOM = 1.1  # of the bytes that a kernel touches
SIGNIFICANT = 4096  # bytes; what a kernel of single numbers moves is no matter


def work(counts: Counts, f: Callable[[], Any], once: bool = True) -> list[str]:
    """The kernels and library calls of the second run of a function, which waits for nothing and copies nothing;
    `once`: of which no kernel moves much more than each byte once."""
    f()
    cupy_stand_in.device().synchronize("the first run")
    counts.clear()
    f()
    assert not counts.synchronizations and not counts.copies_to_device
    cupy_stand_in.device().synchronize("the second run")
    for launch in counts.launches if once else ():
        touched = sum(t.unique_bytes_read + t.unique_bytes_written for t in launch.traffic.values())
        assert launch.bytes_moved <= ROOM * touched or touched < SIGNIFICANT, launch
    made = [*counts.library_calls, *(launch.kernel for launch in counts.launches)]
    counts.clear()
    return made


def drawn(*shape: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(0).normal(size=shape).astype(np.float32))


def gradient(f: Callable[..., Any], *sources: tf.Tensor) -> Callable[[], Any]:
    """Only the backward pass, from a cotangent that is given: what a tape recorded is done once."""
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(sources)
        y = f(*sources)
    up = drawn(*y.shape)
    return lambda: tape.gradient(y, sources, output_gradients=up)


def test_a_chain_of_elementwise_work_is_pulled_back_by_one_kernel(counts: Counts) -> None:
    x = drawn(64, 48)
    run = gradient(lambda x: tf.exp(tf.sin(x) * x) / (1.0 + tf.square(tf.tanh(x))) - tf.math.log1p(x * x), x)
    assert len(work(counts, run)) == 1


def test_operands_that_are_repeated_take_one_more(counts: Counts) -> None:
    x, b = drawn(640, 48), drawn(48)
    run = gradient(lambda x, b: tf.tanh(x * b + b) * tf.exp(b), x, b)
    assert len(work(counts, run)) <= 2


@pytest.mark.parametrize("sparse", [False, True])
def test_softmax_cross_entropy_forwards_and_backwards(counts: Counts, sparse: bool) -> None:
    x = drawn(64, 100)
    classes = tf.argmax(x, axis=1)  # on the device
    labels = classes if sparse else tf.one_hot(classes, 100)
    loss_of = tf.nn.sparse_softmax_cross_entropy_with_logits if sparse else tf.nn.softmax_cross_entropy_with_logits

    @tf.function(jit_compile=False)
    def step(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_mean(loss_of(labels, x))
        return y, tape.gradient(y, x)

    assert len(work(counts, lambda: step(x))) <= 2


def test_layer_normalization_backwards(counts: Counts) -> None:
    x, gain, bias = drawn(64, 96), drawn(96), drawn(96)

    def normalized(x: tf.Tensor, gain: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-5) * gain + bias

    assert len(work(counts, gradient(normalized, x, gain, bias))) <= 2


def test_batch_normalization_backwards(counts: Counts) -> None:
    x, gain, bias = drawn(64, 96), drawn(96), drawn(96)

    def normalized(x: tf.Tensor, gain: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        mean, variance = tf.nn.moments(x, [0])
        return tf.nn.batch_normalization(x, mean, variance, bias, gain, 1e-5)

    assert len(work(counts, gradient(normalized, x, gain, bias))) <= 2


def network() -> tuple[tf.keras.Sequential, tf.Tensor, Any]:
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    x, labels = drawn(32, 48), tf.one_hot(np.arange(32) % 10, 10)
    model(x)
    return model, x, labels


def test_a_training_step_waits_for_nothing_and_takes_few_kernels(counts: Counts) -> None:
    model, x, labels = network()
    optimizer = tf.keras.optimizers.Adam(1e-3)

    @tf.function(jit_compile=False)
    def step(x: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, model(x, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    found = work(counts, lambda: step(x, labels))
    assert len(found) <= 30, found


def test_a_jacobian_waits_for_nothing(counts: Counts) -> None:
    model, x, _ = network()
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = model(x)
    assert len(work(counts, lambda: tape.batch_jacobian(y, x), once=False)) <= 8  # products of rows with rows


def test_a_kernel_keeps_the_most_shared_memory_that_its_programs_ask_for() -> None:
    """Programs of other extents share the text of a kernel, and each keeps what it has loaded."""
    body = "extern __shared__ float kept[]; kept[0] = 3; out[0] = kept[0];"
    text = f'extern "C" __global__ void first(float* out) {{ {body} }}'

    def asking(nbytes: int) -> CudaProgram:
        return CudaProgram((text,), (Launch("first", 1, 1, nbytes, 4, (Buffer("result", 0, float32),)),), ())

    with fresh() as cuda:
        results = [((1,), np.float32)]
        programs = [cuda.program(asking(nbytes), results) for nbytes in (100 << 10, 60 << 10)]
        for program in (*programs, *programs):
            assert cuda.host(program()[0]) == 3
