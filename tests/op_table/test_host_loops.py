"""What the host computes by code of its own, compiled loops and blocked products, is what the graphs and the array
library's functions give that small operands go through: for every sample, in every dtype, in one thread and in several.

Where elements are only moved, compared or added in a fixed order, the bits are the same. A mean's sum is taken in
another order than NumPy's, and a convolution is cut into blocks, so those may differ in the last places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gradtape.backends.cpu import lower
from gradtape.backends.program import compile_graph
from gradtape.ir.dtypes import complex128, float32, float64, int32
from gradtape.kernels import convolution, loops, scatter
from gradtape.ops import pooling
from gradtape.ops import scatter as scattering
from gradtape.ops.composite import Composite
from gradtape.ops.op import Op, Step
from tests.op_table.cases import CASES, Case, avals_of, each_op, sealed
from tests.op_table.running import assert_near, assert_same_bits
from tests.op_table.tally import Checks
from tests.op_table.test_layouts import LAYOUTS, laid_out
from tests.op_table.window_reference import WHOLE

EXACT = {"max_pool", "max_pool_pick"}
DTYPES = (float64, float32, complex128, int32)


def has_host(op: Op) -> bool:
    return isinstance(op, Composite) and op.host is not None


@pytest.fixture(params=["one thread", "several threads"])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Loops run in one thread, or every row in a part of its own."""
    monkeypatch.setattr(loops, "SHARE", 1 if request.param == "several threads" else 1 << 60)
    monkeypatch.setattr(loops, "threads", lambda: 3)
    monkeypatch.setattr(scatter, "WIDE", 1)
    return request.param


@pytest.fixture(params=[1, 100, 1 << 21])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The bytes of patches at a time: a line of windows, a few of them, all."""
    monkeypatch.setattr(convolution, "BLOCK", request.param)
    return request.param


def by_graph(op: Composite, case: Case, arrays: list[Any]) -> Any:
    (result,) = compile_graph(op.expand(avals_of(arrays), **case.sample.params), lower)(*arrays)
    return result


def drawn(op: Op) -> Iterator[tuple[Case, list[Any]]]:
    for case in CASES[op.name]:
        for dtype in case.dtypes(DTYPES):
            yield case, case.draw(dtype)


@each_op(has_host)
def test_host_equals_the_graph(op: Composite, checks: Checks, threads: str, block: int) -> None:
    assert op.host is not None
    for case, arrays in drawn(op):
        got, want = op.host(*arrays, **case.sample.params), by_graph(op, case, arrays)
        assert got.dtype == want.dtype, case
        if op.name in EXACT:
            assert_same_bits(got, want, (case, threads))
        else:
            assert_near(got, want, (case, threads, block), 1e-6 if want.dtype == np.float32 else 1e-13)
        checks()


@each_op(has_host)
def test_host_takes_views(op: Composite, checks: Checks) -> None:
    assert op.host is not None
    for case, arrays in drawn(op):
        for layout in LAYOUTS:
            views = laid_out(layout, arrays)
            copies = [np.ascontiguousarray(v) for v in views]
            got, want = op.host(*views, **case.sample.params), op.host(*copies, **case.sample.params)
            assert_same_bits(got, want, (case, layout.__name__))
            checks()


def special(shape: tuple[int, ...], seed: int) -> Any:
    """Numbers with many ties, infinities and NaN among them."""
    chosen = np.random.default_rng(seed).choice([0.0, 1.0, -1.0, np.inf, -np.inf, -np.inf, np.nan], shape)
    return sealed(np.asarray(chosen))


@each_op(lambda op: op.name.startswith("max_pool"))
def test_ties_infinities_and_nan(op: Composite, checks: Checks, threads: str) -> None:
    """The first of equal elements is chosen, also of windows full of -inf at an edge, and the first NaN."""
    assert op.host is not None
    for case in CASES[op.name]:
        for seed in range(8):
            *given, images = case.draw(float64)
            arrays = [*given, special(images.shape, seed)]
            (out,) = case.step.infer(avals_of(arrays))
            want = np.asarray(WHOLE[op.name](arrays, out.dims, **case.sample.params)).astype(np.float64)
            for how, got in (("host", op.host(*arrays, **case.sample.params)), ("graph", by_graph(op, case, arrays))):
                assert np.array_equal(got, want, equal_nan=True), (case, how, threads, arrays, got, want)
            checks()


def test_large_operands_take_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    op, params = pooling.MAX_POOL, pooling.LINE
    calls = []
    monkeypatch.setattr(op, "host", lambda x, **p: calls.append(x.shape) or x[:, :1])
    for rows in (8, pooling.LARGE):
        step = Step(op, dict(params))
        lower(step)(np.zeros((1, rows, 1)))
    assert calls == [(1, pooling.LARGE, 1)]


SHAPES = [(1, 5, 7, 3), (2, 4, 9, 1), (3, 6, 0, 2), (1, 1, 8, 5)]


# Complex numbers have no order, so they are only added.
COMBINED = [(u, d) for u in scatter.LOOPS for d in ("float64", "float32", "int32", "uint8")] + [("add", "complex64")]


@pytest.mark.parametrize("ufunc, dtype", COMBINED)
def test_scattering_loops(ufunc: str, dtype: str, threads: str) -> None:
    """Loops give the bits of `ufunc.at`, in the order of the rows."""
    rng = np.random.default_rng(3)
    for batch, n, k, width in SHAPES:
        rows = sealed((rng.standard_normal((batch, k, width)) * 50).astype(dtype))
        positions = sealed(rng.integers(0, n, (batch, k)))
        got, want = np.zeros((batch, n, width), dtype), np.zeros((batch, n, width), dtype)
        scatter.combine(ufunc, got, positions, rows)
        scattering.flat(np, ufunc, want, positions, rows)
        assert_same_bits(got, want, (ufunc, dtype, threads, batch, n, k, width))


def test_rows_are_shared_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "threads", lambda: 3)
    for rows, work in ((0, 0), (1, 1 << 30), (2, 1 << 30), (10, 1 << 30), (10, 1)):
        seen: list[int] = []
        loops.share(rows, work, lambda start, stop, seen=seen: seen.extend(range(start, stop)))
        assert sorted(seen) == list(range(rows))


def test_errors_of_helpers_reach_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "threads", lambda: 3)

    def fail(start: int, stop: int) -> None:
        if start:
            raise ValueError(f"row {start}")

    with pytest.raises(ValueError, match="row"):
        loops.share(9, 1 << 30, fail)


def test_limits_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert loops.threads() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert loops.threads() >= 1


def test_one_loop_serves_arrays_that_cannot_be_written_to() -> None:
    """Recorded arrays are read-only, others are not: each type of element is compiled for once."""
    run = scatter.LOOPS["add"]
    compiled = run.of(np.dtype(np.float32))
    for writeable in (True, False):
        rows, positions = np.ones((1, 4, 2), np.float32), np.zeros((1, 4), np.int64)
        rows.flags.writeable = positions.flags.writeable = writeable
        out = np.zeros((1, 2, 2), np.float32)
        assert run.of(out.dtype) is compiled
        compiled(out, positions, rows, 0, 2)
        assert out.tolist() == [[[4.0, 4.0], [0.0, 0.0]]]
