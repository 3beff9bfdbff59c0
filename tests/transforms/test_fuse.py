"""Graph to graph with clusters: what runs as one kernel, what is written, and that nothing else changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, float32, float64, int32
from gradtape.ir.graph import Graph, Node, Value, check
from gradtape.kernels.spelling import spells
from gradtape.ops.op import constant, emit
from gradtape.transforms import grouping
from gradtape.transforms.fuse import fuse, fused_nodes
from gradtape.transforms.simplify import flattened, simplify
from tests.op_table.running import assert_near, compiled, node_by_node

Function = Callable[..., Any]


def with_gradient(f: Function) -> Function:
    def both(*xs: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(xs)
            y = f(*xs)
        return y, tape.gradient(y, xs)

    return both


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    mean, variance = tf.nn.moments(x, [1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, shift, scale, 1e-3)


def batch_norm(x: Any, scale: Any, shift: Any) -> Any:
    mean, variance = tf.nn.moments(x, [0])
    return tf.nn.batch_normalization(x, mean, variance, shift, scale, 1e-3)


def chain(x: Any) -> Any:
    for _ in range(4):
        x = tf.sin(tf.exp(tf.tanh(x * 1.5) + 0.5) * 0.3)
    return x


def cross_entropy(logits: Any, labels: Any) -> Any:
    return tf.nn.softmax_cross_entropy_with_logits(labels=tf.stop_gradient(labels), logits=logits)


def dense(x: Any, kernel: Any, bias: Any) -> Any:
    return tf.reduce_sum(tf.square(tf.tanh(x @ kernel + bias)))


# (what runs forwards and backwards, shapes of its operands, all nodes of the fused graph but constants)
PROGRAMS: dict[str, tuple[Function, tuple[tuple[int, ...], ...], list[str]]] = {
    "softmax cross-entropy": (cross_entropy, ((6, 5), (6, 5)), ["fused"]),
    "mean of softmax cross-entropy": (
        lambda x, y: tf.reduce_mean(cross_entropy(x, y)),
        ((6, 5), (6, 5)),
        ["fused", "divide"],  # of one number, which is complete when the kernel is
    ),
    "layer norm": (layer_norm, ((6, 8), (8,), (8,)), ["fused"]),
    "batch norm": (batch_norm, ((6, 8), (8,), (8,)), ["fused"]),
    "softmax": (tf.nn.softmax, ((6, 5),), ["fused"]),
    "logsumexp": (lambda x: tf.reduce_logsumexp(x, 1), ((6, 5),), ["fused", "reshape"]),
    "logsumexp of all": (tf.reduce_logsumexp, ((6, 5),), ["fused", "reshape"]),
    "a chain of twenty": (chain, ((50,),), ["fused"]),
    "a bias": (lambda x, b: tf.nn.sigmoid(x + b), ((6, 5), (5,)), ["fused"]),
    "a layer": (dense, ((6, 4), (4, 5), (5,)), ["contract", "fused", "contract", "contract"]),
    "broadcasting both ways": (lambda a, b: tf.exp(a * b), ((3, 1, 4), (5, 1)), ["fused", "reshape", "reshape"]),
    "a transposed operand": (
        lambda a, b: tf.exp(a) * tf.tanh(tf.transpose(b)),
        ((3, 4), (4, 3)),
        ["fused", "transpose"],
    ),
}


def traced(f: Function, *shapes: tuple[int, ...], dtype: Any = None) -> Graph:
    specs = [tf.TensorSpec(s, dtype or tf.float64) for s in shapes]
    return simplify(flattened(tf.function(f).get_concrete_function(*specs).graph))


def drawn(graph: Graph, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.normal(size=v.aval.dims)).astype(v.aval.dtype.numpy_dtype) for v in graph.inputs]


def fused(graph: Graph, tolerance: float = 1e-12) -> Graph:
    """The fused graph, if it keeps its spec and gives the same, op by op and as a program."""
    small = fuse(graph, spells)
    check(small)
    assert [v.aval for v in small.inputs] == [v.aval for v in graph.inputs]
    arrays = drawn(graph)
    with np.errstate(all="ignore"):
        wanted = node_by_node(graph, arrays)
        for found in (node_by_node(small, arrays), compiled(small)(*arrays)):
            for a, b in zip(found, wanted, strict=True):
                assert_near(a, b, small, tolerance)
    assert_no_idle_writes(small)
    return small


def assert_no_idle_writes(graph: Graph) -> None:
    """Whatever a cluster writes, something outside reads."""
    read = {id(v) for n in graph.nodes for v in n.inputs} | set(map(id, graph.outputs))
    for node in fused_nodes(graph):
        assert all(id(v) in read for v in node.outputs), "a cluster writes what nothing reads"
        assert len(node.step.params["cluster"].writes) == len(node.outputs)


def names(graph: Graph) -> list[str]:
    return [n.step.name for n in graph.nodes if n.step.op.kind != "constant"]


def clusters(graph: Graph) -> list[list[str]]:
    """The ops of each cluster."""
    return [[n.step.name for n in node.step.params["graph"].nodes] for node in fused_nodes(graph)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_fused_with_what(name: str) -> None:
    f, shapes, wanted = PROGRAMS[name]
    assert names(fused(traced(with_gradient(f), *shapes))) == wanted


def test_bytes_that_a_cluster_moves() -> None:
    """A chain of twenty ops with its slope reads one array and writes two."""
    (node,) = fused_nodes(fused(traced(with_gradient(chain), (50,))))
    cluster = node.step.params["cluster"]
    assert sum(bool(r.access.loops) for r in cluster.reads) == 1 and len(cluster.writes) == 2
    assert cluster.work > 40


def given_of(*shapes: tuple[int, ...], dtype: DType = float64) -> list[Value]:
    return [Value(aval(s, dtype)) for s in shapes]


def test_nothing_leaves_a_cluster_and_comes_back() -> None:
    """What a product needs and what needs the product are two clusters, though one value is in both."""
    (x,) = given_of((4, 4))
    y = emit("exp", emit("negative", x))
    z = emit("contract", y, x, subscripts="ab,bc->ac")
    graph = Graph([x], [emit("tanh", emit("add", emit("square", y), z))])
    assert names(fused(graph)) == ["fused", "contract", "fused"]


def test_nothing_leaves_a_cluster_by_way_of_another_and_comes_back() -> None:
    """The way back runs through a third cluster, which no order of two others would let run."""
    x, w = given_of((4, 4), (4,))
    a = emit("exp", emit("negative", x))
    product = emit("contract", a, x, subscripts="ab,bc->ac")
    third = emit("sin", emit("reduce_sum", emit("square", product), axes=(1,), keepdims=False))
    other = emit("tanh", emit("multiply", third, w))
    again = emit("add", emit("reduce_sum", a, axes=(1,), keepdims=False), other)
    fused(Graph([x, w], [emit("exp", again), emit("multiply", a, emit("reshape", again, shape=(4, 1)))]))


def test_values_that_leave_are_written_once() -> None:
    (x,) = given_of((5, 3))
    y = emit("exp", emit("negative", x))
    flat = emit("reshape", y, shape=(15,))
    graph = Graph([x], [emit("tanh", y), y, flat, emit("contract", flat, flat, subscripts="a,a->")])
    small = fused(graph)
    (node,) = fused_nodes(small)
    assert len(node.outputs) == 2, "the value and its hyperbolic tangent"


# ------------------------------------------------------------------ sinks and sweeps


def test_sums_over_other_axes_are_sinks() -> None:
    x, b = given_of((6, 5), (5,))
    y = emit("tanh", emit("add", x, b))
    low = emit("subtract", y, emit("reduce_max", y, axes=(1,), keepdims=True))
    graph = Graph([x, b], [emit("exp", low), emit("reduce_sum", low, axes=(0,), keepdims=False)])
    (node,) = fused_nodes(fused(graph))
    assert [w.monoid for w in node.step.params["cluster"].writes] == [None, "sum"]


def test_what_needs_a_sink_is_another_cluster() -> None:
    x, b = given_of((6, 5), (5,))
    y = emit("tanh", emit("add", x, b))
    low = emit("subtract", y, emit("reduce_max", y, axes=(1,), keepdims=True))
    total = emit("reduce_sum", low, axes=(0,), keepdims=False)
    graph = Graph([x, b], [emit("exp", low), emit("exp", emit("multiply", total, b))])
    assert [len(c) for c in clusters(fused(graph))] == [6, 2]


@pytest.mark.parametrize("large", [False, True])
def test_second_sweeps_over_everything(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long reduction of all elements is shared by threads: who needs its result waits for all of them."""
    monkeypatch.setattr(grouping, "SINGLE_ROW", 100 if large else 1000)
    (x,) = given_of((20, 20))
    y = emit("exp", x)
    total = emit("reduce_sum", y, axes=(0, 1), keepdims=True)
    small = fused(Graph([x], [emit("sqrt", emit("divide", y, total))]))
    assert len(list(fused_nodes(small))) == 1 + large


