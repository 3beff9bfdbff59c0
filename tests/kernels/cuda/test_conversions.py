"""Numbers that become numbers of other dtypes on the emulated device: each cast as on the CPU, halves rounded once, and
the bits of halves."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from gradtape.ir.aval import aval_of
from gradtape.ir.dtypes import (
    ALL,
    DType,
    bfloat16,
    complex128,
    float16,
    float32,
    float64,
    int16,
    int32,
    int64,
    uint16,
    uint32,
    uint64,
)
from gradtape.ir.graph import Graph, Value
from gradtape.kernels.cuda_spelling import spells_cuda
from gradtape.ops.op import emit
from gradtape.transforms.fuse import fuse, fused_nodes
from tests.kernels.cuda.running import Emulated
from tests.kernels.cuda.test_edges import odd
from tests.op_table.running import node_by_node

HALVES = (float16, bfloat16)
NUMBERS = [d for d in ALL if d.kind != "s"]


@pytest.fixture(scope="module")
def emulated() -> Emulated:
    return Emulated()


def graph_of(build: Any, arrays: Sequence[Any]) -> Graph:
    inputs = [Value(aval_of(a)) for a in arrays]
    return Graph(inputs, build(*inputs))


def on_the_device(emulated: Emulated, graph: Graph, arrays: Sequence[Any]) -> list[Any]:
    fused = fuse(graph, spells_cuda, 1)
    assert list(fused_nodes(fused)) and all(n.step.op.kind == "fused" for n in fused.nodes)
    with np.errstate(all="ignore"):
        return [np.asarray(a) for a in emulated.graph(fused, arrays)]


def on_the_host(graph: Graph, arrays: Sequence[Any]) -> list[Any]:
    with np.errstate(all="ignore"):
        return [np.asarray(a) for a in node_by_node(graph, arrays)]


# ------------------------------------------------------------------ casts


def given(dtype: DType) -> Any:
    """Numbers of a dtype, among them some that others do not hold."""
    if dtype.is_complex:
        real = given(dtype.real_dtype)
        z = np.empty(real.shape, dtype.numpy_dtype)
        z.real, z.imag = real, real[::-1]
        return z
    if not dtype.is_floating:
        return odd(dtype)
    sizes = [2.0**k + d for k in (7, 8, 15, 16, 31, 32, 63, 64) for d in (-1.5, -1, -0.5, 0, 0.5, 1)]
    more = np.array([*sizes, *(-x for x in sizes), 1e30, -1e30])
    with np.errstate(all="ignore"):
        return np.concatenate([odd(dtype), more.astype(dtype.numpy_dtype)])


def is_open(x: Any, target: DType) -> Any:
    """Of what is no uint32, NumPy makes one number in long arrays and another in short ones."""
    if target is not uint32 or x.dtype.kind in "biu":
        return np.zeros(x.shape, bool)
    real = np.asarray(x.real if x.dtype.kind == "c" else x, np.float64)
    return ~((real > -(2.0**31)) & (real < 2.0**32))


@pytest.mark.parametrize("source", NUMBERS, ids=lambda d: d.name)
def test_casts(emulated: Emulated, source: DType) -> None:
    x = given(source)
    targets = [t for t in NUMBERS if t is not source and not (t.is_half and source not in (float32, *HALVES))]
    graph = graph_of(lambda v: [emit("cast", v, dtype=t) for t in targets], [x])
    found, wanted = on_the_device(emulated, graph, [x]), on_the_host(graph, [x])
    for target, a, b in zip(targets, found, wanted, strict=True):
        assert a.dtype == b.dtype == target.numpy_dtype
        a, b = (v.astype(np.float32) if target.is_half else v for v in (a, b))
        equal = (a == b) | ((a != a) & (b != b)) | is_open(x, target)
        assert equal.all(), f"{x[~equal]} as {target.name} is {a[~equal]}, wants {b[~equal]}"


def nearest(x: Fraction, half: DType) -> Any:
    """The half next to a number, by exact arithmetic; of two at the same distance the one whose last bit is 0."""
    with np.errstate(all="ignore"):
        start = int(np.array(float(abs(x))).astype(np.float32).astype(half.numpy_dtype).view(np.uint16))
    infinite = int(np.array(np.inf, half.numpy_dtype).view(np.uint16))
    step = _exact(infinite - 1, half) - _exact(infinite - 2, half)

    def value(bits: int) -> Fraction:
        return _exact(infinite - 1, half) + step if bits == infinite else _exact(bits, half)

    around = [b for b in (start - 1, start, start + 1) if 0 <= b <= infinite]
    best = min(around, key=lambda b: (abs(value(b) - abs(x)), b % 2))
    return np.array([best | (0x8000 if x < 0 else 0)], np.uint16).view(half.numpy_dtype)[0]


def _exact(bits: int, half: DType) -> Fraction:
    return Fraction(float(np.array([bits], np.uint16).view(half.numpy_dtype)[0]))


def beside_middles(source: DType, half: DType) -> Any:
    """Numbers between two halves: in the middle, and as near to it as the source has them."""
    rng = np.random.default_rng(0)
    if source.is_integer:
        bits = {float16: 11, bfloat16: 8}[half]
        wide = min(8 * source.size - (source.kind == "i"), 64)
        places = range(wide - bits) if half is bfloat16 else range(5)
        middles = [(2 * int(rng.integers(2 ** (bits - 1), 2**bits)) + 1) << k >> 1 for k in places for _ in range(8)]
        sizes = [m + d for m in middles for d in (-1, 0, 1) if 0 <= m + d < 2**wide]
        return np.array([*sizes, *([-s for s in sizes] if source.kind == "i" else [])], source.numpy_dtype)
    every = np.arange(int(np.array(np.inf, half.numpy_dtype).view(np.uint16)), dtype=np.uint16)
    every = every.view(half.numpy_dtype).astype(np.float64)
    some = rng.choice(every.size - 1, 400)
    middles = (every[some] + every[some + 1]) / 2
    last = every[-1] + (every[-1] - every[-2]) / 2
    middles = np.concatenate([middles, [every[1] / 2, every[1] / 4, last]])
    return np.concatenate([s * np.nextafter(middles, to) for s in (1, -1) for to in (0, middles, np.inf)])


@pytest.mark.parametrize("half", HALVES, ids=lambda d: d.name)
@pytest.mark.parametrize("source", [float64, complex128, int32, int64, uint32, uint64], ids=lambda d: d.name)
def test_halves_are_rounded_once(emulated: Emulated, source: DType, half: DType) -> None:
    """Not to float32 first, from which a number that was beside the middle of two halves comes back as the middle."""
    x = beside_middles(source.real_dtype, half).astype(source.numpy_dtype)
    graph = graph_of(lambda v: [emit("cast", v, dtype=half)], [x])
    (found,) = on_the_device(emulated, graph, [x])
    exact = [Fraction(v) if source.is_integer else Fraction(float(v)) for v in x.real.tolist()]
    wanted = np.array([nearest(v, half) for v in exact], half.numpy_dtype)
    np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))
    assert len(set(map(str, wanted))) > 20


def test_quotients_that_no_half_holds(emulated: Emulated) -> None:
    """NaN and infinities of other dtypes."""
    x = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 1e-300, -0.0])
    graph = graph_of(lambda v: [emit("cast", v, dtype=h) for h in HALVES], [x])
    for found in on_the_device(emulated, graph, [x]):
        np.testing.assert_array_equal(found.astype(np.float64), [np.nan, np.inf, -np.inf, np.inf, -np.inf, 0, 0])
        assert np.signbit(found[-1].astype(np.float64))


# ------------------------------------------------------------------ the bits of halves

EVERY = np.arange(1 << 16, dtype=np.uint16)


@pytest.mark.parametrize("half", HALVES, ids=lambda d: d.name)
def test_neighbours_of_halves(emulated: Emulated, half: DType) -> None:
    x = EVERY.view(half.numpy_dtype)
    y = np.random.default_rng(0).permutation(x)
    y[::7], y[1::7], y[2::7] = np.inf, -np.inf, 0
    y[3::7] = x[3::7]
    graph = graph_of(lambda a, b: [emit("nextafter", a, b), emit("nextafter", emit("negative", a), b)], [x, y])
    for found, wanted in zip(on_the_device(emulated, graph, [x, y]), on_the_host(graph, [x, y]), strict=True):
        numbers = ~np.isnan(wanted.astype(np.float32))
        np.testing.assert_array_equal(found.view(np.uint16)[numbers], wanted.view(np.uint16)[numbers])
        assert np.isnan(found[~numbers].astype(np.float32)).all()


@pytest.mark.parametrize("whole", [int16, uint16], ids=lambda d: d.name)
@pytest.mark.parametrize("half", HALVES, ids=lambda d: d.name)
def test_bits_of_halves(emulated: Emulated, half: DType, whole: DType) -> None:
    """Those of every NaN too, where they are read or written; of what was computed, those of numbers."""
    x, bits = EVERY.view(half.numpy_dtype), EVERY.view(whole.numpy_dtype)
    other = bfloat16 if half is float16 else float16

    def build(a: Value, b: Value) -> list[Value]:
        up = emit("add", emit("bitcast", a, dtype=whole), emit("bitcast", emit("negative", a), dtype=whole))
        return [
            emit("bitcast", a, dtype=whole),
            emit("bitcast", b, dtype=half),
            emit("bitcast", emit("bitwise_xor", b, b), dtype=half),
            emit("bitcast", emit("bitcast", a, dtype=other), dtype=whole),
            emit("bitcast", a, dtype=other),
            emit("bitwise_xor", emit("bitcast", a, dtype=whole), b),
            emit("multiply", emit("bitcast", b, dtype=half), a),
            up,
        ]

    graph = graph_of(build, [x, bits])
    found, wanted = on_the_device(emulated, graph, [x, bits]), on_the_host(graph, [x, bits])
    numbers = ~np.isnan(x.astype(np.float32))
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert a.dtype == b.dtype
        kept = numbers if k in (6, 7) else slice(None)
        np.testing.assert_array_equal(a.view(np.uint16)[kept], b.view(np.uint16)[kept], str(k))


@pytest.mark.parametrize("dtype", [float32, int32], ids=lambda d: d.name)
def test_bits_of_numbers(emulated: Emulated, dtype: DType) -> None:
    x = np.arange(1 << 16, dtype=np.uint32) * np.uint32(65_521)
    graph = graph_of(lambda v: [emit("bitcast", v, dtype=dtype)], [x])
    (found,), (wanted,) = on_the_device(emulated, graph, [x]), on_the_host(graph, [x])
    np.testing.assert_array_equal(found.view(np.uint32), wanted.view(np.uint32))
