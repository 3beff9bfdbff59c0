"""Where places get more bits: with the most elements for which they have few, no place wraps around.

Places have 64 bits where an extent and a step of the grid together reach 2³¹, which is too much to run here. So they
have 16 bits instead of 32 in these tests, and get more from 2¹⁵ on; the kernels are the same but for that."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradtape.backends.cuda.device import Cuda
from gradtape.backends.cuda.lowering import Lowering
from gradtape.backends.cuda.table import OPS
from gradtape.ir.aval import aval_of
from gradtape.ir.dtypes import int8, int16, int32, int64
from gradtape.ir.graph import Graph, Value
from gradtape.kernels import cuda_body, cuda_elementwise, cuda_rows
from gradtape.kernels.cuda_launch import LONG
from gradtape.ops.op import emit
from gradtape.runtime.devices import prepared
from tests.backends.cuda.running import on_device, texts_of
from tests.kernels.cuda.test_run import assert_near
from tests.op_table.running import node_by_node

Arrays = list[np.ndarray[Any, Any]]
Make = Callable[..., list[Value]]
RNG = np.random.default_rng(7)
SMALL_LONG = 1 << 15
FEW_BITS = re.compile(r"const int16 |<int16>")


def drawn(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.integers(-8, 9, shape).astype(dtype)


def below(high: int, *shape: int) -> Any:
    return RNG.integers(0, high, shape)


def softmax(x: Value) -> list[Value]:
    e = emit("exp", emit("subtract", x, emit("reduce_max", x, axes=(1,), keepdims=True)))
    return [emit("divide", e, emit("reduce_sum", e, axes=(1,), keepdims=True))]


def centred(x: Value) -> list[Value]:
    return [emit("subtract", x, emit("reduce_mean", x, axes=(0,), keepdims=True))]


def summed(*axes: int) -> Make:
    return lambda x: [emit("reduce_sum", emit("square", x), axes=axes, keepdims=False)]


def one(name: str, **params: Any) -> Make:
    return lambda *xs: [emit(name, *xs, **params)]


POOL = {"window": (2,), "strides": (1,), "dilations": (1,), "low": (0,), "high": (0,)}
# By what they are: the work, and its operands for a size.
WORK: dict[str, tuple[Make, Callable[[int], Arrays]]] = {
    "elementwise": (one("square"), lambda n: [drawn(n)]),
    "elementwise, of bytes": (one("negative"), lambda n: [drawn(n, dtype=np.int8)]),
    "a repeated operand": (one("add"), lambda n: [drawn(n, 5), drawn(5)]),
    "an operand the other way round": (
        lambda x, y: [emit("add", emit("transpose", x, perm=(1, 0)), y)],
        lambda n: [drawn(n, 5), drawn(5, n)],
    ),
    "rows": (softmax, lambda n: [drawn(n, 12)]),
    "long rows": (softmax, lambda n: [drawn(2, n)]),
    "columns": (centred, lambda n: [drawn(n, 7)]),
    "a sum of all": (summed(0), lambda n: [drawn(n)]),
    "sums of outer axes": (summed(0), lambda n: [drawn(n, 3)]),
    "sums of inner axes": (summed(1), lambda n: [drawn(n, 9)]),
    "sums of middle axes": (summed(1), lambda n: [drawn(3, n, 5)]),
    "pad": (one("pad", low=(3, 1), high=(0, 2)), lambda n: [drawn(n, 5)]),
    "concat": (one("concat", axis=1), lambda n: [drawn(n, 3), drawn(n, 2)]),
    "undiagonal": (one("undiagonal"), lambda n: [drawn(n, 3)]),
    "gather": (one("gather", axis=0, batch_dims=0), lambda n: [drawn(40, 5), below(40, n)]),
    "gather of a large operand": (one("gather", axis=0, batch_dims=0), lambda n: [drawn(n, 5), below(n, 50)]),
    "scatter_add": (
        lambda x, at: [emit("scatter_add", x, at, shape=(9, 3), axis=0, batch_dims=0)],
        lambda n: [drawn(n, 3), below(9, n)],
    ),
    "cumsum along rows": (one("cumsum", axis=1, reverse=False, exclusive=False), lambda n: [drawn(n, 6)]),
    "cumsum along a long row": (one("cumsum", axis=1, reverse=True, exclusive=False), lambda n: [drawn(1, n)]),
    "cumsum along columns": (one("cumsum", axis=0, reverse=False, exclusive=True), lambda n: [drawn(n, 4)]),
    "argsort": (one("argsort", axis=1, descending=False, count=6), lambda n: [drawn(n, 6)]),
    "argmax": (one("argmax", axis=1, dtype=int64), lambda n: [drawn(n, 5)]),
    "argmax of few": (one("argmax", axis=0, dtype=int64), lambda n: [drawn(n, 2)]),
    "searchsorted": (one("searchsorted", right=True, dtype=int32), lambda n: [np.sort(drawn(30)), drawn(n)]),
    "max_pool": (one("max_pool", **POOL), lambda n: [drawn(2, n, 3)]),
    "fold": (
        lambda g: [emit("fold", g, axis=1, length=g.aval.dims[1] + 2, stride=1, dilation=1)],
        lambda n: [drawn(2, n, 3)],
    ),
    "random bits": (lambda s: [emit("random_bits", s, shape=(SIZE[0],))], lambda n: [sized(n)]),
    "random integers": (
        lambda s: [emit("random_integers", s, shape=(SIZE[0],), low=-4, span=11, dtype=int8)],
        lambda n: [sized(n)],
    ),
}
SIZE = [0]  # of what is drawn, which no operand says


def sized(n: int) -> Any:
    SIZE[0] = n
    return np.array([3, 5], np.uint64)


@pytest.fixture(autouse=True)
def few_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_body, "LONG", SMALL_LONG)
    monkeypatch.setattr(cuda_body, "int32", int16)


def graph_of(make: Make, arrays: Arrays) -> Graph:
    values = [Value(aval_of(a)) for a in arrays]
    return Graph(values, make(*values))


def run_of(graph: Graph, arrays: Arrays) -> Callable[[Cuda], Any]:
    return lambda cuda: Lowering(cuda, prepared, OPS).program(graph)(*map(cuda.array, arrays))


def has_few_bits(make: Make, arrays: Arrays) -> bool:
    """Whether all kernels have; that some have is no border."""
    found = [bool(FEW_BITS.search(t)) for t in texts_of(run_of(graph_of(make, arrays), arrays))]
    assert found
    return all(found)


def border(make: Make, operands: Callable[[int], Arrays]) -> int:
    """The most elements with places of few bits."""
    low, high = 2, SMALL_LONG
    assert has_few_bits(make, operands(low)) and not has_few_bits(make, operands(high))
    while high - low > 1:
        middle = (low + high) // 2
        if has_few_bits(make, operands(middle)):
            low = middle
        else:
            high = middle
    return low


@pytest.mark.parametrize("name", WORK)
def test_no_place_wraps_around_at_the_border(name: str) -> None:
    make, operands = WORK[name]
    last = border(make, operands)
    for n in (last, last + 1):
        arrays = operands(n)
        graph = graph_of(make, arrays)
        (found,) = on_device([run_of(graph, arrays)])
        for a, b in zip(found, node_by_node(graph, arrays), strict=True):
            assert_near(a, b, (name, n), 500)


def test_few_blocks_go_through_all_at_the_border(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where threads go on to further elements, the last step leads beyond them."""
    for module in (cuda_elementwise, cuda_rows):
        monkeypatch.setattr(module, "MOST_BLOCKS", 3)
    for name in ("elementwise", "elementwise, of bytes", "a repeated operand", "rows", "columns"):
        test_no_place_wraps_around_at_the_border(name)


def test_the_border_is_that_of_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_body, "LONG", LONG)
    assert LONG == 1 << 31 and cuda_body.index_type(LONG - 1) is int16 and cuda_body.index_type(LONG) is int64
    monkeypatch.undo()
    assert cuda_body.index_type(LONG - 1) is int32 and cuda_body.index_type(LONG) is int64
