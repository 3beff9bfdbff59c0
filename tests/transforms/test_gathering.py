"""Numbers gathered in the code of clusters: fewer operations, the same values but for roundings, and the same NaN and
infinities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradtape as tf
from gradtape.backends.cpu import lower
from gradtape.ir.aval import aval
from gradtape.ir.cluster import Cluster
from gradtape.ir.dtypes import DType, bfloat16, float16, float32, float64, int32
from gradtape.ir.graph import Graph, Value
from gradtape.kernels.spelling import spells
from gradtape.ops.op import constant, emit, lookup
from gradtape.transforms import fuse as fusing
from gradtape.transforms.fuse import fuse, fused_nodes
from gradtape.transforms.gathering import cost, gathered
from gradtape.transforms.simplify import flattened, simplify

SIZE = 8
INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters as graphs are written; tests gather numbers themselves."""
    monkeypatch.setattr(fusing, "CLUSTER_PASSES", ())


def clusters_of(graph: Graph) -> list[Cluster]:
    return [n.step.params["cluster"] for n in fused_nodes(fuse(graph, spells, alone=1))]


def cluster_of(graph: Graph) -> Cluster:
    (found,) = clusters_of(graph)
    return found


def per_element(cluster: Cluster) -> float:
    """What a cluster costs for each of its elements."""
    return cost(cluster) / cluster.size


def run(cluster: Cluster, arrays: Sequence[Any], nudge: float = 0.0) -> list[list[Any]]:
    """All operations of a pointwise cluster over one loop, one by one; `nudge`: numbers are that much too large."""
    found: list[Any] = []
    for e in cluster.code:
        if e.op == "read":
            found.append(arrays[cluster.reads[e.leaf].operand])
        elif e.op == "number":
            found.append(e.dtype.numpy_dtype.type(float(e.leaf) * (1 + nudge)))
        else:
            step = lookup(e.op).bind(**({"dtype": e.dtype} if e.op == "cast" else {}))
            found.append(lower(step)(*(found[a] for a in e.args)))
    return [found, [found[w.source] for w in cluster.writes]]


def results(cluster: Cluster, arrays: Sequence[Any], nudge: float = 0.0) -> list[Any]:
    with np.errstate(all="ignore"):
        return run(cluster, arrays, nudge)[1]


# ------------------------------------------------------------------ random code


# No two products or sums of few of them are equal, so that nothing is zero by chance.
NUMBERS = [0.9, 0.053, 1.27, -0.31, 2.3, -1.0, 1.0, 17.9, 3e-4, 1e-7, 3.1e8]


@st.composite
def codes(draw: st.DrawFn, dtype: DType) -> Graph:
    inputs = [Value(aval((SIZE,), dtype)) for _ in range(3)]
    values = list(inputs)

    def pick() -> Value:
        return draw(st.sampled_from(values[-3:] if draw(st.booleans()) else values))

    for _ in range(draw(st.integers(3, 14))):
        number = constant(draw(st.sampled_from(NUMBERS)), dtype)
        match draw(st.integers(0, 6)):
            case 0 | 1:
                pair = [pick(), number]
                made = emit(draw(st.sampled_from(["add", "subtract", "multiply"])), *draw(st.permutations(pair)))
            case 2 | 3:
                made = emit(draw(st.sampled_from(["add", "subtract", "multiply", "multiply"])), pick(), pick())
            case 4:
                made = emit("negative", pick())
            case 5:
                made = emit(
                    "select", emit("less", inputs[0], inputs[1]), pick(), draw(st.sampled_from([pick(), number]))
                )
            case _:
                made = emit("divide", pick(), emit("add", emit("square", pick()), constant(1.5, dtype)))
        values.append(made)
    return Graph(inputs, [values[-1], *draw(st.lists(st.sampled_from(values[3:]), max_size=2))])


def operands_of(cluster: Cluster) -> int:
    return 1 + max(r.operand for r in cluster.reads)


def bounds(cluster: Cluster, values: Sequence[Any], unit: float) -> list[Any]:
    """How far rounding may put the results of operations off, to first order: of sums relative to their operands, since
    a number that is added may be a rounded one."""
    found: list[Any] = []
    for e, own in zip(cluster.code, values, strict=True):
        a, b = ([*((values[k], found[k]) for k in e.args), (0.0, 0.0), (0.0, 0.0)])[-2 - len(e.args) :][:2]
        if e.op in ("read", "number", "less"):
            off = 0.0 * np.abs(np.asarray(own, np.float64))
        elif e.op in ("add", "subtract"):
            off = a[1] + b[1] + unit * (np.abs(a[0]) + np.abs(b[0]))
        elif e.op in ("multiply", "square"):
            b = a if e.op == "square" else b
            off = np.abs(a[0]) * b[1] + np.abs(b[0]) * a[1] + unit * np.abs(own)
        elif e.op == "divide":
            off = (a[1] + np.abs(own) * b[1]) / np.abs(b[0]) + unit * np.abs(own)
        elif e.op == "select":
            taken = [found[k] for k in e.args[1:]]
            off = np.where(values[e.args[0]], *taken)
        else:
            assert e.op == "negative", e.op
            off = a[1]
        found.append(off)
    return found


