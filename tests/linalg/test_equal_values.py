"""Equal eigenvalues and singular values: what does not depend on how their vectors are chosen has its gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import gradtape as tf
from tests.linalg.slopes import check_two_orders, numbers, orthogonal, with_singular_values
from tests.op_table.running import assert_near, numeric_vjp

KINDS = ["real", "complex"]
SPECTRA = {
    "all equal": (2.0, 2.0, 2.0, 2.0),
    "two pairs": (3.0, 3.0, 1.0, 1.0),
    "one pair": (3.0, 2.0, 2.0, 1.0),
    "one pair and a zero": (3.0, 2.0, 2.0, 0.0),
}


def gradient(f: Callable[[Any], Any], a: Any) -> Any:
    x = tf.constant(a)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x).numpy()


def size(x: Any) -> Any:
    return tf.reduce_sum(tf.math.real(x * tf.math.conj(x)))


def rebuilt(x: Any) -> Any:
    s, u, v = tf.linalg.svd(x)
    return tf.matmul(u * tf.cast(s, u.dtype)[..., None, :], v, adjoint_b=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("turned", [False, True])
def test_size_of_a_matrix_rebuilt(spectrum: str, kind: str, turned: bool) -> None:
    """Σ |U S V*|² is Σ |A|², whose gradient is 2 A; also where rounding alone tells the values apart."""
    a = with_singular_values(1, SPECTRA[spectrum], kind) if turned else np.diag(SPECTRA[spectrum])
    assert_near(gradient(lambda x: size(rebuilt(x)), a), 2 * a, spectrum, 1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spectrum", ["all equal", "two pairs", "one pair"])
def test_sum_of_singular_values(spectrum: str, kind: str) -> None:
    """The nuclear norm, whose gradient is U V*, by either way of finding the values."""
    a = with_singular_values(2, SPECTRA[spectrum], kind)
    u, _, vh = np.linalg.svd(a)
    for f in (lambda x: tf.linalg.svd(x)[0], lambda x: tf.linalg.svd(x, compute_uv=False)):
        assert_near(gradient(lambda x, f=f: tf.reduce_sum(f(x)), a), u @ vh, spectrum, 1e-13)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spectrum", ["all equal", "two pairs", "one pair"])
def test_the_unitary_factor(spectrum: str, kind: str) -> None:
    """U V* depends on how U turns against V, which equal values do not hide: differences of SciPy's `polar`."""
    a = with_singular_values(3, SPECTRA[spectrum], kind)
    c = numbers(4, 4, 4, kind=kind)

    def polar(x: Any) -> list[Any]:
        return [scipy.linalg.polar(x)[0]]

    def by_svd(x: Any) -> Any:
        _, u, v = tf.linalg.svd(x)
        return tf.reduce_sum(tf.math.real(tf.constant(np.conj(c)) * tf.matmul(u, v, adjoint_b=True)))

    (want,) = numeric_vjp(polar, [a], [c])
    assert_near(gradient(by_svd, a), want, spectrum, 1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_functions_of_eigenvalues(spectrum: str, kind: str) -> None:
    """Σ f(e) has the gradient f'(A), handed out as that of the lower triangle."""
    q = orthogonal(5, 4, kind)
    a = q @ np.diag(SPECTRA[spectrum]) @ np.conj(q.T)
    whole = np.conj(q @ np.diag(np.exp(SPECTRA[spectrum])) @ np.conj(q.T)).T
    want = 2 * np.tril(whole, -1) + np.diag(np.diag(whole))
    for f in (lambda x: tf.linalg.eigh(x)[0], tf.linalg.eigvalsh):
        assert_near(gradient(lambda x, f=f: tf.reduce_sum(tf.math.real(tf.exp(f(x)))), a), want, spectrum, 1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_the_projection_onto_a_space_of_equal_values(kind: str) -> None:
    """Differences of the projection onto the vectors of the two larger eigenvalues, which are equal, against those of
    the two smaller ones, which are equal too."""
    q = orthogonal(6, 4, kind)
    a = q @ np.diag([1.0, 1.0, 3.0, 3.0]) @ np.conj(q.T)
    c = numbers(7, 4, 4, kind=kind)

    def numpy_projection(x: Any) -> list[Any]:
        v = np.linalg.eigh(x)[1][:, 2:]
        return [v @ np.conj(v.T)]

    def projection(x: Any) -> Any:
        v = tf.linalg.eigh(x)[1][:, 2:]
        return tf.reduce_sum(tf.math.real(tf.constant(np.conj(c)) * tf.matmul(v, v, adjoint_b=True)))

    (want,) = numeric_vjp(numpy_projection, [a], [c])
    assert_near(gradient(projection, a), want, kind, 1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_vectors_are_finite(kind: str) -> None:
    for a in (np.eye(3), np.zeros((3, 3)), np.ones((3, 3))):
        x = a.astype(complex) if kind == "complex" else a
        assert np.isfinite(gradient(lambda x: tf.reduce_sum(tf.math.real(tf.linalg.eigh(x)[1])), x)).all()
        for part in (0, 1, 2):
            f = lambda x, part=part: tf.reduce_sum(tf.math.real(tf.linalg.svd(x)[part]))  # noqa: E731
            assert np.isfinite(gradient(f, x)).all(), (a, part)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2)])
def test_distinct_values_to_second_order(shape: tuple[int, ...], kind: str) -> None:
    """What the vectors are used for does not depend on their signs and phases."""

    def f(x: Any) -> Any:
        s, u, v = tf.linalg.svd(x)
        weights = tf.cast(tf.sin(s) + s**2, u.dtype)
        return tf.matmul(u * weights[..., None, :], v, adjoint_b=True), s

    check_two_orders(f, [numbers(8, *shape, kind=kind)], tolerance=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_full_matrices(kind: str) -> None:
    """The columns beyond the span enter by their projection."""

    def f(x: Any) -> Any:
        _, u, v = tf.linalg.svd(x, full_matrices=True)
        rest, other = u[:, 2:], v[:, 2:]
        return tf.matmul(rest, rest, adjoint_b=True), tf.matmul(other, other, adjoint_b=True)

    check_two_orders(f, [numbers(9, 5, 2, kind=kind)])
    check_two_orders(f, [numbers(9, 2, 5, kind=kind)])
    s, u, v = tf.linalg.svd(tf.constant(numbers(9, 5, 2, kind=kind)), full_matrices=True)
    assert (s.shape, u.shape, v.shape) == ((2,), (5, 5), (2, 2))


def test_signs_do_not_depend_on_the_order_of_rows() -> None:
    """The component that is nearly the largest and comes first is positive."""
    a = numbers(10, 20, 4, 4)
    for vectors in (tf.linalg.eigh(a + np.swapaxes(a, -1, -2))[1].numpy(), tf.linalg.svd(a)[1].numpy()):
        first = np.argmax(np.abs(vectors) >= 0.9 * np.abs(vectors).max(axis=-2, keepdims=True), axis=-2)
        assert (np.take_along_axis(vectors, first[..., None, :], axis=-2) > 0).all()
