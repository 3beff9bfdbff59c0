"""Cheap results that are computed where they are used: what is written, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import bool_, float32, float64
from gradtape.ir.graph import Graph, Value, check
from gradtape.kernels.spelling import spells
from gradtape.ops.op import constant, emit
from gradtape.transforms.fuse import fuse, fused_nodes
from tests.op_table.running import node_by_node


def given_of(*shapes: tuple[int, ...]) -> list[Value]:
    return [Value(aval(s, float64)) for s in shapes]


def contract(a: Value, b: Value) -> Value:
    return emit("contract", a, b, subscripts="ij,jk->ik")


def layer(x: Value, bias: Value) -> Value:
    return emit("maximum", emit("add", x, bias), constant(0, x.aval.dtype))


def kernels(graph: Graph) -> list[str]:
    """The clusters of a graph, if it gives the same as it is and fused."""
    small = fuse(graph, spells)
    check(small)
    rng = np.random.default_rng(2)
    arrays = [rng.normal(size=v.aval.dims).astype(v.aval.dtype.numpy_dtype) for v in graph.inputs]
    for a, b in zip(node_by_node(small, arrays), node_by_node(graph, arrays), strict=True):
        np.testing.assert_allclose(a, b, 1e-12)
    return [f"{len(n.outputs)} of {n.step.params['cluster']!r}" for n in fused_nodes(small)]


def test_the_slope_of_a_layer_is_read_off_its_result() -> None:
    x, bias, w = given_of((5, 5), (5,), (5, 5))
    h = layer(x, bias)
    back = emit("multiply", emit("exp", contract(h, w)), emit("step", h))
    assert kernels(Graph([x, bias, w], [back])) == ["1 of <5 x 5: add, maximum>", "1 of <25: exp, step, multiply>"]


def test_several_cheap_operations_in_a_row() -> None:
    x, bias, w = given_of((5, 5), (5,), (5, 5))
    h = layer(x, bias)
    slope = emit("subtract", constant(1.0, float64), emit("multiply", h, h))
    back = emit("multiply", emit("exp", contract(h, w)), slope)
    assert kernels(Graph([x, bias, w], [back]))[0] == "1 of <5 x 5: add, maximum>"


def test_what_is_dear_is_written() -> None:
    x, bias, w = given_of((5, 5), (5,), (5, 5))
    h = layer(x, bias)
    back = emit("multiply", emit("exp", contract(h, w)), emit("tanh", h))
    assert kernels(Graph([x, bias, w], [back]))[0] == "2 of <5 x 5: add, maximum, tanh>"


def test_results_of_the_graph_are_written() -> None:
    x, bias, w = given_of((5, 5), (5,), (5, 5))
    h = layer(x, bias)
    slope = emit("step", h)
    back = emit("multiply", emit("exp", contract(h, w)), slope)
    assert kernels(Graph([x, bias, w], [back, slope]))[0] == "2 of <5 x 5: add, maximum, step>"


def test_two_arrays_are_not_read_for_one() -> None:
    x, y, w = given_of((5, 5), (5, 5), (5, 5))
    a, b = emit("exp", emit("negative", x)), emit("exp", emit("add", x, y))
    both = emit("multiply", a, b)
    back = emit("multiply", emit("exp", emit("add", contract(a, w), contract(b, w))), both)
    assert kernels(Graph([x, y, w], [back]))[0].startswith("3 of ")


@pytest.mark.parametrize("is_needed_later", [False, True])
def test_no_larger_array_is_kept_for_a_smaller_one(is_needed_later: bool) -> None:
    x, w = Value(aval((6, 6), float32)), Value(aval((6, 6), float32))
    h = emit("tanh", emit("negative", x))
    mask = emit("less", h, constant(0.0, float32))
    assert mask.aval.dtype is bool_
    z = emit("exp", contract(h, w))
    back = emit("select", mask, z, emit("negative", z))
    outputs = [contract(contract(back, w), h)] if is_needed_later else [back]
    made = fuse(Graph([x, w], outputs), spells)
    assert len(next(fused_nodes(made)).outputs) == (1 if is_needed_later else 2)


def test_what_moves_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("gradtape.ir.show.SHOWN.words", frozenset({"passes"}))
    x, bias, w = given_of((5, 5), (5,), (5, 5))
    h = layer(x, bias)
    fuse(Graph([x, bias, w], [emit("multiply", emit("exp", contract(h, w)), emit("step", h))]), spells)
    name = "---- passes: compute cheap results where they are used\n"
    shown = capsys.readouterr().err
    assert f"{name}1 nodes moved to another kernel\nstep() float64(5, 5) to exp, multiply\n" in shown
    fuse(Graph([x, bias], [h]), spells)
    assert name not in capsys.readouterr().err
