"""Branches and loops of tensors, and what gradients take of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as tf


def _gradient(f: Any, x: float) -> tuple[float, float | None]:
    t = tf.constant(x, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(t)
        y = f(t)
    g = tape.gradient(y, t)
    return float(y), None if g is None else float(g)


def test_cond_takes_one_branch_and_its_gradient() -> None:
    def f(x: Any) -> Any:
        return tf.cond(x > 0, lambda: x * x, lambda: -3.0 * x)

    assert _gradient(f, 2.0) == (4, 4)
    assert _gradient(f, -2.0) == (6, -3)


def test_case_and_switch_case() -> None:
    def by_case(x: Any) -> Any:
        return tf.case([(x < 0, lambda: -x), (x < 1, lambda: x * x)], default=lambda: 5.0 * x)

    def by_number(x: Any) -> Any:
        return tf.switch_case(tf.cast(x, tf.int32), {0: lambda: x, 1: lambda: x**3}, default=lambda: 7.0 * x)

    assert [_gradient(by_case, v)[1] for v in (-1.0, 0.5, 2.0)] == [-1, 1, 5]
    assert [_gradient(by_number, v)[1] for v in (0.5, 1.0, 9.0)] == [1, 3, 7]


def test_while_loop_and_its_gradient() -> None:
    def f(x: Any) -> Any:
        _, y = tf.while_loop(lambda i, _: i < 5, lambda i, y: (i + 1, y * x), (0, tf.ones([], tf.float64)))
        return y

    value, slope = _gradient(f, 1.3)
    assert value == pytest.approx(1.3**5) and slope == pytest.approx(5 * 1.3**4)


def test_maximum_iterations_stop_a_loop() -> None:
    def count(limit: Any, most: Any) -> Any:
        (n,) = tf.while_loop(lambda i: i < most, lambda i: (i + 1,), (tf.constant(0),), maximum_iterations=limit)
        return n

    for f in (count, tf.function(count)):
        for limit, most in ((7, 100), (7, 3), (0, 5)):
            assert int(f(limit, most)) == int(f(tf.constant(limit), tf.constant(most))) == min(limit, most)


@pytest.mark.parametrize("traced", [False, True])
def test_branches_by_cases_in_functions(traced: bool) -> None:
    def by_case(x: Any, exclusive: bool) -> Any:
        pairs = [(x < 0, lambda: {"y": -x}), (x < 1, lambda: {"y": x * x})]
        return tf.case(pairs, default=lambda: {"y": 5.0 * x}, exclusive=exclusive)["y"]

    def by_number(x: Any, k: Any) -> Any:
        return tf.switch_case(k, {0: lambda: x, 1: lambda: x**3}, default=lambda: 7.0 * x)

    wrap = tf.function if traced else lambda f: f
    f, g = wrap(by_case), wrap(by_number)
    for value, slope in ((-1.0, -1), (0.5, 1), (2.0, 5)):
        assert _gradient(lambda x: f(x, False), value)[1] == slope
    for k, slope in ((0, 1), (1, 12), (5, 7)):
        assert _gradient(lambda x, k=k: g(x, tf.constant(k)), 2.0)[1] == slope
    with pytest.raises(tf.errors.InvalidArgumentError, match="2 conditions of `case` hold"):
        f(tf.constant(-1.0), True)
    if traced:
        with pytest.raises(TypeError, match="same number, type"):
            tf.function(lambda x: tf.cond(x > 0, lambda: (x, x), lambda: x))(tf.constant(1.0))


@pytest.mark.parametrize("traced", [False, True])
def test_a_case_without_default_wants_one_that_holds(traced: bool) -> None:
    def by_case(x: Any) -> Any:
        return tf.case([(x < 0, lambda: -x), (x < 1, lambda: x * x)])

    f = tf.function(by_case) if traced else by_case
    assert [float(f(tf.constant(x))) for x in (-2.0, 0.5)] == [2, 0.25]
    with pytest.raises(tf.errors.InvalidArgumentError, match="No condition of `case` holds"):
        f(tf.constant(2.0))


def test_a_module_lists_its_variables_and_modules() -> None:
    class Part(tf.Module):
        def __init__(self, trainable: bool) -> None:
            super().__init__()
            self.w = tf.Variable(np.ones(2), trainable=trainable)

    class Whole(tf.Module):
        def __init__(self) -> None:
            super().__init__(name="whole")
            self.parts = [Part(True), {"frozen": Part(False)}]
            self.b = tf.Variable(0.0)

    m = Whole()
    first, second = m.parts[0], m.parts[1]["frozen"]  # type: ignore[index]
    assert {id(v) for v in m.variables} == {id(m.b), id(first.w), id(second.w)}  # type: ignore[union-attr]
    assert {id(v) for v in m.trainable_variables} == {id(m.b), id(first.w)}  # type: ignore[union-attr]
    assert [id(p) for p in m.submodules] == [id(first), id(second)]
    assert m.name == "whole"
