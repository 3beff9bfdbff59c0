"""Random graphs: rows with structure against one pass per row, to second order, and what structured rows answer.

The op table's test of rows takes each op alone, from a fresh seed. Here ops meet letters that stand on several axes, at
positions of every kind, in sums of terms and products of factors. Exact graphs are compared bit by bit, because their
derivatives are integers; `row_graphs.py` says how they are drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradtape.ir.dtypes import float64
from gradtape.ir.graph import Graph, Value, order
from gradtape.ops.op import constant
from gradtape.transforms.differentiate import leaves, pull_back, vjp
from gradtape.transforms.rows import products
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.entering import lifted
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.sums import MAX_TERMS, settled, stored
from gradtape.transforms.rows.terms import Rows, rows_of, seed
from gradtape.transforms.vectorize import swapped, vectorize
from tests.op_table.running import compiled
from tests.transforms.row_graphs import Drawn, drawn_graphs

MODES = ("reverse", "forward")
LOOSE = {"rtol": 1e-8, "atol": 1e-9}

pytestmark = pytest.mark.filterwarnings("error")


def examples(count: int) -> Any:
    return settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


# ------------------------------------------------------------------ the two ways to rows


def structured(graph: Graph, sources: int, mode: str) -> Iterator[tuple[int, Builder, Rows | None]]:
    """The Jacobian of the output by each source as rows; None where the backward pass does not reach it."""
    (y,) = graph.outputs
    cotangent = Value(y.aval)
    xs = graph.inputs[:sources]
    given = [*graph.inputs, cotangent]
    for i, pulled in enumerate(pull_back(graph.nodes, [y], [cotangent], xs)):
        b = Builder()
        if pulled is None:
            yield i, b, None
        elif mode == "reverse":
            b, (rows,) = vectorize(Graph(given, [pulled]), {len(given) - 1: seed(y.aval.dims, float64)})
            yield i, b, lifted(b, rows, y.aval.dims)
        else:
            tangent = Value(xs[i].aval)
            (pushed,) = pull_back(order([pulled], given), [pulled], [tangent], [cotangent])
            if pushed is None:
                yield i, b, rows_of([], y.aval.dims, xs[i].aval.dims, float64)
                continue
            assert not leaves([pushed], [cotangent]), "forward mode still mentions the cotangent"
            inputs = [*graph.inputs, tangent]
            b, (rows,) = vectorize(Graph(inputs, [pushed]), {len(inputs) - 1: seed(xs[i].aval.dims, float64)})
            yield i, b, swapped(lifted(b, rows, xs[i].aval.dims))


def units(v: Value) -> list[Any]:
    """The unit vectors of a value's shape."""
    return [one[()] for one in np.eye(v.aval.size).reshape((v.aval.size, *v.aval.dims))]


def looped(graph: Graph, sources: int, arrays: Any) -> list[np.ndarray | None]:
    """The same Jacobians from one backward pass per element of the output."""
    (y,) = graph.outputs
    cotangent = Value(y.aval)
    xs = graph.inputs[:sources]
    pulled = pull_back(graph.nodes, [y], [cotangent], xs)
    run = compiled(Graph([*graph.inputs, cotangent], [p for p in pulled if p is not None]))
    rows = [[np.asarray(r) for r in run(*arrays, one)] for one in units(y)]
    found: list[np.ndarray | None] = []
    k = 0
    for x, p in zip(xs, pulled, strict=True):
        if p is None:
            found.append(None)
            continue
        shape = y.aval.dims + x.aval.dims
        found.append(np.stack([r[k] for r in rows]).reshape(shape) if rows else np.zeros(shape))
        k += 1
    return found


def compare(got: Any, want: Any, exact: bool, about: object) -> None:
    if exact:
        np.testing.assert_array_equal(got, want, err_msg=repr(about))
    else:
        np.testing.assert_allclose(got, want, **LOOSE, err_msg=repr(about))


def check_dense(drawn: Drawn, exact: bool) -> None:
    wanted = looped(drawn.graph, drawn.sources, drawn.arrays)
    for mode in MODES:
        for i, b, rows in structured(drawn.graph, drawn.sources, mode):
            want = wanted[i]
            if rows is None:
                assert want is None
                continue
            (got,) = compiled(Graph(drawn.graph.inputs, [dense(b, rows)]))(*drawn.arrays)
            compare(got, want, exact, (mode, drawn))


