"""Positions of extremes and of values in sorted rows, on the emulated device: long rows, columns, NaN, equal ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradtape.ir.dtypes import int32, int64
from gradtape.kernels import cuda_positions
from gradtape.ops.op import lookup
from tests.backends.cuda.running import on_device
from tests.backends.cuda.test_moves import called, traffic

RNG = np.random.default_rng(7)


def drawn(shape: tuple[int, ...], dtype: Any, odd: float = 0.0) -> Any:
    """Few different numbers, so that many are equal; some NaN."""
    x = RNG.integers(-9, 10, shape).astype(dtype)
    if odd:
        x[RNG.random(shape) < odd] = np.nan
    return x


ARRAYS = {
    "everything": (drawn((30_000,), np.float32), 0),
    "everything, one NaN": (np.where(np.arange(9000) == 7001, np.nan, drawn((9000,), np.float32)).astype("f4"), 0),
    "long rows": (drawn((3, 5000), np.float64), 1),
    "rows": (drawn((50, 300), np.float16), 1),
    "short rows with NaN": (drawn((400, 6), np.float32, 0.2), 1),
    "columns": (drawn((700, 40), np.int32), 0),
    "few columns": (drawn((4000, 3), np.uint8), 0),
    "a middle axis with NaN": (drawn((3, 90, 5), np.float32, 0.02), 1),
    "infinite": (np.full((4, 33), -np.inf, np.float32), 1),
}


@pytest.mark.parametrize("ways", ["as they are", "64 bits", "always in parts"])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_first_extremes(name: str, ways: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if ways == "64 bits":
        monkeypatch.setattr("gradtape.kernels.cuda_body.LONG", 1)
    if ways == "always in parts":
        monkeypatch.setattr(cuda_positions, "ENOUGH", 1 << 22)
        monkeypatch.setattr(cuda_positions, "LEAST", 1)
        monkeypatch.setattr(cuda_positions, "SHARE", 1)
    results = on_device([called(name, [x], axis=axis, dtype=int64) for x, axis in ARRAYS.values()])
    for about, (x, axis), (found,) in zip(ARRAYS, ARRAYS.values(), results, strict=True):
        np.testing.assert_array_equal(found, getattr(np, name)(x, axis), err_msg=about)


def test_places_in_sorted_rows() -> None:
    """As on the host, NaN too: above all numbers in one row for all values, above none in rows of their own."""
    one, many = np.sort(drawn((50,), np.float32, 0.1)), np.sort(drawn((6, 20), np.float32))
    values = drawn((6, 9), np.float32, 0.2)
    given = [(rows, right) for rows in (one, many) for right in (False, True)]
    results = on_device([called("searchsorted", [r, values], right=right, dtype=int32) for r, right in given])
    for (rows, right), (found,) in zip(given, results, strict=True):
        np.testing.assert_array_equal(found, lookup("searchsorted").value(np, rows, values, right=right, dtype=int32))


def test_bytes() -> None:
    """Each element once, in one launch where there are enough rows, else in two."""
    for about, launches in (("rows", 1), ("everything", 2), ("columns", 2)):
        x, axis = ARRAYS[about]
        moved, count = traffic(called("argmax", [x], axis=axis, dtype=int64))
        assert count == launches, about
        assert x.nbytes <= moved <= 1.1 * (x.nbytes + 8 * x.size / x.shape[axis]), (about, moved / x.nbytes)
