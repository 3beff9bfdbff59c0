"""Factors of sums move into what is summed where that changes nothing but roundings."""

from __future__ import annotations

import numpy as np
import pytest

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, float16, float32, int32
from gradtape.ir.graph import Graph, Value
from gradtape.ops.op import constant, emit
from gradtape.transforms.inner_factors import with_inner_factors
from tests.op_table.running import node_by_node


def mean_of(dtype: DType, axes: tuple[int, ...], op: str, number: float, keepdims: bool = False) -> Graph:
    x = Value(aval((4, 6), dtype))
    total = emit("reduce_sum", x, axes=axes, keepdims=keepdims)
    return Graph([x], [emit("negative", emit(op, total, constant(number, dtype)))])


def last(graph: Graph) -> str:
    assert graph.outputs[0].node is not None
    return graph.outputs[0].node.step.name


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("op, number", [("divide", 24), ("multiply", -0.5)])
def test_factors_of_a_sum_to_one_number_move_in(op: str, number: float, keepdims: bool) -> None:
    graph = mean_of(float32, (0, 1), op, number, keepdims)
    moved = with_inner_factors(graph)
    assert last(moved) == "reduce_sum"
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    for a, b in zip(node_by_node(moved, [x]), node_by_node(graph, [x]), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "graph",
    [
        mean_of(float32, (1,), "divide", 6),  # a sum for each row: it may be a row of a kernel that goes on
        mean_of(float32, (0, 1), "divide", 0),  # infinities of both signs have no sum
        mean_of(float32, (0, 1), "multiply", 1e30),
        mean_of(float32, (0, 1), "add", 3),  # no factor
        mean_of(float16, (0, 1), "divide", 24),  # too few bits for small terms
        mean_of(int32, (0, 1), "multiply", 3),
    ],
    ids=["rows", "by zero", "large", "a summand", "halves", "integers"],
)
def test_what_stays_outside(graph: Graph) -> None:
    assert last(with_inner_factors(graph)) == "negative"


def test_a_factor_is_the_first_operand_of_no_quotient() -> None:
    x = Value(aval((5,), float32))
    total = emit("reduce_sum", x, axes=(0,), keepdims=False)
    assert last(with_inner_factors(Graph([x], [emit("divide", constant(1, float32), total)]))) == "divide"
