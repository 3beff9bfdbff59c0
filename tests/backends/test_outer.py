"""Outer products by a compiled loop: which ones it takes, and that they are NumPy's, in one thread and in several."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from gradtape.backends.writing import product
from gradtape.kernels import loops, outer

TAKEN = [
    ((5, 6, 7), (5, 6, 1), (5, 1, 7)),
    ((5, 6, 7), (5, 1, 7), (5, 6, 1)),
    ((4, 3, 6, 7), (4, 3, 1, 7), (4, 1, 6, 1)),
    ((6, 7), (6, 1), (1, 7)),
    ((2, 3, 4, 1, 5, 2), (2, 3, 1, 1, 5, 2), (2, 1, 4, 1, 1, 1)),
]
LEFT = [
    ((3, 4, 5), (1, 1, 5), (1, 4, 1)),
    ((5, 6), (5, 6), (5, 1)),
    ((5, 6), (5, 6), (1, 6)),
    ((3, 4, 5, 6), (3, 1, 5, 1), (1, 4, 1, 6)),
    ((3, 4), (1, 4), (1, 1)),
]


@pytest.fixture(params=["one thread", "several threads"], autouse=True)
def eager(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small results pay, and loops are there at once."""
    monkeypatch.setattr(outer, "PAYS", 1)
    monkeypatch.setattr(loops.Loop, "soon", loops.Loop.of)
    monkeypatch.setattr(loops, "SHARE", 1 if request.param == "several threads" else 1 << 60)
    monkeypatch.setattr(loops, "threads", lambda: 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape, a, b", TAKEN + LEFT)
def test_products_are_those_of_numpy(
    shape: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...], dtype: type
) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(a).astype(dtype), rng.standard_normal(b).astype(dtype)
    x[(0,) * len(a)] = np.nan
    out = np.full(shape, 7, dtype)
    with np.errstate(invalid="ignore"):
        assert outer.outer(out, x, y) == ((shape, a, b) in TAKEN)
        product(x, y, out)
    np.testing.assert_array_equal(out, np.broadcast_to(x * y, shape))


def test_operands_and_results_of_other_layouts_and_dtypes() -> None:
    a, b = np.arange(6.0).reshape(3, 2).T[:, :, None], np.arange(8.0).reshape(4, 2).T[:, None, :]
    out = np.zeros((2, 3, 4))
    assert outer.outer(out, a, b)
    np.testing.assert_array_equal(out, a * b)
    strided = np.zeros((2, 3, 8))[:, :, ::2]
    assert not outer.outer(strided, a, b)
    product(a, b, strided)
    np.testing.assert_array_equal(strided, a * b)
    assert not outer.outer(np.zeros((2, 3, 4), np.complex128), a, b)


def test_a_loop_that_is_not_there_yet_is_begun_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    made = loops.Loop(lambda: None, "=x1")
    begun: list[tuple[Any, ...]] = []
    monkeypatch.setattr(made, "of", lambda *key: begun.append(key))
    single = np.dtype(np.float32)
    for _ in range(3):
        assert made.soon(single) is None and made.soon(single, streamed=True) is None
    for thread in [t for t in threading.enumerate() if t.name == "gradtape-loop"]:
        thread.join()
    assert sorted(begun) == [(single, False), (single, True)]
