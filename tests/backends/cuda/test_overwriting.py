"""Kernels that write results over operands: where they may, and that the promise of a text is looked at."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gradtape.backends.cuda.clustered import Clustered
from gradtape.backends.cuda.device import Cuda
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import float32
from gradtape.ir.graph import Graph, Value
from gradtape.kernels.cuda_spelling import spells_cuda
from gradtape.kernels.cuda_together import Member
from gradtape.ops import arithmetic, elementary, layout, reductions
from gradtape.ops.op import Op, apply
from gradtape.transforms.fuse import fuse
from tests.cuda_emulator.devices import fresh
from tests.cuda_emulator.faults import DeviceFault

Make = Callable[[Value, Value], list[Value]]
SHAPE = (20, 20)


def of(op: Op, *inputs: Value, **params: object) -> Value:
    return apply(op.bind(**params), inputs)[0]


def clustered(cuda: Cuda, make: Make, count: int = 1) -> Clustered:
    """The kernel of some work on two operands; `count`: as so many members."""
    x, y = Value(aval(SHAPE, float32)), Value(aval(SHAPE, float32))
    (node,) = (
        n for n in fuse(Graph([x, y], make(x, y)), spells_cuda, 1, siblings=True).nodes if n.step.op.kind == "fused"
    )
    assert list(node.inputs) == [x, y]
    results = [(v.aval.dims, v.aval.dtype.numpy_dtype) for v in node.outputs]
    members = [Member(node.step.params["cluster"], 2 * k, len(results) * k) for k in range(count)]
    return Clustered(cuda, members, results * count)


def scaled(x: Value, y: Value) -> list[Value]:
    first = of(arithmetic.ADD, of(elementary.TANH, x), y)
    return [first, of(arithmetic.MULTIPLY, first, x)]


def turned(x: Value, y: Value) -> list[Value]:
    """The first operand is also read the other way round."""
    return [of(arithmetic.ADD, of(arithmetic.MULTIPLY, x, of(layout.TRANSPOSE, x, perm=(1, 0))), y)]


def summed(x: Value, y: Value) -> list[Value]:
    rows = of(reductions.REDUCE_SUM, of(arithmetic.MULTIPLY, x, y), axes=(1,), keepdims=True)
    return [of(arithmetic.ADD, x, rows)]


def numbers() -> tuple[np.ndarray, np.ndarray]:
    x, y = np.random.default_rng(0).normal(size=(2, *SHAPE)).astype(np.float32)
    return x, y


@pytest.mark.parametrize("count", [1, 3])
def test_results_over_operands(count: int) -> None:
    x, y = numbers()
    with fresh() as cuda:
        plain = clustered(cuda, scaled, count)
        run = plain.writing_over([p for k in range(count) for p in ((2 * k, 2 * k), (2 * k + 1, 2 * k))])
        operands = [cuda.array(a) for _ in range(count) for a in (x, y)]
        made = run(*operands)
        for k in range(count):
            assert made[2 * k] is operands[2 * k] and made[2 * k + 1] is not operands[2 * k]
            np.testing.assert_allclose(cuda.host(made[2 * k]), np.tanh(x) + y, rtol=1e-5)
            np.testing.assert_allclose(cuda.host(made[2 * k + 1]), (np.tanh(x) + y) * x, rtol=1e-5)
            np.testing.assert_array_equal(cuda.host(operands[2 * k + 1]), y)


def test_a_text_that_promises_otherwise_is_found_out() -> None:
    x, y = numbers()
    with fresh() as cuda:
        plain, operand = clustered(cuda, scaled), cuda.array(x)
        plain(operand, cuda.array(y), into=[operand])
        with pytest.raises(DeviceFault, match="lead to one buffer") as caught:
            cuda.host(operand)
    assert caught.value.kind == "aliasing"


REFUSED: dict[str, tuple[Make, list[tuple[int, int]]]] = {
    "elements that are read in other rounds": (turned, [(0, 0)]),
    "sums": (summed, [(0, 0), (0, 1)]),
    "nothing": (scaled, []),
}


@pytest.mark.parametrize("what", REFUSED)
def test_where_none_may_be(what: str) -> None:
    make, pairs = REFUSED[what]
    with fresh() as cuda:
        plain = clustered(cuda, make)
        assert plain.writing_over(pairs) is plain


def test_operands_of_another_member_are_read_by_its_blocks() -> None:
    with fresh() as cuda:
        plain = clustered(cuda, scaled, 2)
        assert plain.writing_over([(0, 2), (2, 0), (3, 1)]) is plain
