"""70,000 rows or batches, more than the axes y and z of a grid take: our kernels have grids along x only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.device import Counts

MANY = 70_000
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((MANY, 2)).astype(np.float32)
AT = RNG.integers(0, 2, (MANY, 1))


def slope(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.nn.log_softmax(x)
    return tape.gradient(y, x)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "elementwise, with a number for each row": lambda x: tf.tanh(x) * x[:, :1],
    "softmax": tf.nn.softmax,
    "the slope of log_softmax": slope,
    "sums of rows": lambda x: tf.reduce_sum(x * x, axis=1),
    "sums of columns": lambda x: tf.reduce_max(x, axis=0),
    "a middle axis": lambda x: tf.reduce_sum(tf.reshape(x, [MANY // 2, 2, 2]), axis=1),
    "cumsum": lambda x: tf.cumsum(x, axis=1),
    "argsort": lambda x: tf.argsort(x, axis=1),
    "argmax": lambda x: tf.argmax(x, axis=1),
    "pad": lambda x: tf.pad(x, [[0, 0], [1, 0]]),
    "gather in batches": lambda x: tf.gather(x, AT, batch_dims=1, axis=1),
    "a sum at positions": lambda x: tf.math.unsorted_segment_sum(x, AT[:, 0], 2),
    "pooling": lambda x: tf.nn.max_pool1d(x[..., None], 2, 1, "VALID"),
    "diagonals": tf.linalg.diag,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_there_may_be_more_than_an_axis_of_a_grid_takes(name: str, counts: Counts) -> None:
    found = PROGRAMS[name](tf.constant(ROWS))
    cupy_stand_in.device().synchronize("count")
    assert counts.launches and all(x.grid[1:] == (1, 1) and x.block[1:] == (1, 1) for x in counts.launches)
    with tf.device("/CPU:0"):
        wanted = PROGRAMS[name](tf.constant(ROWS)).numpy()
    scale = float(np.max(np.abs(wanted)))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-5, atol=2e-5 * scale)
