"""Elementwise updates of variables: over blocks, and by the compiled loop that takes over."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.kernels.elementwise import BackgroundLoop, ElementwiseProgram, Step, source
from gradtape.runtime import update as updates

SHAPE = (200, 301)


def _adam(x: Any, m: Any, v: Any, g: Any, rate: Any) -> tuple[Any, Any, Any]:
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * tf.square(g)
    return x - rate * m / (tf.sqrt(v) + 1e-7), m, v


def _expected(arrays: list[Any], g: Any, steps: int) -> list[Any]:
    x, m, v = (a.astype(np.float64) for a in arrays)
    for _ in range(steps):
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g**2
        x = x - 0.01 * m / (np.sqrt(v) + 1e-7)
    return [x, m, v]


@pytest.mark.host("loops over elements of arrays of the host")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_loop_goes_on_where_blocks_stopped(dtype: str) -> None:
    rng = np.random.default_rng(0)
    start = [rng.normal(size=SHAPE).astype(dtype), np.zeros(SHAPE, dtype), np.zeros(SHAPE, dtype)]
    g = rng.normal(size=SHAPE).astype(dtype)
    variables = [tf.Variable(a) for a in start]

    def rule(*values: Any) -> Any:
        return _adam(*values)

    def step() -> None:
        updates.update(rule, variables, [tf.constant(g), tf.constant(0.01, dtype)])

    for _ in range(updates.CALLS_BEFORE_COMPILING):
        step()
    [found] = [u for key, u in updates._updates.items() if key[0] is rule]
    assert found.loop is not None
    deadline = time.monotonic() + 120
    while not found.loop.is_ready() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert found.loop.is_ready()
    held = variables[0].read_value()
    before = held.numpy()
    for _ in range(5):
        step()
    np.testing.assert_array_equal(held.numpy(), before)  # a value that was read stays
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    for v, e in zip(variables, _expected(start, g, updates.CALLS_BEFORE_COMPILING + 5), strict=True):
        np.testing.assert_allclose(v.numpy(), e, tolerance, tolerance)


OPS = ["add", "subtract", "multiply", "divide", "negative", "square", "sqrt", "abs", "maximum", "minimum"]
EDGES = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("op", OPS)
def test_every_spelling_says_what_numpy_says(op: str) -> None:
    names = {"negative": 1, "square": 1, "sqrt": 1, "abs": 1}
    unary = op in names
    a, b = (g.reshape(-1).copy() for g in np.meshgrid(EDGES, EDGES))
    operands = ("a",) if unary else ("a", "b")
    program = ElementwiseProgram(operands, (), (Step("c", op, operands),), ("c",))
    text = source(program)
    assert text is not None
    loop = BackgroundLoop(text, program, np.dtype(np.float64))
    deadline = time.monotonic() + 120
    with np.errstate(all="ignore"):
        expected = getattr(np, op)(a) if unary else getattr(np, op)(a, b)
    while not loop.run([a] if unary else [a, b], []):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    np.testing.assert_array_equal(a, expected)


def test_an_op_without_a_spelling_has_no_loop() -> None:
    assert source(ElementwiseProgram(("a",), (), (Step("c", "lgamma", ("a",)),), ("c",))) is None


@pytest.mark.host("loops over elements of arrays of the host")
def test_a_rule_that_is_not_elementwise_is_refused() -> None:
    v = tf.Variable(tf.ones([3, 3]))
    with pytest.raises(ValueError, match="not elementwise"):
        updates.update(lambda x: [tf.cumsum(x)], [v], [])
