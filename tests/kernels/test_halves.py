"""Two-byte floats in kernels: every conversion as NumPy's, clusters in float32 that round once, and the places where
they round in between."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from numba.core import types

from gradtape.backends.clusters import Native
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, bfloat16, float16, float32, float64
from gradtape.ir.graph import Graph, Value
from gradtape.kernels import vector_halves
from gradtape.kernels.spelling import spells, spells_small
from gradtape.ops.op import constant, emit
from gradtape.runtime.state import STATE
from gradtape.transforms.fuse import fuse, fused_nodes
from tests.kernels import compiled as assembler
from tests.kernels.steps import given_of, kernel_of
from tests.kernels.test_compiled import GRAPHS
from tests.op_table.running import node_by_node

HALVES = (float16, bfloat16)

pytestmark = pytest.mark.usefixtures("strict")


def conversion(name: str, source: Any, target: Any) -> Any:
    """A loop over one of the conversions."""
    text = f"def loop(x, out):\n    for i in range(out.size):\n        out[i] = {name}(x[i])\n"
    names = dict(vector_halves.functions())
    exec(compile(text, f"<loop over {name}>", "exec"), names)
    signature = types.void(types.Array(source, 1, "C", readonly=True), types.Array(target, 1, "C"))
    return numba.njit(signature, error_model="numpy", fastmath={"contract", "nsz"})(names["loop"])


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_every_half_is_widened_as_it_is(half: DType) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    found = np.empty(every.shape, np.float32)
    conversion(f"widen_{half.name}", types.uint16, types.float32)(every, found)
    wanted = every.view(half.numpy_dtype).astype(np.float32)
    assert np.array_equal(found, wanted, equal_nan=True)
    numbers = ~np.isnan(wanted)
    assert np.array_equal(np.signbit(found[numbers]), np.signbit(wanted[numbers]))


def edges(half: DType) -> np.ndarray:
    """Every half, the middles between neighbours, and what is next to both; all sizes of float32; NaN."""
    every = np.arange(1 << 16, dtype=np.uint16).view(half.numpy_dtype).astype(np.float32)
    every = np.sort(every[np.isfinite(every)])
    middles = ((every[1:].astype(np.float64) + every[:-1]) / 2).astype(np.float32)
    near = np.concatenate([every, middles])
    around = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    some = np.random.default_rng(0).integers(0, 1 << 32, 200_000, dtype=np.uint32).view(np.float32)
    odd = np.array([np.inf, -np.inf, np.nan, -np.nan, 65519.99, 65520, 3.4e38, -3.4e38, 1e-45, -1e-45], np.float32)
    return np.concatenate([*around, some, odd])


@pytest.mark.parametrize("half", HALVES, ids=str)
@pytest.mark.parametrize("way", ["narrow", "round"])
def test_the_nearest_half_is_found(half: DType, way: str) -> None:
    x = edges(half)
    with np.errstate(all="ignore"):
        wanted = x.astype(half.numpy_dtype)
    if way == "narrow":
        raw = np.empty(x.shape, np.uint16)
        conversion(f"narrow_{half.name}", types.float32, types.uint16)(x, raw)
        found = raw.view(half.numpy_dtype)
    else:
        wide = np.empty(x.shape, np.float32)
        conversion(f"round_{half.name}", types.float32, types.float32)(x, wide)
        found = wide.astype(half.numpy_dtype)
        assert np.array_equal(found.astype(np.float32), wide, equal_nan=True), "not all of them are halves"
    number = ~np.isnan(x)
    assert np.isnan(found[~number].astype(np.float32)).all()
    assert np.array_equal(found[number].view(np.uint16), wanted[number].view(np.uint16))


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_conversions_are_vector_code(half: DType) -> None:
    for name, source, target in (("widen", types.uint16, types.float32), ("narrow", types.float32, types.uint16)):
        (text,) = conversion(f"{name}_{half.name}", source, target).inspect_asm().values()
        text = str(text).split(".Lfunc_end0")[0]
        if "ymm" not in text and "zmm" not in text:
            pytest.skip("reads the assembler of x86-64 with wide registers")
        assert assembler.is_vector_code(text)


# ------------------------------------------------------------------ clusters


@pytest.mark.parametrize("half", HALVES, ids=str)
@pytest.mark.parametrize("make", GRAPHS, ids=lambda f: f.__name__)
def test_clusters_of_halves(make: Any, half: DType) -> None:
    """As near to the numbers in float64 as one rounding allows: nearer than op by op."""
    graph, wide = make(half), make(float64)
    rng = np.random.default_rng(0)
    arrays = [np.asarray(rng.uniform(0.2, 1.2, v.aval.dims)).astype(v.aval.dtype.numpy_dtype) for v in graph.inputs]
    fused = fuse(graph, spells)
    apart = {n.step.name for n in fused.nodes} - {"fused"}
    assert apart <= {"cast", "reduce_sum"}, "all is fused, but for whole numbers that become halves, and single ops"
    exact = _results(wide, [a.astype(np.float64) if a.dtype == half.numpy_dtype else a for a in arrays])
    found, plain = _results(fused, arrays), _results(graph, arrays)
    for got, want, by_op, v in zip(found, exact, plain, graph.outputs, strict=True):
        assert np.asarray(got).dtype == v.aval.dtype.numpy_dtype and np.shape(got) == v.aval.dims
        if v.aval.dtype.is_half:
            assert np.array_equal(np.isfinite(np.asarray(got).astype(np.float32)), np.isfinite(want))
            mine, theirs = _error(got, want, half), _error(by_op, want, half)
            assert mine <= max(1.02, theirs), f"{mine} roundings, op by op {theirs}"
        else:
            np.testing.assert_array_equal(got, want)


def _results(graph: Graph, arrays: list[Any]) -> list[Any]:
    with np.errstate(all="ignore"):
        return node_by_node(graph, arrays)


def _error(got: Any, want: Any, half: DType) -> float:
    """The worst error relative to the numbers, in those of one rounding."""
    unit = 2.0 ** -(11 if half is float16 else 8)
    got, want = np.asarray(got).astype(np.float64), np.asarray(want, np.float64)
    known = np.isfinite(want)
    assert known.any()
    return float(np.max((np.abs(got - want) / np.maximum(np.abs(want), 2.0**-14))[known])) / unit


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_one_rounding_where_ops_round_each(half: DType) -> None:
    (x,) = given_of((1000,), dtype=half)
    kernel = kernel_of(Graph([x], [emit("exp", emit("sin", emit("multiply", x, x)))]))
    a = np.linspace(0.5, 3, 1000).astype(half.numpy_dtype)
    wide = a.astype(np.float64)
    exact = np.exp(np.sin(wide * wide))
    (found,) = kernel(a)
    assert isinstance(kernel.native, Native) and found.dtype == half.numpy_dtype
    assert _error(found, exact, half) <= 1.01
    assert _error(STATE.run(kernel.program, a)[0], exact, half) > 1.01


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_casts_round(half: DType) -> None:
    """What a program makes a half of is one, though it goes on in float32."""
    (x,) = given_of((100,), dtype=float32)
    back = emit("cast", emit("cast", emit("negative", x), dtype=half), dtype=float32)
    kernel = kernel_of(Graph([x], [emit("subtract", back, x)]))
    a = np.random.default_rng(0).normal(size=100).astype(np.float32)
    np.testing.assert_array_equal(kernel(a)[0], (-a).astype(half.numpy_dtype).astype(np.float32) - a)


def test_what_is_too_large_for_a_half_is_infinite() -> None:
    """Scaled losses are looked through for infinities: those that a half would have count."""
    (x,) = given_of((4,), dtype=float16)
    y = emit("multiply", x, x)
    graph = fuse(Graph([x], [emit("is_finite", y), emit("is_inf", y), y]), spells)
    assert [n.step.name for n in graph.nodes] == ["fused"]
    finite, infinite, product = _results(graph, [np.array([2, 300, -1000, np.nan], np.float16)])
    assert finite.tolist() == [True, False, False, False] and infinite.tolist() == [False, True, True, False]
    np.testing.assert_array_equal(product, np.array([4, np.inf, np.inf, np.nan], np.float16))


def test_halves_in_any_layout_and_as_numbers() -> None:
    x, s = given_of((6, 5), (), dtype=float16)
    kernel = kernel_of(Graph([x, s], [emit("exp", emit("multiply", x, s))]))
    a = np.random.default_rng(0).normal(size=(12, 10)).astype(np.float16)
    for left in (a[::2, ::2], a.T[:6, :5], np.asfortranarray(a[:6, :5])):
        for number in (np.float16(0.3), np.array(0.3, np.float16)):
            (found,) = kernel(left, number)
            exact = np.exp(left.astype(np.float64) * np.float64(np.float16(0.3)))
            assert _error(found, exact, float16) <= 1.01


def test_constants_are_halves() -> None:
    x = Value(aval((3,), float16))
    kernel = kernel_of(Graph([x], [emit("negative", emit("multiply", x, constant(0.1, float16)))]))
    (found,) = kernel(np.full(3, 3, np.float16))
    np.testing.assert_array_equal(found, -np.full(3, np.float16(3) * np.float16(0.1)))


def test_numbers_of_formulas_are_not() -> None:
    """The formula of a half is computed in float32 whole; with its numbers as halves, digamma(-0.5) is 0.038."""
    x = Value(aval((3,), float16))
    kernel = kernel_of(Graph([x], [emit("digamma", x)]))
    a = np.full(3, -0.5, np.float16)
    (found,) = kernel(a)
    assert isinstance(kernel.native, Native)
    np.testing.assert_array_equal(found, np.full(3, np.float16(0.03648997)))


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_long_sums_of_halves(half: DType) -> None:
    """Both in rows and by the way: ones beyond the largest whole number of the type."""
    (x,) = given_of((3000, 4), dtype=half)
    y = emit("multiply", x, x)
    ones = np.ones((3000, 4), half.numpy_dtype)
    for axes, shape in (((0,), (4,)), ((0, 1), ())):
        kernel = kernel_of(Graph([x], [emit("reduce_sum", y, axes=axes, keepdims=False)]))
        wanted = np.full(shape, 12_000 if shape == () else 3000).astype(half.numpy_dtype)
        np.testing.assert_array_equal(kernel(ones)[0], wanted)


def test_what_is_not_spelled_for_halves() -> None:
    assert spells("add", (float16, float16, float16)) and spells("cast", (float32, bfloat16))
    assert not spells("cast", (float64, float16)), "it would be rounded twice"
    assert not spells("nextafter", (float16, float16, float16))
    assert not spells_small("add", (float16, float16, float16))
    (x,) = given_of((3,), dtype=float64)
    graph = fuse(Graph([x], [emit("cast", emit("exp", emit("negative", x)), dtype=float16)]), spells)
    assert [n.step.name for n in graph.nodes] == ["fused", "cast"]
    assert list(fused_nodes(graph))
