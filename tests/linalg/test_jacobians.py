"""Jacobians and Hessians of decompositions, systems and transforms: all rows at once give what a loop gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.linalg.slopes import definite, numbers
from tests.op_table.running import assert_near

L, S = tf.linalg, tf.signal
SQUARE, HERMITIAN = numbers(1, 2, 3, 3) / 3 + 2 * np.eye(3), definite(2, 3, 2) + np.diag(np.arange(3.0))
TALL, RHS = numbers(3, 2, 3, 2), tf.constant(numbers(4, 2, 3, 2))

FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "inv": (L.inv, SQUARE),
    "solve in the matrix": (lambda x: L.solve(x, RHS), SQUARE),
    "solve in the right-hand side": (lambda y: L.solve(SQUARE[0], y), TALL),
    "triangular_solve": (lambda x: L.triangular_solve(x, RHS), SQUARE),
    "det": (L.det, SQUARE),
    "slogdet": (lambda x: L.slogdet(x)[1], SQUARE),
    "cholesky": (L.cholesky, HERMITIAN),
    "eigh": (lambda x: L.eigh(x)[1], HERMITIAN),
    "eigvalsh": (L.eigvalsh, HERMITIAN),
    "svd": (lambda x: L.svd(x)[1], SQUARE),
    "singular values": (lambda x: L.svd(x, compute_uv=False), TALL),
    "qr": (lambda x: L.qr(x)[0], TALL),
    "expm": (L.expm, SQUARE),
    "pinv": (L.pinv, TALL),
    "lstsq": (lambda x: L.lstsq(x, RHS), TALL),
    "set_diag": (lambda x: L.set_diag(x, x[..., 0] ** 2), SQUARE),
    "band_part": (lambda x: L.band_part(x, 1, 0), SQUARE),
    "cross": (lambda x: L.cross(x * x, x[::-1]), SQUARE),
    "fft": (lambda x: tf.math.imag(S.fft(tf.complex(x, x * x))), SQUARE),
    "rfft": (lambda x: tf.math.real(S.rfft(x)), TALL),
    "rfft2d": (lambda x: tf.abs(S.rfft2d(x)), SQUARE),
    "irfft": (lambda x: S.irfft(tf.complex(x, x * x)), SQUARE),
}


def jacobian(f: Callable[[Any], Any], a: Any, at_once: bool) -> Any:
    x = tf.constant(a)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x)
    return tape.jacobian(y, x, experimental_use_pfor=at_once).numpy()


def hessian(f: Callable[[Any], Any], a: Any, at_once: bool) -> Any:
    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.sin(f(x)))
        return tape.gradient(y, x)

    return jacobian(gradient, a, at_once)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rows", [jacobian, hessian])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_at_once_are_those_of_a_loop(name: str, rows: Callable[..., Any]) -> None:
    f, a = FUNCTIONS[name]
    want = rows(f, a, False)
    assert_near(rows(f, a, True), want, name, 1e-12)
    assert np.abs(want).max() > 0.01


def test_hessian_of_the_determinant_of_a_singular_matrix() -> None:
    a = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])

    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = L.det(x)
        return tape.gradient(y, x)

    got = jacobian(gradient, a, True)
    want = np.zeros((3, 3, 3, 3))
    for i, j, k, m in np.ndindex(3, 3, 3, 3):
        if i != k and j != m:  # expanded along row i, then along what row k is without it
            sign = (-1) ** (i + j + k - (k > i) + m - (m > j))
            want[i, j, k, m] = sign * a[3 - i - k, 3 - j - m]
    assert_near(got, want, "hessian", 1e-13)
