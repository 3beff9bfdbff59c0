"""Ops whose parameters are all there is of them: constants, positions, and calls of a graph.

A call is checked with every op of the table inside: its results, its VJP and the VJP of that are those of the op on its
own, to the bit, when the call also returns the residuals that its derivative mentions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import ALL, complex64, float32, float64, int64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Graph, Value, check, text
from gradtape.ops.call import call_step
from gradtape.ops.layout import POSITIONS
from gradtape.ops.op import CONSTANT, Op, apply, emit
from gradtape.transforms.differentiate import augmented, vjp
from tests.op_table.cases import CASES, DOUBLE, each_op
from tests.op_table.running import assert_same_bits, compiled, noise, results_of
from tests.op_table.tally import Checks

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize("dtype", [d for d in ALL if d.kind != "s"], ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (1, 2)])
def test_constant(dtype: Any, shape: tuple[int, ...]) -> None:
    step = CONSTANT.bind(value=1, dtype=dtype, shape=shape)
    (got,) = results_of(step, [])
    assert step.infer(()) == (aval(shape, dtype),)
    assert (got.shape, got.dtype) == (shape, dtype.numpy_dtype)
    assert np.all(got == np.ones(shape, dtype.numpy_dtype))


def test_constants_are_arrays_of_their_own() -> None:
    step = CONSTANT.bind(value=2.5, dtype=float32, shape=(3,))
    (first,), (second,) = results_of(step, []), results_of(step, [])
    first[...] = 0
    assert np.all(second == 2.5)


def test_positions() -> None:
    step = POSITIONS.bind(value=(3, 0, 3))
    (got,) = results_of(step, [])
    assert step.infer(()) == (aval((3,), int64),)
    assert got.dtype == np.int64 and got.tolist() == [3, 0, 3]


def called(graph: Graph) -> Graph:
    """A graph of one call, which also returns the residuals of its derivative."""
    inputs = [Value(v.aval) for v in graph.inputs]
    active = [v.aval.dtype.is_differentiable for v in graph.inputs]
    results = apply(call_step(augmented(graph, active)), inputs)
    return Graph(inputs, results[: len(graph.outputs)])


@each_op()
def test_call_of_an_op(op: Op, checks: Checks) -> None:
    for case in CASES[op.name]:
        for dtype in case.dtypes(DOUBLE):
            inside, outside = case.graph(dtype), called(case.graph(dtype))
            arrays: list[Any] = list(case.draw(dtype))
            for order in range(3):
                check(outside)
                for a, b in zip(compiled(outside)(*arrays), compiled(inside)(*arrays), strict=True):
                    assert_same_bits(a, b, (case, dtype, order))
                checks()
                arrays += noise([v.aval for v in inside.outputs], order)
                inside, outside = vjp(inside), vjp(outside)


def test_call_within_a_call() -> None:
    x = Value(aval((3,), float64))
    inner = Graph([x], [emit("multiply", emit("tanh", x), emit("exp", x))])
    outer, twice = called(inner), called(called(inner))
    arrays = [np.array([0.3, -1.0, 2.0]), np.array([1.0, 2.0, -3.0])]
    for a, b in zip(compiled(vjp(twice))(*arrays), compiled(vjp(outer))(*arrays), strict=True):
        assert_same_bits(a, b, "call in a call")


def test_check_finds_a_broken_graph() -> None:
    x, stray = Value(aval((2,), float32)), Value(aval((2,), float32))
    good = emit("add", x, x)
    check(Graph([x], [good]))
    with pytest.raises(ValueError, match="`add` uses <input"):
        check(Graph([x], [emit("add", good, stray)]))
    with pytest.raises(ValueError, match="neither given nor made"):
        check(Graph([x], [stray]))
    bad = emit("add", x, x)
    bad.aval = aval((3,), float32)
    with pytest.raises(ValueError, match="`add` infers"):
        check(Graph([x], [bad]))


def test_text_of_a_graph() -> None:
    x = Value(aval((2,), float32))
    y = emit("reshape", emit("exp", x), shape=(2, 1))
    lines = ["x0 = input float32(2,)", "t0 = exp(x0) float32(2,)", "t1 = reshape(t0, shape=(2, 1)) float32(2, 1)"]
    assert text(Graph([x], [y])).splitlines() == [*lines, "return t1"]


def test_a_rule_of_another_dtype_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="`add` wants operands of one dtype"):
        emit("add", Value(aval((), float32)), Value(aval((), complex64)))
