"""Rendered kernels against programs op by op, bit for bit, on random graphs: run by Python, on arrays that refuse what
a kernel must not do to memory. Blocks are a few elements long, so that small arrays have several."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from gradtape.backends.formula import HALF
from gradtape.ir.aval import aval
from gradtape.ir.cluster import Access, Cluster, Loop, by_the_way
from gradtape.ir.dtypes import DType, bool_, float32, float64
from gradtape.ir.graph import Graph, Value, check
from gradtape.kernels import render as rendering
from gradtape.kernels.render import render
from gradtape.kernels.schedule import schedule
from gradtape.kernels.spelling import spells, spells_small
from gradtape.ops.fused import Fused
from gradtape.ops.op import emit
from gradtape.transforms import grouping
from gradtape.transforms.fuse import fuse, fused_nodes
from tests.kernels import interpreted
from tests.kernels.programs import graphs
from tests.op_table.running import node_by_node, results_of

MANY = settings(max_examples=250, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "BLOCK", 3)
    monkeypatch.setattr(rendering, "RUN", 4)
    monkeypatch.setattr(grouping, "SINGLE_ROW", 8)


def by_kernels(graph: Graph, arrays: Sequence[Any], parts: int) -> list[Any]:
    """The results of a fused graph, its clusters rendered and run by Python."""
    values = {id(v): a for v, a in zip(graph.inputs, arrays, strict=True)}
    for node in graph.nodes:
        operands = [values[id(v)] for v in node.inputs]
        if isinstance(node.step.op, Fused):
            cluster = by_the_way(node.step.params["cluster"])
            shapes = [v.aval.dims for v in node.outputs]
            found = interpreted.run(render(cluster), cluster, operands, shapes, parts)
        else:
            found = results_of(node.step, operands)
        values.update((id(v), np.asarray(a)) for v, a in zip(node.outputs, found, strict=True))
    return [values[id(v)] for v in graph.outputs]


def assert_equal(found: Sequence[Any], wanted: Sequence[Any], about: object) -> None:
    for a, b in zip(map(np.asarray, found), map(np.asarray, wanted), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), about
        wide = [x.astype(np.float32) if x.dtype in HALF else x for x in (a, b)]
        assert np.array_equal(*wide, equal_nan=wide[0].dtype.kind == "f"), f"got {a}\nwant {b}\n{about}"


def compare(graph: Graph, arrays: Sequence[Any], parts: int, small: bool = False) -> Graph:
    """The graph fused, if what it computes is what the graph computes, op by op and by kernels."""
    fused = fuse(graph, spells_small, alone=1, sinks=False) if small else fuse(graph, spells)
    check(fused)
    with np.errstate(all="ignore"):
        wanted = node_by_node(graph, arrays)
        assert_equal(node_by_node(fused, arrays), wanted, fused)
        assert_equal(by_kernels(fused, arrays, parts), wanted, fused)
    return fused


@MANY
@given(graphs(), st.integers(1, 3))
def test_kernels_of_random_graphs(drawn: tuple[Graph, list[Any]], parts: int) -> None:
    compare(*drawn, parts)


@MANY
@given(graphs())
def test_kernels_for_programs_of_small_arrays(drawn: tuple[Graph, list[Any]]) -> None:
    """Products are clusters there too, and nothing is reduced by the way."""
    compare(*drawn, 1, small=True)


def _bends(access: Access) -> bool:
    steps = [s for s in access.strides if s]
    return steps != sorted(steps, reverse=True)


def kinds_of(graph: Graph) -> Counter[str]:
    """What there is in the clusters of a graph."""
    found: Counter[str] = Counter()
    for node in fused_nodes(graph):
        cluster = by_the_way(node.step.params["cluster"])
        plan = schedule(cluster)
        rows = plan.vector in cluster.reduced
        found["rows"] += bool(cluster.reduced) and rows
        found["columns"] += bool(cluster.reduced) and not rows
        found["pointwise"] += not cluster.reduced
        found["sinks"] += any(w.monoid for w in cluster.writes)
        found["sweeps"] += max(cluster.stages, default=0) > 0 and len(plan.sweeps) > 1
        found["several outputs"] += len(cluster.writes) > 1
        found["strided"] += any(_bends(r.access) for r in cluster.reads)
    return found


@pytest.mark.parametrize("kind", ["rows", "columns", "pointwise", "sinks", "sweeps", "several outputs", "strided"])
def test_every_kind_of_cluster_is_drawn(kind: str) -> None:
    options = settings(
        max_examples=400, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    found = find(graphs(), lambda drawn: kinds_of(fuse(drawn[0], spells))[kind] > 0, settings=options)
    assert found is not None


# ------------------------------------------------------------------ clusters that went wrong once, or nearly did


def given_of(*shapes: tuple[int, ...], dtype: DType = float64) -> list[Value]:
    return [Value(aval(s, dtype)) for s in shapes]


def drawn_for(graph: Graph) -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.integers(-3, 4, v.aval.dims).astype(v.aval.dtype.numpy_dtype) for v in graph.inputs]


def any_of_all() -> Graph:
    (x,) = given_of((3, 4), dtype=bool_)
    return Graph([x], [emit("reduce_any", emit("reduce_all", x, axes=(1,), keepdims=False), axes=(0,), keepdims=False)])


def largest_of_sums() -> Graph:
    (x,) = given_of((3, 4))
    return Graph([x], [emit("reduce_max", emit("reduce_sum", x, axes=(1,), keepdims=False), axes=(0,), keepdims=False)])


def outer_product_and_its_transpose() -> Graph:
    """Two axes of one extent: the second factor lies along one for the one product, along the other for the other."""
    a, b, x = given_of((3, 6), (6,), (3, 6))
    t = emit("multiply", a, b)
    u = emit("negative", t)

    def along(v: Value, shape: tuple[int, ...]) -> Value:
        return emit("reshape", emit("transpose", v, perm=(1, 0)), shape=shape)

    left = emit("multiply", along(x, (6, 3, 1)), along(u, (6, 1, 3)))
    right = emit("multiply", along(x, (6, 1, 3)), along(u, (6, 3, 1)))
    return Graph([a, b, x], [t, emit("add", left, right)])


def value_plus_its_transpose() -> Graph:
    (x,) = given_of((3, 3))
    y = emit("square", x)
    return Graph([x], [emit("abs", emit("add", y, emit("transpose", y, perm=(1, 0))))])


def what_no_column_depends_on_the_vector_for() -> Graph:
    a, c = given_of((4, 5), (4, 1, 7))
    total = emit("reduce_sum", emit("square", a), axes=(1,), keepdims=True)
    rows = emit("subtract", emit("negative", a), total)
    return Graph([a, c], [emit("multiply", emit("reshape", rows, shape=(4, 5, 1)), c)])


def what_follows_from_columns_and_is_repeated() -> Graph:
    (x,) = given_of((2,))
    wide = emit("broadcast_to", x, shape=(3, 2))
    least = emit("reduce_max", wide, axes=(0,), keepdims=True)
    return Graph([x], [emit("abs", emit("subtract", wide, emit("negative", least)))])


def what_runs_along_a_reduced_loop_after_it() -> Graph:
    x, y = given_of((2,), (2, 3))
    total = emit("reduce_sum", y, axes=(0, 1), keepdims=False)
    return Graph([x, y], [emit("less", x, emit("negative", total))])


def what_is_dear_but_the_same_along_a_reduced_loop() -> Graph:
    """Too long to be done again for each element, but no element differs along the vector loop."""
    (x,) = given_of((2, 3))
    wide = emit("transpose", emit("broadcast_to", x, shape=(2, 2, 3)), perm=(2, 1, 0))
    y = emit("square", emit("add", wide, emit("reshape", x, shape=(3, 2, 1))))
    for _ in range(6):
        y = emit("abs", emit("negative", y))
    largest = emit("reduce_max", y, axes=(1, 2), keepdims=True)
    return Graph([x], [emit("subtract", y, emit("negative", largest))])


SINGLE = (
    what_is_dear_but_the_same_along_a_reduced_loop,
    any_of_all,
    largest_of_sums,
    outer_product_and_its_transpose,
    value_plus_its_transpose,
    what_no_column_depends_on_the_vector_for,
    what_follows_from_columns_and_is_repeated,
    what_runs_along_a_reduced_loop_after_it,
)


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("make", SINGLE, ids=lambda f: f.__name__)
def test_single_graphs(make: Any, small: bool) -> None:
    graph = make()
    fused = compare(graph, drawn_for(graph), 2 - small, small)
    assert list(fused_nodes(fused)), "nothing was fused"


# ------------------------------------------------------------------ texts


def softmax_like(rows: int, columns: int, dtype: DType = float32) -> Cluster:
    x, b = given_of((rows, columns), (columns,), dtype=dtype)
    y = emit("add", x, b)
    e = emit("exp", emit("subtract", y, emit("reduce_max", y, axes=(1,), keepdims=True)))
    graph = fuse(Graph([x, b], [emit("divide", e, emit("reduce_sum", e, axes=(1,), keepdims=True))]), spells)
    (node,) = fused_nodes(graph)
    found: Cluster = node.step.params["cluster"]
    return found


def test_the_text_does_not_depend_on_extents() -> None:
    texts = {render(softmax_like(m, n)).text for m, n in [(2, 3), (5, 7), (1000, 13), (3, 100_000)]}
    assert len(texts) == 1
    integers = render(softmax_like(5, 7)).integers
    assert integers != render(softmax_like(7, 5)).integers


def test_the_text_is_the_same_each_time() -> None:
    assert render(softmax_like(3, 4)) == render(softmax_like(3, 4))


def test_numbers_of_extents_are_arguments() -> None:
    def mean(n: int) -> str:
        (x,) = given_of((4, n))
        total = emit("reduce_mean", emit("square", x), axes=(1,), keepdims=True)
        (node,) = fused_nodes(fuse(Graph([x], [emit("subtract", x, total)]), spells))
        return render(node.step.params["cluster"]).text

    assert mean(10) == mean(1000)


def test_the_text_names_its_operations() -> None:
    text = render(softmax_like(3, 4)).text
    assert "loops: 0, 1 (reduced)" in text
    for word in ("t2 = add(r0, r1)", "= reduce_max(t2)", "= exp(", "= reduce_sum("):
        assert word in text
    for line in text.splitlines():
        assert len(line) < 200


def test_what_is_dear_is_kept_and_what_is_cheap_is_done_again() -> None:
    """The exponentials are computed once, the subtractions before them too; the sum of both operands again."""
    text = render(softmax_like(3, 4)).text
    assert len(re.findall(r"_exp = exp\(", text)) == 1
    assert len(re.findall(r"t2_add = ", text)) == 2


# ------------------------------------------------------------------ what the checks see


def faulty(change: Any) -> str:
    """What is said of a kernel whose text was changed."""
    cluster = softmax_like(3, 5)
    arrays = [np.ones((3, 5), np.float32), np.ones(5, np.float32)]
    kernel = render(cluster)
    broken = dataclasses.replace(kernel, text=change(kernel.text))
    assert broken.text != kernel.text
    with pytest.raises((AssertionError, IndexError)) as caught:
        interpreted.run(broken, cluster, arrays, [(3, 5)], 1)
    return str(caught.value)


def test_checked_arrays_see_faults() -> None:
    assert "of 15" in faulty(lambda t: t.replace("range(start, stop)", "range(start, stop + 1)"))
    assert "of 15" in faulty(lambda t: t.replace("range(start, stop)", "range(start - 1, stop)"))
    assert "nothing wrote" in faulty(lambda t: t.replace("range(start, stop)", "range(start, stop - 1)"))
    assert "is written to" in faulty(lambda t: re.sub(r"w0_\[i\] = (\w+)", r"w0_[i] = float64(\1)", t))
    assert "before anything was written" in faulty(
        lambda t: re.sub(r"\n +k\d+_\[i\] = .*|(?<=\n) +w0_\[i\] = t\d+_exp", "", t)
    )


def test_extents_of_one_have_no_loop() -> None:
    cluster = softmax_like(1, 4)
    assert cluster.loops == (Loop(4, True),)