@examples(500)
@given(drawn_graphs())
def test_exact_rows(drawn: Drawn) -> None:
    check_dense(drawn, True)


@examples(250)
@given(drawn_graphs(exact=False))
def test_rows_of_functions(drawn: Drawn) -> None:
    check_dense(drawn, False)


# ------------------------------------------------------------------ what structured rows answer


@examples(400)
@given(drawn_graphs(), st.sampled_from(MODES), st.integers(0, 2**16))
def test_structured_answers(drawn: Drawn, mode: str, number: int) -> None:
    """Products, the diagonal, squares of rows, blocks and the pattern, from terms that are never written out."""
    wanted = looped(drawn.graph, drawn.sources, drawn.arrays)
    rng = np.random.default_rng(number)
    for i, b, rows in structured(drawn.graph, drawn.sources, mode):
        full = wanted[i]
        if rows is None or full is None:
            continue
        questions = Questions(b, rows, full, rng)
        graph = Graph([*drawn.graph.inputs, *questions.vectors], questions.asked)
        got = compiled(graph)(*drawn.arrays, *questions.arrays)
        for name, g, w in zip(questions.names, got, questions.wanted, strict=True):
            np.testing.assert_array_equal(g, w, err_msg=f"{name} in {mode} mode of\n{drawn!r}")
        check_pattern(drawn, b, rows, full)


class Questions:
    """What rows are asked, and the answers from the dense array."""

    def __init__(self, b: Builder, rows: Rows, full: np.ndarray, rng: np.random.Generator) -> None:
        self.names: list[str] = []
        self.asked: list[Value] = []
        self.wanted: list[Any] = []
        self.vectors: list[Value] = []
        self.arrays: list[Any] = []
        m, n = math.prod(rows.rows), math.prod(rows.shape)
        matrix = full.reshape(m, n)
        x, u = self.vector(rows.shape, rng), self.vector(rows.rows, rng)
        self.ask("J @ x", products.times_vector(b, rows, x), (matrix @ self.arrays[0].reshape(n)).reshape(rows.rows))
        transposed = products.times_vector(b, swapped(rows), u)
        self.ask("J.T @ u", transposed, (self.arrays[1].reshape(m) @ matrix).reshape(rows.shape))
        axes = tuple(range(len(rows.rows), full.ndim))
        self.ask("squares of rows", products.row_squares(b, rows), np.sum(full * full, axis=axes))
        if rows.rows == rows.shape:
            self.ask("diagonal", products.diagonal_of(b, rows), np.diagonal(matrix).reshape(rows.shape))
        if rows.rows and rows.shape and rows.rows[0] == rows.shape[0]:
            lead = len(rows.rows)
            blocks = np.moveaxis(np.diagonal(full, axis1=0, axis2=lead), -1, 0)
            self.ask("blocks", products.batch_blocks(b, rows), blocks)

    def vector(self, shape: tuple[int, ...], rng: np.random.Generator) -> Value:
        from_rng = np.asarray(rng.integers(-2, 3, shape).astype(np.float64))[()]
        v = Value(constant(0, float64, shape).aval)
        self.vectors.append(v)
        self.arrays.append(from_rng)
        return v

    def ask(self, name: str, value: Value, want: Any) -> None:
        self.names.append(name)
        self.asked.append(value)
        self.wanted.append(want)


def check_pattern(drawn: Drawn, b: Builder, rows: Rows, full: np.ndarray) -> None:
    """Entries at the places of the pattern add up to the whole; no more are counted than there are."""
    asked = [*products.entries(b, rows), *products.running(rows)]
    answers = [np.asarray(a) for a in compiled(Graph(drawn.graph.inputs, asked))(*drawn.arrays)]
    values, vectors = answers[: len(rows.terms)], answers[len(rows.terms) :]
    where = products.pattern(rows, vectors)
    flat = np.concatenate([np.asarray(v).reshape(-1) for v in values] or [np.zeros(0)])
    summed = np.zeros((math.prod(rows.rows), math.prod(rows.shape)))
    np.add.at(summed, where, flat)
    np.testing.assert_array_equal(summed.reshape(full.shape), full, err_msg=repr(drawn))
    assert products.nonzeros(rows) == len(flat) >= np.count_nonzero(full)
    assert products.described(rows).count("\n") == max(0, len(rows.terms) - 1)


