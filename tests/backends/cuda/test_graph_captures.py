"""Which traced functions become graphs and when, and what those say that do not."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends.cuda.blas import MATH
from gradtape.runtime.devices import DEVICES
from gradtape.tracing.replaying import POLICY
from tests.backends.cuda.graphs import drawn, launched, numbers
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.device import Counts

pytestmark = pytest.mark.filterwarnings("error")  # a function that is not captured says so


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


def test_variables_of_the_host(counts: Counts) -> None:
    with tf.device("/CPU:0"):
        v = tf.Variable([1.0, 2.0])
    f, x = tf.function(lambda x: x * v), drawn(2)
    with pytest.warns(RuntimeWarning, match="the value of the variable `Variable:0` is on the host"):
        found = [f(x).numpy() for _ in range(3)]
    np.testing.assert_array_equal(found, [x.numpy() * [1.0, 2.0]] * 3)
    assert v.device.endswith("CPU:0")


def test_effects_happen_once_for_each_call(counts: Counts, capfd: pytest.CaptureFixture[str]) -> None:
    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        tf.print("called")
        return x + 1.0

    with pytest.warns(RuntimeWarning, match="such as `tf.print`"):
        _ = [f(drawn(3)) for _ in range(4)]
    assert capfd.readouterr().err.count("called") == 4
