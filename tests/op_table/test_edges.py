"""Edges: zeros of both signs, infinities, NaN, the largest, the smallest and the smallest subnormal number, in all
combinations of operands, for every pointwise op of real numbers.

The kernel must be NaN where the reference is, infinite where it is (or where it rounds to infinity), and near it where
it is finite. The signs of zeros and of infinities at poles are not compared: the reference has no signed zero. Where a
textbook's formula is 0·∞ in itself (x·sigmoid(x) at -∞) it says NaN, and so must the kernel. Nothing may warn."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gradtape.ir.dtypes import FLOATING, DType
from gradtape.ops.op import Op
from gradtape.ops.pointwise import Pointwise
from tests.op_table.cases import CASES, avals_of, each_op, sealed
from tests.op_table.running import results_of
from tests.op_table.scalar_reference import MP, exact, scalar
from tests.op_table.tally import Checks

pytestmark = pytest.mark.filterwarnings("error")


def special_numbers(dtype: DType) -> list[float]:
    limits = ml_dtypes.finfo(dtype.numpy_dtype)
    ends = [float(limits.max), float(limits.smallest_normal), float(limits.smallest_subnormal)]
    return [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.5, -0.75, *ends, *[-x for x in ends]]


def grid(op: Pointwise, dtype: DType) -> list[Any]:
    """All combinations of special numbers, one array per operand (a mask, where the op wants one)."""
    special = special_numbers(dtype)
    ranges = [[False, True] if s.dtype == "bool" else special for s in op.samples[0].specs]
    columns = zip(*itertools.product(*ranges), strict=True)
    return [sealed(np.array(c).astype(bool if isinstance(c[0], bool) else dtype.numpy_dtype)) for c in columns]


def reference(op: Pointwise, operands: list[Any], params: Any) -> Any:
    """The value of each combination, real or bool; NaN where only a complex number would do."""
    f = scalar(op)

    def value(*xs: Any) -> Any:
        result = f(*[exact(x) for x in xs], **params)
        if isinstance(result, MP.mpc) and op.name != "complex":
            return MP.nan if result.imag != 0 else result.real
        return result

    return [value(*xs) for xs in zip(*operands, strict=True)]


def is_real(op: Op) -> bool:
    return isinstance(op, Pointwise) and any(CASES[op.name][0].takes(d) for d in FLOATING)


@each_op(is_real)
def test_special_numbers(op: Pointwise, checks: Checks) -> None:
    case = CASES[op.name][0]
    for dtype in case.dtypes(FLOATING):
        operands = grid(op, dtype)
        (out,) = case.step.infer(avals_of(operands))
        (got,) = results_of(case.step, operands)
        want = reference(op, operands, case.sample.params)
        for xs, a, b in zip(zip(*operands, strict=True), got, want, strict=True):
            for part, wanted in parts(a, b) if b is not None else ():
                problem = difference(part, wanted, out.dtype.real_dtype)
                assert not problem, f"{op.name}{xs} in {dtype}: {problem}"
                checks()


def parts(got: Any, want: Any) -> list[tuple[Any, Any]]:
    """Real numbers to compare: both parts of a complex one."""
    if got.dtype.kind == "c":
        return [(got.real, want.real), (got.imag, want.imag)]
    return [(got, want)]


def difference(got: Any, want: Any, dtype: DType) -> str:
    """In which way a number is not the one wanted, once that is rounded to the dtype; "" where it is."""
    if not dtype.is_floating:
        return "" if got == want else f"got {got}, want {want}"
    with np.errstate(all="ignore"):
        rounded = np.float64(float(want)).astype(dtype.numpy_dtype)
    a, b = float(got), float(rounded)
    if np.isnan(a) != np.isnan(b) or np.isinf(a) != np.isinf(b):
        return f"got {a}, want {b}"
    limits = ml_dtypes.finfo(dtype.numpy_dtype)
    near = 16 * float(limits.eps) * abs(b) + 2 * float(limits.smallest_subnormal)
    return "" if not np.isfinite(b) or abs(a - b) <= near else f"got {a}, want {b}"
