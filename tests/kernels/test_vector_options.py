"""Loops that work on several vectors side by side: the same results, other code."""

from __future__ import annotations

import numpy as np
import pytest

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import float32
from gradtape.ir.graph import Graph, Value
from gradtape.kernels.compiled import Compiler, KernelSource
from gradtape.kernels.render import render
from gradtape.kernels.spelling import spells
from gradtape.kernels.vector_options import TRIED, side_by_side
from gradtape.ops.op import emit
from gradtape.transforms.fuse import fuse, fused_nodes
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
    with side_by_side(3) as known:
        if not known:
            pytest.skip("this version of LLVM has not been tried")
        three = fused("exp")
    with side_by_side(6):
        assert fused("exp") == 2 * three > 2 * plain
    assert fused("exp") == plain, "loops compiled later are as before"


def test_options_are_given_back_after_an_error(plain: int) -> None:
    with pytest.raises(ZeroDivisionError), side_by_side(4):
        1 / 0  # noqa: B018
    assert fused("exp") == plain


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 63, 100, 1000])
def test_results_are_the_same(size: int) -> None:
    x = np.linspace(-20, 20, size).astype("float32")
    want, got = np.empty_like(x), np.full_like(x, 7)
    compiled.loop("tanh", "float32", compiled.CONTRACT)(x, want)
    with side_by_side(4):
        other = compiled.loop.__wrapped__("tanh", "float32", compiled.CONTRACT)
    other(x, got)
    np.testing.assert_array_equal(got, want)


def test_an_unknown_version_is_left_alone(monkeypatch: pytest.MonkeyPatch, plain: int) -> None:
    import llvmlite.binding as llvm

    monkeypatch.setattr(llvm, "llvm_version_info", (max(TRIED) + 1, 0, 0))
    with side_by_side(5) as known:
        assert not known and fused("exp") == plain


@pytest.mark.parametrize(("size", "functions", "vectors"), [(255, 3, 0), (256, 3, 4), (256, 1, 0), (256, 150, 2)])
def test_long_loops_of_functions_ask_for_it(size: int, functions: int, vectors: int) -> None:
    x = Value(aval((size,), float32))
    y = emit("negative", x)
    for _ in range(functions):
        y = emit("tanh", y)
    (node,) = fused_nodes(fuse(Graph([x], [y]), spells))
    kernel = render(node.step.params["cluster"])
    assert kernel.vectors == KernelSource(kernel, (float32,)).vectors == vectors


def test_kernels_for_other_numbers_of_vectors_are_others(strict: Compiler) -> None:
    def name(size: int) -> str:
        x = Value(aval((size,), float32))
        (node,) = fused_nodes(fuse(Graph([x], [emit("tanh", emit("exp", x))]), spells))
        kernel = render(node.step.params["cluster"])
        ticket = strict.request(KernelSource(kernel, (float32,)))
        ticket.wait()
        return ticket.name

    assert name(10) == name(11) != name(1000) == name(1001)
