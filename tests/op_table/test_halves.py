"""Two-byte floats: sums over 70,000 elements are those of float64, rounded once.

Such sums overflow float16 and stop growing in bfloat16 after 256 equal summands, so a kernel that accumulates in the
half type is far off. Short operands are in `test_values.py`. All operands are the number 3, which both types hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gradtape.ir.aval import aval
from gradtape.ir.dtypes import bfloat16, bool_, float16, float64, int64, uint64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ops.composite import Composite
from gradtape.ops.contraction import Contraction
from gradtape.ops.op import Op
from gradtape.ops.opaque import Opaque
from gradtape.ops.reduction import Reduction
from gradtape.ops.samples import Sample
from tests.op_table.cases import CASES, Case, each_op, replace_shape, sealed
from tests.op_table.running import results_of
from tests.op_table.tally import Checks

LONG = 70_000
pytestmark = pytest.mark.filterwarnings("error")


def lengthened(op: Op) -> Iterator[Case]:
    """The first sample of an op with one of its sizes made long, each in turn."""
    first = op.samples[0]
    fixed = first.params.get("shape", ())
    if isinstance(op, Reduction):
        yield Case(op, Sample((replace_shape(first.specs[0], (LONG,)),), {"axes": (0,), "keepdims": False}), "long")
        return
    for size in sorted({n for s in first.specs for n in s.shape if n > 1} - set(fixed)):
        specs = tuple(replace_shape(s, tuple(LONG if n == size else n for n in s.shape)) for s in first.specs)
        case = Case(op, replace(first, specs=specs), f"{LONG} for {size}")
        if fits(case):
            yield case


def fits(case: Case) -> bool:
    """Whether the op takes operands of these shapes; windows, for one, cannot be larger than what they lie in."""
    kinds = {"float": float64, "bool": bool_, "uint64": uint64}
    try:
        case.step.infer(tuple(aval(s.shape, kinds.get(s.dtype, int64)) for s in case.sample.specs))
    except InvalidArgumentError:
        return False
    return True


def threes(case: Case) -> list[Any]:
    """The operands with 3 for every number; masks and positions as they are drawn."""
    drawn = case.draw(float64)
    return [
        sealed(np.full_like(a, 3)) if s.dtype == "float" else a for a, s in zip(drawn, case.sample.specs, strict=True)
    ]


def accumulates(op: Op) -> bool:
    """Ops that may add many elements up, with a floating operand; matrices with a structure do not get longer, and what
    draws does not add."""
    kinds = Reduction | Contraction | Composite | Opaque
    draws = isinstance(op, Opaque) and op.source
    if not isinstance(op, kinds) or draws or any(s.structure for s in op.samples[0].specs):
        return False
    return CASES[op.name][0].is_free and CASES[op.name][0].takes(float16)


@each_op(accumulates)
def test_long_sums_are_carried_in_float32(op: Op, checks: Checks) -> None:
    for case in lengthened(op):
        for half in (float16, bfloat16):
            wide = threes(case)
            arrays = [a.astype(half.numpy_dtype) if a.dtype == np.float64 else a for a in wide]
            (got,) = results_of(case.step, [sealed(a) for a in arrays])
            (want,) = results_of(case.step, wide)
            assert_rounds(got, want, half.numpy_dtype, (case, half))
            checks()


def assert_rounds(got: Any, want: Any, dtype: Any, about: object) -> None:
    """`got` is `want` in another dtype, give or take two units in the last place."""
    limits = ml_dtypes.finfo(dtype)
    with np.errstate(over="ignore"):
        want = np.asarray(want).astype(dtype).astype(np.float64)
    got = np.asarray(got).astype(np.float64)
    allowed = 2 * float(limits.eps) * np.abs(np.where(np.isfinite(want), want, 0)) + float(limits.smallest_subnormal)
    near = np.asarray(got == want)
    near[~near] = np.abs(got[~near] - want[~near]) <= allowed[~near]
    assert np.all(near), f"{about}: got {np.unique(got)[:5]}, want {np.unique(want)[:5]}"
