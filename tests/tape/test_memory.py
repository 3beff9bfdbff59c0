"""What a tape keeps alive: what its rules need, until the first use of a tape that is not persistent."""

import gc
import time
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends import clusters
from gradtape.runtime.trie import TRIE

Chain = Callable[[Any], list[Any]]


def alive(chain: Chain, persistent: bool = False) -> tuple[list[bool], Any, Any, Any]:
    """Which of the arrays that a chain of results consists of survive it, with the tape and its ends."""
    x = tf.Variable(np.linspace(0.1, 1.0, 1000))
    with tf.GradientTape(persistent=persistent) as tape:
        made = chain(x)
        y = tf.reduce_sum(made[-1])
    held = [weakref.ref(t._array) for t in made]
    del made
    gc.collect()
    return [r() is not None for r in held], tape, y, x


# (what is computed, which of its results must be kept, the gradient at x)
CHAINS: dict[str, tuple[Chain, list[bool], Callable[[Any], Any]]] = {
    "tanh keeps its results": (
        lambda x: [a := tf.tanh(x), b := tf.tanh(a), tf.tanh(b)],
        [True, True, True],
        lambda x: (1 - np.tanh(x) ** 2) * (1 - np.tanh(np.tanh(x)) ** 2) * (1 - np.tanh(np.tanh(np.tanh(x))) ** 2),
    ),
    "sums keep nothing": (
        lambda x: [a := x + 1.0, b := a - 3.0, -b],
        [False, False, False],
        lambda x: -np.ones_like(x),
    ),
    "scaling keeps the number only": (lambda x: [a := x * 2.0, a * 3.0], [False, False], lambda x: 6.0 + 0 * x),
    "a sine keeps its operand": (
        lambda x: [a := x * 2.0, tf.sin(a)],
        [True, False],
        lambda x: 2 * np.cos(2 * x),
    ),
    "layout keeps nothing": (
        lambda x: [a := x + 0.0, b := tf.reshape(a, [10, 100]), c := tf.transpose(b), tf.concat([c, c], 0)],
        [False, False, False, False],
        lambda x: 2.0 + 0 * x,
    ),
    "a square keeps its operand": (
        lambda x: [a := x + 1.0, tf.square(a)],
        [True, False],
        lambda x: 2 * (x + 1),
    ),
    "a product with a constant keeps the constant": (
        lambda x: [c := tf.constant(np.full(1000, 7.0)), a := x + 1.0, a * c],
        [True, False, False],
        lambda x: 7.0 + 0 * x,
    ),
    "a rectifier keeps one of both": (lambda x: [a := x - 0.5, tf.nn.relu(a)], None, lambda x: (x > 0.5) * 1.0),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("name", CHAINS)
def test_only_what_the_rules_need_is_kept(name: str) -> None:
    chain, want, slope = CHAINS[name]
    kept, tape, y, x = alive(chain)
    if want is None:
        assert sum(kept) == 1
    else:
        assert kept == want
    assert np.allclose(tape.gradient(y, x), slope(x.numpy()))


def test_the_first_use_frees_what_was_kept() -> None:
    x = tf.Variable(np.ones(1000))
    with tf.GradientTape() as tape:
        a = tf.tanh(x)
        y = tf.reduce_sum(a)
    array, result = weakref.ref(a._array), weakref.ref(a)
    del a
    assert array() is not None
    g = tape.gradient(y, x)
    gc.collect()
    assert array() is None
    assert result() is None
    assert g is not None


def test_a_persistent_tape_keeps_it_until_it_is_dropped() -> None:
    kept, tape, y, x = alive(CHAINS["tanh keeps its results"][0], persistent=True)
    assert kept == [True] * 3
    for _ in range(2):
        assert tape.gradient(y, x) is not None
    held = [weakref.ref(t._array) for t in tape._recorder.saved]
    del tape, y
    gc.collect()
    assert held
    assert not any(r() is not None and r() is not x._snapshot._array for r in held)


def test_reset_frees_what_was_kept() -> None:
    x = tf.Variable(np.ones(1000))
    with tf.GradientTape() as tape:
        a = tf.tanh(x)
        array = weakref.ref(a._array)
        del a
        tape.reset()
        gc.collect()
        assert array() is None


def test_a_tape_keeps_no_variable_alive_after_use_but_those_it_reports() -> None:
    v = tf.Variable(np.ones(1000))
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(v * v)
    tape.gradient(y, v)
    old = weakref.ref(v._snapshot._array)
    v.assign(np.zeros(1000))
    gc.collect()
    assert old() is None
    assert tape.watched_variables()[0] is v


def test_plans_hold_no_arrays_of_the_user() -> None:
    x = tf.Variable(np.ones((50, 50)))
    c = tf.constant(np.full((50, 50), 2.0))
    array = weakref.ref(c._array)
    for _ in range(3):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                y = tf.reduce_sum(tf.matmul(x, c) * x)
            g = inner.gradient(y, x)
            s = tf.reduce_sum(g * g)
        outer.gradient(s, x)
    del c, y, g, s, inner, outer
    gc.collect()
    assert array() is None


@pytest.mark.host("memory of the host, and thousands of steps")
def test_memory_of_a_long_loop_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "PATIENCE", 0.0)  # kernels are compiled before the count begins
    w = tf.Variable(np.full((8, 4), 0.1, "float32"))
    x = tf.constant(np.ones((4, 8), "float32"))

    def step(k: int) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.tanh(x @ w) * (0.1 + 1e-4 * k))
        w.assign_sub(tape.gradient(loss, w) * (0.01 / (k + 1)))

    for k in range(1500):  # until the store of Python numbers is full
        step(k)
    until = time.monotonic() + 60
    while tf.cache_info().kernels.waiting and time.monotonic() < until:
        time.sleep(0.01)
    gc.collect()
    size, automatic = TRIE.size, gc.isenabled()
    gc.disable()  # cycles would show
    tracemalloc.start()
    try:
        for k in range(1500, 4000):  # until Python's own free lists are
            step(k)
        before = tracemalloc.get_traced_memory()[0]
        for k in range(4000, 12_000):
            step(k)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        if automatic:
            gc.enable()
    assert grown < 4_000, f"{grown} bytes more after 8,000 steps"
    assert TRIE.size == size
