"""`x[i : i + 2]` where i is the counter of a loop: the size is known, and so is that it lies in x."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf

X = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)


def windows(x: Any) -> Any:
    s = tf.zeros([3, 4])
    for i in tf.range(6):
        s = tf.sin(s) + x[i : i + 3] ** 2
    return s


def blocks(x: Any) -> Any:
    s = tf.zeros([2, 4])
    for i in tf.range(4):
        s = tf.sin(s) + x[i * 2 : (i + 1) * 2] ** 2
    return s


def backwards_in_steps(x: Any) -> Any:
    s = tf.zeros([2, 2])
    for i in tf.range(4, -1, -1):
        s = tf.sin(s) + x[i : i + 4 : 2, 1:3]
    return s


def of_two_counters(x: Any) -> Any:
    s = tf.zeros([2, 2])
    for i in tf.range(3):
        for j in tf.range(2):
            s = s + x[i + 1 : i + 3, j : j + 2] * tf.cast(i + j, tf.float32)
    return s


def in_a_branch(x: Any) -> Any:
    s = tf.zeros([2, 4])
    for i in tf.range(4):
        if i > 1:
            s = s + x[i : i + 2]
        else:
            s = s * 2.0 + x[i + 3 : i + 5] ** 2
    return s


def until_it_is_enough(x: Any) -> Any:
    s = tf.zeros([2, 4])
    for i in tf.range(7):
        if tf.reduce_sum(s) > 5.0:
            break
        s = s + x[i : i + 2] ** 2
    return s


def cut_off(x: Any) -> Any:
    s = 0.0
    for i in tf.range(8):
        s += tf.reduce_sum(x[i : i + 3]) * tf.cast(i, tf.float32)
    return s


def of_all_sizes(x: Any) -> Any:
    s = 0.0
    for i in tf.range(8):
        s += tf.reduce_sum(x[i : 2 * i]) * tf.cast(i, tf.float32)
    return s


def answers(f: Callable[[Any], Any]) -> list[Any]:
    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x)
        s = tf.reduce_sum(tf.sin(y))
    return [y, tape.gradient(s, x), tape.jacobian(y, x)]


@pytest.mark.parametrize(
    "program", [windows, blocks, backwards_in_steps, of_two_counters, in_a_branch, until_it_is_enough]
)
def test_windows_are_part_of_the_graph(program: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing runs op by op
        found = answers(tf.function(program))
    for a, b in zip(found, answers(program), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("program", [cut_off, of_all_sizes])
def test_windows_of_several_sizes_run_op_by_op(program: Any) -> None:
    with pytest.warns(UserWarning, match="how many elements a slice has"):
        found = answers(tf.function(program))
    for a, b in zip(found, answers(program), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
