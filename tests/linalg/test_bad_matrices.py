"""A matrix without an answer among others: it is NaN and so is its gradient; the others are what they are alone. On
its own it is TensorFlow's error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.linalg.slopes import definite, numbers
from tests.op_table.running import assert_near

N = 3
RHS = numbers(99, N, 2)

# Each with what it says of a matrix that has no answer; None where every finite matrix has one.
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], str | None]] = {
    "inv": (tf.linalg.inv, "Input is not invertible"),
    "solve": (lambda x: tf.linalg.solve(x, tf.constant(RHS)), "Input is not invertible"),
    "solve adjoint": (lambda x: tf.linalg.solve(x, tf.constant(RHS), adjoint=True), "Input is not invertible"),
    "cholesky": (tf.linalg.cholesky, "Cholesky decomposition was not successful"),
    "logdet": (tf.linalg.logdet, "Cholesky decomposition was not successful"),
    "det": (tf.linalg.det, None),
    "eigenvalues": (tf.linalg.eigvalsh, None),
    "eigenvectors": (lambda x: tf.linalg.eigh(x)[1], None),
    "singular values": (lambda x: tf.linalg.svd(x, compute_uv=False), None),
    "singular vectors": (lambda x: tf.linalg.svd(x)[1], None),
    "expm": (tf.linalg.expm, None),
    "pinv": (tf.linalg.pinv, None),
}
BAD = {
    "singular": np.zeros((N, N)),
    "a NaN": np.where(np.eye(N) > 0, np.nan, 1.0),
    "an infinity": np.where(np.eye(N) > 0, np.inf, 1.0),
}


def value_and_gradient(f: Callable[[Any], Any], a: Any) -> tuple[Any, Any]:
    x = tf.constant(a)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return y.numpy(), tape.gradient(y, x).numpy()


def good(seed: int, count: int) -> Any:
    """Matrices with distinct eigenvalues that every function takes."""
    return definite(seed, N, count) + np.diag(np.arange(N))


@pytest.mark.parametrize("reason", BAD)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_others_are_right(name: str, reason: str) -> None:
    f, refusal = FUNCTIONS[name]
    stack = good(1, 4)
    stack[2] = BAD[reason]
    y, g = value_and_gradient(f, stack)
    for k in (0, 1, 3):
        alone_y, alone_g = value_and_gradient(f, stack[k])
        assert_near(y[k], alone_y, (name, k), 1e-12)
        assert_near(g[k], alone_g, (name, k), 1e-11)
    if reason != "singular" or refusal:
        assert np.isnan(y[2]).any() or reason == "an infinity", f"{name} of {reason}: {y[2]}"
        assert not np.isfinite(g[2]).all()


@pytest.mark.host("nobody waits for a device to find out what is wrong: it answers NaN")
@pytest.mark.parametrize("name", [n for n, (_, refusal) in FUNCTIONS.items() if refusal])
def test_one_alone_is_an_error(name: str) -> None:
    f, refusal = FUNCTIONS[name]
    for a in (np.zeros((N, N)), np.zeros((2, N, N)), np.zeros((1, 2, N, N), np.complex64)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=str(refusal)):
            f(tf.constant(a)) if "solve" not in name else _solve_in(name, a)


def _solve_in(name: str, a: Any) -> Any:
    rhs = tf.cast(tf.constant(RHS), tf.as_dtype(a.dtype))
    return tf.linalg.solve(tf.constant(a), rhs, adjoint="adjoint" in name)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_that_is_not_finite_is_no_error(name: str) -> None:
    y = FUNCTIONS[name][0](tf.constant(BAD["a NaN"])).numpy()
    assert np.isnan(y).any()


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "complex128"])
def test_in_other_dtypes(dtype: str) -> None:
    stack = good(2, 3)
    stack[1] = 0
    y = tf.linalg.inv(tf.constant(stack.astype(dtype))).numpy()
    assert y.dtype == dtype
    assert np.isnan(y[1]).all() and np.isfinite(y[[0, 2]]).all()


def test_many_bad_ones_among_many() -> None:
    """They are found by halving: any number of them, anywhere, with several loop axes."""
    rng = np.random.default_rng(0)
    stack = numbers(3, 40, 25, 4, 4)
    lost = rng.random((40, 25)) < 0.1
    stack[lost] = 1.0
    y = tf.linalg.inv(tf.constant(stack)).numpy()
    assert np.isnan(y[lost]).all()
    assert_near(y[~lost], np.linalg.inv(stack[~lost]), "inv", 1e-12)


@pytest.mark.host("nobody waits for a device to find out what is wrong: it answers NaN")
def test_one_singular_matrix_for_many_right_hand_sides_is_an_error() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="not invertible"):
        tf.linalg.solve(tf.constant(np.zeros((2, 2))), tf.constant(np.ones((5, 2, 1))))


def test_an_empty_stack_and_empty_matrices_are_fine() -> None:
    assert tf.linalg.inv(tf.constant(np.zeros((0, 3, 3)))).shape == (0, 3, 3)
    assert tf.linalg.inv(tf.constant(np.zeros((2, 0, 0)))).shape == (2, 0, 0)
    assert tf.linalg.det(tf.constant(np.zeros((2, 0, 0)))).numpy().tolist() == [1.0, 1.0]
    assert tf.linalg.cholesky(tf.constant(np.zeros((0, 0)))).shape == (0, 0)


def test_triangles_divide_as_ieee_numbers_do() -> None:
    a = np.array([[2.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 4.0]])
    x = tf.linalg.triangular_solve(tf.constant(np.stack([a, np.eye(3)])), tf.constant(np.ones((2, 3, 1)))).numpy()
    assert x[0, 0, 0] == 0.5 and x[0, 1, 0] == np.inf and x[0, 2, 0] == -np.inf
    assert x[1].tolist() == [[1.0], [1.0], [1.0]]
