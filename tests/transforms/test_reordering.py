"""Chains of contractions: the order with the fewest multiply-adds where that saves most of them, the same sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import float64
from gradtape.ir.graph import Graph, Value, check
from gradtape.kernels.spelling import spells
from gradtape.ops.op import emit
from gradtape.transforms.cost import multiply_adds
from gradtape.transforms.fuse import fuse
from gradtape.transforms.reordering import SAVED, reordered
from tests.op_table.running import node_by_node


def contract(a: Value, b: Value, subscripts: str) -> Value:
    return emit("contract", a, b, subscripts=subscripts)


def given_of(*shapes: tuple[int, ...]) -> list[Value]:
    return [Value(aval(s, float64)) for s in shapes]


def work(graph: Graph) -> int:
    return sum(map(multiply_adds, graph.nodes))


def assert_same(found: Graph, graph: Graph) -> None:
    """On whole numbers every order of adding gives the same bits."""
    check(found)
    assert [v.aval for v in found.outputs] == [v.aval for v in graph.outputs]
    rng = np.random.default_rng(5)
    arrays = [rng.integers(-3, 4, v.aval.dims).astype(float) for v in graph.inputs]
    for a, b in zip(node_by_node(found, arrays), node_by_node(graph, arrays), strict=True):
        assert np.array_equal(a, b)


def test_a_product_of_matrices_times_a_vector() -> None:
    a, b, v = given_of((30, 40), (40, 50), (50,))
    graph = Graph([a, b, v], [contract(contract(a, b, "ij,jk->ik"), v, "ik,k->i")])
    found = reordered(graph)
    assert_same(found, graph)
    assert (work(graph), work(found)) == (30 * 40 * 50 + 30 * 50, 40 * 50 + 30 * 40)


def test_four_matrices_with_batches_and_letters_in_other_orders() -> None:
    a, b, c, d = given_of((3, 2, 20), (3, 20, 20), (20, 3, 20), (3, 20, 2))
    first = contract(a, contract(b, c, "bij,jbk->kbi"), "bmi,kbi->kmb")
    graph = Graph([a, b, c, d], [contract(first, d, "kmb,bkn->nbm")])
    found = reordered(graph)
    assert_same(found, graph)
    assert work(found) < work(graph) / 5


def test_what_others_use_stays() -> None:
    a, b, v = given_of((30, 40), (40, 50), (50,))
    product = contract(a, b, "ij,jk->ik")
    for outputs in ([product], [emit("negative", product)]):
        graph = Graph([a, b, v], [contract(product, v, "ik,k->i"), *outputs])
        assert reordered(graph) is graph


@pytest.mark.parametrize(("rows", "changes"), [(40, False), (4, True)])
def test_the_order_stays_where_little_is_saved(rows: int, changes: bool) -> None:
    a, b, c = given_of((40, 40), (40, 40), (40, rows))
    graph = Graph([a, b, c], [contract(contract(a, b, "ij,jk->ik"), c, "ik,kl->il")])
    assert (reordered(graph) is not graph) == changes


def test_no_larger_array_is_held_in_between() -> None:
    """(u · A) · w is a sum over rows and columns; the outer product of u and w costs little more, and much memory."""
    u, v, w = given_of((50,), (50, 2), (2, 50))
    graph = Graph([u, v, w], [contract(contract(u, v, "i,ij->j"), w, "j,jk->k")])
    assert reordered(graph) is graph


def test_halves_of_chains_and_what_comes_between() -> None:
    """Elementwise work ends a chain; chains around it are put in order each."""
    a, b, v = given_of((30, 40), (40, 50), (50,))
    first = emit("square", contract(contract(a, b, "ij,jk->ik"), v, "ik,k->i"))
    graph = Graph([a, b, v], [contract(contract(a, b, "ij,jk->ki"), first, "ki,i->k")])
    found = reordered(graph)
    assert_same(found, graph)
    assert work(found) == 2 * (40 * 50 + 30 * 40)


@st.composite
def chains(draw: st.DrawFn) -> Graph:
    """Trees of contractions over five letters: each pair sums some of what it shares, or of what nobody needs later."""
    sizes = {c: draw(st.sampled_from([1, 2, 3, 7])) for c in "abcde"}
    values: list[tuple[Value, str]] = []
    for _ in range(draw(st.integers(3, 6))):
        own = "".join(draw(st.lists(st.sampled_from("abcde"), unique=True, max_size=3)))
        values.append((Value(aval(tuple(sizes[c] for c in own), float64)), own))
    inputs = [v for v, _ in values]
    while len(values) > 1:
        (x, left), (y, right) = values.pop(draw(st.integers(0, len(values) - 1))), values.pop()
        summed = draw(st.sets(st.sampled_from("abcde"))) & set(left) & set(right)
        out = "".join(draw(st.permutations(sorted({*left, *right} - summed))))
        values.insert(draw(st.integers(0, len(values))), (contract(x, y, f"{left},{right}->{out}"), out))
    return Graph(inputs, [values[0][0]])


@settings(max_examples=300)
@given(chains())
def test_random_trees(graph: Graph) -> None:
    found = reordered(graph)
    assert found is graph or work(found) * SAVED < work(graph)
    assert_same(found, graph)


def test_the_pass_is_shown_by_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("gradtape.ir.show.SHOWN.words", frozenset({"passes"}))
    a, b, v = given_of((30, 40), (40, 50), (50,))
    small = fuse(Graph([a, b, v], [contract(contract(a, b, "ij,jk->ik"), v, "ik,k->i")]), spells)
    assert work(small) == 40 * 50 + 30 * 40
    assert "---- passes: reorder contractions\n" in capsys.readouterr().err
