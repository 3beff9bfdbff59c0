"""Branches and loops as graphs: values, derivatives to third order and Jacobians against the same program unrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from gradtape.backends.cpu import lower
from gradtape.backends.program import compile_graph
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import bool_, float64, int32
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Graph, Value, check, order
from gradtape.ops.control import COND, EMPTY_STACK, WHILE, stacked
from gradtape.ops.op import apply, constant, emit
from gradtape.transforms.cost import multiply_adds
from gradtape.transforms.differentiate import augmented, jvp, pull_back
from gradtape.transforms.independence import batch_verdict
from gradtape.transforms.peak import peak_bytes
from gradtape.transforms.rows.entering import lifted
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.products import described
from gradtape.transforms.rows.terms import seed
from gradtape.transforms.simplify import flattened, simplify
from gradtape.transforms.vectorize import swapped, vectorize

Body = Callable[[Value, Value], Value]  # (what is carried, a constant) to what is carried on


def vector() -> Value:
    return Value(aval((3,), float64))


def scalar(x: float) -> Value:
    return constant(x, float64)


def elementwise(x: Value, k: Value) -> Value:
    return emit("sin", emit("multiply", x, k))


def mixing(x: Value, k: Value) -> Value:
    total = emit("reduce_sum", x, axes=(0,), keepdims=True)
    return emit("add", emit("tanh", emit("multiply", x, k)), emit("multiply", total, k))


def reversing(x: Value, k: Value) -> Value:
    return emit("reverse", emit("multiply", emit("sin", x), k), axes=(0,))


def branching(x: Value, k: Value) -> Value:
    y = emit("add", elementwise(x, k), emit("multiply", x, scalar(0.5)))
    a, b = vector(), vector()
    true = Graph([a], [emit("exp", emit("multiply", a, scalar(0.1)))])
    holds = emit("greater", emit("reduce_sum", y, axes=(0,), keepdims=False), scalar(0.3))
    (z,) = apply(COND.bind(true=true, false=Graph([b], [emit("multiply", b, b)])), [holds, y])
    return emit("multiply", z, k)


def nested(x: Value, k: Value) -> Value:
    return looped(elementwise, 2)(x, k)


BODIES: dict[str, Body] = {
    f.__name__: f
    for f in (elementwise, mixing, reversing, branching)  # `nested` joins them below
}


def looped(body: Body, n: int) -> Body:
    """n rounds as a loop that counts."""

    def run(x: Value, k: Value) -> Value:
        i, c, h = Value(aval((), int32)), vector(), vector()
        test = Graph([i, c, h], [emit("less", i, constant(n, int32))])
        j, d, m = Value(aval((), int32)), vector(), vector()
        step = Graph([j, d, m], [emit("add", j, constant(1, int32)), body(d, m)])
        return apply(WHILE.bind(test=test, body=step, carried=2), [constant(0, int32), x, k])[1]

    return run


def unrolled(body: Body, n: int) -> Body:
    def run(x: Value, k: Value) -> Value:
        for _ in range(n):
            x = body(x, k)
        return x

    return run


BODIES["nested"] = nested
FLAT: dict[str, Body] = BODIES | {"nested": lambda x, k: unrolled(elementwise, 2)(x, k)}


def graph_of(f: Body) -> Graph:
    x, k = vector(), vector()
    return Graph([x, k], [f(x, k)])


def run(graph: Graph, *arrays: Any) -> Any:
    check(graph)
    ready = simplify(flattened(graph))
    check(ready)
    with np.errstate(all="ignore"):
        return compile_graph(ready, lower)(*arrays)


def point() -> tuple[Any, Any]:
    rng = np.random.default_rng(7)
    return rng.normal(size=3) * 0.5, rng.normal(size=3)


def summed(v: Value) -> Value:
    return emit("reduce_sum", emit("sin", v), axes=(0,), keepdims=False)


def derivative(graph: Graph, times: int, keeps: bool) -> Graph:
    """A number made of the graph's results, differentiated; `keeps`: with the graphs that keep what is read."""
    graph = Graph(graph.inputs, [summed(v) for v in graph.outputs])
    for _ in range(times):
        whole = augmented(graph, [True] * len(graph.inputs)) if keeps else graph
        outputs = whole.outputs[: len(graph.outputs)]
        ones = [constant(1.0, v.aval.dtype, v.aval.dims) for v in outputs]
        pulled = pull_back(whole.nodes, outputs, ones, whole.inputs)
        total = [summed(p) for p in pulled if p is not None]
        graph = Graph(whole.inputs, [total[0] if len(total) == 1 else emit("add", *total)])
    return graph


