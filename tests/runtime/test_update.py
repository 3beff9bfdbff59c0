"""Elementwise updates of variables: over blocks, and by the kernel that takes over."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends.clusters import POLICY
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
def test_the_kernel_goes_on_where_blocks_stopped(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POLICY, "compile", "background")
    rng = np.random.default_rng(0)
    start = [rng.normal(size=SHAPE).astype(dtype), np.zeros(SHAPE, dtype), np.zeros(SHAPE, dtype)]
    g = rng.normal(size=SHAPE).astype(dtype)
    variables = [tf.Variable(a) for a in start]

    def rule(*values: Any) -> Any:
        return _adam(*values)

    def step() -> None:
        updates.update(rule, variables, [tf.constant(g), tf.constant(0.01, dtype)])

    step()
    [found] = [u for key, u in updates._updates.items() if key[0] is rule]
    assert found.kernel is not None
    steps, deadline = 1, time.monotonic() + 120
    while found.kernel.run is None and time.monotonic() < deadline:
        time.sleep(0.01)  # the process that compiles needs a core too
        step()
        steps += 1
    assert found.kernel.run is not None
    assert steps > 1, "blocks come first"
    held = variables[0].read_value()
    before = held.numpy()
    for _ in range(5):
        step()
    np.testing.assert_array_equal(held.numpy(), before)  # a value that was read stays
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    for v, e in zip(variables, _expected(start, g, steps + 5), strict=True):
        np.testing.assert_allclose(v.numpy(), e, tolerance, tolerance)


@pytest.mark.host("kernels over arrays of the host")
def test_a_kernel_that_may_run_again_writes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """`exp` is fast for some numbers only."""
    monkeypatch.setattr(POLICY, "compile", "now")
    start = np.linspace(-3, 200, math.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    v, w = tf.Variable(start), tf.Variable(start)
    for _ in range(2):
        updates.update(lambda x, y: [tf.exp(-x * x), x + y], [v, w], [])
    with np.errstate(under="ignore"):
        first = np.exp(-start * start)
        second = np.exp(-first * first)
    np.testing.assert_allclose(v.numpy(), second, 1e-5)
    np.testing.assert_allclose(w.numpy(), first + (start + start), 1e-5)


@pytest.mark.host("kernels over arrays of the host")
@pytest.mark.parametrize("way", ["now", "never"])
def test_values_that_are_held_stay(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POLICY, "compile", way)
    v = tf.Variable(np.ones(SHAPE, np.float32))
    held = v.read_value()
    for k in range(3):
        updates.update(lambda x, y: [x + y], [v], [tf.constant(1.0)])
        assert float(held.numpy().max()) == 1.0
        np.testing.assert_array_equal(v.numpy(), np.float32(k + 2))


@pytest.mark.host("loops over elements of arrays of the host")
def test_a_rule_that_is_not_elementwise_is_refused() -> None:
    v = tf.Variable(tf.ones([3, 3]))
    with pytest.raises(ValueError, match="not elementwise"):
        updates.update(lambda x: [tf.cumsum(x)], [v], [])