@settings(max_examples=400)
@given(codes(float32), st.integers(0, 2**32 - 1))
def test_values_are_the_same_but_for_roundings(graph: Graph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for cluster in clusters_of(graph):
        made = gathered(cluster)
        assert cost(made) <= cost(cluster)
        arrays = [rng.uniform(-2, 2, SIZE).astype(np.float32) for _ in range(operands_of(cluster))]
        with np.errstate(all="ignore"):
            exact, wanted = run(wide(cluster), [a.astype(np.float64) for a in arrays])
            off = bounds(cluster, exact, 2.0**-24)
            plain = results(cluster, arrays)
        for found, right, own, w in zip(results(made, arrays), wanted, plain, cluster.writes, strict=True):
            size = np.abs(right)
            ordinary = np.isfinite(own) & (size < 1e30) & ((size > 1e-30) | (size == 0))
            far = np.abs(found - right) > 16 * off[w.source] + 1e-37
            assert not (far & ordinary).any(), f"{cluster.code}\n{made.code}\ngot {found}\nwant {right}"


def wide(cluster: Cluster) -> Cluster:
    """The same code in double precision, on the numbers that single precision has."""
    code = tuple(
        type(e)(e.op, e.args, float64, float(np.float32(e.leaf)))
        if e.op == "number"
        else type(e)(e.op, e.args, float64 if e.dtype is float32 else e.dtype, e.leaf)
        for e in cluster.code
    )
    return Cluster(cluster.loops, cluster.reads, code, cluster.writes)


@settings(max_examples=400)
@given(
    codes(float64), st.lists(st.sampled_from([INF, -INF, NAN, 0.0, 0.7, -1.3]), min_size=8 * SIZE, max_size=8 * SIZE)
)
def test_nan_and_infinities_appear_in_the_same_elements(graph: Graph, numbers: list[float]) -> None:
    for cluster in clusters_of(graph):
        made = gathered(cluster)
        arrays = list(numbers)
        ways = results(made, arrays), results(cluster, arrays), results(cluster, arrays, 1e-13)
        for found, right, near in zip(*ways, strict=True):
            kinds = [np.where(np.isfinite(x), 0, np.where(np.isnan(x), 2, np.sign(x))) for x in (found, right, near)]
            same = (kinds[0] == kinds[1]) | (kinds[1] != kinds[2])  # else a rounding decides
            assert same.all(), f"{cluster.code}\n{made.code}\ngot {found}\nwant {right}"


@settings(max_examples=200)
@given(codes(float64))
def test_gathering_again_makes_nothing_worse(graph: Graph) -> None:
    for cluster in clusters_of(graph):
        made = gathered(cluster)
        assert cost(gathered(made)) <= cost(made)


@pytest.mark.parametrize("shape", [(), (SIZE,)])
def test_a_number_that_is_computed(shape: tuple[int, ...]) -> None:
    """Without loops no operation is done less often than another, so that its scale may be put off too."""
    x = Value(aval(shape, float64))
    three = emit("negative", constant(-3.0, float64))
    for y in (emit("multiply", emit("cos", x), three), emit("subtract", emit("add", x, constant(2.0, float64)), three)):
        cluster = cluster_of(Graph([x], [y]))
        operand = np.full(shape, 0.75)
        np.testing.assert_allclose(results(gathered(cluster), [operand]), results(cluster, [operand]), rtol=1e-15)


def test_differences_of_infinities_stay_nan() -> None:
    """x - 2 x is not -x."""
    (x,) = given_of(1)
    cluster = cluster_of(Graph([x], [with_number("add", emit("subtract", x, emit("add", x, x)), 0.9)]))
    assert np.isnan(results(gathered(cluster), [np.full(SIZE, INF, np.float32)])[0]).all()


# ------------------------------------------------------------------ what it saves


def slope_of(f: Any, dtype: Any = tf.float32) -> Cluster:
    def slope(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return tape.gradient(y, x)

    return cluster_of(traced(slope, dtype))


def traced(f: Any, dtype: Any = tf.float32) -> Graph:
    return simplify(flattened(tf.function(f).get_concrete_function(tf.TensorSpec((SIZE,), dtype)).graph))


def cheap(x: Any) -> Any:
    for _ in range(4):
        y = x * 0.9 + 0.05
        x = (y * y - 0.3) * 1.2
    return x


def test_the_gradient_of_a_cheap_chain() -> None:
    """Of four rounds: a sum and three products with one, and a product for each round."""
    cluster = slope_of(cheap)
    assert per_element(gathered(cluster)) == 8 < per_element(cluster) / 2


@pytest.mark.parametrize(
    ("f", "operations"),
    [
        (lambda x: tf.tanh(x * 0.9 * 1.3), 2),
        (lambda x: (x + x) * 0.7, 1),
        (lambda x: -(x * 0.9), 1),
        (lambda x: (x * 1.2 - 0.36) * 0.9 + 0.05, 2),
        (lambda x: tf.exp(x * 0.3) * 0.7 * tf.tanh(x) * 1.3, 5),
        (lambda x: tf.where(x > 0, x * 0.7, 0.0) * 1.1, 3),
        (lambda x: (x * 0.7) / tf.exp(x) * 1.1, 3),
    ],
)
def test_what_is_left(f: Any, operations: int) -> None:
    assert per_element(gathered(cluster_of(traced(f)))) == operations


# ------------------------------------------------------------------ what stays as it is


def given_of(count: int, dtype: DType = float32) -> list[Value]:
    return [Value(aval((SIZE,), dtype)) for _ in range(count)]


def with_number(op: str, x: Value, number: float) -> Value:
    return emit(op, x, constant(number, x.aval.dtype))


def test_a_small_number_is_not_lost_beside_what_cancels() -> None:
    x, y = given_of(2)
    made = with_number("multiply", emit("add", with_number("subtract", x, 1.0), y), 0.9)
    cluster = cluster_of(Graph([x, y], [with_number("multiply", made, 1.3)]))
    near, small = np.full(SIZE, 1, np.float32), np.full(SIZE, 1e-10, np.float32)
    assert per_element(gathered(cluster)) < per_element(cluster)
    np.testing.assert_allclose(results(gathered(cluster), [near, small])[0], 1.17e-10, 1e-6)


def test_adding_a_number_to_subtract_it_again_rounds() -> None:
    """Also in the form of a compensated sum: what is lost is there."""
    (x,) = given_of(1)
    large = 1.5 * 2**19
    total = with_number("add", with_number("multiply", x, 0.9), large)
    rounded = with_number("subtract", total, large)
    lost = emit("subtract", with_number("multiply", x, 0.9), rounded)
    cluster = cluster_of(
        Graph([x], [with_number("multiply", with_number("multiply", v, 0.7), 1.3) for v in (rounded, lost)])
    )
    given = np.linspace(-1, 1, SIZE).astype(np.float32)
    for found, right in zip(results(gathered(cluster), [given]), results(cluster, [given]), strict=True):
        np.testing.assert_allclose(found, right, 1e-6)


@pytest.mark.parametrize("numbers", [(1e-8, 1e8), (1e8, 1e8), (0.0, 0.9), (INF, 0.9), (NAN, 0.9), (3.0, 1e-30)])
def test_numbers_out_of_the_ordinary_stay_where_they_are(numbers: tuple[float, float]) -> None:
    (x,) = given_of(1)
    cluster = cluster_of(Graph([x], [with_number("multiply", with_number("multiply", x, numbers[0]), numbers[1])]))
    assert per_element(gathered(cluster)) == 2


def test_scales_do_not_grow_without_bounds() -> None:
    """A product of many scaled values overflows where it did, but for a factor of 2²⁰."""
    x, y = given_of(2)
    product = y
    for _ in range(40):
        product = emit("multiply", product, with_number("multiply", x, 0.1))
    cluster = cluster_of(Graph([x, y], [product]))
    arrays = [np.full(SIZE, 10, np.float32), np.full(SIZE, 1e30, np.float32)]
    np.testing.assert_allclose(results(gathered(cluster), arrays)[0], 1e30, 1e-4)


@pytest.mark.parametrize("dtype", [float16, bfloat16, int32])
def test_halves_and_integers_are_left_alone(dtype: DType) -> None:
    (x,) = given_of(1, dtype)
    cluster = cluster_of(Graph([x], [with_number("multiply", with_number("multiply", x, 3), 5)]))
    assert gathered(cluster) is cluster


def test_whole_numbers_stay_whole() -> None:
    """(3 x + 1) y · 3 is not 9 (x + ⅓) y."""
    x, y = given_of(2)
    shifted = with_number("add", with_number("multiply", x, 3.0), 1.0)
    cluster = cluster_of(Graph([x, y], [with_number("multiply", emit("multiply", shifted, y), 3.0), shifted]))
    arrays = [np.arange(SIZE, dtype=np.float32), np.arange(2, 2 + SIZE, dtype=np.float32)]
    for found, right in zip(results(gathered(cluster), arrays), results(cluster, arrays), strict=True):
        assert np.array_equal(found, right)


def test_what_is_done_for_a_row_stays_there() -> None:
    """A product with a number for each row does not become one for each element."""
    x, r = Value(aval((4, 6), float32)), Value(aval((4, 1), float32))
    cluster = cluster_of(Graph([x, r], [emit("tanh", emit("multiply", x, with_number("multiply", r, 0.9)))]))
    assert cost(gathered(cluster)) == cost(cluster) == 4 + 2 * 24


def test_the_pass_is_shown_by_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(fusing, "CLUSTER_PASSES", (("gather numbers", gathered),))
    monkeypatch.setattr("gradtape.ir.show.SHOWN.words", frozenset({"passes"}))
    (x,) = given_of(1)
    fuse(Graph([x], [with_number("multiply", with_number("multiply", x, 0.9), 1.3)]), spells)
    assert "---- passes: gather numbers\n2 operations became 1" in capsys.readouterr().err
