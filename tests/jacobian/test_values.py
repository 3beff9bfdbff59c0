"""The numbers of Jacobians: every program in every mode, against a plain loop over rows and against differences."""

from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.jacobian.programs import PROGRAMS, Program, by_differences, by_rows, jacobian, tape_of

EACH = pytest.mark.parametrize("name", PROGRAMS)


@EACH
def test_all_modes_agree_with_gradients_row_by_row(name: str) -> None:
    tape, y, x = tape_of(PROGRAMS[name])
    want = by_rows(tape, y, x)
    assert want.shape == y.shape.concatenate(x.shape)
    for how in ({}, {"mode": "reverse"}, {"mode": "forward"}, {"experimental_use_pfor": False}):
        got = tape.jacobian(y, x, **how)
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-9, atol=1e-11, err_msg=str(how))


@EACH
def test_jacobians_are_slopes(name: str) -> None:
    program = PROGRAMS[name]
    tape, y, x = tape_of(program)
    np.testing.assert_allclose(tape.jacobian(y, x).numpy(), by_differences(program), rtol=1e-6, atol=1e-7)


@EACH
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 1000])
def test_chunks_of_any_size_give_the_same(name: str, rows: int) -> None:
    tape, y, x = tape_of(PROGRAMS[name])
    want = tape.jacobian(y, x).numpy()
    got = tape.jacobian(y, x, parallel_iterations=rows).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)


@EACH
def test_structured_answers_are_those_of_the_dense_array(name: str) -> None:
    tape, y, x = tape_of(PROGRAMS[name])
    full = by_rows(tape, y, x).numpy()
    m, n = int(np.prod(y.shape, dtype=int)), int(np.prod(x.shape, dtype=int))
    matrix = full.reshape(m, n)
    rng = np.random.default_rng(0)
    v, u = rng.normal(size=tuple(x.shape)), rng.normal(size=tuple(y.shape))
    near = {"rtol": 1e-9, "atol": 1e-10}
    for mode in ("reverse", "forward"):
        s = tape.jacobian(y, x, structured=True, mode=mode)
        assert (s.shape, s.dtype, s.target_shape, s.source_shape) == (full.shape, x.dtype, y.shape, x.shape)
        np.testing.assert_allclose(s.dense().numpy(), full, **near)
        np.testing.assert_allclose((s @ v).numpy(), (matrix @ v.reshape(n)).reshape(y.shape), **near)
        np.testing.assert_allclose((s.T @ u).numpy(), (u.reshape(m) @ matrix).reshape(x.shape), **near)
        norms = np.sqrt((matrix**2).sum(1)).reshape(y.shape)
        np.testing.assert_allclose(s.row_norms().numpy(), norms, **near)
        assert np.count_nonzero(np.abs(matrix) > 1e-12) <= s.nnz <= full.size
        if y.shape == x.shape:
            np.testing.assert_allclose(s.diagonal().numpy(), np.diagonal(matrix).reshape(y.shape), **near)
        if y.ndim and x.ndim and y.shape[0] == x.shape[0]:
            blocks = np.moveaxis(np.diagonal(full, axis1=0, axis2=y.ndim), -1, 0)
            np.testing.assert_allclose(s.blocks().numpy(), blocks, **near)


# ------------------------------------------------------------------ zeros by structure

POLES = {
    "log": (tf.math.log, [0.0, 1.0, 2.0]),
    "sqrt": (tf.sqrt, [0.0, 4.0]),
    "reciprocal": (lambda x: 1.0 / x, [0.0, 2.0]),
    "x**-0.5": (lambda x: x**-0.5, [0.0, 1.0]),
    "log of a square": (lambda x: tf.math.log(x * x), [0.0, 1.0]),
    "log, then a sum per row": (lambda x: tf.reduce_sum(tf.math.log(tf.reshape(x, [2, 2])), 1), [0.0, 1.0, 2.0, 3.0]),
    "log of what was gathered": (lambda x: tf.gather(tf.math.log(x), [1, 0]), [0.0, 1.0]),
}


@pytest.mark.parametrize("name", POLES)
@pytest.mark.parametrize("how", [{}, {"mode": "reverse"}, {"mode": "forward"}, {"experimental_use_pfor": False}])
def test_structural_zeros_are_zeros(name: str, how: dict[str, Any]) -> None:
    function, at = POLES[name]
    """Only the entry of the pole itself may be anything but finite."""
    found = jacobian(function, np.array(at), **how).numpy()
    assert np.count_nonzero(~np.isfinite(found)) == 1, found


@pytest.mark.parametrize("loop", [False, True])
def test_structural_zeros_of_examples(loop: bool) -> None:
    tape, y, x = tape_of(Program(tf.math.log, np.array([[0.0, 1.0], [2.0, 4.0]])))
    found = tape.batch_jacobian(y, x, experimental_use_pfor=not loop).numpy()
    np.testing.assert_array_equal(found, [[[np.inf, 0], [0, 1]], [[0.5, 0], [0, 0.25]]])


def test_a_pole_stays_where_it_is() -> None:
    found = jacobian(tf.math.log, np.array([0.0, 4.0])).numpy()
    np.testing.assert_array_equal(found, [[np.inf, 0.0], [0.0, 0.25]])


def test_no_letter_is_lost_on_nan() -> None:
    """A NaN is in its own entry, and in no other."""
    found = jacobian(lambda x: tf.sin(x) * x, np.array([1.0, np.nan, 2.0])).numpy()
    assert np.isnan(found).sum() == 1
    assert np.isnan(found[1, 1])
