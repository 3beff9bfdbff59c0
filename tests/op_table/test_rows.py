"""Rows at once: the vectorized backward pass of every op against one pass per row, in reverse and in forward mode.

Seeds are the identity over the result (reverse) and over an operand (forward); every op of the table that has a
gradient is run with every sample. It finds a rule that loses or moves an entry, a wrong index vector, a structural zero
that is not one. It cannot find what a chain of ops would (`tests/transforms/test_random_rows.py` builds those)."""

from __future__ import annotations

import numpy as np
import pytest

from gradtape.ir.dtypes import float64
from gradtape.ir.graph import Graph, Value, order
from gradtape.ops.op import Op
from gradtape.transforms.differentiate import leaves, pull_back
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.entering import lifted
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.terms import Rows, seed
from gradtape.transforms.vectorize import swapped, vectorize
from tests.op_table.cases import CASES, Case, each_op
from tests.op_table.running import compiled
from tests.op_table.tally import Checks
from tests.op_table.test_derivatives import flows


def rowwise(op: Op) -> list[Case]:
    """The cases in float64 whose results are real and through which a gradient flows."""
    return [
        c
        for c in CASES[op.name]
        if c.is_free
        and c.takes(float64)
        and all(v.aval.dtype is float64 for v in c.graph(float64).outputs)
        and flows(c, float64)
    ]


def has_rows(op: Op) -> bool:
    return bool(rowwise(op))


def backward(case: Case, which: int) -> tuple[Graph, list[Value], Value, list[int]]:
    """The backward pass of one result: graph over operands and the cotangent, the operands, the cotangent, and for
    each output of the graph its operand."""
    forward = case.graph(float64)
    target = forward.outputs[which]
    cotangent = Value(target.aval)
    pulled = pull_back(forward.nodes, [target], [cotangent], forward.inputs)
    places = [i for i, p in enumerate(pulled) if p is not None]
    graph = Graph([*forward.inputs, cotangent], [p for p in pulled if p is not None])
    return graph, list(forward.inputs), cotangent, places


def reference(graph: Graph, operands: list[object], target: Value) -> list[np.ndarray]:
    """The Jacobians row by row."""
    run = compiled(graph)
    rows = []
    count = target.aval.size
    for one in np.eye(count).reshape((count, *target.aval.dims)):
        rows.append(run(*operands, one[()]))
    shapes = [v.aval.dims for v in graph.outputs]
    if not rows:
        return [np.zeros(target.aval.dims + s) for s in shapes]
    return [np.stack([np.asarray(r[k]) for r in rows]).reshape(target.aval.dims + s) for k, s in enumerate(shapes)]


def written(b: Builder, item: object, rows: tuple[int, ...], swap: bool) -> Value:
    v: Rows = lifted(b, item, rows)  # type: ignore[arg-type]
    return dense(b, swapped(v) if swap else v)


@each_op(has_rows)
def test_reverse_rows(op: Op, checks: Checks) -> None:
    for case in rowwise(op):
        for which in range(len(case.graph(float64).outputs)):
            graph, inputs, cotangent, places = backward(case, which)
            if not places:
                continue
            operands = case.draw(float64)
            b, results = vectorize(graph, {len(inputs): seed(cotangent.aval.dims, float64)})
            dims = cotangent.aval.dims
            made = compiled(Graph(inputs, [written(b, r, dims, False) for r in results]))(*operands)
            for got, want in zip(made, reference(graph, operands, cotangent), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11, err_msg=repr(case))
                checks()


@each_op(has_rows)
def test_forward_rows(op: Op, checks: Checks) -> None:
    for case in rowwise(op):
        for which in range(len(case.graph(float64).outputs)):
            graph, inputs, cotangent, places = backward(case, which)
            operands = case.draw(float64)
            want = reference(graph, operands, cotangent) if places else []
            for pulled, i, full in zip(graph.outputs, places, want, strict=True):
                tangent = Value(inputs[i].aval)
                given = [*inputs, cotangent]
                (pushed,) = pull_back(order([pulled], given), [pulled], [tangent], [cotangent])
                if pushed is None:
                    assert not full.any(), repr(case)
                    continue
                free = [*inputs, tangent]
                assert not leaves([pushed], [cotangent]), f"{case!r}: forward mode still mentions the cotangent"
                b, (result,) = vectorize(Graph(free, [pushed]), {len(inputs): seed(tangent.aval.dims, float64)})
                made = compiled(Graph(inputs, [written(b, result, tangent.aval.dims, True)]))(*operands)
                np.testing.assert_allclose(made[0], full, rtol=1e-9, atol=1e-11, err_msg=repr(case))
                checks()


def test_rows_are_checked_at_all() -> None:
    names = {op.name for op in (case.op for group in CASES.values() for case in group)}
    assert {"multiply", "contract", "gather", "concat"} <= names


if __name__ == "__main__":
    pytest.main([__file__])
