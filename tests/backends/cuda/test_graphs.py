"""Traced functions that the device does in one launch: training steps and derivatives, whose numbers are those without
a graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.backends.cuda.graphs import Training, drawn, launched, numbers
from tests.cuda_emulator.device import Counts

pytestmark = pytest.mark.filterwarnings("error")  # a function that is not captured says so


# ---- training steps --------------------------------------------------------------------------------------------------


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "adam": lambda: tf.keras.optimizers.Adam(0.01),
    "sgd": lambda: tf.keras.optimizers.SGD(0.1),
    "momentum": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dropout", [False, True], ids=["plain", "dropout"])
def test_a_training_step_is_one_launch(counts: Counts, name: str, dropout: bool) -> None:
    """The learning rate changes on the way, the optimizer counts its steps, and dropout draws anew each time."""
    captured, reference = Training(OPTIMIZERS[name], dropout), Training(OPTIMIZERS[name], dropout)
    reference.step = tf.function(reference.plain, jit_compile=False)
    losses: list[list[float]] = []
    for training in (captured, reference):
        tf.random.set_seed(11)
        x, y, found = training.x, training.y, []
        for k in range(6):
            if k == 4:
                training.optimizer.learning_rate = 0.5
            if training is captured and k in (3, 5):
                loss = launched(counts, lambda x=x, y=y: captured.step(x, y))
            else:
                loss = training.step(x, y)
            found.append(float(loss))
        losses.append(found)
    assert losses[0] == losses[1]
    for one, other in zip(captured.state(), reference.state(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_loss_scaling_needs_no_host(counts: Counts) -> None:
    """Steps whose gradients overflow are skipped, without anybody waiting to learn that."""

    def make() -> Any:
        inner = tf.keras.optimizers.Adam(0.01)
        return tf.keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=4.0, dynamic_growth_steps=2)

    found = []
    for wanted in (None, False):
        training = Training(make)
        v = training.model.trainable_variables[0]

        @tf.function(jit_compile=wanted)
        def step(x: tf.Tensor, training: Training = training, v: Any = v) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(training.model(x)))
                scaled = training.optimizer.scale_loss(loss)
            gradient = tape.gradient(scaled, v)
            training.optimizer.apply([gradient], [v])
            return loss

        path = []
        for k in range(8):
            x = drawn(6, 4, seed=k) * (np.inf if k in (1, 4) else 1.0)
            if wanted is None and k in (4, 5):
                launched(counts, lambda x=x: step(x))
            else:
                step(x)
            o = training.optimizer
            path.append((float(o.dynamic_scale), int(o.iterations), int(o.step_counter), v.numpy().tolist()))
        found.append(path)
    assert found[0] == found[1]
    assert [p[:2] for p in found[0]] == [(4, 1), (2, 1), (2, 2), (4, 3), (2, 3), (2, 4), (4, 5), (4, 6)]


def test_moving_averages_need_no_host(counts: Counts) -> None:
    def make() -> Any:
        return tf.keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3)

    captured, reference = Training(make), Training(make)
    reference.step = tf.function(reference.plain, jit_compile=False)
    for k in range(7):
        if k >= 3:
            launched(counts, lambda: captured.step(captured.x, captured.y))
        else:
            captured.step(captured.x, captured.y)
        reference.step(reference.x, reference.y)
        for one, other in zip(captured.state(), reference.state(), strict=True):
            np.testing.assert_array_equal(one, other)


# ---- derivatives -----------------------------------------------------------------------------------------------------


def scalar(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.tanh(x @ tf.transpose(x)) * tf.exp(-tf.square(x[:, :1])))


def jacobian(x: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.tanh(x @ tf.transpose(x))
    return tape.jacobian(y, x)


def batch_jacobian(x: tf.Tensor) -> tf.Tensor:
    w = tf.reshape(tf.range(12.0) / 12.0, [4, 3])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.nn.softmax(tf.sin(x) @ w)
    return tape.batch_jacobian(y, x)


def hessian(x: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = scalar(x)
        g = tape.gradient(y, x)
    return outer.jacobian(g, x)


def rows(x: tf.Tensor) -> tf.Tensor:
    return tf.vectorized_map(lambda r: tf.cumsum(tf.nn.softmax(r)) * tf.reduce_max(r), x)


@pytest.mark.parametrize("f", [jacobian, batch_jacobian, hessian, rows], ids=lambda f: f.__name__)
def test_derivatives_are_one_launch(counts: Counts, f: Callable[[tf.Tensor], tf.Tensor]) -> None:
    captured, reference = tf.function(f), tf.function(f, jit_compile=False)
    for k in range(5):
        x = drawn(5, 4, seed=k)
        y = launched(counts, lambda x=x: captured(x)) if k in (4,) else captured(x)
        np.testing.assert_array_equal(y.numpy(), reference(x).numpy())


PROGRAMS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "rows in order": lambda x: tf.sort(x, axis=1) * tf.math.top_k(x, 2)[0][:, :1],
    "parts of arrays": lambda x: tf.concat([tf.pad(x[1:, ::2], [[1, 0], [0, 2]]), tf.reverse(x, [1])], 0),
    "sums at positions": lambda x: tf.math.unsorted_segment_sum(x, tf.constant([0, 1, 0, 2, 1]), 3),
    "choices": lambda x: tf.where(x > 0.0, tf.sqrt(tf.abs(x)), tf.reduce_max(x, 0)),
    "halves": lambda x: tf.cast(tf.tanh(tf.cast(x, tf.float16)) @ tf.cast(tf.transpose(x), tf.float16), tf.float32),
    "complex numbers": lambda x: tf.abs(tf.complex(x, 2.0 * x)),
    "convolutions": lambda x: tf.nn.max_pool2d(
        tf.nn.conv2d(x[None, :, :, None], tf.ones([3, 3, 1, 2]), 1, "SAME"), 2, 2, "VALID"
    ),
    "random numbers": lambda x: tf.nn.dropout(x, 0.4) * tf.random.normal([5, 4]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_of_all_kinds_of_ops_are_one_launch(counts: Counts, name: str) -> None:
    def f(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = PROGRAMS[name](x)
        return y, tf.convert_to_tensor(tape.gradient(y, x))

    found = []
    for wanted in (None, False):
        tf.random.set_seed(2)
        g = tf.function(f, jit_compile=wanted)
        for k in range(4):
            x = drawn(5, 4, seed=k)
            found.append(numbers(launched(counts, lambda g=g, x=x: g(x)) if wanted is None and k > 1 else g(x)))
    for one, other in zip(tf.nest.flatten(found[:4]), tf.nest.flatten(found[4:]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_gradients_of_rows_at_positions_are_one_launch(counts: Counts) -> None:
    table = tf.Variable(drawn(5, 3))

    def f(ids: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            y = tf.square(tf.gather(table, ids))
        table.assign_sub(0.1 * tf.convert_to_tensor(tape.gradient(y, table)))
        return y

    found = []
    for wanted in (None, False):
        table.assign(drawn(5, 3))
        g = tf.function(f, jit_compile=wanted)
        for k in range(5):
            ids = tf.constant([k, 2, 0, 2, (3 * k) % 5])
            found.append(
                (launched(counts, lambda g=g, ids=ids: g(ids)) if wanted is None and k > 2 else g(ids)).numpy()
            )
        found.append(table.numpy())
    for one, other in zip(found[:6], found[6:], strict=True):
        np.testing.assert_array_equal(one, other)


def test_another_shape_is_another_graph(counts: Counts) -> None:
    f = tf.function(lambda x: tf.sin(x) * 2.0)
    for size in (3, 5):
        for k in range(4):
            x = drawn(size, seed=k)
            np.testing.assert_allclose(f(x).numpy(), 2 * np.sin(x.numpy()), rtol=1e-6)
    for size in (5, 3):
        x = drawn(size)
        launched(counts, lambda x=x: f(x))
    assert f.experimental_get_tracing_count() == 2


def test_only_so_many_graphs_of_a_function(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradtape.tracing.replaying.MOST_GRAPHS", 2)
    f = tf.function(lambda x: tf.sin(x) * 2.0)
    with pytest.warns(RuntimeWarning, match="it is, for 2 choices of shapes, but not for more") as caught:
        found = [f(drawn(size)).numpy() for size in (3, 5, 7, 9) for _ in range(3)]
    assert len(caught) == 1 and counts.graphs == 2
    for size, y in zip((3, 3, 3, 5, 5, 5, 7, 7, 7, 9, 9, 9), found, strict=True):
        np.testing.assert_allclose(y, 2 * np.sin(drawn(size).numpy()), rtol=1e-6)


def test_unknown_dimensions(counts: Counts) -> None:
    f = tf.function(lambda x: tf.reduce_sum(x * x, 1), input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    for size in (2, 4):
        for k in range(4):
            x = drawn(size, 3, seed=k)
            np.testing.assert_allclose(f(x).numpy(), np.sum(np.square(x.numpy()), 1), rtol=1e-5)
        x = drawn(size, 3)
        launched(counts, lambda x=x: f(x))


def test_functions_from_files_are_one_launch(counts: Counts, tmp_path: Path) -> None:
    module = tf.Module()
    module.v = tf.Variable([2.0, 3.0])
    module.f = tf.function(lambda x: tf.sin(x) * module.v, input_signature=[tf.TensorSpec([None, 2], tf.float32)])
    tf.saved_model.save(module, str(tmp_path / "model"))
    loaded, x = tf.saved_model.load(str(tmp_path / "model")), drawn(3, 2)
    for _ in range(2):
        loaded.f(x)
    np.testing.assert_array_equal(launched(counts, lambda: loaded.f(x)).numpy(), module.f(x).numpy())
