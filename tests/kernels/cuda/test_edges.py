"""Zeros of both signs, infinities, NaN, and the ends of each range, in all combinations: every pointwise op of real
numbers gives on the emulated device what it gives on the CPU, op by op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gradtape.backends.formula import HALF
from gradtape.ir.aval import aval_of
from gradtape.ir.dtypes import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint32,
    uint64,
)
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Graph, Value
from gradtape.kernels.cuda_spelling import spells_cuda
from gradtape.ops.op import Step, apply
from gradtape.ops.pointwise import Pointwise
from gradtape.transforms.fuse import fuse
from tests.kernels.cuda.running import Emulated
from tests.kernels.cuda.table import held
from tests.op_table.cases import CASES
from tests.op_table.running import results_of

ULPS = 16
FLOATS = (float16, bfloat16, float32, float64)
WHOLE = (int8, int16, int32, int64, uint8, uint32, uint64, bool_)


@pytest.fixture(scope="module")
def emulated() -> Emulated:
    return Emulated()


def odd(dtype: DType) -> Any:
    """Numbers of a dtype that are likely to be forgotten."""
    if dtype.is_bool:
        return np.array([False, True])
    if dtype.is_integer:
        small = [0, 1, 2, 3, 7, 8, 31, 32, 63, 64, 100, int(dtype.max), int(dtype.max) - 1, int(dtype.min)]
        return np.array([*small, *([-n for n in small[1:-1]] if dtype.kind == "i" else [])], dtype.numpy_dtype)
    limits = ml_dtypes.finfo(dtype.numpy_dtype)
    ends = map(float, (limits.max, limits.smallest_normal, limits.smallest_subnormal, limits.eps))
    sizes = [0, 0.5, 1, 2.5, 3, 30, np.inf, *ends]
    return np.array([*sizes, *(-x for x in sizes), np.nan], dtype.numpy_dtype)


def operands(op: Pointwise, dtype: DType) -> list[Any]:
    """All combinations of these numbers."""
    ranges = [np.array([False, True]) if s.dtype == "bool" else odd(dtype) for s in op.samples[0].specs]
    return [a.ravel() for a in np.meshgrid(*ranges, indexing="ij")]


def on_the_host(step: Step, arrays: Sequence[Any]) -> Any:
    with np.errstate(all="ignore"):
        return results_of(step, arrays)[0]


def answered(step: Step, arrays: Sequence[Any]) -> list[Any]:
    """The combinations to which the host has an answer: integers have no quotients by 0, and no negative powers."""
    kept = []
    for k in range(arrays[0].size):
        try:
            on_the_host(step, [a[k : k + 1] for a in arrays])
        except (InvalidArgumentError, ValueError):
            continue
        kept.append(k)
    return [a[kept] for a in arrays]


def cases(dtype: DType) -> Iterator[tuple[Step, list[Any], Any, Graph]]:
    """Each op that takes a dtype: operands, what the host makes of them, and the op fused."""
    for op in held():
        case = CASES[op.name][0]
        if not (isinstance(op, Pointwise) and case.is_free and case.takes(dtype)):
            continue
        arrays, step = operands(op, dtype), case.step
        try:
            wanted = on_the_host(step, arrays)
        except (InvalidArgumentError, ValueError):
            arrays = answered(step, arrays)
            wanted = on_the_host(step, arrays)
        inputs = [Value(aval_of(a)) for a in arrays]
        yield step, arrays, np.asarray(wanted), fuse(Graph(inputs, apply(step, inputs)), spells_cuda, 1)


def same(found: Any, wanted: Any) -> Any:
    """Whether numbers are alike, element by element: NaN and infinities where they should be, the others near."""
    if wanted.dtype.kind in "biu":
        return found == wanted
    limits = ml_dtypes.finfo(wanted.dtype)
    a, b = (x.astype(np.float64) if x.dtype in HALF else x for x in (found, wanted))
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= ULPS * float(limits.eps) * np.abs(b) + 2 * float(limits.smallest_subnormal)
    return np.where(np.isfinite(b), near, (a == b) | (np.isnan(a) & np.isnan(b)))


@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE], ids=lambda d: d.name)
def test_odd_numbers(emulated: Emulated, dtype: DType) -> None:
    found = list(cases(dtype))
    assert len(found) > 5
    emulated.compile_all([graph for *_, graph in found])
    for step, arrays, wanted, graph in found:
        (got,) = emulated.graph(graph, arrays)
        assert got.dtype == wanted.dtype
        (bad,) = np.nonzero(~same(got, wanted))
        some = [(*(a[k] for a in arrays), "gives", got[k], "wants", wanted[k]) for k in bad[:5]]
        assert not some, f"{step!r} of {dtype.name}: {some}"
