"""Programs of small arrays run as one compiled function, with the numbers of the program op by op."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends import small as backends
from gradtape.backends.clusters import POLICY, FusedKernel
from gradtape.backends.cpu import lower
from gradtape.backends.program import compile_graph
from gradtape.backends.small import Held, SmallProgram
from gradtape.ir.graph import Graph
from gradtape.kernels.programs import Program
from gradtape.kernels.spelling import spells
from gradtape.runtime import small
from gradtape.runtime.small import in_one
from gradtape.transforms.fuse import fuse


@pytest.fixture(autouse=True)
def compiled_now() -> Iterator[None]:
    before, POLICY.compile = POLICY.compile, "now"
    yield
    POLICY.compile = before


def runs(f: Callable[..., Any], *arguments: Any) -> tuple[Any, Any, Graph]:
    """What runs a traced function in one, what runs it op by op, and its graph; for arrays."""
    concrete = tf.function(f).get_concrete_function(*arguments)
    graph = concrete.graph
    plain = concrete.trace.compiled.kernel
    program = plain.program if isinstance(plain, SmallProgram) else plain
    return in_one(Held(graph), lambda: program), program, graph


def arrays_of(graph: Graph, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.normal(size=v.aval.dims)).astype(v.aval.dtype.numpy_dtype) for v in graph.inputs]


A = tf.constant(np.random.default_rng(1).normal(size=(3, 3)))


def flow(x: Any) -> Any:
    return tf.tanh(tf.linalg.matvec(A, x))


def steps(x: Any) -> Any:
    for _ in range(3):
        a = flow(x)
        b = flow(x + 0.05 * a)
        x = x + 0.05 * (a + b)
    return x


def gradient_of_steps(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(tf.square(steps(x)))
    return y, tape.gradient(y, x)


def jacobian_of_steps(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = steps(x)
    return tape.jacobian(y, x)


def views(x: Any) -> Any:
    y = tf.tanh(tf.matmul(x, x))
    return tf.transpose(y), tf.reshape(y, [9]), x, tf.nn.softmax(tf.matmul(y, x, transpose_b=True)), tf.constant(2.0)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "a loop written out": (steps, (3,)),
    "its gradient": (gradient_of_steps, (3,)),
    "its Jacobian": (jacobian_of_steps, (3,)),
    "views, inputs and numbers as results": (views, (3, 3)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_one_is_op_by_op(name: str) -> None:
    f, shape = PROGRAMS[name]
    one, program, graph = runs(f, tf.zeros(shape, tf.float64))
    arrays = arrays_of(graph)
    found, wanted = one(*arrays), program(*arrays)
    assert isinstance(one, SmallProgram) and one.native is not None
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_equal_steps_are_compiled_once() -> None:
    one, _, graph = runs(steps, tf.zeros([3], tf.float64))
    packed, _ = one.pack(graph)
    program: Program = packed.program
    assert len(program.lines) >= 6
    assert len(program.layouts) < len(program.lines)


def test_results_are_fresh_and_inputs_stay() -> None:
    one, _, graph = runs(steps, tf.zeros([3], tf.float64))
    arrays = arrays_of(graph)
    copies = [a.copy() for a in arrays]
    (first,) = one(*arrays)
    kept = first.copy()
    one(*[a + 1 for a in arrays])
    assert np.array_equal(first, kept)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, copies, strict=True))


def test_angles_beyond_the_limit_are_done_op_by_op() -> None:
    def f(x: Any) -> Any:
        y = tf.sin(tf.matmul(x, x))
        return tf.cos(tf.matmul(y, x)), tf.reduce_sum(tf.sin(x))

    one, program, _ = runs(f, tf.zeros([3, 3], tf.float64))
    arrays = [np.full((3, 3), 1e15)]
    for a, b in zip(one(*arrays), program(*arrays), strict=True):
        np.testing.assert_array_equal(a, b)


def test_large_arrays_and_other_ops_stay_apart() -> None:
    one, program, _ = runs(lambda x: tf.tanh(x) * tf.exp(x) + tf.reduce_sum(x), tf.zeros([5000]))
    assert one is program
    one, program, graph = runs(lambda x: tf.tanh(tf.sort(tf.matmul(x, x))) + tf.reduce_sum(x), tf.zeros([3, 3]))
    arrays = arrays_of(graph)
    assert np.allclose(one(*arrays)[0], program(*arrays)[0])
    assert one is program or one.native is None


def test_threads_at_once() -> None:
    one, program, graph = runs(gradient_of_steps, tf.zeros([3], tf.float64))
    given = [arrays_of(graph, seed) for seed in range(8)]
    wanted = [program(*a) for a in given]
    faults: list[int] = []

    def work(k: int) -> None:
        for _ in range(50):
            found = one(*given[k])
            if not all(np.allclose(a, b, rtol=1e-12) for a, b in zip(found, wanted[k], strict=True)):
                faults.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


def test_what_runs_op_by_op_is_let_go_when_the_function_is_there() -> None:
    def f(x: Any) -> Any:
        return tf.sin(tf.matmul(tf.sin(x), x)), tf.reduce_sum(tf.cos(x))

    one, program, graph = runs(f, tf.zeros([3, 3], tf.float64))
    assert isinstance(one, SmallProgram)
    arrays, far = arrays_of(graph), [np.full((3, 3), 1e15)]
    np.testing.assert_allclose(one(*arrays)[0], program(*arrays)[0], rtol=1e-12)
    assert one.native is not None and one.made is None and one.asked is None
    np.testing.assert_array_equal(one(*far)[0], program(*far)[0])
    assert one.made is not None


@pytest.mark.parametrize("way", ["now", "never"])
def test_many_steps_are_fused_only_where_no_function_comes(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, program, graph = runs(gradient_of_steps, tf.zeros([3], tf.float64))
    monkeypatch.setattr(small, "MANY", 5)
    monkeypatch.setattr(POLICY, "compile", way)
    made: list[int] = []
    one = in_one(Held(graph), lambda: made.append(1) or program)  # type: ignore[func-returns-value]
    arrays = arrays_of(graph)
    for a, b in zip(one(*arrays), program(*arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    assert not made
    one.native, one.waits = None, False
    for a, b in zip(one(*arrays), program(*arrays), strict=True):
        np.testing.assert_array_equal(a, b)
    assert made


def test_no_step_of_what_ran_op_by_op_stays() -> None:
    def kernels() -> list[FusedKernel]:
        gc.collect()
        return [o for o in gc.get_objects() if isinstance(o, FusedKernel)]

    _, _, graph = runs(steps, tf.zeros([3], tf.float64))
    arrays, before = arrays_of(graph), kernels()  # those of other programs stay while they are named here

    def fused() -> Any:
        return compile_graph(fuse(graph, spells), lower)

    one = SmallProgram(Held(graph), fused, fused, 1.0, small.packed)
    POLICY.compile = "never"
    one(*arrays)
    assert len(kernels()) > len(before)
    POLICY.compile = "now"
    one(*arrays)
    assert one.native is not None and len(kernels()) == len(before)


@pytest.mark.parametrize("most, runs", [(1500, 3), (5, backends.RUNS + 1)])
def test_large_programs_run_for_longer_before_they_are_laid_out(
    most: int, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(backends, "MANY", most)
    monkeypatch.setattr(backends.COMPILER, "submit", begun.append)
    POLICY.compile = "background"
    graph = tf.function(steps).get_concrete_function(tf.zeros([3], tf.float64)).graph
    arrays, program = arrays_of(graph), lambda *arrays: arrays
    one = SmallProgram(Held(graph), lambda: program, lambda: program, backends.PATIENCE / 2, small.packed)
    counts = []
    for _ in range(runs + 1):
        one(*arrays)
        counts.append(len(begun))
    assert counts == [0] * (runs - 1) + [1, 1]
