"""`cache_info`: counts of what was built and what is kept, checked by building and keeping something."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import gradtape as tf
from gradtape import caches
from gradtape.backends import clusters
from gradtape.kernels.arguments import Entry
from gradtape.kernels.background import Background
from gradtape.kernels.compiled import Compiler, Ticket
from gradtape.kernels.memory import LARGE, POOL, empty


def slope(x: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(tf.tanh(x) * x - 0.125)
    return tape.gradient(y, x)


def test_a_new_program_is_built_once_and_found_later() -> None:
    x = tf.constant(np.ones((3, 1, 2, 1, 5), np.float32))
    start = tf.cache_info().plans
    slope(x)
    first = tf.cache_info().plans
    slope(x)
    second = tf.cache_info().plans
    assert (first.built - start.built, first.found - start.found) == (1, 0)
    assert (second.built - first.built, second.found - first.found) == (0, 1)
    assert first.structures > start.structures
    assert second.structures == first.structures
    assert first.held >= 1


def test_traces_are_counted_while_their_function_lives() -> None:
    def body(x: tf.Tensor) -> tf.Tensor:
        return x * 2.0

    gc.collect()
    start = tf.cache_info().traces
    f = tf.function(body)
    f(tf.constant(1.0))
    f(tf.constant(2.0))
    f(tf.constant([1.0]))
    with_two = tf.cache_info().traces
    assert (with_two.held - start.held, with_two.made - start.made) == (2, 2)
    del f
    gc.collect()
    assert tf.cache_info().traces.held == start.held
    assert tf.cache_info().traces.made == with_two.made


class SlowCompiler(Compiler):
    """Begins when it is told to; the second kernel fails."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def _compile(self, ticket: Ticket) -> Entry:
        assert self.go.wait(30)
        if self.compiled:
            raise ValueError("no such instruction")
        return super()._compile(ticket)


@pytest.mark.host("kernels of the host")
def test_kernels_wait_until_they_are_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = SlowCompiler()
    monkeypatch.setenv("GRADTAPE_CACHE", str(tmp_path))
    monkeypatch.setattr(clusters.POLICY, "compile", "background")
    monkeypatch.setattr(clusters, "PATIENCE", 0.0)
    monkeypatch.setattr(clusters, "COMPILER", compiler)
    monkeypatch.setattr(caches, "COMPILER", compiler)
    x = tf.constant(np.linspace(0, 1, 11 * 13, dtype=np.float32).reshape(11, 13))
    tf.function(lambda x: tf.exp(tf.sin(x) * 1.75) - x)(x)
    tf.function(lambda x: tf.exp(tf.cos(x) * 1.75) - x)(x)
    assert tf.cache_info().kernels == (0, 0, 2, 0, str(tmp_path))
    compiler.go.set()
    until = time.monotonic() + 60
    while tf.cache_info().kernels.waiting and time.monotonic() < until:
        time.sleep(0.01)
    assert tf.cache_info().kernels == (1, 0, 0, 1, str(tmp_path))


def test_loops_in_threads_of_their_own_are_waited_for() -> None:
    background, go, running = Background(), threading.Event(), threading.Event()

    def work() -> None:
        running.set()
        go.wait(10)

    background.start(work)
    assert running.wait(10)
    assert background.running == 1
    go.set()
    until = time.monotonic() + 10
    while background.running and time.monotonic() < until:
        time.sleep(0.001)
    assert background.running == 0


def test_blocks_return_to_the_pool() -> None:
    POOL.clear()
    assert tf.cache_info().pool[:2] == (0, 0)
    array = empty((2 * LARGE,), np.dtype(np.uint8))
    start = tf.cache_info().pool
    del array
    kept = tf.cache_info().pool
    assert (kept.blocks, kept.bytes) == (start.blocks + 1, start.bytes + 2 * LARGE)
    again = empty((2 * LARGE,), np.dtype(np.uint8))
    used = tf.cache_info().pool
    assert used.hits == kept.hits + 1
    assert used.blocks == start.blocks
    assert again.size == 2 * LARGE


def test_as_text_a_line_for_each_part() -> None:
    lines = str(tf.cache_info()).splitlines()
    assert [line.split(":")[0] for line in lines] == ["plans", "traces", "kernels", "pool"]
    assert "waiting" in lines[2]
