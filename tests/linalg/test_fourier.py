"""Fourier transforms against NumPy's for even and odd sizes, cut and filled up; both orders against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.linalg.slopes import check_two_orders, gradients, numbers, values
from tests.op_table.running import assert_near

S = tf.signal
SIZES = [1, 2, 3, 4, 7, 12, 17]


@pytest.mark.parametrize("n", SIZES)
def test_complex_transforms(n: int) -> None:
    x = numbers(n, 2, 3, n, kind="complex")
    assert_near(values(S.fft, [x])[0], np.fft.fft(x), "fft", 1e-14)
    assert_near(values(S.ifft, [x])[0], np.fft.ifft(x), "ifft", 1e-14)
    assert_near(values(S.fft2d, [x])[0], np.fft.fft2(x), "fft2d", 1e-14)
    assert_near(values(S.ifft2d, [x])[0], np.fft.ifft2(x), "ifft2d", 1e-14)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("length", [None, *SIZES])
def test_real_transforms(n: int, length: int | None) -> None:
    x, z = numbers(n, 2, n), numbers(n, 2, n // 2 + 1, kind="complex")
    given = None if length is None else [length]
    assert_near(values(lambda a: S.rfft(a, given), [x])[0], np.fft.rfft(x, length), "rfft", 1e-14)
    if length is not None or n > 1:
        usual = 2 * (n // 2) if length is None else length
        assert_near(values(lambda a: S.irfft(a, given), [z])[0], np.fft.irfft(z, usual), "irfft", 1e-14)


@pytest.mark.parametrize("lengths", [None, [3, 4], [4, 5], [2, 2], [6, 9]])
def test_real_transforms_of_two_axes(lengths: list[int] | None) -> None:
    x, z = numbers(1, 2, 4, 5), numbers(2, 2, 4, 3, kind="complex")
    assert_near(values(lambda a: S.rfft2d(a, lengths), [x])[0], np.fft.rfft2(x, lengths), "rfft2d", 1e-14)
    got = values(lambda a: S.irfft2d(a, lengths), [z])[0]
    assert_near(got, np.fft.irfft2(z, lengths), "irfft2d", 1e-14)


@pytest.mark.parametrize("n", [1, 4, 5])
def test_two_orders(n: int) -> None:
    x, z = numbers(1, 2, n), numbers(2, 3, n // 2 + 1, kind="complex")
    full = numbers(3, 2, n, kind="complex")
    for f in (S.fft, S.ifft, S.fft2d, S.ifft2d):
        check_two_orders(lambda a, f=f: f(a * a), [full])
    check_two_orders(lambda a: S.rfft(a * a), [x])
    check_two_orders(lambda a: S.rfft(a * a, [n + 2]), [x])
    check_two_orders(lambda a: S.rfft2d(a * a), [x])
    check_two_orders(lambda a: S.irfft(a * a, [n]), [z])
    check_two_orders(lambda a: S.irfft(a * a, [n + 3]), [z])
    check_two_orders(lambda a: S.irfft2d(a * a, [2, n]), [z])


def test_irfft_does_not_read_imaginary_parts_that_are_none() -> None:
    z = np.array([1 + 5j, 2 + 1j, 3 + 7j])
    clean = np.array([1, 2 + 1j, 3])
    assert_near(values(S.irfft, [z])[0], values(S.irfft, [clean])[0], "value", 1e-15)
    (g,) = gradients(S.irfft, [z], [np.array([1.0, -2.0, 3.0, 0.5])])
    assert g[0].imag == 0 and g[2].imag == 0 and g[1].imag != 0


def test_dtypes() -> None:
    x = numbers(1, 5).astype(np.float32)
    y = S.rfft(x)
    assert y.dtype == tf.complex64 and S.irfft(y, [5]).dtype == tf.float32
    assert (
        S.fft(x.astype(np.complex64)).dtype == tf.complex64
        and S.ifft2d(np.ones((2, 2), complex)).dtype == tf.complex128
    )
    assert_near(S.irfft(y, tf.constant([5])).numpy(), x, "there and back", 1e-6)


def test_nothing_to_transform() -> None:
    assert S.fft(np.zeros((0, 4), complex)).shape == (0, 4)
    assert S.ifft(np.zeros((2, 0), complex)).shape == (2, 0)
    assert S.rfft2d(np.zeros((0, 4, 4))).shape == (0, 4, 3)


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: S.fft(tf.ones(3)), "complex"),
        (lambda: S.rfft(np.ones(3, complex)), "complex128"),
        (lambda: S.rfft(np.ones(3, np.float16)), "half"),
        (lambda: S.irfft(tf.ones(3)), "complex"),
        (lambda: S.fft(tf.constant(1 + 0j)), "axis"),
        (lambda: S.fft2d(np.ones(3, complex)), "2 axes"),
        (lambda: S.rfft(tf.ones((2, 0))), "1 or more"),
        (lambda: S.irfft(np.ones(1, complex)), "1 or more"),
        (lambda: S.rfft2d(tf.ones((2, 2)), [2]), "2 transform lengths"),
    ],
)
def test_what_does_not_fit(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=says):
        call()
