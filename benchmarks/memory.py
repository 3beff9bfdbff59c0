"""Memory held by long tape loops: bytes after a thousand steps and after ten thousand."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Callable

import numpy as np

import gradtape as tf
from benchmarks.workload import Count, Figure, Setting
from gradtape.backends.clusters import POLICY
from gradtape.runtime.backward import PROGRAMS
from gradtape.runtime.record import TRIE

Step = Callable[[int], None]

PAGE = os.sysconf("SC_PAGE_SIZE")


def training() -> Step:
    """A step of gradient descent, its rate another Python number each time."""
    w = tf.Variable(np.ones((8, 4), np.float32))
    x = tf.constant(np.ones((16, 8), np.float32))

    def step(k: int) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
        g = tape.gradient(loss, w)
        w.assign_sub(g * (0.1 / (1.0 + 0.01 * k)))

    return step


def window() -> Step:
    """A gradient through a window that moves along the data."""
    data = tf.constant(np.linspace(0, 1, 64, dtype=np.float32))
    w = tf.Variable(np.ones(8, np.float32))

    def step(k: int) -> None:
        start = k % 48
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(data[start : start + 8] * w)
        tape.gradient(loss, w)

    return step


def nested() -> Step:
    """A second derivative by a tape in a persistent tape."""
    x = tf.Variable(np.linspace(0, 1, 8, dtype=np.float32))

    def step(k: int) -> None:
        with tf.GradientTape(persistent=True) as outer:
            with tf.GradientTape() as inner:
                y = tf.sin(x) * x
            slope = inner.gradient(y, x)
        outer.gradient(slope, x)

    return step


LOOPS: dict[str, Callable[[], Step]] = {"training": training, "moving window": window, "nested tapes": nested}

# Allocators keep a few pages more or less; a leak of one small object per step would be 500 KiB.
RESIDENT_LIMIT, PYTHON_LIMIT = 1024, 16


def resident() -> float:
    """Memory of this process in KiB, as the kernel counts it."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE / 1024


def held() -> float:
    """Memory in KiB that Python objects hold, as tracemalloc counts it."""
    return tracemalloc.get_traced_memory()[0] / 1024


def after(step: Step, read: Callable[[], float], few: int, many: int) -> tuple[float, float]:
    """A reading after `few` steps and one after `many`."""
    for k in range(few):
        step(k)
    gc.collect()
    first = read()
    for k in range(few, many):
        step(k)
    gc.collect()
    return first, read()


def figures(setting: Setting) -> list[Figure]:
    few, many = (50, 500) if setting.quick else (1000, 10_000)
    found: list[Figure] = []
    way, POLICY.compile = POLICY.compile, "now"  # else a compiler would begin somewhere in between
    try:
        for name, make in LOOPS.items():
            found += _grown(name, make, few, many)
    finally:
        POLICY.compile = way
    return found


def _grown(name: str, make: Callable[[], Step], few: int, many: int) -> list[Figure]:
    found: list[Figure] = []
    first, last = after(make(), resident, few, many)
    note = f"{first:,.0f} KiB after {few:,} steps, {last:,.0f} KiB after {many:,}"
    found.append(Figure(f"{name}: growth of resident memory", last - first, "KiB", RESIDENT_LIMIT, note))
    PROGRAMS.clear()
    TRIE.clear()  # so that what the loop's structures hold counts too
    tracemalloc.start()
    try:
        first, last = after(make(), held, few, many)
    finally:
        tracemalloc.stop()
    note = f"{first:,.1f} KiB after {few:,} steps, {last:,.1f} KiB after {many:,}"
    found.append(Figure(f"{name}: growth of Python objects", last - first, "KiB", PYTHON_LIMIT, note))
    found.append(Figure(f"{name}: structures remembered", TRIE.size, ""))
    return found


WORKLOADS = [Count("memory", "growth of a tape loop's memory from its thousandth to its ten-thousandth step", figures)]
