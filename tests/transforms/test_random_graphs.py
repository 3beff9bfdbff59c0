"""Random graphs of 3 to 10 ops, in float64: derivatives against differences, forward against reverse mode, and the
simplified graph against the graph.

The op table's tests take each op alone. Here values are used several times, cotangents add up, broadcasts meet
reductions and contractions, and whole paths are dead. Values are kept in (-1.5, 1.5) by a tanh or a sine after whatever
could grow, and only ops without kinks and poles there are drawn, so that differences are accurate everywhere; kinks are
no matter of how ops are put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import float64
from gradtape.ir.graph import Graph, Value, check
from gradtape.ops.op import Constant, emit, lookup
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.structural import Structural
from gradtape.transforms.cost import elements
from gradtape.transforms.differentiate import jvp, vjp
from gradtape.transforms.simplify import simplify
from tests.op_table.cases import OPS, sealed
from tests.op_table.running import (
    assert_near,
    compiled,
    inner,
    magnitude,
    node_by_node,
    noise,
    numeric_vjp,
)

RANGE = (-1.5, 1.5)
SIZES = st.integers(1, 3)
SHAPES = st.lists(SIZES, max_size=3).map(tuple)
CASES_PER_RUN = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

pytestmark = pytest.mark.filterwarnings("error")


def is_smooth(op: Any) -> bool:
    """Pointwise ops from numbers to numbers without kinks, whose domain holds the whole range, and that are
    differentiated in every operand."""
    if not isinstance(op, Pointwise) or op.condition or op.avoid or "f" not in op.accepts or op.samples[0].params:
        return False
    if not all(low <= RANGE[0] and high >= RANGE[1] for low, high in op.domain) or None in op.partials:
        return False
    (out,) = op.bind().infer((aval((), float64),) * len(op.operands))
    return out.dtype is float64 and op.name not in ("maximum", "minimum")


SMOOTH = [op for op in OPS if is_smooth(op)]
UNARY = st.sampled_from([op.name for op in SMOOTH if len(op.operands) == 1])
BINARY = st.sampled_from([op.name for op in SMOOTH if len(op.operands) == 2])

Grow = Callable[[st.DrawFn, list[Value]], Value]


def pick(draw: st.DrawFn, values: list[Value]) -> Value:
    return draw(st.sampled_from(values))


def bounded(draw: st.DrawFn, v: Value) -> Value:
    """Back into the range."""
    return emit(draw(st.sampled_from(["tanh", "sin"])), v)


def unary(draw: st.DrawFn, values: list[Value]) -> Value:
    return bounded(draw, emit(draw(UNARY), pick(draw, values)))


def binary(draw: st.DrawFn, values: list[Value]) -> Value:
    """Of two values that broadcast; the second is reduced to a scalar if they do not."""
    x, y = pick(draw, values), pick(draw, values)
    try:
        np.broadcast_shapes(x.aval.dims, y.aval.dims)
    except ValueError:
        y = emit("reduce_mean", y, axes=tuple(range(len(y.aval.dims))), keepdims=False)
    return bounded(draw, emit(draw(BINARY), x, y))


def reduction(draw: st.DrawFn, values: list[Value]) -> Value:
    x = pick(draw, values)
    axes = tuple(k for k in range(len(x.aval.dims)) if draw(st.booleans()))
    name = draw(st.sampled_from(["reduce_sum", "reduce_mean", "reduce_prod", "reduce_logsumexp"]))
    return bounded(draw, emit(name, x, axes=axes, keepdims=draw(st.booleans())))


def contraction(draw: st.DrawFn, values: list[Value]) -> Value:
    """Letters of the second operand are those of the first where sizes agree and chance has it; each shared letter is
    summed or kept, letters of one operand are kept."""
    x, y = pick(draw, values), pick(draw, values)
    left = "abcde"[: len(x.aval.dims)]
    right = ""
    for k, n in enumerate(y.aval.dims):
        same = [c for c, m in zip(left, x.aval.dims) if m == n and c not in right]
        right += draw(st.sampled_from([*same, "vwxyz"[k]]))
    shared = [c for c in left if c in right and draw(st.booleans())]
    out = [c for c in dict.fromkeys(left + right) if c not in shared]
    subscripts = f"{left},{right}->{''.join(draw(st.permutations(out)))}"
    return bounded(draw, emit("contract", x, y, subscripts=subscripts))


def structural(draw: st.DrawFn, values: list[Value]) -> Value:
    x = pick(draw, values)
    shape = x.aval.dims
    n = len(shape)
    kind = draw(st.sampled_from(["reshape", "transpose", "broadcast_to", "reverse", "pad", "slice", "concat"]))
    if kind == "reshape":
        return emit("reshape", x, shape=draw(st.sampled_from([(x.aval.size,), (1, *shape), (*shape, 1), shape[::-1]])))
    if kind == "transpose":
        return emit("transpose", x, perm=tuple(draw(st.permutations(range(n)))))
    if kind == "broadcast_to":
        return emit("broadcast_to", x, shape=(2, *shape))
    if n == 0:
        return emit("reshape", x, shape=(1,))
    axis = draw(st.integers(0, n - 1))
    if kind == "reverse":
        return emit("reverse", x, axes=(axis,))
    if kind == "pad":
        low = tuple(draw(st.integers(0, 1)) for _ in shape)
        return emit("pad", x, low=low, high=low[::-1])
    if kind == "concat":
        return emit("concat", x, emit("negative", x), x, axis=axis)
    begin = draw(st.integers(0, shape[axis] - 1))
    stride = draw(st.sampled_from([1, 2, -1]))
    size = (begin if stride < 0 else shape[axis] - 1 - begin) // abs(stride) + 1
    start = emit("positions", value=(begin,))
    return emit("slice", x, start, axes=(axis,), sizes=(size,), strides=(stride,))


def small(v: Value) -> Value:
    """A value of few axes and elements, so that differences stay cheap."""
    while len(v.aval.dims) > 4 or v.aval.size > 36:
        v = emit("reduce_mean", v, axes=(0,), keepdims=False)
    return v


KINDS: list[Grow] = [unary, binary, reduction, contraction, structural]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, list[Any]]:
    """A graph of one to three inputs and one or two outputs, with operands."""
    inputs = [Value(aval(draw(SHAPES), float64)) for _ in range(draw(st.integers(1, 3)))]
    values = list(inputs)
    for grow in draw(st.lists(st.sampled_from(KINDS), min_size=3, max_size=10)):
        values.append(small(grow(draw, values)))
    made = values[len(inputs) :]
    outputs = [made[-1], *([pick(draw, made)] if draw(st.booleans()) else [])]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return Graph(inputs, outputs), [sealed(np.asarray(rng.uniform(*RANGE, v.aval.dims))) for v in inputs]


@CASES_PER_RUN
@given(graphs(), st.integers(0, 2**32 - 1))
def test_vjp_is_the_slope(drawn: tuple[Graph, list[Any]], seed: int) -> None:
    graph, arrays = drawn
    check(graph)
    derived = vjp(graph)
    check(derived)
    cotangents = noise([v.aval for v in graph.outputs], seed)
    got = compiled(derived)(*arrays, *cotangents)
    for a, b in zip(got, numeric_vjp(compiled(graph), arrays, cotangents), strict=True):
        assert_near(a, b, graph, 1e-6)


@CASES_PER_RUN
@given(graphs(), st.integers(0, 2**32 - 1))
def test_vjp_of_vjp_is_the_slope_of_vjp(drawn: tuple[Graph, list[Any]], seed: int) -> None:
    """Along one random direction: ⟨∇²f · t, ·⟩ against a difference of the first-order graph."""
    graph, arrays = drawn
    first = vjp(graph)
    at = [*arrays, *noise([v.aval for v in graph.outputs], seed)]
    cotangents, direction = (
        noise([v.aval for v in first.outputs], seed + 1),
        noise([v.aval for v in first.inputs], seed + 2),
    )
    pulled = compiled(vjp(first))(*at, *cotangents)
    run, step = compiled(first), 1e-4

    def value(distance: float) -> float:
        return inner(cotangents, run(*[sealed(a + distance * d) for a, d in zip(at, direction, strict=True)]))

    near, far = value(step) - value(-step), value(2 * step) - value(-2 * step)
    slope, got = (8 * near - far) / (12 * step), inner(pulled, direction)
    assert abs(slope - got) <= 1e-6 * max(1.0, magnitude(pulled, direction)), f"{graph}\n{got}, by differences {slope}"


@CASES_PER_RUN
@given(graphs(), st.integers(0, 2**32 - 1))
def test_jvp_is_the_transpose_of_vjp(drawn: tuple[Graph, list[Any]], seed: int) -> None:
    graph, arrays = drawn
    pushing = jvp(graph)
    check(pushing)
    tangents, cotangents = noise([v.aval for v in graph.inputs], seed), noise([v.aval for v in graph.outputs], seed + 1)
    pushed = compiled(pushing)(*arrays, *tangents)
    pulled = compiled(vjp(graph))(*arrays, *cotangents)
    size = magnitude(cotangents, pushed) + magnitude(pulled, tangents)
    assert abs(inner(cotangents, pushed) - inner(pulled, tangents)) <= 1e-10 * max(1e-3, size), graph


def computed(graph: Graph) -> int:
    """How many elements are computed: a pass may add a view if less is computed for it."""
    return sum(elements(n) for n in graph.nodes if not isinstance(n.step.op, Structural | Constant))


@CASES_PER_RUN
@given(graphs(), st.integers(0, 2**32 - 1))
def test_simplified_graphs_and_programs_give_the_same(drawn: tuple[Graph, list[Any]], seed: int) -> None:
    """As the graph run node by node. Reuse of buffers changes the memory order of operands, and with it the order in
    which products are summed: the last bits may differ here, where those of a single op do not."""
    graph, arrays = drawn
    for derived in (graph, vjp(graph), jvp(graph)):
        at = [*arrays, *noise([v.aval for v in derived.inputs[len(graph.inputs) :]], seed)]
        want = node_by_node(derived, at)
        small = simplify(derived, after=lambda name, g: check(g))
        assert computed(small) <= computed(derived)
        for run in (compiled(derived), compiled(small)):
            for a, b in zip(run(*at), want, strict=True):
                assert_near(a, b, derived, 1e-12)


def test_enough_is_drawn() -> None:
    """The choice by properties leaves ops of every kind: nothing above is empty by mistake."""
    names = {op.name for op in SMOOTH}
    assert {"add", "multiply", "subtract", "exp", "sigmoid", "softplus", "tanh", "squared_difference"} <= names
    assert len(names) >= 20 and not names & {"abs", "log", "divide", "maximum", "floor", "select"}
    assert all(lookup(n).samples for n in names)
