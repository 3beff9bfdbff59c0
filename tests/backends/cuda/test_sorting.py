"""Positions in sorted order: equal numbers, NaN and both zeros, rows of every length, along every axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gradtape.backends.cuda.device import Cuda
from gradtape.backends.cuda.sorting import argsort
from gradtape.kernels import cuda_sorting
from gradtape.ops.op import lookup
from tests.backends.cuda.running import on_device
from tests.cuda_emulator.devices import fresh
from tests.op_table.running import results_of

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int64, np.uint64, np.uint32]


def call(x: Any, given: dict[str, Any]) -> Callable[[Cuda], Any]:
    return lambda cuda: argsort(cuda, cuda.array(x), **given)


def check(runs: list[tuple[Any, dict[str, Any]]]) -> None:
    for (x, given), (found,) in zip(runs, on_device([call(*r) for r in runs]), strict=True):
        (want,) = results_of(lookup("argsort").bind(**given), [x])
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, want, err_msg=f"{x.dtype} {x.shape} {given}")


def few_values(shape: tuple[int, ...], dtype: Any) -> Any:
    """Many that are equal; of floats NaN of both signs, infinities and both zeros."""
    rng = np.random.default_rng(sum(shape))
    x = rng.integers(0, 9, shape).astype(dtype)
    if np.dtype(dtype).kind in "iu":
        return np.where(x == 8, np.iinfo(dtype).max, np.where(x == 7, np.iinfo(dtype).min, x)).astype(dtype)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 1, -1, -2], np.float64)
    return special[x.astype(np.int64)].astype(dtype)


@pytest.mark.parametrize("short", [cuda_sorting.SHORT, 1], ids=["kernel", "library"])
def test_equal_numbers_of_every_dtype(short: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_sorting, "SHORT", short)
    runs = []
    for dtype in DTYPES:
        for down in (False, True):
            x = few_values((3, 37), dtype)
            runs.append((x, {"axis": 1, "descending": down, "count": 37}))
    check(runs)


@pytest.mark.parametrize("short", [cuda_sorting.SHORT, 1], ids=["kernel", "library"])
def test_shapes(short: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_sorting, "SHORT", short)
    runs = []
    for shape, axis, count in (
        ((600, 3), 1, 2),
        ((2, 300), 1, 300),
        ((1, 1500), 1, 7),
        ((5, 70, 3), 1, 64),
        ((9,), 0, 9),
    ):
        x = few_values(shape, np.float32)
        runs.append((x, {"axis": axis, "descending": True, "count": count}))
    check(runs)


def test_launches() -> None:
    """A short row takes one kernel; a long one two, and the library's sort."""
    for n, launches, calls in ((100, 1, []), (3000, 2, ["argsort"])):
        with fresh() as cuda:
            argsort(cuda, cuda.array(few_values((2, n), np.float32)), axis=1, descending=False, count=n)
            device = cuda.xp.device()
            device.synchronize("count")
            assert len(device.counts.launches) == launches
            assert list(device.counts.library_calls) == calls
            assert len(device.counts.synchronizations) == 1
