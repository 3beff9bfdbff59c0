"""Shapes with unknown parts: what a step infers from less is true of what it infers from all.

Every dimension of every operand is hidden in turn, then a whole operand's rank, then all ranks; each inferred shape
must be compatible with the known one and the dtype the same. With one dimension hidden, the rank is still known."""

from __future__ import annotations

from collections.abc import Iterator

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import DType
from gradtape.ir.shapes import TensorShape
from gradtape.ops.op import Op
from tests.op_table.cases import CASES, Case, avals_of, each_op
from tests.op_table.tally import Checks


def known(op: Op) -> Iterator[tuple[Case, tuple[Aval, ...]]]:
    for case in CASES[op.name]:
        first: DType = case.dtypes()[0]
        yield case, avals_of(case.draw(first))


def consistent(case: Case, partly: tuple[Aval, ...], whole: tuple[Aval, ...]) -> None:
    got, want = case.step.infer(partly), case.step.infer(whole)
    assert len(got) == len(want), case
    for a, b in zip(got, want, strict=True):
        assert a.dtype is b.dtype, f"{case} of {partly}: {a.dtype}, known {b.dtype}"
        assert TensorShape(a.shape).is_compatible_with(b.shape), f"{case} of {partly}: infers {a}, known {b}"


@each_op()
def test_one_unknown_dimension(op: Op, checks: Checks) -> None:
    for case, whole in known(op):
        consistent(case, whole, whole)
        checks()
        for k, a in enumerate(whole):
            for axis in range(len(a.dims)):
                dims = (*a.dims[:axis], None, *a.dims[axis + 1 :])
                partly = (*whole[:k], aval(dims, a.dtype), *whole[k + 1 :])
                consistent(case, partly, whole)
                assert all(v.shape is not None for v in case.step.infer(partly)), f"{case}: lost the rank of {partly}"
                checks()


@each_op()
def test_unknown_ranks(op: Op, checks: Checks) -> None:
    for case, whole in known(op):
        for k, a in enumerate(whole):
            consistent(case, (*whole[:k], aval(None, a.dtype), *whole[k + 1 :]), whole)
            checks()
        consistent(case, tuple(aval(None, a.dtype) for a in whole), whole)
        checks()