@pytest.mark.parametrize("keeps", [False, True], ids=["runs again", "keeps"])
@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("name", BODIES)
def test_vjp_of_vjp_of_vjp_of_a_loop(name: str, n: int, keeps: bool) -> None:
    x, k = point()
    for times in range(4):
        loop = derivative(graph_of(looped(BODIES[name], n)), times, keeps)
        flat = derivative(graph_of(unrolled(FLAT[name], n)), times, False)
        np.testing.assert_allclose(run(loop, x, k)[0], run(flat, x, k)[0], 1e-7, 1e-9)


@pytest.mark.parametrize("name", BODIES)
def test_jvp_of_a_loop(name: str) -> None:
    x, k = point()
    tangents = (np.array([1.0, -2.0, 0.5]), np.array([0.3, 0.1, -1.0]))
    loop, flat = (jvp(graph_of(kind(bodies[name], 3))) for kind, bodies in ((looped, BODIES), (unrolled, FLAT)))
    np.testing.assert_allclose(run(loop, x, k, *tangents)[0], run(flat, x, k, *tangents)[0], 1e-10)


def jacobian(graph: Graph, wrt: int, forward: bool) -> tuple[Graph, str]:
    """The Jacobian by an input, from all rows at once, and the structure in which it came."""
    cotangent = Value(graph.outputs[0].aval)
    (pulled,) = pull_back(graph.nodes, graph.outputs, [cotangent], [graph.inputs[wrt]])
    assert pulled is not None
    varying, result = cotangent, pulled
    if forward:
        varying = Value(graph.inputs[wrt].aval)
        (pushed,) = pull_back(order([pulled], [*graph.inputs, cotangent]), [pulled], [varying], [cotangent])
        assert pushed is not None
        result = pushed
    whole = Graph([*graph.inputs, varying], [result])
    b, (rows,) = vectorize(whole, {len(graph.inputs): seed((3,), float64)})
    found = lifted(b, rows, (3,))
    found = swapped(found) if forward else found
    return Graph(graph.inputs, [dense(b, found)]), described(found)


@pytest.mark.parametrize("forward", [False, True], ids=["reverse", "forward"])
@pytest.mark.parametrize("wrt", [0, 1])
@pytest.mark.parametrize("name", BODIES)
def test_vectorize_of_vjp_of_a_loop(name: str, wrt: int, forward: bool) -> None:
    x, k = point()
    loop, structure = jacobian(graph_of(looped(BODIES[name], 4)), wrt, forward)
    flat, _ = jacobian(graph_of(unrolled(FLAT[name], 4)), wrt, forward)
    np.testing.assert_allclose(run(loop, x, k)[0], run(flat, x, k)[0], 1e-9, 1e-12)
    diagonal = {"elementwise", "branching", "nested"}
    if name in diagonal and wrt == 0:
        assert structure.split(":")[0].strip() == "a | a", "an elementwise loop has a diagonal Jacobian"
    if name == "reversing" and wrt == 0:
        assert len(structure.splitlines()) == 2, "after an even and after an odd number of rounds"


def test_a_loop_that_runs_no_round_hands_its_carry_on() -> None:
    x, k = point()
    np.testing.assert_array_equal(run(graph_of(looped(mixing, 0)), x, k)[0], x)


