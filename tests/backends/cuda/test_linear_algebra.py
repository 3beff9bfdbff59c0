"""Linear algebra on the emulated device: matrices without an answer are NaN in their stack, and nobody waits to find
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradtape.backends.cuda.device import Cuda
from gradtape.backends.cuda.lowering import Lowering
from gradtape.backends.cuda.table import EXPANSIONS, OPS
from gradtape.ops.op import lookup
from gradtape.runtime.devices import prepared
from tests.backends.cuda.running import on_device
from tests.cuda_emulator import cupy_stand_in
from tests.op_table.running import assert_near, results_of

N = 5
DTYPES = [np.float32, np.float64, np.complex64]


def called(name: str, *arrays: Any, **params: Any) -> Callable[[Cuda], Any]:
    step = lookup(name).bind(**params)
    return lambda cuda: Lowering(cuda, prepared, OPS).alone(step)(*map(cuda.array, arrays))


def drawn(dtype: Any, *shape: int) -> Any:
    rng = np.random.default_rng(len(shape))
    x = rng.uniform(-1, 1, shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.uniform(-1, 1, shape)
    return x.astype(dtype)


def positive(dtype: Any, count: int) -> Any:
    x = drawn(dtype, count, N, N)
    return x @ np.conj(np.swapaxes(x, -1, -2)) + N * np.eye(N, dtype=dtype)


def check(name: str, arrays: list[Any], **params: Any) -> Any:
    """The host's answer, and where it has none."""
    with np.errstate(all="ignore"):
        wanted = results_of(lookup(name).bind(**params), arrays)
    ((*found,),) = on_device([called(name, *arrays, **params)])
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        assert_near(np.nan_to_num(got), np.nan_to_num(want), name, 1e-3 if want.real.dtype == np.float32 else 1e-10)
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", range(N))
def test_matrices_that_are_not_positive_definite(row: int, dtype: Any) -> None:
    """The pivot of one row is negative, or so is a diagonal element, or it is 0."""
    a = positive(dtype, 5)
    a[1, row, row] -= 30
    a[2, row, row] = 0
    a[3] = np.diag(np.arange(N) != row)
    (found,) = check("cholesky", [a])
    assert np.isnan(found).all(axis=(1, 2)).tolist() == [False, True, True, True, False]


def test_nearly_singular_matrices_keep_their_factor() -> None:
    a = np.stack([np.diag([1.0, 1e-8, 1e-3, 1e8, 1.0]), np.full((N, N), 0.99) + 0.01 * np.eye(N)]).astype(np.float32)
    (found,) = check("cholesky", [a])
    assert np.isfinite(found).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_matrices(dtype: Any) -> None:
    a, b = positive(dtype, 4), drawn(dtype, 4, N, 3)
    a[1] = 0
    a[2, :, 3] = 0
    for name, arrays in (("inverse", [a]), ("solve", [a, b]), ("solve", [a[0], b])):
        (found,) = check(name, arrays)
        assert np.isnan(found).any(axis=(1, 2)).tolist() == ([False] * 4 if len(arrays[0].shape) == 2 else [0, 1, 1, 0])
    sign, size = check("slogdet", [a])
    assert not sign[1:3].any() and np.isneginf(size[1:3].real).all()


@pytest.mark.parametrize("name", ["inverse", "cholesky", "eigh", "eigvalsh", "singular_values", "svd", "pinv"])
def test_infinities_and_nan(name: str) -> None:
    a = positive(np.float32, 4)
    a[1, 2, 1], a[2, 0, 0] = np.nan, np.inf
    params = {"full": False} if name == "svd" else {}
    more = [np.float32(1e-5)] if name == "pinv" else []
    for found in check(name, [a, *more], **params):
        assert [bool(np.isnan(x).all()) for x in found] == [False, True, True, False]


def test_zeros_on_the_diagonal_of_a_triangle() -> None:
    a, b = np.triu(positive(np.float64, 2)), np.ones((2, N, 1))
    a[1, 2, 2] = 0
    ((found,),) = on_device([called("triangular_solve", a, b, lower=False, adjoint=False)])
    with np.errstate(all="ignore"):
        (want,) = results_of(lookup("triangular_solve").bind(lower=False, adjoint=False), [a, b])
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(want))
    assert_near(found[0], want[0], "solved", 1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_squarings(dtype: Any) -> None:
    """Every matrix of a stack is squared as often as it needs; those beyond all digits are NaN, and so is NaN."""
    a = drawn(dtype, 5, N, N)
    turning = a[2] - np.conj(a[2].T)
    a[1], a[2], a[3], a[4] = 0, 60 * turning, -40 * np.eye(N), 8 * a[4]
    check("expm", [a])
    a[3], a[4] = np.nan, 1e30 * turning
    ((found,),) = on_device([called("expm", a)])
    assert [bool(np.isnan(x).all()) for x in found] == [False, False, False, True, True]
    check("expm", [a[:2], drawn(dtype, N, N), 1e3 * drawn(dtype, 2, N, N)])


def test_nobody_waits() -> None:
    a = positive(np.float32, 2)
    more = {"solve": [a], "triangular_solve": [a], "pinv": [np.float32(1e-5)], "cofactors": [a]}
    given = {"triangular_solve": {"lower": True, "adjoint": True}, "svd": {"full": True}, "qr": {"full": True}}
    for name in EXPANSIONS:

        def run(cuda: Cuda, name: str = name) -> tuple[Any, ...]:
            found = called(name, a, *more.get(name, []), **given.get(name, {}))(cuda)
            assert not cupy_stand_in.device().counts.synchronizations, name
            return found if isinstance(found, tuple) else (found,)

        on_device([run])
