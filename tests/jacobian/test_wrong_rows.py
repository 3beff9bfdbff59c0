"""Numbers of rows, sources and results that do not fit are refused, and nothing of them stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import float32


def recorded() -> tuple[tf.GradientTape, tf.Tensor, tf.Tensor]:
    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.sin(x)
    return tape, y, x


@pytest.mark.parametrize("rows", [2.5, 0, -1, "2", True])
def test_rows_at_once_are_a_positive_integer(rows: Any) -> None:
    tape, y, x = recorded()
    with pytest.raises(ValueError, match="positive integer"):
        tape.jacobian(y, x, parallel_iterations=rows)
    want = np.diag(np.cos(x.numpy()))
    np.testing.assert_allclose(tape.jacobian(y, x, parallel_iterations=np.int64(2)), want, rtol=1e-6)


def test_a_plan_is_of_one_source() -> None:
    tape, y, x = recorded()
    with pytest.raises(ValueError, match="one source, got 2"):
        tape.plan_jacobian(y, [x, x])


def test_the_dtype_of_a_result_is_named() -> None:
    tape, y, x = recorded()
    with pytest.raises(ValueError, match=r"float32, got ndarray of shape .3, 3. and dtype float64"):
        tape.jacobian(y, x, out=np.zeros((3, 3)))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tf.jvp(tf.sin, x, [x]),
        lambda x: tf.jvp(tf.sin, [x], x),
        lambda x: tf.hvp(tf.reduce_sum, x, [x]),
        lambda x: tf.gauss_newton_product(tf.sin, tf.reduce_sum, x, [x]),
    ],
)
def test_arguments_come_in_lists(call: Callable[[tf.Tensor], Any]) -> None:
    with pytest.raises(TypeError, match=r"takes a list of (primals|vectors), one per argument"):
        call(tf.constant([1.0, 2.0]))


def test_what_does_not_depend_has_no_divergence_at_infinity() -> None:
    x = tf.constant([np.inf, 1.0])
    assert float(tf.divergence(lambda z: tf.ones([2]), x)) == 0
    assert float(tf.laplacian(tf.reduce_sum, x)) == 0


def test_sizes_of_shapes_are_integers_of_python_whoever_gave_them() -> None:
    extent = 7919  # of no other shape, which would be there already
    given = aval((np.int64(extent), None, True), float32)
    assert given is aval((extent, None, 1), float32)
    assert [type(n) for n in given.shape or ()] == [int, type(None), int]
