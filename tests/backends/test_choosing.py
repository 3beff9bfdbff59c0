"""Choices of large arrays by bits: what `where` answers, bit for bit."""

from typing import Any

import numpy as np
import pytest

from gradtape.ops.choosing import PAYS, choose

RNG = np.random.default_rng(3)
SIZES = [0, 5, PAYS - 1, PAYS, 3 * PAYS + 7]


def special(shape: Any, dtype: str) -> np.ndarray:
    a = (10 * RNG.normal(size=shape)).astype(dtype)
    if a.dtype.kind == "f" and a.size > 4:
        a.reshape(-1)[:4] = [np.nan, np.inf, -np.inf, -0.0]
    return a


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint64", "complex64", "bool"])
@pytest.mark.parametrize("size", SIZES)
def test_bits_are_those_of_where(size: int, dtype: str) -> None:
    condition = RNG.random(size) > 0.5
    x, y = special(size, dtype), special(size, dtype)
    number = x.dtype.type(3)
    for a, b in ((x, y), (number, y), (x, number), (number, number)):
        got, want = choose(np, condition, a, b), np.where(condition, a, b)
        assert got.dtype == want.dtype
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("number", [1, -0.0, float("nan")])
def test_python_numbers_take_the_dtype_of_the_array(number: float) -> None:
    condition, x = RNG.random(2 * PAYS) > 0.5, special(2 * PAYS, "float32")
    for a, b in ((number, x), (x, number)):
        got, want = choose(np, condition, a, b), np.where(condition, a, b)
        assert got.dtype == want.dtype == np.float32
        np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32))


def test_other_layouts_and_shapes() -> None:
    condition, x = RNG.random((300, 200)) > 0.5, special((200, 300), "float32")
    row = special(200, "float32")
    for a, b in ((x.T, x.T), (row, x.T), (x.T, row[None]), (np.float64(2), x.T), (row, 1.0)):
        np.testing.assert_array_equal(choose(np, condition, a, b), np.where(condition, a, b))
        np.testing.assert_array_equal(choose(np, condition.T, x, x + 1), np.where(condition.T, x, x + 1))
    wide = np.float64(2)
    assert choose(np, condition, wide, x.T).dtype == np.where(condition, wide, x.T).dtype