# ------------------------------------------------------------------ kinds of values


def test_dtypes_side_by_side() -> None:
    (x,) = given_of((6, 5), dtype=float32)
    positive = emit("greater", x, constant(0, float32))
    count = emit("reduce_sum", emit("cast", positive, dtype=int32), axes=(1,), keepdims=True)
    wide = emit("cast", emit("square", x), dtype=float64)
    share = emit("divide", wide, emit("cast", emit("maximum", count, constant(1, int32)), dtype=float64))
    some = emit("reduce_any", emit("logical_not", positive), axes=(1,), keepdims=False)
    small = fused(Graph([x], [emit("select", positive, share, emit("negative", wide)), count, some]), 1e-6)
    assert names(small) == ["fused"]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (0,), (3, 0), (1, 4), (4, 1)])
def test_small_and_empty_arrays(shape: tuple[int, ...]) -> None:
    """What has no elements has no cluster."""
    x, y = given_of(shape, (1,) * len(shape))
    total = emit("reduce_sum", emit("exp", x), axes=tuple(range(len(shape))), keepdims=True)
    small = fused(Graph([x, y], [emit("multiply", emit("tanh", emit("add", x, y)), total)]))
    if 0 in shape:
        assert len(clusters(small)) <= 1
    else:
        assert len(clusters(small)) == 1


