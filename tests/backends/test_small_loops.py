"""Branches and loops in the one function of a small program: random programs and their derivatives, the function run by
Python on workspaces that refuse every place outside and every row that nobody wrote, against the graph op by op."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends import small
from gradtape.backends.clusters import POLICY
from gradtape.backends.packed import Packed
from gradtape.backends.small import ROWS, Memory, with_function
from gradtape.ir.graph import Graph
from gradtape.kernels import jumps
from gradtape.kernels.compiled import COMPILER
from gradtape.kernels.jumps import DONE, FULL, PAUSED
from gradtape.runtime.small import packed
from tests.backends.nested_programs import SIZE, program, start
from tests.kernels.interpreted import Checked, environment
from tests.op_table.running import node_by_node

Answer = Callable[..., Any]


# ------------------------------------------------------------------ what is asked of a program


def value(f: Answer) -> Answer:
    return f


def gradient(f: Answer) -> Answer:
    def run(x: Any, m: Any, y: Any, k: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, m, y])
            z = tf.reduce_sum(tf.sin(f(x, m, y, k)))
        return (z, *tape.gradient(z, [x, m, y], unconnected_gradients="zero"))

    return run


def second(f: Answer) -> Answer:
    def run(x: Any, m: Any, y: Any, k: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch([x, m])
            with tf.GradientTape() as inner:
                inner.watch(x)
                z = tf.reduce_sum(tf.sin(f(x, m, y, k)))
            g = inner.gradient(z, x, unconnected_gradients="zero")
        return outer.gradient(g, [x, m], unconnected_gradients="zero")

    return run


def jacobian(f: Answer) -> Answer:
    def run(x: Any, m: Any, y: Any, k: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            z = f(x, m, y, k)
        return tape.jacobian(z, x, unconnected_gradients="zero")

    return run


QUESTIONS: dict[str, Callable[[Answer], Answer]] = {f.__name__: f for f in (value, gradient, second, jacobian)}

# ------------------------------------------------------------------ a program run by Python


def interpreted(laid_out: Packed) -> Callable[..., Callable[[], int]]:
    """The function of a packed graph, as Python runs it, for its arguments."""
    source = laid_out.program.source()
    names = dict(environment()) | {"inner": lambda f: f}
    exec(compile(source.text.replace("@(", "("), "<program>", "exec"), names)
    function = names["kernel"]

    def run(*arguments: Any) -> int:
        spaces, rest = arguments[: len(source.spaces)], arguments[len(source.spaces) :]
        checked = []
        for space, dtype in zip(spaces, source.spaces, strict=True):
            written = np.arange(space.size) < laid_out.sizes.get(dtype, 0)
            checked.append(Checked(space, written))
        with np.errstate(all="ignore"):
            ended: int = function(*checked, *rest)
        return ended

    return lambda *arguments: lambda: run(*arguments)


def traced(f: Answer, dtype: str, seed: int) -> tuple[Graph, list[Any]]:
    """The graph of a function of a state, and random operands with what it captured."""
    trace = tf.function(f).get_concrete_function(*start(dtype)).trace
    rng = np.random.default_rng(seed)
    drawn = [rng.normal(size=[SIZE]), rng.normal(size=[SIZE, SIZE]), rng.normal(size=[]), rng.integers(0, 5, [])]
    arrays = [np.asarray(a).astype(d)[()] for a, d in zip(drawn, [dtype, dtype, dtype, "int32"], strict=True)]
    return trace.compiled.graph, [*arrays, *(t.numpy() for t in trace.captured)]


def run(graph: Graph, arrays: Sequence[Any]) -> Any:
    """The results in one function; None where the graph does not fit into one."""
    found = packed(graph)
    if found is None:
        return None
    laid_out, tail = found
    return with_function(Memory(laid_out), interpreted(laid_out), tail)(*arrays)


def compare(graph: Graph, arrays: Sequence[Any], rtol: float = 1e-9) -> bool:
    """Whether a graph fits into one function, which gives what the graph gives."""
    found = run(graph, arrays)
    if found is None:
        return False
    with np.errstate(all="ignore"):
        wanted = node_by_node(graph, arrays)
    for a, b in zip(found, wanted, strict=True):
        assert np.shape(a) == np.shape(b) and np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * 1e-2)
    return True


# ------------------------------------------------------------------ random programs

SEEDS = 12


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("question", QUESTIONS)
def test_random_programs(question: str, depth: int) -> None:
    count = SEEDS if depth == 2 else SEEDS // 3
    fitted = [compare(*traced(QUESTIONS[question](program(seed, depth)), "float64", seed)) for seed in range(count)]
    assert sum(fitted) > count // 2


@pytest.mark.parametrize("question", ["value", "gradient", "second"])
def test_random_programs_of_parts(question: str) -> None:
    """With rows at positions that are known when running, slices, pads and concatenations."""
    fitted = [compare(*traced(QUESTIONS[question](program(s, has_parts=True)), "float64", s)) for s in range(SEEDS)]
    assert sum(fitted) > 2 * SEEDS // 3


def test_random_programs_in_float32() -> None:
    assert sum(compare(*traced(gradient(program(seed)), "float32", seed), 5e-3) for seed in range(SEEDS)) > SEEDS // 2


@pytest.mark.parametrize("question", ["value", "gradient", "jacobian"])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none(question: str, special: float) -> None:
    for seed in range(SEEDS // 2):
        graph, arrays = traced(QUESTIONS[question](program(seed)), "float64", seed)
        arrays[0] = np.where(np.arange(SIZE) == seed % SIZE, special, arrays[0])
        compare(graph, arrays)


# ------------------------------------------------------------------ loops that machine code runs


@pytest.fixture
def compiled_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POLICY, "compile", "now")


def native(graph: Graph) -> tuple[Callable[..., Any], Memory, list[int]]:
    """What runs a graph in one function, compiled; its memory, and what the function answered when it was called."""
    found = packed(graph)
    assert found is not None
    laid_out, tail = found
    function = COMPILER.request(laid_out.program.source()).wait()
    answers: list[int] = []

    def noted(*arguments: Any) -> Callable[[], int]:
        def call() -> int:
            answers.append(function(*arguments))
            return answers[-1]

        return call

    memory = Memory(laid_out)
    return with_function(memory, noted, tail), memory, answers


def spiral(x: Any, m: Any, y: Any, k: Any) -> Any:
    """A loop of as many rounds as an operand says, in each of which there is a loop with a branch."""

    def inner(i: Any, x: Any) -> Any:
        return i + 1, tf.cond(i < 1, lambda: tf.tanh(tf.linalg.matvec(m, x)) + y, lambda: tf.sin(x) * y)

    def outer(i: Any, x: Any) -> Any:
        return i + 1, x + 0.01 * tf.while_loop(lambda j, x: j < tf.minimum(i, 3), inner, (0, x))[1]

    return tf.while_loop(lambda i, x: i < k, outer, (0, x))[1]


@pytest.mark.parametrize("question", QUESTIONS)
def test_machine_code(question: str) -> None:
    graph, arrays = traced(QUESTIONS[question](spiral), "float64", 5)
    run, _, answers = native(graph)
    for rounds in (0, 1, 9, 300):
        arrays[3] = np.int32(rounds)
        for a, b in zip(run(*arrays), node_by_node(graph, arrays), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    assert DONE in answers and set(answers) <= {DONE, FULL}


def collected(x: Any, m: Any, y: Any, k: Any) -> Any:
    """A loop that reads rows, writes rows, and reads what it wrote, of more elements than kernels run over."""
    found = tf.TensorArray(x.dtype, 2000, element_shape=[SIZE]).unstack(tf.zeros([2000, SIZE], x.dtype))
    for i in tf.range(1, k):
        found = found.write(i, tf.tanh(m[tf.minimum(i, SIZE - 1)] + found.read(i - 1) * y))
    return found.read(k - 1) + x


@pytest.mark.parametrize("question", ["value", "gradient"])
def test_rows_in_machine_code(question: str) -> None:
    graph, arrays = traced(QUESTIONS[question](collected), "float64", 5)
    run, _, answers = native(graph)
    for rounds in (1, 2, 300):
        arrays[3] = np.int32(rounds)
        for a, b in zip(run(*arrays), node_by_node(graph, arrays), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    assert DONE in answers and set(answers) <= {DONE, FULL}
    arrays[3] = np.int32(2002)
    assert run(*arrays) is None  # it runs op by op
    with pytest.raises(tf.errors.InvalidArgumentError, match="index 2000 is not in"):
        node_by_node(graph, arrays)


def test_room_grows_and_stays() -> None:
    graph, arrays = traced(gradient(spiral), "float64", 6)
    run, memory, answers = native(graph)
    arrays[3] = np.int32(ROWS // 2)
    run(*arrays)
    rows = dict(memory.rows)
    arrays[3] = np.int32(5 * ROWS)
    run(*arrays)
    assert FULL in answers and any(memory.rows[k] > rows[k] for k in rows)
    answers.clear()
    run(*arrays)
    assert answers == [DONE]


def test_loops_beyond_the_memory_run_op_by_op(monkeypatch: pytest.MonkeyPatch, compiled_now: None) -> None:
    monkeypatch.setattr(small, "MOST", 1 << 16)
    f = tf.function(gradient(spiral))
    _, arrays = traced(gradient(spiral), "float64", 7)
    arrays[3] = np.int32(400)
    found = f(*arrays[:4])
    monkeypatch.setattr(POLICY, "compile", "never")
    for a, b in zip(found, f(*arrays[:4]), strict=True):
        assert np.array_equal(a, b)


def test_many_rounds_are_run_in_parts() -> None:
    def count(x: Any, m: Any, y: Any, k: Any) -> Any:
        return tf.while_loop(lambda i: i < k, lambda i: (i + 1,), (tf.constant(0),))[0]

    graph, arrays = traced(count, "float64", 8)
    run, _, answers = native(graph)
    arrays[3] = np.int32(2 * jumps.ROUNDS + 10)
    assert run(*arrays) == (arrays[3],)
    assert answers == [PAUSED, PAUSED, DONE]


def test_angles_beyond_the_limit_end_a_loop(compiled_now: None) -> None:
    def grow(x: Any, m: Any, y: Any, k: Any) -> Any:
        return tf.while_loop(lambda x: tf.reduce_max(tf.sin(x)) < 2.0 * y, lambda x: (x * 1e4,), (x,))[0]

    f = tf.function(grow)
    arguments = (tf.ones([SIZE], tf.float64), tf.zeros([SIZE, SIZE], tf.float64), tf.constant(0.4, tf.float64), 3)
    found = f(*arguments)
    wanted = 1.0
    while np.sin(wanted) < 0.8:
        wanted *= 1e4
    assert np.array_equal(found, np.full(SIZE, wanted))


def test_threads_that_need_more_room_at_once() -> None:
    graph, arrays = traced(gradient(spiral), "float64", 9)
    run, _, _ = native(graph)
    given = [[*arrays[:3], np.int32(50 * (k + 1)), *arrays[4:]] for k in range(6)]
    wanted = [node_by_node(graph, a) for a in given]
    faults: list[int] = []

    def work(k: int) -> None:
        for _ in range(5):
            if not all(np.allclose(a, b, rtol=1e-9) for a, b in zip(run(*given[k]), wanted[k], strict=True)):
                faults.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


def test_what_fails_in_a_loop_fails(compiled_now: None) -> None:
    @tf.function
    def f(x: Any) -> Any:
        def once(i: Any, x: Any) -> Any:
            tf.debugging.assert_less(x, 10.0, message="too large")
            return i + 1, x * 2.0

        return tf.while_loop(lambda i, x: i < 8, once, (0, x))[1]

    assert float(f(tf.constant(0.01))) == pytest.approx(2.56)
    with pytest.raises(tf.errors.InvalidArgumentError, match="too large"):
        f(tf.constant(1.0))
