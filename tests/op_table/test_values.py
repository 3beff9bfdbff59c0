"""Values: the CPU kernel of every op against a reference of 40 digits that shares no code with it, in every dtype that
the op takes.

It finds a wrong function, wrong axes, a wrong broadcast, accuracy lost beyond a few units in the last place, and a
result of another dtype or shape than the step infers. The samples are moderate numbers: `test_edges.py` has the rest.
Where integers leave the integers (2 to the power -1) the sample is repeated with the absolute values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gradtape.ir.aval import Aval
from gradtape.ir.dtypes import DType
from gradtape.ir.graph import Graph
from gradtape.ops.composite import Composite
from gradtape.ops.op import Op
from gradtape.ops.pointwise import Pointwise
from tests.op_table.array_reference import evaluate, evaluate_all, evaluate_graph, exact_array
from tests.op_table.cases import CASES, Case, avals_of, each_op, sealed
from tests.op_table.running import results_of
from tests.op_table.scalar_reference import MP
from tests.op_table.tally import Checks

pytestmark = pytest.mark.filterwarnings("error")


def rounded(expected: Any, dtype: DType) -> Any:
    """Exact numbers in double precision (integers and bools as they are)."""
    if dtype.is_differentiable:
        kind: Any = np.complex128 if dtype.is_complex else np.float64
        python: Any = complex if dtype.is_complex else float
        return np.array([python(x) for x in expected.ravel()], kind).reshape(expected.shape)
    return expected.astype(dtype.numpy_dtype)


def assert_agrees(got: Any, expected: Any, out: Aval, ulps: float, scale: float, about: object) -> None:
    """`got` has the aval `out` and lies within some units in the last place, relative to each element and `scale`."""
    assert (got.shape, got.dtype) == (out.shape, out.dtype.numpy_dtype), (
        f"{about}: {got.dtype}{got.shape}, infers {out}"
    )
    want = rounded(expected, out.dtype)
    if not out.dtype.is_differentiable:
        assert np.array_equal(got, want), f"{about}:\ngot  {got}\nwant {want}"
        return
    limits = ml_dtypes.finfo(out.dtype.real_dtype.numpy_dtype)
    size = np.maximum(np.abs(np.where(np.isfinite(want), want, 0)), scale)
    allowed = ulps * float(limits.eps) * size + float(limits.smallest_subnormal)
    wide = np.asarray(got).astype(want.dtype)
    same = np.asarray((wide == want) | (np.isnan(wide) & np.isnan(want)))
    same[~same] = np.abs(wide[~same] - want[~same]) <= allowed[~same]
    assert np.all(same), f"{about}, {out}:\ngot  {wide}\nwant {want}\nin units of {allowed / ulps}"


def tolerance(case: Case, arrays: list[Any]) -> tuple[float, float]:
    """Units in the last place, and the size of numbers that they are relative to. A pointwise op is judged element by
    element; where numbers are added up, the error is relative to the largest summand, and what solves for numbers
    enlarges it."""
    if isinstance(case.op, Pointwise):
        return (8 if case.op.formula is None else 24), 0.0
    numbers = [np.abs(np.asarray(a).astype(np.complex128)) for a in arrays if a.size]
    largest = max([1.0, *[float(np.max(x)) for x in numbers]])
    condition = 8 if any(s.structure for s in case.sample.specs) else 1  # of systems, decompositions, exponentials
    return condition * (8 + 2 * sum(a.size for a in arrays)), largest


def expected_of(case: Case, arrays: list[Any], out: Aval) -> Any:
    return evaluate(case.step, [exact_array(a) for a in arrays], out.dims, out.dtype)


def operands(case: Case, dtype: DType) -> list[Any]:
    """The drawn operands; integers without their signs where the op would leave the integers."""
    arrays = case.draw(dtype)
    if dtype.is_integer:
        (out,) = case.step.infer(avals_of(arrays))
        if any(isinstance(x, float) for x in np.ravel(expected_of(case, arrays, out))):
            return [sealed(np.abs(a)) for a in arrays]
    return arrays


@each_op()
def test_value_in_every_dtype(op: Op, checks: Checks) -> None:
    for case in CASES[op.name]:
        for dtype in case.dtypes():
            arrays = operands(case, dtype)
            outs = case.step.infer(avals_of(arrays))
            wanted = evaluate_all(case.step, [exact_array(a) for a in arrays], outs)
            for got, want, out in zip(results_of(case.step, arrays), wanted, outs, strict=True):
                assert_agrees(got, want, out, *tolerance(case, arrays), (case, dtype))
                checks()


@each_op(lambda op: isinstance(op, Composite))
def test_composite_equals_its_graph(op: Composite, checks: Checks) -> None:
    """The textbook's function (above) and the declared graph, each node by its own reference, are the same."""
    for case in CASES[op.name]:
        for dtype in case.dtypes():
            arrays = case.draw(dtype)
            graph: Graph = op.expand(avals_of(arrays), **case.sample.params)
            (want,) = evaluate_graph(graph, [exact_array(a) for a in arrays])
            (out,) = case.step.infer(avals_of(arrays))
            exact = expected_of(case, arrays, out)
            assert all(abs(a - b) < MP.mpf("1e-30") for a, b in zip(exact.ravel(), want.ravel(), strict=True)), case
            checks()
