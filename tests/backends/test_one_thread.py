"""Products in threads of ours: the same bits for any number of threads, and BLAS has its threads back afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends import one_thread
from gradtape.backends.gemm import compile_contraction
from gradtape.backends.one_thread import OneThread, in_one_thread, multiply, share_products
from gradtape.backends.pieces import in_pieces
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import float64
from gradtape.ir.graph import Graph, Value
from gradtape.kernels import loops
from gradtape.kernels.loops import share
from gradtape.ops.op import emit
from gradtape.runtime import compiled
from gradtape.runtime.compiled import CompiledGraph


class Blas:
    """A library that only counts."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.seen: list[int] = []

    def get_num_threads(self) -> int:
        return self.threads

    def set_num_threads(self, count: int) -> None:
        self.threads = count
        self.seen.append(count)


@pytest.fixture
def blas(monkeypatch: pytest.MonkeyPatch) -> Blas:
    """A BLAS of 4 threads in place of NumPy's."""
    found, own = Blas(4), OneThread()
    own._libraries = [found]
    monkeypatch.setattr(one_thread, "ONE_THREAD", own)
    return found


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """So many threads share what there is, however many cores the machine has."""
    monkeypatch.setattr(loops, "threads", lambda: request.param)
    with ThreadPoolExecutor(3) as pool:
        monkeypatch.setattr(loops._HELPERS, "pool", pool)
        yield request.param


def test_blas_has_its_threads_back(blas: Blas) -> None:
    during: list[int] = []

    def program() -> tuple[int]:
        share_products(4, 1 << 30, lambda start, stop: during.append(blas.threads))
        return (blas.threads,)

    assert in_one_thread(program)() == (1,) and set(during) == {1} and blas.threads == 4
    assert blas.seen == [1, 4]  # the inner one found it done

    def fails(start: int, stop: int) -> None:
        raise MemoryError("no")

    with pytest.raises(MemoryError):
        share_products(4, 1 << 30, fails)
    assert blas.threads == 4


def test_the_last_of_several_threads_gives_them_back(blas: Blas) -> None:
    entered, leave = threading.Event(), threading.Event()

    def long() -> None:
        entered.set()
        leave.wait(10)

    other = threading.Thread(target=in_one_thread(lambda: (long(),)))
    other.start()
    assert entered.wait(10)
    in_one_thread(lambda: ())()
    assert blas.threads == 1
    leave.set()
    other.join()
    assert blas.threads == 4


def test_products_ask_blas_for_its_threads_where_they_follow_each_other(blas: Blas) -> None:
    seen: list[int] = []
    multiply(64, one_thread.WAKING, lambda start, stop: seen.append(blas.threads))
    multiply(64, one_thread.WAKING - 1, lambda start, stop: seen.append(blas.threads))
    with one_thread.ONE_THREAD:
        multiply(64, one_thread.WAKING, lambda start, stop: seen.append(blas.threads))
    assert seen == [4, 1, 1]


def test_without_a_known_blas_one_thread_does_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    own = OneThread()
    own._libraries = []
    monkeypatch.setattr(one_thread, "ONE_THREAD", own)
    monkeypatch.setattr(loops, "threads", lambda: 2)
    runs: list[tuple[int, int]] = []
    share_products(8, 1 << 30, lambda start, stop: runs.append((start, stop)))
    assert runs == [(0, 8)]


def test_the_blas_of_this_process_is_found() -> None:
    libraries = OneThread().libraries
    assert libraries and all(b.get_num_threads() >= 1 for b in libraries)


@pytest.mark.parametrize(
    "subscripts, shapes",
    [
        ("ab,bc->ac", [(333, 129), (129, 205)]),
        ("ab,cb->ac", [(90, 257), (531, 257)]),
        ("ba,bc->ac", [(257, 301), (257, 66)]),
        ("ab,b->a", [(517, 303)]),
        ("ba,b->a", [(303, 517)]),
        ("nab,nbc->nac", [(3, 128, 65), (3, 65, 130)]),
    ],
)
def test_the_same_bits_for_any_number_of_threads(
    subscripts: str, shapes: list[tuple[int, ...]], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "SHARE", 64)
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in (*shapes, (303,))[:2])
    run = compile_contraction(subscripts)
    with one_thread.ONE_THREAD:
        got = run(a, b)
        monkeypatch.setattr(loops, "threads", lambda: 1)
        np.testing.assert_array_equal(got, run(a, b))
    np.testing.assert_allclose(got, np.einsum(subscripts, a, b), rtol=1e-3, atol=1e-3)


def test_pieces_in_threads_may_share_their_own_work(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of shared work that shares again does so alone: nobody waits for a thread that waits."""
    monkeypatch.setattr(loops, "SHARE", 1)

    def program(x: Any) -> tuple[Any]:
        out = np.empty_like(x)
        share(len(x), 1 << 30, lambda start, stop: np.multiply(x[start:stop], 2, out=out[start:stop]))
        return (out,)

    x = np.arange(96.0).reshape(24, 4)
    run = in_pieces(program, 8, [0], [0], [((24, 4), np.dtype(float))])
    np.testing.assert_array_equal(run(x), 2 * x)


def test_a_part_that_fails_leaves_its_thread_as_it_was(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "SHARE", 1)

    def fails(start: int, stop: int) -> None:
        raise MemoryError("no")

    with pytest.raises(MemoryError):
        share(8, 8, fails)
    assert loops.sharing(8, 8) == threads


@pytest.mark.skipif(loops.current_core() is None, reason="this system does not say on which core a thread runs")
def test_helpers_stay_off_the_core_of_the_thread_that_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    helpers = loops._Helpers()
    monkeypatch.setattr(loops, "_HELPERS", helpers)
    monkeypatch.setattr(loops, "sharing", lambda rows, work: 2)
    placed: list[tuple[int, set[int]]] = []
    monkeypatch.setattr(loops.os, "sched_getaffinity", lambda thread: {0, 1, 5})
    monkeypatch.setattr(loops.os, "sched_setaffinity", lambda thread, cores: placed.append((thread, cores)))
    cores = iter([1, 1, 5, 1])
    monkeypatch.setattr(loops, "current_core", lambda: next(cores))
    for _ in range(3):  # the first call starts the helper
        share(2, 2, lambda start, stop: None)
    assert placed == [(helpers.ids[0], {0, 5}), (helpers.ids[0], {0, 1})]

    def forbidden(thread: int, cores: set[int]) -> None:
        raise PermissionError

    monkeypatch.setattr(loops.os, "sched_setaffinity", forbidden)
    seen: list[tuple[int, int]] = []
    share(2, 2, lambda start, stop: seen.append((start, stop)))
    assert sorted(seen) == [(0, 1), (1, 2)] and helpers.ids == []
    assert helpers.pool is not None
    helpers.pool.shutdown()


def test_graphs_run_in_threads_of_ours_alone_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Graph] = []

    def noted(program: Any, graph: Graph) -> Any:
        seen.append(graph)
        return program

    monkeypatch.setattr(compiled, "threaded", noted)
    x = Value(aval((3,), float64))
    graph = CompiledGraph(Graph([x], [emit("exp", emit("sin", x))]))
    t = tf.constant([1.0, 2.0, 3.0], tf.float64)
    graph([t])
    assert len(seen) == 1
    with tf.GradientTape() as tape:
        tape.watch(t)
        (y,) = graph([t])
    assert len(seen) == 2
    np.testing.assert_allclose(tape.gradient(y, t), np.exp(np.sin(t)) * np.cos(t))