def test_unknown_shapes_are_left_alone() -> None:
    x = Value(aval((None, 3), float64))
    graph = Graph([x], [emit("exp", emit("negative", x))])
    assert names(fuse(graph, spells)) == ["negative", "exp"]


def test_complex_numbers_and_strings_are_left_alone() -> None:
    graph = traced(lambda z: tf.exp(z) * z, (3,), dtype=tf.complex128)
    assert "fused" not in names(fuse(graph, spells))


def test_work_on_vectors_is_not_done_for_every_row() -> None:
    """A number that both use does not bring the update of a bias into the loops of the update of a kernel."""
    kernel, bias, slope, rate = given_of((6, 5), (5,), (5,), ())
    number = emit("sqrt", emit("add", rate, constant(1.0, float64)))
    updates = [
        emit("subtract", v, emit("multiply", emit("tanh", x), number)) for v, x in ((kernel, kernel), (bias, slope))
    ]
    small = fused(Graph([kernel, bias, slope, rate], updates))
    assert sorted(n.step.params["cluster"].size for n in fused_nodes(small)) == [5, 30]


def test_what_a_composition_has_besides_atoms_stays_a_step() -> None:
    """The sums of a sparse cross-entropy are those of its gradient; labels are looked up, and checked, as before."""

    def both(labels: Any, x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x)
        return y, tape.gradient(y, x)

    f = tf.function(both)
    labels, x = tf.constant([1, 0]), tf.constant([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]])
    small = fuse(f.get_concrete_function(labels, x).graph, spells)
    check(small)
    assert sorted(names(small)) == ["fused", "host"]
    np.testing.assert_allclose(f(labels, x)[0].numpy(), [1.407606, 0.407606], 1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError):
        f(tf.constant([1, 3]), x)


