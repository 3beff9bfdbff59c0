"""Formulas over long arrays: block by block the same numbers as at once."""

from typing import Any

import numpy as np
import pytest

from gradtape.backends.blocks import BLOCK
from gradtape.backends.cpu import lower
from gradtape.ops.pointwise import Pointwise
from gradtape.runtime.state import STATE
from tests.op_table.cases import OPS

RNG = np.random.default_rng(9)
LENGTH = 2 * BLOCK + 77
FORMULAS = [op for op in OPS if isinstance(op, Pointwise) and op.formula is not None and not op.samples[0].params]
DTYPES = {"f": ("float32", "float64"), "c": ("complex128",), "i": ("int32",)}


def operand(op: Pointwise, i: int, dtype: str, size: int) -> np.ndarray:
    if op.condition and i == 0:
        return RNG.random(size) > 0.5
    low, high = op.domain[i]
    return RNG.uniform(low, high, size).astype(dtype)


def by_pieces(run: Any, arrays: list[np.ndarray]) -> np.ndarray:
    """Pieces that are so short that they are computed at once."""
    starts = range(0, LENGTH, BLOCK // 2)
    return np.concatenate([run(*[a if a.size == 1 else a[s : s + BLOCK // 2] for a in arrays]) for s in starts])


@pytest.mark.parametrize(("op", "kind"), [(op, k) for op in FORMULAS for k in DTYPES if k in op.accepts], ids=str)
def test_blocks_are_pieces_of_the_whole(op: Pointwise, kind: str) -> None:
    for dtype in DTYPES[kind]:
        for single in (None, *range(len(op.operands) if len(op.operands) > 1 else 0)):
            count = len(op.operands)
            arrays = [operand(op, i, dtype, 1 if i == single else LENGTH) for i in range(count)]
            before = [a.copy() for a in arrays]
            got = STATE.run(lower(op.bind()), *arrays)
            assert got.shape == (LENGTH,)
            want = STATE.run(by_pieces, lower(op.bind()), arrays)
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)
            for a, b in zip(arrays, before, strict=True):
                np.testing.assert_array_equal(a, b)


def test_a_single_element_of_more_axes() -> None:
    op = next(op for op in FORMULAS if op.name == "sigmoid_cross_entropy")
    x, label = RNG.normal(size=(3, BLOCK)), np.full((1, 1, 1), 0.25)
    got = lower(op.bind())(label, x)
    assert got.shape == (1, 3, BLOCK)
    np.testing.assert_array_equal(got[0], lower(op.bind())(np.full_like(x, 0.25), x))


def test_sigmoid_at_its_edges() -> None:
    run = lower(next(op for op in FORMULAS if op.name == "sigmoid").bind())
    for size in (9, LENGTH):
        x = np.zeros(size, np.float32)
        x[:9] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 200, -200, -87, 17]
        y = STATE.run(run, x)
        assert np.isnan(y[0])
        np.testing.assert_array_equal(y[1:6], [1, 0, 0.5, 0.5, 1])
        wide = 1 / (1 + np.exp(-x[5:9].astype(np.float64)))
        np.testing.assert_allclose(y[5:9], wide, rtol=3e-7, atol=1e-45)


def test_sigmoid_to_four_units_in_the_last_place() -> None:
    run = lower(next(op for op in FORMULAS if op.name == "sigmoid").bind())
    x = np.linspace(-87, 40, 300_001, dtype=np.float32)
    wide = 1 / (1 + np.exp(-x.astype(np.float64)))
    error = np.abs(STATE.run(run, x) - wide) / np.spacing(wide.astype(np.float32))
    assert error.max() <= 4
