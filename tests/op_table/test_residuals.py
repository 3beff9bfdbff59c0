"""Residuals: what recording an op keeps alive is what its derivative mentions, and no more.

By kind where the declaration says it (the symbols of a pointwise op's partials, the other operand of a contraction,
the positions of a structural op); by name for rules that are written out, since a rule that keeps too much is still a
right rule, and only an expectation can tell."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from gradtape.ir.aval import Aval
from gradtape.ir.dtypes import complex64, float32
from gradtape.ir.expr import Expr, mentions
from gradtape.ops.contraction import Contraction
from gradtape.ops.op import Op, lookup
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.ops.structural import Structural
from gradtape.transforms.differentiate import residuals
from tests.op_table.cases import CASES, Case, avals_of, each_op
from tests.op_table.tally import Checks

Mask = tuple[bool, ...]
Kept = tuple[tuple[int, ...], tuple[int, ...]]

# Operands and results that rules keep when every operand is differentiated.
NOTHING: Kept = ((), ())
RESULT: Kept = ((), (0,))
EXPECTED: dict[str, Kept] = {
    "add": NOTHING,
    "avg_pool": NOTHING,
    "broadcast_to": NOTHING,
    "cast": NOTHING,
    "complex": NOTHING,
    "concat": NOTHING,
    "conj": NOTHING,
    "convolve": ((0, 1), ()),
    "convolve_input": ((0, 1), ()),
    "convolve_kernel": ((0, 1), ()),
    "cumsum": NOTHING,
    "exp": RESULT,
    "fold": NOTHING,
    "gather": ((1,), ()),
    "imag": NOTHING,
    "log": ((0,), ()),
    "log_softmax": RESULT,
    "max_pool": ((0,), ()),
    "max_pool_input": ((1,), ()),
    "multiply": ((0, 1), ()),
    "negative": NOTHING,
    "pad": NOTHING,
    "real": NOTHING,
    "reciprocal": RESULT,
    "reduce_max": ((0,), (0,)),
    "reduce_mean": NOTHING,
    "reduce_min": ((0,), (0,)),
    "reduce_prod": ((0,), ()),
    "reduce_sum": NOTHING,
    "relu": RESULT,
    "reshape": NOTHING,
    "reverse": NOTHING,
    "scatter_add": ((1,), ()),
    "select": ((0,), ()),
    "sigmoid": RESULT,
    "sin": ((0,), ()),
    "slice": ((1,), ()),
    "softmax": RESULT,
    "softmax_cross_entropy": ((0, 1), ()),
    "sparse_softmax_cross_entropy": ((0, 1), ()),
    "sqrt": RESULT,
    "subtract": NOTHING,
    "tanh": RESULT,
    "transpose": NOTHING,
    "unslice": ((1,), ()),
}


def masks(op: Op) -> Iterator[tuple[Case, tuple[Aval, ...], Mask]]:
    """Every case that has elements, in a real and in a complex dtype, with every choice of differentiated operands."""
    for case in CASES[op.name]:
        for dtype in case.dtypes((float32, complex64)):
            avals = avals_of(case.draw(dtype))
            if all(a.size for a in avals):
                able = [(False, True) if a.dtype.is_differentiable else (False,) for a in avals]
                yield from ((case, avals, m) for m in itertools.product(*able) if any(m))


def mentioned(op: Pointwise, active: Mask) -> Kept | None:
    """What the partials of the active operands mention; None where none of them has a partial."""
    chosen = [p for p, wanted in zip(op.partials, active, strict=True) if wanted and p is not None]
    if not chosen or op.result == "bool":
        return None
    names = set().union(*[mentions(p) for p in chosen if isinstance(p, Expr)])
    return tuple(i for i, n in enumerate(op.operands) if n in names), (0,) if "out" in names else ()


def declares_partials(op: Op) -> bool:
    return isinstance(op, Pointwise) and op.rule is None and any(True for _ in masks(op))


@each_op(declares_partials)
def test_pointwise_keeps_what_its_partials_mention(op: Pointwise, checks: Checks) -> None:
    for case, avals, active in masks(op):
        assert residuals(case.step, avals, active) == mentioned(op, active), (case, active)
        checks()


@each_op(lambda op: isinstance(op, Reduction) and op.partial is not None)
def test_reduction_keeps_what_its_partial_mentions(op: Reduction, checks: Checks) -> None:
    assert op.partial is not None
    names = mentions(op.partial)
    want = (0,) if "x" in names else (), (0,) if "out" in names else ()
    for case, avals, active in masks(op):
        assert residuals(case.step, avals, active) == want, case
        checks()


@each_op(lambda op: isinstance(op, Structural))
def test_structural_keeps_positions_only(op: Structural, checks: Checks) -> None:
    for case, avals, active in masks(op):
        kept = residuals(case.step, avals, active)
        assert kept is not None, case
        assert set(kept[0]) <= set(range(len(avals) - op.indices, len(avals))) and kept[1] == (), (case, kept)
        checks()


@each_op(lambda op: isinstance(op, Contraction))
def test_contraction_keeps_the_other_operand(op: Contraction, checks: Checks) -> None:
    for case, avals, (left, right) in masks(op):
        want = tuple(k for k, other in ((0, right), (1, left)) if other), ()
        assert residuals(case.step, avals, (left, right)) == want, case
        checks()


@each_op(lambda op: op.name in EXPECTED)
def test_named_expectations(op: Op, checks: Checks) -> None:
    """With all operands differentiated that can be."""
    for case, avals, active in masks(op):
        if all(active[k] or not a.dtype.is_differentiable for k, a in enumerate(avals)):
            assert residuals(case.step, avals, active) == expected(case, avals), (case, avals)
            checks()


def expected(case: Case, avals: tuple[Aval, ...]) -> Kept | None:
    """What the table says; None where nothing can flow, to a result of integers or from an imaginary part that is 0."""
    (out,) = case.step.infer(avals)
    if not out.dtype.is_differentiable or (case.op.name == "imag" and not avals[0].dtype.is_complex):
        return None
    return EXPECTED[case.op.name]


@pytest.mark.parametrize("name", EXPECTED)
def test_expectations_name_ops_of_the_table(name: str) -> None:
    assert lookup(name).name in CASES
