"""Slopes that are not finite: entries that nothing reaches are zero in every mode and in chunks, and forward mode has
the zeros that reverse mode keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf

WAYS: dict[str, dict[str, Any]] = {
    "auto": {},
    "reverse": {"mode": "reverse"},
    "forward": {"mode": "forward"},
    "one row": {"parallel_iterations": 1},
    "two rows": {"parallel_iterations": 2},
    "a budget": {"memory": 400},
    "structured": {"structured": True},
}

# By name: the function, where its slopes are not finite.
PROGRAMS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "rolled": (lambda x: tf.roll(tf.math.log(x), 1, 0), [1.0, -1.0, 0.0, 4.0]),
    "a diagonal": (lambda x: tf.reshape(tf.sqrt(tf.linalg.diag(x)), [4]), [1.0, -1.0]),
    "gathered": (lambda x: tf.gather(1.0 / x, [2, 0, 2]), [1.0, 0.0, 2.0]),
    "a maximum of roots": (lambda x: tf.reduce_max(tf.sqrt(x), -1), [[0.0, 1.0], [1.5, 2.0]]),
    "the larger root": (lambda x: tf.maximum(tf.sqrt(x[:, 0]), tf.sqrt(x[:, 1])), [[0.0, 1.0], [1.5, 2.0]]),
    "a root below a bend": (lambda x: tf.nn.relu(tf.sqrt(x) - 0.5), [0.0, 1.0]),
    "a root times zero": (lambda x: tf.sqrt(x) * tf.constant([0.0, 2.0], x.dtype) * 3.0, [0.0, 1.0]),
    "a root chosen against": (lambda x: tf.where(x > 0.5, tf.sqrt(x), x), [0.0, 1.0]),
}


def recorded(name: str, dtype: tf.DType) -> tuple[tf.GradientTape, tf.Tensor, tf.Tensor]:
    function, numbers = PROGRAMS[name]
    x = tf.constant(numbers, dtype)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = function(x)
    return tape, y, x


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_way_has_the_zeros_of_the_loop(name: str, way: str, dtype: tf.DType) -> None:
    tape, y, x = recorded(name, dtype)
    found = tape.jacobian(y, x, **WAYS[way])
    got = np.asarray(found.dense() if way == "structured" else found)
    np.testing.assert_allclose(got, np.asarray(tape.jacobian(y, x, experimental_use_pfor=False)), rtol=1e-6)


@pytest.mark.parametrize("name", [n for n in PROGRAMS if "root" in n])
def test_tangents_do_as_gradients_do(name: str) -> None:
    tape, y, x = recorded(name, tf.float64)
    _, pushed = tf.jvp(PROGRAMS[name][0], [x], [tf.ones_like(x)])
    by_rows = np.asarray(tape.jacobian(y, x)).reshape(*y.shape, -1).sum(-1)
    np.testing.assert_allclose(pushed, by_rows, rtol=1e-12)


def test_what_is_not_finite_stays_where_it_is_reached() -> None:
    x = tf.constant([0.0, 4.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.roll(tf.math.log(x), 1, 0)
    np.testing.assert_array_equal(tape.jacobian(y, x, parallel_iterations=1), [[0, 0.25], [np.inf, 0]])
    out = np.empty((2, 2), np.float32)
    tape.jacobian(y, x, out=out)
    np.testing.assert_array_equal(out, [[0, 0.25], [np.inf, 0]])