def test_branches_pull_back_the_one_that_ran() -> None:
    """sqrt is not pulled back where the branch without it runs, though its slope at 0 is infinite."""
    p, x = Value(aval((), bool_)), vector()
    root = emit("sqrt", x)
    a, b = vector(), vector()
    (y,) = apply(COND.bind(true=Graph([a], [a]), false=Graph([b], [constant(0.0, float64, (3,))])), [p, root])
    (pulled,) = pull_back(order([y], [p, x]), [y], [constant(1.0, float64, (3,))], [x])
    assert pulled is not None
    graph = Graph([p, x], [pulled])
    np.testing.assert_array_equal(run(graph, False, np.zeros(3))[0], [0, 0, 0])
    np.testing.assert_array_equal(run(graph, True, np.full(3, 4.0))[0], [0.25] * 3)


def test_a_known_branch_is_put_in_its_place() -> None:
    x = vector()
    a, b = vector(), vector()
    step = COND.bind(true=Graph([a], [emit("sin", a)]), false=Graph([b], [emit("cos", b)]))
    graph = simplify(Graph([x], apply(step, [constant(False, bool_), x])))
    assert [n.step.name for n in graph.nodes] == ["cos"]


def test_steps_of_equal_graphs_are_one() -> None:
    steps = []
    for _ in range(2):
        a, b = vector(), vector()
        steps.append(COND.bind(true=Graph([a], [emit("sin", a)]), false=Graph([b], [b])))
    assert steps[0] is steps[1]
    c = vector()
    assert COND.bind(true=Graph([c], [c]), false=Graph([c], [c])) is not steps[0]


def _with_branch(outputs: Sequence[Value], inputs: Sequence[Value]) -> Any:
    a = vector()
    return lambda p, x: apply(COND.bind(true=Graph([a], [a]), false=Graph(inputs, outputs)), [p, x])


def test_graphs_that_do_not_fit_are_refused() -> None:
    p, x = Value(aval((), bool_)), vector()
    b = vector()
    with pytest.raises(InvalidArgumentError, match="other branch"):
        _with_branch([emit("cast", b, dtype=int32)], [b])(p, x)
    with pytest.raises(InvalidArgumentError, match="condition"):
        _with_branch([b], [b])(x, x)
    i, c, h = Value(aval((), int32)), vector(), vector()
    grown = Graph([i, c, h], [i, emit("concat", c, c, axis=0)])
    test = Graph([i, c, h], [emit("less", i, constant(2, int32))])
    with pytest.raises(InvalidArgumentError, match="next iteration"):
        apply(WHILE.bind(test=test, body=grown, carried=2), [constant(0, int32), x, x])


def test_examples_of_a_batch_in_a_loop() -> None:
    def batch(f: Callable[[Value, Value], Value]) -> str:
        x = Value(aval((4, 3), float64))
        i, c = Value(aval((), int32)), Value(aval((4, 3), float64))
        step = Graph([i, c], [emit("add", i, constant(1, int32)), f(c, c)])
        test = Graph([i, c], [emit("less", i, constant(5, int32))])
        y = apply(WHILE.bind(test=test, body=step, carried=2), [constant(0, int32), x])[1]
        verdict = batch_verdict(order([y], [x]), x, y)
        return f"{verdict.kind} {verdict.op}".strip()

    assert batch(lambda c, _: emit("sin", c)) == "proved"
    assert batch(lambda c, _: emit("add", c, emit("reduce_sum", c, axes=(1,), keepdims=True))) == "proved"
    assert batch(lambda c, _: emit("add", c, emit("reduce_sum", c, axes=(0,), keepdims=True))) == "mixed reduce_sum"


def test_costs_and_peak_of_a_loop_are_those_of_its_body() -> None:
    def matrix(x: Value, k: Value) -> Value:
        outer = emit("contract", x, k, subscripts="a,b->ab")
        return emit("contract", outer, k, subscripts="ab,b->a")

    loop, flat = graph_of(looped(matrix, 2)), graph_of(matrix)
    assert sum(map(multiply_adds, loop.nodes)) >= sum(map(multiply_adds, flat.nodes)) > 0
    assert peak_bytes(loop) >= peak_bytes(flat)


def test_an_empty_stack_has_no_elements() -> None:
    stack = stacked(aval((3,), float64))
    (value,) = run(Graph([], apply(EMPTY_STACK.bind(shape=stack.dims, dtype=stack.dtype), [])))
    assert len(value) == 0
