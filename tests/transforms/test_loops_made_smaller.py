"""Loops and branches without what nobody reads, and with what never changes made before: how much is left, and equal
results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import float64, int32
from gradtape.ir.graph import Graph, Node, Value, check
from gradtape.ops.control import COND, SCAN, WHILE
from gradtape.ops.op import apply, constant, emit
from gradtape.transforms.hoist import hoisted
from gradtape.transforms.liveness import without_unread
from gradtape.transforms.simplify import simplify
from tests.op_table.running import node_by_node


def vector() -> Value:
    return Value(aval((3,), float64))


def count() -> Value:
    return Value(aval((), int32))


def loop(changes: Any, starts: Sequence[Value], constants: Sequence[Value], rounds: int = 3) -> tuple[Value, ...]:
    """A loop that counts; `changes` gives the next vectors and what is pushed."""
    k, given = count(), [vector() for _ in (*starts, *constants)]
    outputs = changes(*given)
    test = Graph([k, *given], [emit("less", k, constant(rounds, int32))])
    body = Graph([k, *given], [emit("add", k, constant(1, int32)), *outputs])
    return apply(WHILE.bind(test=test, body=body, carried=1 + len(starts)), [constant(0, int32), *starts, *constants])


def only(graph: Graph, name: str) -> Node:
    (node,) = [n for n in graph.nodes if n.step.name == name]
    return node


def assert_same(graph: Graph, other: Graph) -> None:
    check(other)
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=v.aval.dims) for v in graph.inputs]
    for a, b in zip(node_by_node(graph, arrays), node_by_node(other, arrays), strict=True):
        np.testing.assert_array_equal(a, b)


def sine(v: Value) -> Value:
    return emit("sin", v)


def test_what_is_carried_for_itself_alone_goes() -> None:
    x, y, c = vector(), vector(), vector()
    made = loop(lambda a, b, c: [sine(a), emit("multiply", b, emit("add", a, c))], [x, y], [c])
    graph = Graph([x, y, c], [made[1]])
    fewer = without_unread(graph)
    assert_same(graph, fewer)
    step = only(fewer, "while").step
    assert step.params["carried"] == 2 and len(step.params["body"].inputs) == 2  # the counter and x
    whole = Graph([x, y, c], [made[2]])
    assert without_unread(whole).nodes[-1].step is whole.nodes[-1].step


def test_stacks_that_nothing_reads_are_not_made() -> None:
    x, c = vector(), vector()
    made = loop(lambda a, c: [emit("multiply", a, c), sine(a), emit("exp", c)], [x], [c])
    a, k, b, unread = (vector() for _ in range(4))
    body = Graph([a, k, b, unread], [emit("add", a, emit("multiply", b, k))])
    step = SCAN.bind(body=body, carried=1, constants=1, reverse=True)
    graph = Graph([x, c], apply(step, [made[-1], x, c, made[2], made[3]]))
    fewer = without_unread(graph)
    assert_same(graph, fewer)
    assert len(only(fewer, "while").outputs) == 4  # counter, x, one stack, trips
    assert len(only(fewer, "scan").inputs) == 4  # trips, x, c, one stack


def test_loops_in_loops_and_branches() -> None:
    def branched(a: Value, b: Value, c: Value) -> list[Value]:
        p, q, r = vector(), vector(), vector()
        true = Graph([p, q, r], [sine(p), emit("exp", r)])
        p, q, r = vector(), vector(), vector()
        false = Graph([p, q, r], [p, emit("multiply", q, r)])
        pred = emit("greater", emit("reduce_sum", a, axes=(0,), keepdims=False), constant(0, float64))
        first, second = apply(COND.bind(true=true, false=false), [pred, a, b, c])
        inner = loop(lambda u, v, w: [emit("add", u, w), emit("multiply", v, u)], [first, second], [c])
        return [inner[1], inner[2]]

    x, y, c = vector(), vector(), vector()
    made = loop(branched, [x, y], [c])
    graph = Graph([x, y, c], [made[1], made[-1]])
    fewer = without_unread(graph)
    assert_same(graph, fewer)
    body = only(fewer, "while").step.params["body"]
    assert len(only(body, "while").step.params["body"].outputs) == 2
    assert len(only(body, "cond").outputs) == 1 and len(only(body, "cond").inputs) == 2
    assert_same(graph, simplify(graph))


def test_a_loop_whose_rounds_alone_are_read() -> None:
    x = vector()
    graph = Graph([x], [loop(lambda a: [sine(a)], [x], [])[-1]])
    fewer = without_unread(graph)
    assert_same(graph, fewer)
    assert only(fewer, "while").step.params["carried"] == 1


def test_what_does_not_change_is_made_before() -> None:
    def changes(a: Value, c: Value) -> list[Value]:
        e = emit("exp", emit("multiply", c, c))
        inner = loop(lambda u, v, w: [emit("add", u, emit("multiply", sine(v), w))], [a], [c, e])
        return [emit("multiply", inner[1], emit("reshape", emit("reshape", e, shape=(3, 1)), shape=(3,)))]

    x, c = vector(), vector()
    graph = Graph([x, c], [loop(changes, [x], [c])[1]])
    before = hoisted(graph)
    assert_same(graph, before)
    assert {"exp", "sin"} <= {n.step.name for n in before.nodes}
    body = only(before, "while").step.params["body"]
    assert "exp" not in {n.step.name for n in body.nodes}
    assert "sin" not in {n.step.name for n in only(body, "while").step.params["body"].nodes}


def test_nothing_is_hoisted_out_of_a_branch_or_of_what_changes() -> None:
    def changes(a: Value, c: Value) -> list[Value]:
        p, q = vector(), vector()
        step = COND.bind(true=Graph([p], [sine(p)]), false=Graph([q], [q]))
        pred = emit("greater", emit("reduce_sum", a, axes=(0,), keepdims=False), constant(0, float64))
        return [emit("multiply", sine(a), apply(step, [pred, c])[0])]

    x, c = vector(), vector()
    graph = Graph([x, c], [loop(changes, [x], [c])[1]])
    assert hoisted(graph).nodes[-1].step is graph.nodes[-1].step
    assert_same(graph, hoisted(graph))