@examples(400)
@given(drawn_graphs(), st.sampled_from(MODES))
def test_terms_store_no_more_than_the_dense_array(drawn: Drawn, mode: str) -> None:
    for _, b, rows in structured(drawn.graph, drawn.sources, mode):
        if rows is None:
            continue
        assert len(rows.terms) <= MAX_TERMS
        after = settled(b, rows)
        entries = max(1, math.prod(rows.rows + rows.shape))
        numbers = sum(not f.letters for t in after.terms for f in t.factors)  # beside what they multiply
        assert stored(after) - numbers <= entries, f"{products.described(after)}\n{drawn}"
        (got,) = compiled(Graph(drawn.graph.inputs, [dense(b, after)]))(*drawn.arrays)
        (want,) = compiled(Graph(drawn.graph.inputs, [dense(b, rows)]))(*drawn.arrays)
        np.testing.assert_array_equal(got, want, err_msg=repr(drawn))


# ------------------------------------------------------------------ second order


def gradient_graph(drawn: Drawn) -> Graph | None:
    """The gradient of the sum of the output by the first source, over the same inputs."""
    (y,) = drawn.graph.outputs
    ones = constant(1, float64, y.aval.dims)
    (pulled,) = pull_back(drawn.graph.nodes, [y], [ones], drawn.graph.inputs[:1])
    return None if pulled is None else Graph(drawn.graph.inputs, [pulled])


@pytest.mark.parametrize("exact", [True, False])
def test_jacobian_of_the_gradient(exact: bool) -> None:
    @examples(150)
    @given(drawn_graphs(exact=exact))
    def check(drawn: Drawn) -> None:
        graph = gradient_graph(drawn)
        if graph is not None:
            check_dense(Drawn(graph, drawn.sources, drawn.arrays), exact)

    check()


def rows_of_rows(drawn: Drawn) -> np.ndarray | None:
    """The derivative of the Jacobian by the first source, by that source: one pass per row of each row's gradient."""
    (y,), x = drawn.graph.outputs, drawn.graph.inputs[0]
    cotangent = Value(y.aval)
    (pulled,) = pull_back(drawn.graph.nodes, [y], [cotangent], [x])
    if pulled is None:
        return None
    first = Graph([*drawn.graph.inputs, cotangent], [pulled])
    second = vjp(first)
    run = compiled(Graph(second.inputs, second.outputs[:1]))
    n = x.aval.size
    found = np.zeros((y.aval.size, n, n))
    for i, one in enumerate(units(y)):
        for j, other in enumerate(units(x)):
            # one row of the symmetric second derivative: of the gradient of element i, along the unit vector j
            found[i, j] = np.asarray(run(*drawn.arrays, one, other)[0]).reshape(-1)
    return found.reshape(y.aval.dims + x.aval.dims + x.aval.dims)


@pytest.mark.parametrize("inner", MODES)
@pytest.mark.parametrize("outer", MODES)
def test_jacobian_of_a_jacobian(inner: str, outer: str) -> None:
    """The vectorized graph is differentiated and vectorized again: rows through placed products."""

    @examples(120)
    @given(drawn_graphs(most=8, ops=8))
    def check(drawn: Drawn) -> None:
        want = rows_of_rows(drawn)
        _, b, rows = next(structured(drawn.graph, 1, inner))
        if want is None or rows is None:
            assert want is None or not want.any()
            return
        jacobian = dense(b, rows)
        _, c, again = next(structured(Graph(drawn.graph.inputs, [jacobian]), 1, outer))
        if again is None:
            assert not want.any()
            return
        (got,) = compiled(Graph(drawn.graph.inputs, [dense(c, again)]))(*drawn.arrays)
        np.testing.assert_array_equal(got, want, err_msg=repr(drawn))

    check()
