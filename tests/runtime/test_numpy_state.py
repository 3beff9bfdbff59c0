"""NumPy's error state: operations report nothing, change nothing for the user, and bear what the user has set."""

import gc
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gradtape as tf


def not_finite() -> Any:
    """Everything that NumPy would report, in one gradient, an assignment and some conversions."""
    x = tf.constant([1e38, 0.0, -1.0])
    v = tf.Variable([3e38, 0.0, np.inf])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(tf.math.log(x) * x * 1e38 / x**20 + tf.sqrt(x) + tf.nn.softmax(x * 1e38) + v)
    g = tape.gradient(y, x)
    v.assign_add([3e38, 1.0, -np.inf])
    v.assign_sub([1.0, np.inf, np.nan])
    tf.constant([7.0, 0.0]) // tf.constant([0.0, 0.0])
    tf.cast(tf.constant([np.nan, 1e20]), tf.int32)
    tf.cast(tf.constant(1e300, tf.float64), tf.float16)
    tf.reduce_mean(tf.zeros([0]))
    tf.constant(1e300)
    tf.constant([1e300, 1.0])
    return g.numpy()


@pytest.fixture
def numpy_state() -> Iterator[None]:
    with np.errstate(), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("state", ["warn", "raise", "ignore"])
def test_whatever_the_user_has_set(state: Any, numpy_state: None) -> None:
    np.seterr(all=state)
    before = np.geterr()
    g = not_finite()
    assert np.isnan(g).any()
    assert np.geterr() == before


def test_the_users_own_numpy_still_reports(numpy_state: None) -> None:
    np.seterr(all="raise")
    not_finite()
    with pytest.raises(FloatingPointError):
        np.array([1.0]) / 0.0


def test_rules_and_initializers_run_in_the_users_state(numpy_state: None) -> None:
    np.seterr(all="raise")
    seen = []

    @tf.custom_gradient
    def f(x: Any) -> Any:
        seen.append(np.geterr()["divide"])

        def rule(up: Any) -> Any:
            seen.append(np.geterr()["divide"])
            return up

        return x / 0.0, rule

    x = tf.constant(1.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    tape.gradient(y, x)

    def initial() -> float:
        seen.append(np.geterr()["divide"])
        return 1.0

    tf.Variable(initial)
    assert seen == ["raise"] * 3


def test_other_threads_are_as_quiet(numpy_state: None) -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            np.seterr(all="raise")
            not_finite()
        except BaseException as e:  # noqa: BLE001 - handed to the thread that asserts
            failed.append(e)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failed


def everything() -> float:
    """An operation of each kind of dispatch, a conversion, an update, a gradient."""
    v = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(tf.where([True, False], v * 2.0, -v) + tf.constant([1, 2], tf.float32))
    v.assign_sub(tape.gradient(y, v))
    return float(tf.reduce_sum(v))


def interrupted(run: Callable[[], Any]) -> list[float]:
    """What `everything` gives inside `run`, called in the midst of its operations."""
    found: list[float] = []

    class Finalized:
        """Runs operations when the array library drops it."""

        def __del__(self) -> None:
            found.append(everything())

    class Noisy(np.ndarray):
        def __array_finalize__(self, of: Any) -> None:
            self.resource = Finalized()

    run_with = np.ones(3).view(Noisy)
    tensor = tf.constant([1.0, 2.0, 3.0], tf.float64)
    tensor._array = run_with
    run()
    (tensor * tensor + tensor).numpy()
    del tensor, run_with
    gc.collect()
    return found


@pytest.mark.host("what NumPy calls when it drops an array")
def test_operations_inside_operations() -> None:
    found = interrupted(lambda: None)
    assert len(found) > 1
    assert set(found) == {everything()}


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this platform has no timers that send signals")
def test_operations_in_signal_handlers() -> None:
    want, found = everything(), []
    x = tf.constant(np.full((60, 60), 0.1))

    def handler(*_: Any) -> None:
        found.append(everything())
        signal.setitimer(signal.ITIMER_REAL, 0.001)  # the next one, once this one is done

    previous = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    try:
        for _ in range(100_000):  # ends after 20 interruptions
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.reduce_sum(tf.nn.softmax(x @ x) * x)
            g = tape.gradient(y, x)
            if len(found) >= 20:
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous)
    assert len(found) >= 20
    assert set(found) == {want}
    assert np.isfinite(g.numpy()).all()
