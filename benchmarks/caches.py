"""Second and later gradients of one structure: what they still build, by counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

import gradtape as tf
from benchmarks.workload import Count, Figure, Setting
from gradtape.backends import cpu
from gradtape.ops.op import Step as Operation
from gradtape.runtime import backward, compiled
from gradtape.runtime.backward import PROGRAMS
from gradtape.runtime.record import TRIE, Recorder

Step = Callable[[int], None]


def chain() -> Step:
    x = tf.Variable(np.linspace(0, 1, 8, dtype=np.float32))

    def step(k: int) -> None:
        with tf.GradientTape() as tape:
            y: Any = x
            for _ in range(50):
                y = tf.sin(y * 1.01)
        tape.gradient(y, x)

    return step


def schedule() -> Step:
    """Python numbers that vary: a rate outside the tape and a weight inside it."""
    w = tf.Variable(np.ones((8, 4), np.float32))
    x = tf.constant(np.ones((16, 8), np.float32))

    def step(k: int) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w))) * (1.0 / (k + 1))
        w.assign_sub(tape.gradient(loss, w) * (0.1 / (k + 1)))

    return step


def nested() -> Step:
    x = tf.Variable(np.linspace(0, 1, 8, dtype=np.float32))

    def step(k: int) -> None:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                y = tf.sin(x) * x
            slope = inner.gradient(y, x)
        outer.gradient(slope, x)

    return step


def persistent() -> Step:
    """Two targets of one tape, with cotangents that change."""
    x = tf.Variable(np.linspace(0, 1, 8, dtype=np.float32))

    def step(k: int) -> None:
        with tf.GradientTape(persistent=True) as tape:
            y = tf.tanh(x)
            z = tf.reduce_sum(y * y)
        tape.gradient(y, x, output_gradients=tf.constant(np.full(8, float(k), np.float32)))
        tape.gradient(z, x)

    return step


def custom() -> Step:
    """A rule of the user's own between recorded operations: it runs each time, nothing is built again."""
    x = tf.Variable(np.linspace(0, 1, 8, dtype=np.float32))

    @tf.custom_gradient
    def halved(v: Any) -> Any:
        return v * 0.5, lambda g: g * 0.25

    def step(k: int) -> None:
        with tf.GradientTape() as tape:
            y = tf.sin(halved(x * 2.0))
        tape.gradient(y, x)

    return step


SCENES: dict[str, Callable[[], Step]] = {
    "chain of 100 operations": chain,
    "numbers that vary": schedule,
    "nested tapes": nested,
    "persistent tape, two targets": persistent,
    "custom gradient": custom,
}


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Counts calls where the work is done: differentiating, growing the record trie, lowering, inferring shapes."""
    counts: Counter[str] = Counter()

    def counted(owner: Any, name: str, what: str) -> Any:
        original = getattr(owner, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            counts[what] += 1
            return original(*args, **kwargs)

        return mock.patch.object(owner, name, wrapper)

    with (
        counted(backward, "pull_back", "differentiated"),
        counted(compiled, "augmented", "differentiated"),
        counted(compiled, "simplify", "simplified"),
        counted(cpu, "compile_graph", "compiled"),
        counted(compiled, "compile_graph", "compiled"),
        counted(Recorder, "_grow", "structures"),
        counted(Operation, "infer", "shapes inferred"),
    ):
        yield counts


KINDS = ("differentiated", "simplified", "compiled", "structures", "shapes inferred")


def figures(setting: Setting) -> list[Figure]:
    later = 5 if setting.quick else 50
    found: list[Figure] = []
    for name, make in SCENES.items():
        first, rest = built(make(), later)
        note = f"the first: {_text(first)}; the others: {_text(rest)}"
        found.append(Figure(f"{name}: work of steps 2 to {later + 1}", sum(rest.values()), "", 0, note))
    return found


def built(step: Step, later: int) -> tuple[Counter[str], Counter[str]]:
    """What the first step builds, from empty caches, and what all later ones build."""
    PROGRAMS.clear()
    TRIE.clear()
    with counting() as counts:
        step(0)
        first = Counter(counts)
        counts.clear()
        for k in range(1, later + 1):
            step(k)
    return first, Counter(counts)


def _text(counts: Counter[str]) -> str:
    return ", ".join(f"{kind} {counts[kind]}" for kind in KINDS)


WORKLOADS = [Count("caches", "what second and later gradients of one structure build anew", figures)]
