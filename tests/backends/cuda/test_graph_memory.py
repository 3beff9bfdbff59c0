"""Memory that graphs write: operands and results of a call, values of variables."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.ir.bounded import Bounded
from gradtape.runtime.devices import DEVICES
from gradtape.tracing.replaying import MOST_CAPTURES, MOST_HELD
from tests.backends.cuda.graphs import Training, drawn, launched
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.device import Counts

pytestmark = pytest.mark.filterwarnings("error")  # a function that is not captured says so


# ---- operands and results --------------------------------------------------------------------------------------------


def test_results_are_their_holders(counts: Counts) -> None:
    f = tf.function(lambda x: (x + 1.0, tf.reduce_sum(x)))
    held = [f(tf.fill([4], float(k))) for k in range(8)]
    counts.clear()
    for k, (y, total) in enumerate(held):
        assert y.numpy().tolist() == [k + 1.0] * 4 and float(total) == 4.0 * k
    views = [f(tf.fill([4], 9.0))[0][1:] for _ in range(3)]
    del held
    f(tf.fill([4], 1.0))
    assert [v.numpy().tolist() for v in views] == [[10.0] * 3] * 3


def test_numbers_of_the_host_are_copied_in_one_piece(counts: Counts) -> None:
    f = tf.function(lambda x, a, n, b: tf.where(b, x * a, x) + tf.cast(n, tf.float32))
    x = drawn(7)
    for k in range(6):
        given = x, tf.constant(float(k)), tf.constant([k] * 7), tf.constant(k % 2 == 0)
        y = launched(counts, lambda given=given: f(*given)) if k > 2 else f(*given)
        assert counts.copies_to_device == (1 if k > 2 else counts.copies_to_device)
        np.testing.assert_array_equal(y.numpy(), x.numpy() * np.float32(k if k % 2 == 0 else 1) + k)


def test_where_tensors_lie_is_another_graph(counts: Counts) -> None:
    f = tf.function(lambda x, n: x * tf.cast(n, tf.float32))
    x = drawn(3)
    with tf.device("/GPU:0"):
        there = tf.constant(2)
    for n in (tf.constant(2), there):
        for _ in range(3):
            y = f(x, n)
        np.testing.assert_array_equal(y.numpy(), 2 * x.numpy())
        launched(counts, lambda n=n: f(x, n))


def test_operands_that_are_views(counts: Counts) -> None:
    f = tf.function(lambda x: x * 2.0)
    x = drawn(6, 4)
    for _ in range(4):
        for part in (x[1:4], tf.transpose(x[:4, :3]), x[3:]):
            np.testing.assert_array_equal(f(part).numpy(), 2 * part.numpy())


def test_operands_and_old_values_as_results(counts: Counts) -> None:
    """What is handed out must not be what the next launch writes over."""
    v, w = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])

    @tf.function
    def f(x: tf.Tensor) -> Any:
        old, other = v.read_value(), w.read_value()
        v.assign(other)
        w.assign(old + x)
        return x, old, v.read_value(), tf.reverse(x, [0]), tf.constant([7.0, 8.0])

    a, b = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    held = []
    for k in range(6):
        x = tf.constant([float(k), 1.0])
        made = launched(counts, lambda x=x: f(x)) if k == 3 else f(x)
        held.append((made, [x.numpy(), a, b, x.numpy()[::-1], [7.0, 8.0]]))
        del made
        a, b = b, a + x.numpy()
    for made, wanted in held:
        for one, other in zip(made, wanted, strict=True):
            np.testing.assert_array_equal(one.numpy(), other)
    np.testing.assert_array_equal([v.numpy(), w.numpy()], [a, b])


def test_positions_of_the_host_are_checked(counts: Counts) -> None:
    f = tf.function(lambda x, i: tf.gather(x, i))
    x = drawn(5)
    for k in range(4):
        np.testing.assert_array_equal(f(x, tf.constant([k, 0])).numpy(), x.numpy()[[k, 0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="index 5 is not in"):
        f(x, tf.constant([5, 0]))
    np.testing.assert_array_equal(launched(counts, lambda: f(x, tf.constant([4, 0]))).numpy(), x.numpy()[[4, 0]])


def test_numbers_that_others_use_too_live_as_long_as_the_graph(counts: Counts) -> None:
    f = tf.function(lambda x: tf.where(x > 0.125, x * 0.375, tf.gather(x, [2, 1, 0]) - 0.625))
    x = drawn(3)
    wanted = [f(x).numpy() for _ in range(3)][-1]
    device = DEVICES.device
    assert device is not None
    device.cuda.numbers, device.cuda.kept = Bounded(1), Bounded(1)
    gc.collect()
    cupy_stand_in.device().synchronize()
    np.testing.assert_array_equal(launched(counts, lambda: f(x)).numpy(), wanted)


# ---- variables -------------------------------------------------------------------------------------------------------


def counter() -> tuple[Any, Any]:
    v = tf.Variable([1.0, 2.0])

    @tf.function
    def step() -> None:
        v.assign_add([1.0, 1.0])

    return v, step


def test_a_variable_stays_at_its_place(counts: Counts) -> None:
    v, step = counter()
    for _ in range(2):
        step()
    address = v.array.data.ptr
    for _ in range(3):
        launched(counts, step)
        assert v.array.data.ptr == address
    assert v.numpy().tolist() == [6.0, 7.0]


def test_new_values_are_written_over_old_ones_by_kernels(counts: Counts) -> None:
    """And not copied: of what is queued once more for the capture, only a count of steps and moments of biases, which
    are made by the kernels that sum up their gradients, are copied."""
    training = Training(lambda: tf.keras.optimizers.Adam(0.01))
    training.step(training.x, training.y)
    variables = [*training.model.variables, *training.optimizer.variables]
    assert len(variables) == 4 + 1 + 1 + 8
    counts.clear()
    training.step(training.x, training.y)
    places, operands = len(variables), 2
    assert counts.library_calls.count("copy") == places + operands + (1 + 2)


def test_values_that_were_read_stay(counts: Counts) -> None:
    v, step = counter()
    held, found = [], []
    for k in range(6):
        step()
        if k in (1, 3):
            held.append(v.read_value() if k == 1 else v.value()[:1])
        found.append(v.numpy().tolist())
    assert found == [[k + 2.0, k + 3.0] for k in range(6)]
    assert [h.numpy().tolist() for h in held] == [[3.0, 4.0], [5.0]]
    launched(counts, step)  # at another place


def test_values_that_are_always_held(counts: Counts) -> None:
    v, step = counter()
    held = []

    def run() -> None:
        for k in range(MOST_HELD + MOST_CAPTURES + 8):
            held.append(v.value())
            step()
            assert v.numpy().tolist() == [k + 2.0, k + 3.0]

    with pytest.warns(RuntimeWarning, match="somebody holds a value of `Variable:0`|had to be again"):
        run()
    assert [h.numpy()[0] for h in held] == [k + 1.0 for k in range(len(held))]


def test_assignments_in_between(counts: Counts) -> None:
    v, step = counter()
    for k in range(6):
        v.assign([10.0 * k, 0.0])
        step()
        assert v.numpy().tolist() == [10.0 * k + 1, 1.0]
    v.assign_add([1.0, 1.0])
    v.scatter_add(tf.IndexedSlices([1.0], [0]))
    launched(counts, step)
    assert v.numpy().tolist() == [54.0, 3.0]


def test_functions_share_variables(counts: Counts) -> None:
    v, step = counter()
    double = tf.function(lambda x: v * x)
    halve = tf.function(lambda: v.assign(v * 0.5))
    for _ in range(5):
        before = v.numpy()
        step()
        np.testing.assert_array_equal(double(tf.constant(2.0)).numpy(), 2 * (before + 1))
        halve()
        np.testing.assert_array_equal(v.numpy(), (before + 1) * 0.5)
    for f in (step, lambda: double(tf.constant(2.0)), halve):
        launched(counts, f)


def test_tapes_around_keep_what_they_read(counts: Counts) -> None:
    v, step = counter()
    for _ in range(4):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(v * v)
        before = v.numpy()
        step()
        np.testing.assert_array_equal(tape.gradient(y, v).numpy(), 2 * before)
        del tape, y
    with tf.GradientTape() as tape:
        step()
        y = tf.reduce_sum(v * 3.0)
    assert tape.gradient(y, v).numpy().tolist() == [3.0, 3.0]


def test_threads_call_one_function(counts: Counts) -> None:
    """Each has the results of its own operands, and no step of a variable is lost."""
    v = tf.Variable([0.0, 0.0])

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        v.assign_add([1.0, 2.0])
        return tf.tanh(x) * 2.0

    inputs = [[drawn(8, seed=10 * k + j) for j in range(10)] for k in range(4)]
    f(inputs[0][0])
    f(inputs[0][0])
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda xs: [f(x) for x in xs], inputs))
    for xs, ys in zip(inputs, found, strict=True):
        for x, y in zip(xs, ys, strict=True):
            np.testing.assert_allclose(y.numpy(), 2 * np.tanh(x.numpy()), rtol=1e-5)
    assert v.numpy().tolist() == [42.0, 84.0] and counts.graphs == 40
