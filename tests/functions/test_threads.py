"""Eight threads that trace, call and differentiate at once."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends import clusters, small
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import float64
from gradtape.ir.interned import Interned
from gradtape.kernels.compiled import Compiler
from gradtape.ops.layout import RESHAPE
from gradtape.runtime import backward
from tests.kernels.conftest import fast, folder, strict  # noqa: F401  (fixtures: compilers of kernels)

THREADS = 8


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """The results of eight threads that begin together; an error of one is raised here."""
    barrier = threading.Barrier(THREADS)
    results: list[Any] = [None] * THREADS
    errors: list[BaseException] = []

    def run(k: int) -> None:
        barrier.wait()
        try:
            results[k] = work(k)
        except BaseException as e:  # noqa: BLE001 - raised again in the thread of the test
            errors.append(e)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return results


def body(x: Any, n: Any) -> Any:
    total = x * 0.0
    for i in tf.range(n):
        if tf.reduce_sum(total) > 3.0:
            total = total * 0.5
        total += tf.sin(x) * tf.cast(i, x.dtype)
    return total


def test_equal_results_and_one_trace_for_each_signature() -> None:
    runs = []

    @tf.function
    def f(x: Any, n: Any) -> Any:
        runs.append(x.shape[0])
        return body(x, n)

    @tf.function
    def g(x: Any, n: Any) -> Any:
        return tf.reduce_sum(f(x, n)) + tf.reduce_sum(f(x * 2.0, n))

    def work(k: int) -> Any:
        found = []
        for size in (1, 2, 3, 1, 2, 3):
            x = tf.constant(np.linspace(0.1, 2.0, size))
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = g(x, tf.constant(4 + k % 2))
            found.append((y.numpy(), tape.gradient(y, x).numpy()))
        return found

    results = at_once(work)
    for k in range(2, THREADS):
        for (y, dy), (z, dz) in zip(results[k], results[k % 2]):
            np.testing.assert_array_equal(y, z)
            np.testing.assert_array_equal(dy, dz)
    assert sorted(runs) == [1, 2, 3] and f.experimental_get_tracing_count() == 3
    x = tf.constant(np.linspace(0.1, 2.0, 3))
    plain = tf.reduce_sum(body(x, tf.constant(4))) + tf.reduce_sum(body(x * 2.0, tf.constant(4)))
    np.testing.assert_allclose(results[0][2][0], plain.numpy(), 1e-12)


def test_one_trace_for_all_shapes() -> None:
    runs = []

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float64)])
    def f(x: Any) -> Any:
        runs.append(1)
        return body(x, tf.constant(3)) * tf.cast(tf.shape(x)[0], tf.float64)

    results = at_once(lambda k: [f(tf.constant(np.linspace(0.0, 1.0, n + 1))).numpy() for n in range(6)])
    for found in results[1:]:
        for a, b in zip(found, results[0]):
            np.testing.assert_array_equal(a, b)
    assert runs == [1]


def test_methods_and_functions_that_call_each_other() -> None:
    """Two functions that trace each other's callers, from different ends: nobody waits for the other."""

    @tf.function
    def a(x: Any, depth: int) -> Any:
        return x if depth == 0 else b(x * 2.0, depth - 1)

    @tf.function
    def b(x: Any, depth: int) -> Any:
        return x if depth == 0 else a(x + 1.0, depth - 1)

    results = at_once(lambda k: float((a if k % 2 else b)(tf.constant(1.0), 3)))
    assert results == [float((a if k % 2 else b)(tf.constant(1.0), 3)) for k in range(THREADS)]


def test_random_numbers_of_threads_differ() -> None:
    f = tf.function(lambda: tf.random.normal([4]))
    drawn = at_once(lambda k: [f().numpy().tolist() for _ in range(3)])
    assert len({tuple(x) for rows in drawn for x in rows}) == 3 * THREADS


PROGRAMS: list[Callable[[Any], Any]] = [
    lambda x: tf.tanh(x * 1.5) * tf.exp(-tf.square(x)),
    lambda x: tf.nn.softmax(tf.sin(x) + 0.5 * x),
    lambda x: tf.math.log1p(tf.square(x)) - tf.reduce_mean(x, axis=-1, keepdims=True),
]


def everything_of(size: int) -> list[Any]:
    """Values, gradients and Jacobians of the programs: eagerly, and traced anew."""
    found = []
    x = tf.constant(np.linspace(-1.0, 1.0, size).reshape(2, -1))
    for program in PROGRAMS:
        for f in (program, tf.function(program)):
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = f(x)
            found += [y.numpy(), tape.gradient(y, x).numpy(), tape.jacobian(y, x).numpy()]
    return found


@pytest.mark.host("kernels of the host")
def test_recorded_and_traced_programs_while_plans_are_dropped_and_kernels_compiled(
    fast: Compiler,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = (6, 8, 20)
    monkeypatch.setattr(clusters.POLICY, "compile", "never")
    wanted = {size: everything_of(size) for size in sizes}
    monkeypatch.setattr(clusters.POLICY, "compile", "background")
    for module in (clusters, small):
        monkeypatch.setattr(module, "PATIENCE", 0.0)
    monkeypatch.setattr(backward, "MAX_PROGRAMS", 4)
    deadline = time.monotonic() + 120

    def work(k: int) -> int:
        rounds = 0
        while rounds < 3 or (not fast.compiled + fast.loaded and time.monotonic() < deadline):
            for size in (*sizes[k % 3 :], *sizes[: k % 3]):
                for found, value in zip(everything_of(size), wanted[size], strict=True):
                    np.testing.assert_allclose(found, value, rtol=1e-12, atol=1e-12)
            rounds += 1
        return rounds

    at_once(work)
    assert fast.compiled + fast.loaded, "kernels ran among the programs"


class Named:
    """What there should be one of per name."""


def test_there_is_one_object_per_key() -> None:
    """Though all threads have found none before any of them has made one."""
    table: Interned[str, Named] = Interned()
    all_look = threading.Barrier(THREADS)

    def make() -> Named:
        all_look.wait()
        return Named()

    found = at_once(lambda k: table.find("name", make))
    assert all(x is found[0] for x in found)
    assert table.find("name", Named) is found[0]


def test_shapes_and_steps_of_threads_are_the_same_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RESHAPE, "steps", {})  # it begins anew when it is full
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        found = at_once(lambda k: [(aval((n, 7, 31), float64), RESHAPE.bind(shape=(n, 217))) for n in range(3000)])
    finally:
        sys.setswitchinterval(interval)
    for mine in found[1:]:
        assert all(a is b and s is t for (a, s), (b, t) in zip(mine, found[0], strict=True))
