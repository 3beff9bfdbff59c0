"""Regions that run in pieces: what is in them, and that no number changes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import gradtape as tf
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import float32, float64
from gradtape.ir.graph import Graph, Value, check
from gradtape.ops.op import emit
from gradtape.runtime.backward import PROGRAMS as PLANS
from gradtape.transforms import tiling
from gradtape.transforms.cost import multiply_adds
from gradtape.transforms.peak import peak_bytes
from gradtape.transforms.tiling import tiled
from tests.jacobian.programs import PROGRAMS, tape_of
from tests.op_table.running import compiled, node_by_node
from tests.transforms.row_graphs import Drawn, drawn_graphs

RNG = np.random.default_rng(5)


def tiles_of(graph: Graph) -> list[Any]:
    return [n for n in graph.nodes if n.step.op.kind == "tiles"]


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever has two steps and an axis in common runs in pieces of one position."""
    for name, value in (("LARGE", 0), ("PAYS", 1), ("PIECE", 0), ("CACHE", 0), ("MATRIX", 0)):
        monkeypatch.setattr(tiling, name, value)
    monkeypatch.setattr(tiling, "_multiplies", bool)
    monkeypatch.setattr(tiling, "peak_bytes", lambda graph: -1)
    PLANS.clear()
    yield
    PLANS.clear()


def network(batch: int = 512, width: int = 256, outputs: int = 32) -> tuple[Graph, list[Any]]:
    """The slopes of a network with two masks: products of matrices with steps between them that are elementwise."""
    shapes = [
        (outputs, 1, width),
        (1, width, width),
        (batch, width),
        (outputs, batch, 1),
        (1, batch, width),
        (64, width),
    ]
    inputs = [Value(aval(s, float32)) for s in shapes]
    last, middle, slopes, end, mask, first = inputs
    kernels = emit("multiply", last, middle)
    g = emit("contract", slopes, kernels, subscripts="ab,cdb->cad")
    g = emit("multiply", emit("multiply", g, end), mask)
    g = emit("contract", g, first, subscripts="abc,dc->abd")
    arrays = [RNG.normal(size=s).astype(np.float32) for s in shapes]
    return Graph(inputs, [emit("transpose", g, perm=(1, 0, 2))]), arrays


def test_a_network_runs_output_by_output() -> None:
    graph, arrays = network()
    pieces = tiled(graph)
    check(pieces)
    (node,) = tiles_of(pieces)
    inside, params = node.step.params["graph"], node.step.params
    assert params["count"] == 32
    assert params["inputs"] == (0, None, None, 0, None, None)
    assert len(inside.nodes) == 5  # the view of the result stays outside
    assert params["count"] * sum(map(multiply_adds, inside.nodes)) == sum(map(multiply_adds, graph.nodes))
    assert peak_bytes(pieces) < peak_bytes(graph) / 4
    (got,), (want,) = compiled(pieces)(*arrays), compiled(graph)(*arrays)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("size", [{"batch": 8, "width": 64}, {"outputs": 1}, {"outputs": 31, "batch": 2048}])
def test_what_is_small_or_does_not_fit_runs_whole(size: dict[str, int]) -> None:
    graph, _ = network(**size)
    assert not tiles_of(tiled(graph))


def test_matrices_stay_as_large_as_products_are_fast() -> None:
    """A batch in pieces of few rows would make products slow."""
    x, w, v = (Value(aval(s, float32)) for s in ((4096, 1024), (1024, 1024), (1024, 1024)))
    h = emit("contract", x, w, subscripts="ab,bc->ac")
    graph = Graph([x, w, v], [emit("contract", emit("tanh", h), v, subscripts="ab,bc->ac")])
    for node in tiles_of(tiled(graph)):
        rows = min(n.inputs[0].aval.dims[0] for n in node.step.params["graph"].nodes if multiply_adds(n))
        assert rows >= tiling.MATRIX


def test_what_is_summed_over_the_axis_ends_a_region(everything: None) -> None:
    """Nothing behind a sum over all pieces can be among them."""
    x = Value(aval((6, 4), float64))
    e = emit("exp", x)
    total = emit("reduce_sum", e, axes=(0,), keepdims=True)
    graph = Graph([x], [emit("multiply", emit("divide", e, total), e)])
    pieces = tiled(graph)
    check(pieces)
    array = RNG.normal(size=(6, 4))
    np.testing.assert_array_equal(compiled(pieces)(array)[0], node_by_node(graph, [array])[0])


def test_an_axis_that_meets_itself_is_not_cut(everything: None) -> None:
    x = Value(aval((6, 6), float64))
    y = emit("sin", emit("multiply", x, emit("transpose", x, perm=(1, 0))))
    graph = Graph([x], [emit("cos", y)])
    assert not tiles_of(tiled(graph))


@settings(
    max_examples=600,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(drawn=drawn_graphs())
def test_random_graphs_of_whole_numbers(everything: None, drawn: Drawn) -> None:
    pieces = tiled(drawn.graph)
    check(pieces)
    for got, want in zip(compiled(pieces)(*drawn.arrays), node_by_node(drawn.graph, drawn.arrays), strict=True):
        np.testing.assert_array_equal(got, want)
        assert np.shape(got) == np.shape(want)


def test_random_graphs_have_regions(everything: None) -> None:
    """The property above is not about graphs that stay as they are."""
    found = 0

    @settings(max_examples=600, derandomize=True, database=None, suppress_health_check=list(HealthCheck), deadline=None)
    @given(drawn=drawn_graphs())
    def count(drawn: Drawn) -> None:
        nonlocal found
        found += bool(tiles_of(tiled(drawn.graph)))

    count()
    assert found > 30


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_jacobians_in_pieces(everything: None, name: str, mode: str) -> None:
    tape, y, x = tape_of(PROGRAMS[name])
    got = tape.jacobian(y, x, mode=mode)
    want = tape.jacobian(y, x, experimental_use_pfor=False)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)


def test_second_derivatives_in_pieces(everything: None) -> None:
    w = tf.constant(RNG.normal(size=(5, 5)))
    x = tf.constant(RNG.normal(size=(4, 5)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.tanh(tf.matmul(tf.tanh(tf.matmul(x, w)), w)) ** 2)
    got = tape.hessian(loss, x)
    PLANS.clear()
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(tf.tanh(tf.matmul(tf.tanh(tf.matmul(x, w)), w)) ** 2)
        g = inner.gradient(y, x)
    np.testing.assert_allclose(got, outer.jacobian(g, x, experimental_use_pfor=False), rtol=1e-9, atol=1e-11)
