"""Dense terms of what is assembled become one array, to which the other terms are added where it lies."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from gradtape.backends import program
from gradtape.backends.cpu import lower
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, float32, float64, int32
from gradtape.ir.graph import Graph, Value
from gradtape.ir.index import Index
from gradtape.ops.op import emit
from gradtape.ops.placement import Place, Product, assemble
from gradtape.transforms import dense_terms
from gradtape.transforms.dense_terms import with_dense_terms
from tests.op_table.running import node_by_node

SHAPE = (4, 3, 1, 4)
WHOLE = tuple((Place(c, None, n),) if n > 1 else () for c, n in zip((0, 1, 0, 2), SHAPE, strict=True))
SIZES = (4, 3, 4)
DIAGONAL = Product((4, 3), ((0,),), ((Place(0, None, 4),), (Place(1, None, 3),), (), (Place(0, None, 4),)))
REVERSED = Product(
    (4, 3), ((0, 1),), ((Place(0, Index([3, 2, 1, 0]), 4),), (Place(1, None, 3),), (), (Place(0, None, 4),))
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays count as large ones."""
    monkeypatch.setattr(dense_terms, "PAYS", 1)
    monkeypatch.setattr(program, "LARGE", 1)


def assembled(terms: list[Product], dtype: DType = float64) -> Graph:
    factors = [Value(aval(tuple(t.sizes[c] for c in own), dtype)) for t in terms for own in t.factors]
    return Graph(factors, [assemble(terms, factors, [], SHAPE, dtype)])


def arrays_for(graph: Graph) -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=v.aval.dims).astype(v.aval.dtype.numpy_dtype) for v in graph.inputs]


def names(graph: Graph) -> list[str]:
    return [n.step.name for n in graph.nodes]


def random_terms(r: random.Random) -> list[Product]:
    def dense() -> Product:
        count = r.randint(1, 3)
        return Product(SIZES, tuple(tuple(r.sample(range(3), r.randint(0, 3))) for _ in range(count)), WHOLE)

    return [r.choice([dense, dense, lambda: DIAGONAL, lambda: REVERSED])() for _ in range(r.randint(2, 4))]


@pytest.mark.parametrize("dtype", [float32, float64])
def test_the_numbers_stay(dtype: DType) -> None:
    changed = 0
    for seed in range(60):
        graph = assembled(random_terms(random.Random(seed)), dtype)
        made, arrays = with_dense_terms(graph), arrays_for(graph)
        changed += made is not graph
        want = node_by_node(graph, arrays)[0]
        kept = [a.copy() for a in arrays]
        for got in (node_by_node(made, arrays)[0], program.compile_graph(made, lower)(*arrays)[0]):
            assert got.shape == want.shape and got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5 if dtype is float32 else 1e-12, atol=1e-6)
        assert all(np.array_equal(a, b) for a, b in zip(arrays, kept, strict=True))  # nobody wrote over an input
    assert changed > 20


def test_what_is_left_is_added_where_the_dense_terms_are() -> None:
    terms = [Product(SIZES, ((0, 1, 2), (0, 1)), WHOLE), DIAGONAL, Product(SIZES, ((2,),), WHOLE)]
    made = with_dense_terms(assembled(terms))
    (last,) = [n for n in made.nodes if n.step.name == "assemble"]
    assert len(last.step.params["terms"]) == 2 and names(made).count("multiply") == 1
    # a contraction or a kernel makes the memory that may be written over: here a contraction stands for both
    x = Value(aval((*SHAPE, 2), float64))
    y = Value(aval((2,), float64))
    total = emit("contract", x, y, subscripts="abcde,e->abcd")
    whole = Product(SHAPE, ((0, 1, 2, 3),), tuple((Place(c, None, n),) for c, n in enumerate(SHAPE)))
    vector = Value(aval((4,), float64))
    graph = Graph([x, y, vector], [assemble([whole, DIAGONAL], [total, vector], [], SHAPE, float64)])
    source, _ = program.render(graph, lower)
    assert "over=True" in source
    arrays = arrays_for(graph)
    np.testing.assert_allclose(program.compile_graph(graph, lower)(*arrays)[0], node_by_node(graph, arrays)[0])
    twice = Graph(graph.inputs, [*graph.outputs, total])
    assert "over=True" not in program.render(twice, lower)[0]  # somebody else has the array too


@pytest.mark.parametrize(
    "terms, dtype",
    [
        ([Product(SIZES, ((0, 1, 2),), WHOLE), DIAGONAL], float64),  # one factor: assembling reads it once
        ([DIAGONAL, REVERSED], float64),
        ([Product(SIZES, ((0, 1, 2), (0,)), WHOLE)], float64),  # one term: multiplied while it is written
        ([Product(SIZES, ((0, 1, 2), (0,)), WHOLE), DIAGONAL], int32),
    ],
    ids=["one factor", "nothing dense", "one term", "integers"],
)
def test_what_stays(terms: list[Product], dtype: DType) -> None:
    graph = assembled(terms, dtype)
    assert with_dense_terms(graph) is graph


def test_sums_of_few_elements_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_terms, "PAYS", 49)
    graph = assembled([Product(SIZES, ((0, 1, 2), (0,)), WHOLE), DIAGONAL])
    assert with_dense_terms(graph) is graph
