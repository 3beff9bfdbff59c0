"""Branches and loops in the one function of a small program: random programs and their derivatives, the function run by
Python on workspaces that refuse every place outside and every row that nobody wrote, against the graph op by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends.packed import Packed
from gradtape.backends.small import with_function
from gradtape.ir.graph import Graph
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


def interpreted(laid_out: Packed) -> Callable[..., int]:
    """The function of a packed graph, as Python runs it."""
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

    return run


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
    return with_function(laid_out, interpreted(laid_out), tail)(*arrays)


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


# ------------------------------------------------------------------ tests

SEEDS = 12


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_random_programs(question: str, dtype: str) -> None:
    fitted = 0
    for seed in range(SEEDS):
        graph, arrays = traced(QUESTIONS[question](program(seed)), dtype, seed)
        fitted += compare(graph, arrays, 1e-9 if dtype == "float64" else 2e-3)
    assert fitted > SEEDS // 2
