"""Simplification: the same bits from a smaller graph, and a graph that keeps its spec behind every pass.

Checked on the first and second VJP graph and on the JVP graph of every op, and on every pointwise op of two numbers
with a constant for either of them, since passes look at constants: neutral and other numbers, zeros of both signs, as
a scalar, as a full array and as a repeated scalar, next to infinities and NaN."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gradtape.ir.aval import aval_of
from gradtape.ir.dtypes import DType, complex128, float32, float64, int32
from gradtape.ir.graph import Graph, Value, check
from gradtape.ops.op import Op, apply, constant, emit
from gradtape.ops.pointwise import Pointwise
from gradtape.transforms.differentiate import jvp, vjp
from gradtape.transforms.simplify import PASSES, simplify
from tests.op_table.cases import CASES, DOUBLE, each_op, sealed
from tests.op_table.running import assert_near, assert_same_bits, compiled, noise
from tests.op_table.tally import Checks

Compare = Callable[[Any, Any, object], None]
NUMBERS = (0, -0.0, 1, -1, 2, 3, 0.5)
AROUND = (0.0, -0.0, 1.0, -1.0, 0.3, -2.5, 1e-300, np.inf, -np.inf, np.nan)

pytestmark = pytest.mark.filterwarnings("error")


def checked(graph: Graph) -> Graph:
    """The simplified graph; its spec is checked behind every pass."""
    seen: list[str] = []

    def after(name: str, g: Graph) -> None:
        seen.append(name)
        check(g)
        assert g.inputs == graph.inputs and [v.aval for v in g.outputs] == [v.aval for v in graph.outputs], name

    small = simplify(graph, after)
    assert seen == [name for name, _ in PASSES]
    assert len(small.nodes) <= len(graph.nodes) + sum(v.aval.shape != () for n in graph.nodes for v in n.outputs)
    return small


def assert_same(graph: Graph, arrays: list[Any], about: object, compare: Compare = assert_same_bits) -> None:
    check(graph)
    small = compiled(checked(graph))(*arrays)
    for a, b in zip(small, compiled(graph)(*arrays), strict=True):
        compare(a, b, about)


@each_op()
def test_derived_graphs(op: Op, checks: Checks) -> None:
    for case in CASES[op.name]:
        for dtype in (*case.dtypes(DOUBLE), *(case.dtypes((float32,)) if case.is_free else ())):
            graph = case.graph(dtype)
            first = vjp(graph)
            for derived in (graph, first, vjp(first), jvp(graph)):
                extra = [v.aval for v in derived.inputs[len(graph.inputs) :]]
                assert_same(derived, [*case.draw(dtype), *noise(extra, 9)], (case, dtype))
                checks()


def forms(number: float, dtype: DType, shape: tuple[int, ...]) -> Iterator[Value]:
    """The ways in which a constant may stand in a graph."""
    yield constant(number, dtype)
    yield constant(number, dtype, shape)
    yield emit("broadcast_to", constant(number, dtype), shape=shape)


def around(dtype: DType, finite: bool) -> Any:
    """Special numbers in a dtype."""
    if dtype.is_integer:
        return sealed(np.arange(len(AROUND)).astype(dtype.numpy_dtype))
    values = np.array([x for x in AROUND if np.isfinite(x) or not finite])
    with np.errstate(all="ignore"):
        return sealed((values - 0.5j if dtype.is_complex else values).astype(dtype.numpy_dtype))


def assert_nearly_same(got: Any, want: Any, about: object) -> None:
    """For complex numbers, where a product with 1 may turn -0 into 0, and infinite ones have no agreed value; and for
    kernels written as Python functions, which may treat a scalar operand apart, as `pow` does with its exponent."""
    assert got.dtype == want.dtype, about
    assert_near(got, want, about, 1e-6 if got.dtype == np.float32 else 1e-15)


WITHOUT_ZERO = ("floordiv", "floormod", "truncatediv", "truncatemod")  # of integers by zero: an error


def takes_two_numbers(op: Op) -> bool:
    return isinstance(op, Pointwise) and [s.dtype for s in op.samples[0].specs] == ["float", "float"]


@each_op(takes_two_numbers)
def test_constants_for_an_operand(op: Pointwise, checks: Checks) -> None:
    case = CASES[op.name][0]
    for dtype, number, place in itertools.product(case.dtypes((float64, float32, complex128, int32)), NUMBERS, (0, 1)):
        array = around(dtype, finite=op.array is not None or dtype.is_complex)
        if dtype.is_integer and (number != int(number) or number < 1):
            continue  # division by zero and negative powers have no value there
        if dtype.is_integer and place == 0 and op.name in WITHOUT_ZERO:
            array = np.where(array == 0, array.dtype.type(1), array)
        for fixed in forms(number, dtype, array.shape):
            x = Value(aval_of(array))
            operands = (fixed, x) if place == 0 else (x, fixed)
            compare = assert_same_bits if op.array is None and not dtype.is_complex else assert_nearly_same
            assert_same(Graph([x], apply(case.step, operands)), [array], (op.name, dtype, number, place), compare)
            checks()


def test_equal_nodes_become_one() -> None:
    x = Value(aval_of(np.zeros((2, 3))))
    twice = emit("add", emit("exp", x), emit("exp", x))
    assert [n.step.name for n in checked(Graph([x], [twice])).nodes] == ["exp", "add"]


def test_what_changes_nothing_falls_away() -> None:
    x = Value(aval_of(np.zeros((2, 3))))
    y = emit("reshape", emit("transpose", x, perm=(0, 1)), shape=(2, 3))
    z = emit("divide", emit("multiply", constant(1, float64), emit("subtract", y, constant(0, float64))), y)
    assert [n.step.name for n in checked(Graph([x], [z])).nodes] == ["divide"]


def test_a_result_keeps_its_shape() -> None:
    """The repeated operand gives the shape here, so it must stay."""
    x = Value(aval_of(np.float64(0)))
    y = emit("exp", emit("broadcast_to", x, shape=(4,)))
    assert checked(Graph([x], [y])).outputs[0].aval.shape == (4,)


def test_no_pass_looks_behind_the_inputs() -> None:
    """A backward graph is given values that the forward graph makes, such as repeated ones: those are only numbers to
    it, wherever they come from."""
    repeated = emit("broadcast_to", Value(aval_of(np.zeros((1, 3)))), shape=(2, 3))
    other = Value(aval_of(np.zeros((2, 3))))
    graph = Graph([repeated, other], [emit("multiply", repeated, other)])
    small = simplify(graph, after=lambda name, g: check(g))
    arrays = [sealed(np.arange(6.0).reshape(2, 3)), sealed(np.full((2, 3), 2.0))]
    assert_same_bits(compiled(small)(*arrays)[0], arrays[0] * arrays[1], small)
