"""Layout steps: two of a kind are one, and small operands are put in order before they are read many times."""

import numpy as np
import pytest

from gradtape.backends.cpu import lower
from gradtape.backends.program import render
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import float64
from gradtape.ir.graph import Graph, Value
from gradtape.ops.op import emit
from gradtape.transforms.simplify import simplify
from tests.op_table.running import compiled

RNG = np.random.default_rng(2)


def test_reshapes_of_reshapes_are_one() -> None:
    x = Value(aval((2, 3, 4), float64))
    flat = emit("reshape", x, shape=(24,))
    graph = simplify(Graph([x], [emit("exp", emit("reshape", emit("reshape", flat, shape=(4, 6)), shape=(3, 8)))]))
    assert [n.step.name for n in graph.nodes] == ["reshape", "exp"]
    assert graph.outputs[0].aval.shape == (3, 8)


def test_a_reshape_back_is_none() -> None:
    x = Value(aval((2, 3), float64))
    graph = simplify(Graph([x], [emit("exp", emit("reshape", emit("reshape", x, shape=(6,)), shape=(2, 3)))]))
    assert [n.step.name for n in graph.nodes] == ["exp"]


@pytest.mark.parametrize("perms", [((1, 2, 0), (1, 0, 2)), ((2, 0, 1), (1, 2, 0)), ((0, 2, 1), (2, 1, 0))])
def test_transposes_of_transposes_are_one(perms: tuple[tuple[int, ...], ...]) -> None:
    x = Value(aval((2, 3, 4), float64))
    y = x
    for perm in perms:
        y = emit("transpose", y, perm=perm)
    graph = simplify(Graph([x], [emit("exp", y)]))
    assert sum(n.step.name == "transpose" for n in graph.nodes) <= 1
    array = RNG.normal(size=(2, 3, 4))
    want = np.exp(array.transpose(perms[0]).transpose(perms[1]))
    np.testing.assert_array_equal(compiled(graph)(array)[0], want)


def test_what_is_used_in_between_stays() -> None:
    x = Value(aval((2, 6), float64))
    flat = emit("reshape", x, shape=(12,))
    graph = simplify(Graph([x], [emit("reshape", flat, shape=(3, 4)), flat]))
    array = RNG.normal(size=(2, 6))
    wide, line = compiled(graph)(array)
    np.testing.assert_array_equal(wide, array.reshape(3, 4))
    np.testing.assert_array_equal(line, array.reshape(12))


@pytest.mark.parametrize("shape", [(4, 40), (64, 40)])
def test_operands_in_another_order(shape: tuple[int, int]) -> None:
    """One that is read once is left as it is."""
    x, y = Value(aval(shape[::-1], float64)), Value(aval((1000, 1, 1), float64))
    wide = emit("multiply", emit("transpose", x, perm=(1, 0)), y)
    graph = Graph([x, y], [emit("add", wide, emit("transpose", wide, perm=(0, 1, 2)))])
    a, b = RNG.normal(size=shape[::-1]), RNG.normal(size=(1000, 1, 1))
    np.testing.assert_array_equal(compiled(graph)(a, b)[0], 2 * (a.T * b))
    source, _ = render(graph, lower)
    assert source.count("in_line(") == 1
