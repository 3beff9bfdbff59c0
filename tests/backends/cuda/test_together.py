"""Steps of optimizers on the device: one kernel for all variables of a formula, and the host's numbers, in eager code
and in traced steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gradtape as tf
from gradtape.ir.graph import Graph
from gradtape.runtime.devices import DEVICES, prepared
from gradtape.tracing.signatures import TensorSpec
from gradtape.transforms import together
from tests.backends.cuda.test_launches import drawn, network, work
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.device import Counts

o = tf.keras.optimizers
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "SGD": lambda: o.SGD(0.1),
    "momentum": lambda: o.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "RMSprop": lambda: o.RMSprop(0.1, momentum=0.9, centered=True),
    "Adam": lambda: o.Adam(0.1),
    "AMSGrad": lambda: o.Adam(0.1, amsgrad=True, use_ema=True),
    "AdamW": lambda: o.AdamW(0.1, weight_decay=0.1),
}
SHAPES = [(33, 17), (64,), (5, 4, 3), (1,), (), (2051,), (7,)]


def stepped(make: Callable[[], Any], steps: int = 3, clean: Callable[[], None] = lambda: None) -> list[Any]:
    """What variables of several shapes are after some steps; `clean` is called before each."""
    rng = np.random.default_rng(0)
    variables = [tf.Variable(rng.normal(size=s).astype(np.float32)) for s in SHAPES]
    optimizer = make()
    for _ in range(steps):
        gradients = [tf.Variable(rng.normal(size=s).astype(np.float32)).read() for s in SHAPES]
        clean()
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return [v.numpy() for v in variables]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_two_launches_for_all_variables(name: str, counts: Counts) -> None:
    def clean() -> None:
        cupy_stand_in.device().synchronize("before a step")
        counts.clear()

    found = stepped(OPTIMIZERS[name], 3, clean)
    assert len(counts.launches) == 2 and not counts.copies_to_device and not counts.library_calls
    assert sum("together" in launch.kernel for launch in counts.launches) == 1
    device, DEVICES._device = DEVICES._device, None
    try:
        wanted = stepped(OPTIMIZERS[name])
    finally:
        DEVICES._device = device
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)


def test_the_update_of_a_traced_step_is_few_launches(counts: Counts) -> None:
    model, x, labels = network()
    optimizer = o.Adam(1e-3)

    def gradients() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, model(x, training=True)))
        return tape.gradient(loss, model.trainable_variables)

    def step() -> None:
        optimizer.apply_gradients(zip(gradients(), model.trainable_variables, strict=True))

    step()
    without, whole = (work(counts, tf.function(f, jit_compile=False)) for f in (gradients, step))
    assert len(whole) <= len(without) + 3 and any("together" in k for k in whole)


def test_more_variables_than_a_table_holds(counts: Counts) -> None:
    variables = [tf.Variable(np.full(k % 9 + 1, 1.0, np.float32)) for k in range(300)]
    optimizer = o.SGD(0.5)
    optimizer.apply([v.read() for v in variables], variables)
    assert all(np.array_equal(v, np.full(k % 9 + 1, 0.5)) for k, v in enumerate(variables))
    launches = [launch for launch in counts.launches if "together" in launch.kernel]
    assert 1 < len(launches) < 6 and len({launch.kernel for launch in launches}) == 1


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.complex64, np.int32])
def test_other_dtypes_and_arrays_that_are_not_aligned(dtype: Any, counts: Counts) -> None:
    whole = [tf.constant((np.arange(n) % 7).astype(dtype)) for n in (340, 99, 117)]

    @tf.function
    def f(*xs: Any) -> Any:
        parts = [x[1:] for x in xs]
        return [x * x + 1 for x in parts]

    found = f(*whole)
    cupy_stand_in.device().synchronize("f")
    assert ["together" in launch.kernel for launch in counts.launches] == [True]
    for x, y in zip(whole, found, strict=True):
        part = x.numpy()[1:]
        assert np.array_equal(y.numpy(), part * part + np.array(1, dtype)) and y.dtype == x.dtype


def test_what_does_not_run_together(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another formula, results that the graph reads itself, and what would keep more waiting than it makes."""
    x, y, matrix = drawn(70), drawn(70), drawn(70, 70)
    monkeypatch.setattr(together, "LITTLE", 0)
    table = tf.constant(np.arange(70, dtype=np.int64)[::-1].copy())

    @tf.function
    def other(x: Any, y: Any) -> Any:
        return tf.sin(x), tf.cos(y)

    @tf.function
    def read(x: Any, y: Any) -> Any:
        a, b = tf.exp(x), tf.exp(y)
        return a, b, tf.gather(a, table)

    @tf.function
    def waiting(x: Any, y: Any) -> Any:
        return [tf.linalg.matvec(matrix, v) * tf.linalg.matvec(matrix * matrix, v) for v in (x, y)]

    for f in (other, read, waiting):
        assert not any("together" in k for k in work(counts, lambda f=f: f(x, y))), f


def test_an_update_step_that_is_not_ours_runs_as_it_is(counts: Counts) -> None:
    seen = []

    class Noted(o.SGD):
        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            super().update_step(gradient, variable, learning_rate)
            seen.append(float(tf.reduce_sum(variable)))

    v, optimizer = tf.Variable([1.0, 2.0]), Noted(0.5)
    for _ in range(2):
        optimizer.apply([tf.constant([1.0, 1.0])], [v])
    assert seen == [2.0, 1.0]


def test_numbers_of_an_optimizer_may_change(counts: Counts) -> None:
    v, optimizer = tf.Variable([1.0, 2.0]), o.SGD(0.5)
    optimizer.apply([tf.constant([1.0, 1.0])], [v])
    optimizer.learning_rate, optimizer.weight_decay = 0.25, 1.0
    optimizer.apply([tf.constant([1.0, 1.0])], [v])
    np.testing.assert_allclose(v.numpy(), [0.5 - 0.125 - 0.25, 1.5 - 0.375 - 0.25])
    assert int(optimizer.iterations) == 2


def test_a_fused_graph_without_equal_formulas_stays_as_it_is() -> None:
    traced = tf.function(lambda x: tf.sin(x) + 1.0).get_concrete_function(TensorSpec([5]))
    graph: Graph = prepared(traced.graph)
    assert [n.step.op.kind for n in graph.nodes] == ["fused"]