VIEWS: dict[str, Callable[[Value], Value]] = {
    "transpose": lambda v: emit("transpose", v, perm=(2, 0, 1)),
    "axes of one": lambda v: emit("reshape", v, shape=(2, 1, 3, 1, 4)),
    "broadcast": lambda v: emit("broadcast_to", v, shape=(5, 2, 3, 4)),
    "all of them": lambda v: emit(
        "broadcast_to", emit("reshape", emit("transpose", v, perm=(1, 2, 0)), shape=(3, 1, 4, 2)), shape=(3, 6, 4, 2)
    ),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_cost_nothing(name: str) -> None:
    """What is repeated is computed before, once for each element."""
    x = Value(aval((2, 3, 4), float64))
    view = VIEWS[name](emit("exp", x))
    y = Value(view.aval)
    graph = Graph([x, y], [emit("tanh", emit("sin", emit("add", view, y)))])
    small = fused(graph)
    assert len(clusters(small)) == 1
    assert set(names(small)) <= {"exp", "fused"}


def test_other_reshapes_end_a_cluster() -> None:
    (x,) = given_of((4, 6))
    y = emit("reshape", emit("exp", emit("negative", x)), shape=(3, 8))
    assert names(fused(Graph([x], [emit("tanh", emit("sin", y))]))) == ["fused", "reshape", "fused"]


# ------------------------------------------------------------------ deep graphs


def tall(depth: int) -> Graph:
    (x,) = given_of((8,))
    y = x
    for k in range(depth):
        y = emit("add", y, x) if k % 2 else emit("tanh", y)
    return Graph([x], [y])


def with_products(depth: int) -> Graph:
    """A loop written out, with its backward pass: values of the first half are used in the second, latest first."""
    m, s = given_of((4, 4), (4,))
    z, kept = s, []
    for _ in range(depth // 8):
        z = emit("tanh", emit("contract", m, z, subscripts="ab,b->a"))
        kept.append(z)
        z = emit("multiply", z, s)
    for v in reversed(kept):
        z = emit("contract", m, z, subscripts="ab,b->a")
        z = emit("add", emit("multiply", z, emit("square", v)), s)
    return Graph([m, s], [z])


def broad(depth: int) -> Graph:
    """Many that are added up."""
    xs = given_of(*[(k % 7 + 2, 3) for k in range(50)])
    total = constant(0.0, float64)
    for k in range(depth // 4):
        y = emit("multiply", emit("tanh", xs[k % 50]), constant(float(k), float64))
        total = emit("add", total, emit("reduce_sum", y, axes=(0, 1), keepdims=False))
    return Graph(xs, [total])


@pytest.mark.parametrize("make", [tall, with_products, broad], ids=lambda f: f.__name__)
def test_work_is_in_proportion_to_depth(make: Callable[[int], Graph]) -> None:
    """Ten times the depth is at most some twenty times the calls of functions and steps of generators; it would be a
    hundred times if each node looked at all others."""

    def calls(depth: int) -> int:
        graph, count = make(depth), 0

        def seen(frame: Any, event: str, what: Any) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(seen)
        try:
            fuse(graph, spells)
        finally:
            sys.setprofile(None)
        return count

    fuse(make(100), spells)
    short, long = calls(1000), calls(10_000)
    assert long < 20 * short, f"{short:,} for 1,000 nodes, {long:,} for 10,000"


def test_clusters_are_bounded() -> None:
    found = clusters(fuse(tall(3000), spells))
    assert max(map(len, found)) <= grouping.MOST
    assert len(found) <= 3000 / grouping.MOST + 3


def test_deep_graphs_give_the_same() -> None:
    fused(with_products(800))
    fused(tall(900))
    fused(broad(400))


def test_no_node_is_done_twice() -> None:
    for f, shapes, _ in PROGRAMS.values():
        graph = traced(with_gradient(f), *shapes)
        small = fuse(graph, spells)
        inside: list[Node] = [n for c in fused_nodes(small) for n in c.step.params["graph"].nodes]
        work = [id(n) for n in inside if n.step.op.kind in ("pointwise", "reduction")]
        assert len(work) == len(set(work))


def test_rows_that_are_placed_stay_placed() -> None:
    """What writes a Jacobian knows which of it is zero; element by element it would compute all of it."""

    def slopes(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.tanh(x) * x
        return tape.jacobian(y, x)

    concrete = tf.function(slopes).get_concrete_function(tf.constant(np.linspace(-1.0, 1.0, 50)))
    assert "assemble" in {n.step.name for n in fuse(concrete.graph, spells).nodes}
    assert not spells("assemble", (tf.float32,))
