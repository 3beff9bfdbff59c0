"""Loops that work on several vectors side by side and mask the last ones: the same results, other code."""

from __future__ import annotations

import numpy as np
import pytest

from gradtape.kernels.vector_options import TRIED, vectorized
from tests.kernels import compiled


def fused(name: str) -> int:
    """How many fused multiplications stand in the largest inner loop over an op, compiled anew."""
    loop = compiled.loop.__wrapped__(name, "float32", compiled.CONTRACT)
    (text,) = loop.inspect_asm().values()
    return max(body.count("\tvfmadd") for body in compiled.inner_loops(str(text).split(".Lfunc_end0")[0]))


@pytest.fixture
def plain() -> int:
    found = fused("exp")
    if not found:
        pytest.skip("reads the assembler of x86-64 with fused multiplications")
    return found


def test_vectors_side_by_side(plain: int) -> None:
    with vectorized(interleave=3) as known:
        if not known:
            pytest.skip("this version of LLVM has not been tried")
        three = fused("exp")
    with vectorized(interleave=6):
        assert fused("exp") == 2 * three > 2 * plain
    assert fused("exp") == plain, "loops compiled later are as before"


def test_options_are_given_back_after_an_error(plain: int) -> None:
    with pytest.raises(ZeroDivisionError), vectorized(interleave=4):
        1 / 0  # noqa: B018
    assert fused("exp") == plain


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 63, 100, 1000])
def test_results_are_the_same(size: int) -> None:
    x = np.linspace(-20, 20, size).astype("float32")
    want, got = np.empty_like(x), np.full_like(x, 7)
    compiled.loop("tanh", "float32", compiled.CONTRACT)(x, want)
    with vectorized():
        other = compiled.loop.__wrapped__("tanh", "float32", compiled.CONTRACT)
    other(x, got)
    np.testing.assert_array_equal(got, want)


def test_an_unknown_version_is_left_alone(monkeypatch: pytest.MonkeyPatch, plain: int) -> None:
    import llvmlite.binding as llvm

    monkeypatch.setattr(llvm, "llvm_version_info", (max(TRIED) + 1, 0, 0))
    with vectorized(interleave=5) as known:
        assert not known and fused("exp") == plain
