"""Determinants are polynomials: value, gradient, Hessian and third derivative against that polynomial's own, summed
over permutations, for regular matrices and for singular ones of every rank."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np
import pytest

import gradtape as tf
from tests.linalg.slopes import check_two_orders, numbers, with_singular_values
from tests.op_table.running import assert_near


def sign(order: Sequence[int]) -> int:
    return (-1) ** sum(a > b for a, b in itertools.combinations(order, 2))


def polynomial_derivative(a: Any, directions: Sequence[Any]) -> complex:
    """D^k det(A)[X₁ … X_k], term by term: each direction replaces one factor of each term."""
    n, total = len(a), 0
    for order in itertools.permutations(range(n)):
        for rows in itertools.permutations(range(n), len(directions)):
            term = sign(order)
            for i in range(n):
                source = directions[rows.index(i)] if i in rows else a
                term = term * source[i, order[i]]
            total = total + term
    return total


def tape_derivative(a: Any, directions: Sequence[Any]) -> Any:
    """The same by nested tapes: each turns a function into its derivative along a direction."""
    x = tf.constant(a)

    def along(f: Any, direction: Any) -> Any:
        def derivative(at: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(at)
                y = f(at)
            g = tape.gradient(y, at)
            return (
                tf.reduce_sum(tf.math.conj(g) * tf.constant(direction))
                if g.dtype.is_complex
                else tf.reduce_sum(g * tf.constant(direction))
            )

        return derivative

    f: Any = tf.linalg.det
    for d in directions:
        f = along(f, d)
    return f(x).numpy()


SPECTRA = {
    "regular": (2.0, 1.5, 0.7, 0.3),
    "rank n - 1": (2.0, 1.5, 0.7, 0.0),
    "rank n - 2": (2.0, 1.5, 0.0, 0.0),
    "rank 1": (2.0, 0.0, 0.0, 0.0),
    "rank 0": (0.0, 0.0, 0.0, 0.0),
    "equal values": (1.0, 1.0, 1.0, 1.0),
}


@pytest.mark.parametrize("order", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_derivatives_of_every_order(spectrum: str, order: int) -> None:
    a = with_singular_values(3, SPECTRA[spectrum])
    directions = [numbers(10 + k, 4, 4) for k in range(order)]
    got = tape_derivative(a, directions)
    assert_near(got, polynomial_derivative(a, directions), (spectrum, order), 1e-12)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_of_singular_complex_matrices(order: int) -> None:
    """The gradient of a holomorphic function is the conjugate of its derivative, of which the tape takes the real part
    along each direction in turn."""
    a = with_singular_values(5, (2.0, 1.0, 0.0), kind="complex")
    weights = [numbers(20 + k, 3, 3, kind="complex") for k in range(order)]
    check_two_orders(tf.linalg.det, [a])
    if order == 1:
        x = tf.constant(a)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.linalg.det(x)
        g = tape.gradient(y, x).numpy()
        assert_near(np.sum(np.conj(g) * weights[0]), polynomial_derivative(a, weights), "complex", 1e-12)


def test_hessian_of_a_singular_matrix_against_differences() -> None:
    check_two_orders(tf.linalg.det, [np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])])
    check_two_orders(tf.linalg.det, [np.outer([1.0, 2.0, 3.0], [1.0, -1.0, 2.0])])
    check_two_orders(tf.linalg.det, [np.zeros((2, 3, 3))])


def test_gradient_of_rank_n_minus_2_is_zero() -> None:
    x = tf.constant(np.outer([1.0, 2.0, 3.0], [1.0, -1.0, 2.0]))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.linalg.det(x)
    assert_near(tape.gradient(y, x).numpy(), np.zeros((3, 3)), "rank 1 of 3", 1e-14)


def test_a_bad_matrix_leaves_the_others_right() -> None:
    good, singular = numbers(1, 3, 3), np.ones((3, 3))
    bad = np.full((3, 3), np.nan)
    stack = tf.constant(np.stack([good, singular, bad, np.full((3, 3), np.inf), good.T]))
    with tf.GradientTape() as outer:
        outer.watch(stack)
        with tf.GradientTape() as tape:
            tape.watch(stack)
            y = tf.linalg.det(stack)
        g = tape.gradient(y, stack)
    assert_near(y.numpy()[[0, 1, 4]], [np.linalg.det(good), 0, np.linalg.det(good)], "values", 1e-14)
    cofactors = np.linalg.det(good) * np.linalg.inv(good).T
    assert_near(g.numpy()[[0, 1, 4]], [cofactors, np.zeros((3, 3)), cofactors.T], "gradients", 1e-13)
    h = outer.gradient(g, stack).numpy()
    assert np.isfinite(h[[0, 1, 4]]).all()
    assert np.isnan(y.numpy()[2]) and np.isnan(g.numpy()[2:4]).all()


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_sizes_from_nothing_to_fifty(kind: str) -> None:
    for n in (0, 1, 2, 7, 50):
        a = (numbers(n, n, n) / max(n, 1) ** 0.5).astype(kind)
        x = tf.constant(a)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.linalg.det(x)
        g = tape.gradient(y, x).numpy()
        with mpmath.workdps(40):
            exact = mpmath.matrix(a.astype(float).tolist()) if n else None
            want = float(mpmath.det(exact)) if n else 1.0
            cofactors = np.array((mpmath.det(exact) * exact**-1).T.tolist(), float) if n else np.zeros((0, 0))
        eps = float(np.finfo(kind).eps)
        assert abs(float(y) - want) <= 30 * n * eps * max(abs(want), float(np.abs(cofactors).max(initial=0)))
        assert np.abs(g - cofactors).max(initial=0) <= 100 * n * eps * np.abs(cofactors).max(initial=1)


def test_a_hilbert_matrix_keeps_its_cofactors() -> None:
    """Of condition 10¹³: det times inverse would lose them; relative to the largest, cofactors keep them."""
    n = 9
    h = np.array([[1.0 / (i + j + 1) for j in range(n)] for i in range(n)])
    x = tf.constant(h)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.linalg.det(x)
    with mpmath.workdps(60):
        exact = mpmath.matrix(h.tolist())
        want = np.array((mpmath.det(exact) * exact**-1).T.tolist(), float)
    error = np.abs(tape.gradient(y, x).numpy() - want).max() / np.abs(want).max()
    assert error < 1e-3, error


def test_slogdet_and_logdet_agree_with_det() -> None:
    a = with_singular_values(7, (3.0, 2.0, 0.5))
    a[0] *= np.sign(np.linalg.det(a)) * -1  # a negative determinant
    s, size = tf.linalg.slogdet(tf.constant(a))
    assert float(s) == -1.0
    assert_near(float(s) * np.exp(float(size)), np.linalg.det(a), "slogdet", 1e-14)
    check_two_orders(lambda x: tf.linalg.slogdet(x)[1], [a])
    z = with_singular_values(8, (3.0, 2.0, 0.5), kind="complex")
    check_two_orders(lambda x: tuple(tf.linalg.slogdet(x)), [z])
    assert tf.linalg.slogdet(z).log_abs_determinant.dtype == tf.complex128


def test_slogdet_of_singular_matrices() -> None:
    x = tf.constant(np.stack([np.ones((2, 2)), 2 * np.eye(2)]))
    with tf.GradientTape() as tape:
        tape.watch(x)
        s, size = tf.linalg.slogdet(x)
    assert s.numpy().tolist() == [0.0, 1.0] and size.numpy()[0] == -np.inf
    g = tape.gradient(size, x).numpy()
    assert np.isnan(g[0]).all()
    assert_near(g[1], np.eye(2) / 2, "the other", 1e-15)
