"""Recording is per thread; plans and caches are shared, and safe to share."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import gradtape as tf
from gradtape.runtime.trie import TRIE


def in_thread(f: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(f).result()


def test_a_tape_records_nothing_of_other_threads() -> None:
    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        foreign = in_thread(lambda: v * v)
        y = v * 3.0 + foreign
    assert float(tape.gradient(y, v)) == 3.0


def test_watching_is_of_the_tape_and_not_of_the_thread() -> None:
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        in_thread(lambda: tape.watch(x))
        y = x * x
    assert float(in_thread(lambda: tape.gradient(y, x))) == 6.0


def test_a_thread_that_starts_inside_a_block_may_have_tapes_of_its_own() -> None:
    v = tf.Variable(2.0)

    def work() -> float:
        with tf.GradientTape() as tape:
            y = v**3
        return float(tape.gradient(y, v))

    with tf.GradientTape() as tape:
        y = v * v
        assert in_thread(work) == 12.0
        y = y * v
    assert float(tape.gradient(y, v)) == 12.0


def test_two_threads_in_their_blocks_at_the_same_time() -> None:
    v = tf.Variable(2.0)
    inside = threading.Barrier(2)

    def work(power: int) -> float:
        with tf.GradientTape() as tape:
            inside.wait(10)
            y = v**power
            inside.wait(10)
        return float(tape.gradient(y, v))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, (2, 3))) == [4.0, 12.0]


def step(v: tf.Variable, k: int) -> list[Any]:
    """Gradients of two orders of one of five structures."""
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = tf.reduce_sum(tf.sin(v) * tf.exp(v * 0.1) + (v if k % 5 else v * v))
            for _ in range(k % 5):
                y = y * 0.9
        g = inner.gradient(y, v)
        s = tf.reduce_sum(g * g)
    return [g.numpy(), outer.gradient(s, v).numpy()]


def test_eight_threads_at_once_get_what_one_gets() -> None:
    value = np.linspace(0.5, 1.5, 7)
    want = [step(tf.Variable(value), k) for k in range(5)]
    TRIE.clear()  # all threads build all plans anew, at the same time
    start = threading.Barrier(8)

    def work(_: int) -> bool:
        v = tf.Variable(value)
        start.wait(10)
        return all(np.array_equal(g, w) for k in range(60) for g, w in zip(step(v, k), want[k % 5], strict=True))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_one_variable_read_by_eight_threads_is_connected_in_each() -> None:
    v = tf.Variable(np.linspace(0.5, 1.5, 7))
    want = step(v, 1)

    def work(_: int) -> bool:
        return all(np.array_equal(g, w) for _ in range(60) for g, w in zip(step(v, 1), want, strict=True))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_a_persistent_tape_may_be_asked_by_several_threads() -> None:
    v = tf.Variable([1.0, 2.0, 3.0])
    with tf.GradientTape(persistent=True) as tape:
        parts = [tf.reduce_sum(v**k) for k in range(1, 9)]

    def work(k: int) -> list[float]:
        found: list[float] = tape.gradient(parts[k - 1], v).numpy().tolist()
        return found

    with ThreadPoolExecutor(8) as pool:
        for k, found in zip(range(1, 9), pool.map(work, range(1, 9)), strict=True):
            assert np.allclose(found, [k * x ** (k - 1) for x in (1.0, 2.0, 3.0)])
