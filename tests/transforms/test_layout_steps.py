"""Layout steps: two of a kind are one, and small operands are put in order before they are read many times."""

import numpy as np
import pytest

from gradtape.backends.cpu import lower
from gradtape.backends.program import render
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, float32, float64
from gradtape.ir.graph import Graph, Value
from gradtape.ops.op import constant, emit
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


def test_what_comes_from_one_number_stays_one_number() -> None:
    """A cotangent that is the same everywhere: it is repeated where it meets what is not."""
    c, x = Value(aval((), float64)), Value(aval((30, 40), float64))
    g = emit("broadcast_to", c, shape=(30, 40))
    g = emit("multiply", emit("negative", g), emit("broadcast_to", emit("exp", c), shape=(30, 40)))
    graph = simplify(Graph([c, x], [g, emit("multiply", g, x)]))
    sizes = {n.step.name: n.outputs[0].aval.size for n in graph.nodes}
    assert sizes["negative"] == sizes["exp"] == 1
    assert [n.step.name for n in graph.nodes].count("multiply") == 2
    a, b = np.float64(0.3), RNG.normal(size=(30, 40))
    whole, product = compiled(graph)(a, b)
    np.testing.assert_array_equal(whole, np.full((30, 40), -0.3 * np.exp(0.3)))
    np.testing.assert_array_equal(product, -0.3 * np.exp(0.3) * b)


def test_rows_that_are_repeated_stay_rows() -> None:
    row, column = Value(aval((1, 5), float64)), Value(aval((4, 1), float64))
    wide = [emit("broadcast_to", v, shape=(4, 5)) for v in (row, row)]
    graph = simplify(Graph([row, column], [emit("add", emit("multiply", *wide), column)]))
    assert [(n.step.name, n.outputs[0].aval.dims) for n in graph.nodes] == [("multiply", (1, 5)), ("add", (4, 5))]


def test_repeated_results_keep_their_shape() -> None:
    c = Value(aval((), float64))
    graph = simplify(Graph([c], [emit("exp", emit("broadcast_to", c, shape=(2, 3)))]))
    assert [n.step.name for n in graph.nodes] == ["exp", "broadcast_to"]
    (found,) = compiled(graph)(np.float64(1))
    assert found.shape == (2, 3)


@pytest.mark.parametrize(
    "number, dtype, sums",
    [
        (1, float64, 0),
        (-3, float32, 0),
        (0.5, float64, 1),
        (-0.0, float64, 1),
        (2**23, float32, 1),
        (np.nan, float64, 1),
    ],
)
def test_known_sums(number: float, dtype: DType, sums: int) -> None:
    wide = constant(number, dtype, (6, 4))
    graph = simplify(Graph([], [emit("reduce_sum", wide, axes=(0,), keepdims=False)]))
    assert [n.step.name for n in graph.nodes].count("reduce_sum") == sums
    (found,) = compiled(graph)()
    np.testing.assert_array_equal(found, np.full((6, 4), number, dtype.numpy_dtype).sum(0))
