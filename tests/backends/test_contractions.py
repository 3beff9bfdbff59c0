"""Contractions of all spellings against einsum, with results in order and in memory that was used before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradtape.backends import gemm
from gradtape.backends.gemm import compile_contraction
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import float64
from gradtape.kernels import memory


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small matrices are worth a call, and small results the pool."""
    monkeypatch.setattr(gemm, "MATRIX", 2)
    monkeypatch.setattr(gemm, "PLENTY", 6)
    monkeypatch.setattr(memory, "LARGE", 64)
    yield
    memory.POOL.clear()


@st.composite
def spellings(draw: Any) -> tuple[str, dict[str, int]]:
    """Subscripts in which a letter is one of the left operand, of the right one, of both, or summed."""
    letters = "abcdef"[: draw(st.integers(1, 6))]
    kinds = {c: draw(st.sampled_from(["left", "right", "both", "summed"])) for c in letters}

    def spelled(*among: str) -> str:
        return "".join(draw(st.permutations([c for c in letters if kinds[c] in among])))

    left, right = spelled("left", "both", "summed"), spelled("right", "both", "summed")
    sizes = {c: draw(st.sampled_from([0, 1, 2, 3, 4, 3, 2])) for c in letters}
    return f"{left},{right}->{spelled('left', 'right', 'both')}", sizes


@given(spellings(), st.integers(0, 2**31))
@settings(max_examples=400, deadline=None)
def test_contractions_are_einsums(spelling: tuple[str, dict[str, int]], seed: int) -> None:
    subscripts, sizes = spelling
    rng = np.random.default_rng(seed)
    left, right = subscripts.split("->")[0].split(",")
    a, b = (rng.standard_normal([sizes[c] for c in letters]) for letters in (left, right))
    for _ in range(2):  # the second one may be given the memory of the first
        np.testing.assert_allclose(compile_contraction(subscripts)(a, b), np.einsum(subscripts, a, b), atol=1e-12)


@pytest.mark.parametrize("sizes", [(3, 4, 5), (96, 80, 72), (200, 150, 160)], ids=str)
@pytest.mark.parametrize("subscripts", [*gemm.FORMS, "zy,xy->zx", "ab,b->a"])
def test_a_contraction_for_known_shapes_is_the_same(subscripts: str, sizes: tuple[int, int, int]) -> None:
    """Small, of one thread, and worth several."""
    size = dict(zip("abc" if "b" in subscripts else "zyx", sizes, strict=True))
    left, right = subscripts.split("->")[0].split(",")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal([size[c] for c in letters]) for letters in (left, right))
    run = gemm.contraction_of(subscripts, [aval(x.shape, float64) for x in (a, b)])
    for _ in range(2):
        np.testing.assert_allclose(run(a, b), np.einsum(subscripts, a, b), atol=1e-11)


@pytest.mark.parametrize("subscripts", ["ab,cdb->cad", "abc,dce->adbe", "ab,bcd->dac"])
def test_results_are_in_order_where_matrices_are_large(subscripts: str) -> None:
    left, right = subscripts.split("->")[0].split(",")
    result = compile_contraction(subscripts)(np.ones((4,) * len(left)), np.ones((4,) * len(right)))
    assert result.flags.c_contiguous


def test_a_sum_over_one_element_is_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "matmul", None)
    a, b = np.arange(6.0).reshape(2, 1, 3), np.arange(8.0).reshape(2, 1, 4)
    found = compile_contraction("zab,zac->zbc")(a, b)
    np.testing.assert_array_equal(found, np.einsum("zab,zac->zbc", a, b))
