"""Traced functions that the device does in one launch: what a launch counts, and that nothing else changes."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends.cuda.blas import MATH
from gradtape.ir.bounded import Bounded
from gradtape.runtime.devices import DEVICES
from gradtape.tracing.replaying import MOST_CAPTURES, MOST_HELD, POLICY
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.device import Counts
from tests.cuda_emulator.devices import emulated

COPIES = {"copy", "memcpy"}  # of the device, to and from arrays that stay where they are


@pytest.fixture(autouse=True)
def counts() -> Iterator[Counts]:
    """A device for this process, and its counts; a function that is not captured is an error."""
    before = DEVICES.device
    with cupy_stand_in.using_device() as device, warnings.catch_warnings():
        warnings.simplefilter("error")
        DEVICES.use(emulated())
        yield device.counts
        device.synchronize("end of a test")
        DEVICES.use(None if before is None else before.cuda)


def drawn(*shape: int, seed: int = 0) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def launched(counts: Counts, f: Callable[[], Any]) -> Any:
    """The result of a call that is one launch, beside copies of its operands and results."""
    counts.clear()
    made = f()
    assert (counts.graphs, counts.queued, counts.allocations, counts.synchronizations) == (1, 0, 0, [])
    assert set(counts.library_calls) <= COPIES and counts.copies_to_device <= 1
    return made


def numbers(x: Any) -> Any:
    return tf.nest.map_structure(lambda t: t.numpy(), x)


# ---- training steps --------------------------------------------------------------------------------------------------


class Training:
    """A network, its optimizer, and what a step changes."""

    def __init__(self, make: Callable[[], Any], dropout: bool = False) -> None:
        tf.random.set_seed(3)
        layers = [tf.keras.layers.Dense(8, activation="tanh"), tf.keras.layers.Dense(3)]
        if dropout:
            layers.insert(1, tf.keras.layers.Dropout(0.5))
        self.model = tf.keras.Sequential(layers)
        self.optimizer = make()
        self.x, self.y = drawn(6, 4), tf.one_hot(np.arange(6) % 3, 3)
        self.model(self.x)
        self.step = tf.function(self.plain)

    def plain(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(y, self.model(x, training=True)))
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        return loss

    def state(self) -> list[np.ndarray]:
        return [v.numpy() for v in (*self.model.variables, *self.optimizer.variables)]


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
    training = Training(OPTIMIZERS["adam"])
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


# ---- when ------------------------------------------------------------------------------------------------------------


def graphs_of_calls(counts: Counts, f: Callable[[], Any], calls: int = 4) -> list[int]:
    found = []
    for _ in range(calls):
        counts.clear()
        f()
        found.append(counts.graphs)
    return found


@pytest.mark.parametrize(("wanted", "found"), [(None, [0, 0, 1, 1]), (True, [0, 1, 1, 1]), (False, [0] * 4)])
def test_when_a_function_is_captured(counts: Counts, wanted: bool | None, found: list[int]) -> None:
    f, x = tf.function(lambda x: x * 2.0, jit_compile=wanted), drawn(3)
    assert graphs_of_calls(counts, lambda: f(x)) == found


def test_a_process_says_never(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POLICY, "capture", "never")
    f, x = tf.function(lambda x: x * 2.0, jit_compile=True), drawn(3)
    assert graphs_of_calls(counts, lambda: f(x)) == [0] * 4


def test_what_is_copied_must_be_worth_it(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradtape.tracing.replaying.MOST_COPIED", 20)
    x = drawn(3)
    for wanted, found in ((None, [0] * 4), (True, [0, 1, 1, 1])):
        f = tf.function(lambda x: x * 2.0, jit_compile=wanted)
        assert graphs_of_calls(counts, lambda f=f: f(x)) == found


def test_not_where_something_stands_around_the_call(counts: Counts) -> None:
    f, x = tf.function(lambda x: x * x), drawn(3)
    for _ in range(3):
        f(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), 2 * x.numpy())
    counts.clear()
    with tf.device("/CPU:0"):
        assert f(x).device.endswith("CPU:0")
    assert tf.function(lambda x: f(x) + 1.0)(x).shape == (3,)
    assert counts.graphs == 0


def test_precision_of_products_is_that_of_the_call(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    f, x = tf.function(lambda x: x @ x), drawn(4, 4) * 1.001
    exact = [f(x).numpy() for _ in range(3)][-1]
    monkeypatch.setattr(MATH, "tf32", True)
    rounded = f(x).numpy()
    assert np.abs(rounded - exact).max() > 1e-5
    np.testing.assert_array_equal(launched(counts, lambda: f(x)).numpy(), rounded)


def test_memory_goes_with_the_function(counts: Counts) -> None:
    device = cupy_stand_in.device()
    x = drawn(64)
    f = tf.function(lambda x: tf.sin(tf.reduce_sum(x) * x))
    for _ in range(3):
        f(x)
    gc.collect()
    device.synchronize()
    held = len(device.addresses)
    del f
    gc.collect()
    device.synchronize()
    assert len(device.addresses) < held
    pool = DEVICES.device.cuda.xp.get_default_memory_pool()  # type: ignore[union-attr]
    assert pool.used_bytes() < 16 << 10


# ---- what is not captured --------------------------------------------------------------------------------------------


def looped(x: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda y: tf.reduce_sum(y) < 10.0, lambda y: (y + 1.0,), (x * 0.0,))[0]


UNCAPTURABLE: dict[str, tuple[Callable[[tf.Tensor], Any], str]] = {
    "a function of Python": (lambda x: tf.numpy_function(np.sin, [x], tf.float32), "a function of Python runs in it"),
    "a branch": (lambda x: tf.cond(x[0, 0] > 0, lambda: x + 1.0, lambda: x), "the condition of a branch"),
    "a loop": (looped, "the condition of a loop"),
    "a check": (lambda x: tf.debugging.check_numerics(x * 2.0, "x"), "check_numerics"),
    "a factorization": (lambda x: tf.linalg.cholesky(x @ tf.transpose(x)), "cuSOLVER"),
    "a spectrum": (lambda x: tf.abs(tf.signal.rfft(x)), "cuFFT"),
    "many rows at positions": (
        lambda x: tf.math.unsorted_segment_sum(tf.tile(x, [600, 1]), tf.tile(tf.cast(x[:, 0], tf.int32), [600]), 3),
        "more than 2048 positions",
    ),
    "a long row": (lambda x: tf.sort(tf.reshape(tf.tile(x, [40, 40]), [-1])), "long rows are sorted"),
}


@pytest.mark.parametrize("what", UNCAPTURABLE)
def test_what_is_not_captured_says_why_once(counts: Counts, what: str) -> None:
    f, words = UNCAPTURABLE[what]
    x = drawn(4, 4)
    tf.random.set_seed(1)
    captured = tf.function(f)
    with pytest.warns(RuntimeWarning, match=f"is not captured into a CUDA graph.*{words}") as caught:
        found = [captured(x) for _ in range(5)]
    assert len(caught) == 1 and counts.graphs == 0
    tf.random.set_seed(1)
    reference = tf.function(f, jit_compile=False)
    for y in found:
        np.testing.assert_array_equal(y.numpy(), reference(x).numpy())


def test_draws_of_all_distributions_are_one_launch(counts: Counts) -> None:
    def f(x: tf.Tensor) -> Any:
        shape = [3, 4]
        return x + tf.random.gamma(shape, 2.0), tf.random.shuffle(x), tf.random.poisson(shape, 3.0)

    found = []
    for wanted in (None, False):
        tf.random.set_seed(1)
        g, x = tf.function(f, jit_compile=wanted), drawn(4)
        made = [numbers(g(x)) for _ in range(3)]
        made.append(numbers(launched(counts, lambda g=g, x=x: g(x)) if wanted is None else g(x)))
        found.append(made)
    for one, other in zip(tf.nest.flatten(found[0]), tf.nest.flatten(found[1]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_generators_go_on_in_graphs(counts: Counts) -> None:
    one, other = (tf.random.Generator.from_seed(1) for _ in range(2))
    f = tf.function(lambda: one.normal([3]))
    found = [f().numpy() for _ in range(4)]
    found.append(launched(counts, f).numpy())
    np.testing.assert_array_equal(found, [other.normal([3]).numpy() for _ in range(5)])


def test_effects_happen_once_for_each_call(counts: Counts, capfd: pytest.CaptureFixture[str]) -> None:
    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        tf.print("called")
        return x + 1.0

    with pytest.warns(RuntimeWarning, match="such as `tf.print`"):
        _ = [f(drawn(3)) for _ in range(4)]
    assert capfd.readouterr().err.count("called") == 4
