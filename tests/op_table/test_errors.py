"""Operands that do not fit: the declared ones, and those that follow from the kind, are refused with the right type of
error and words that name the op, what came and a way out."""

from __future__ import annotations

from typing import Any

import pytest

from gradtape.ir import dtypes
from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import DType, as_dtype, float32, float64
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ops.bits import Bitcast
from gradtape.ops.composite import Composite
from gradtape.ops.contraction import Contraction
from gradtape.ops.op import Op
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.ops.samples import Spec
from tests.op_table.cases import CASES, Case, each_op
from tests.op_table.tally import Checks

# Words for the kinds of dtype as messages have them: what came is named in TensorFlow's words.
OF_EACH_KIND = (
    dtypes.float32,
    dtypes.float16,
    dtypes.complex64,
    dtypes.int32,
    dtypes.uint8,
    dtypes.bool_,
    dtypes.string,
)


def avals(case: Case, *given: DType) -> tuple[Aval, ...]:
    """The avals of a case, its free operands with the given dtypes in turn, the last repeated."""
    left = list(given)

    def of(spec: Spec) -> DType:
        if spec.dtype != "float":
            return {"int": dtypes.int64, "uint64": dtypes.uint64, "bool": dtypes.bool_}[spec.dtype]
        return left.pop(0) if len(left) > 1 else left[0]

    return tuple(aval(s.shape, of(s)) for s in case.sample.specs)


def free_operands(op: Op) -> int:
    return sum(s.dtype == "float" for s in op.samples[0].specs)


def refused(case: Case, operands: tuple[Aval, ...], *words: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        case.step.infer(operands)
    text = str(caught.value)
    for word in (f"`{case.op.name}`", *words):
        assert word in text, f"{case} of {operands}: {word!r} is not in {text!r}"


@each_op(lambda op: bool(op.errors))
def test_declared_errors(op: Op, checks: Checks) -> None:
    for bad in op.errors:
        operands = tuple(aval(shape, as_dtype(name)) for shape, name in bad.operands)
        with pytest.raises(bad.error) as caught:
            op.bind(**bad.params).infer(operands)
        assert type(caught.value) is bad.error, op
        assert bad.says in str(caught.value) and f"`{op.name}`" in str(caught.value), f"{op.name}: {caught.value}"
        checks()


@each_op(lambda op: free_operands(op) > 1)
def test_mixed_dtypes(op: Op, checks: Checks) -> None:
    """Two operands of different precision, for every op that takes two."""
    case = CASES[op.name][0]
    refused(case, avals(case, float32, float64), "dtype", "cast")
    refused(case, avals(case, float64, float32), "dtype", "cast")
    checks(2)


def declares_kinds(op: Op) -> bool:
    return isinstance(op, Pointwise | Reduction) and free_operands(op) > 0


@each_op(declares_kinds)
def test_kinds_of_dtype(op: Pointwise | Reduction, checks: Checks) -> None:
    """A dtype is taken if and only if the declaration says so; the message names the dtype that came."""
    for case in filter(lambda c: c.is_free, CASES[op.name]):
        for dtype in OF_EACH_KIND:
            operands = avals(case, dtype)
            if dtype.kind not in op.accepts:
                refused(case, operands, dtype.cname)
            elif may_refuse(case, dtype):
                assert refusal(case, operands) in ("", dtype.cname), case
            else:
                case.step.infer(operands)
            checks()


def may_refuse(case: Case, dtype: DType) -> bool:
    """Whether the parameters have a say as well."""
    target = str(case.sample.params.get("dtype"))
    return isinstance(case.op, Bitcast) or "string" in (dtype.name, target) or narrows(case.op, dtype)


def narrows(op: Op, dtype: DType) -> bool:
    """Half types have no complex counterpart, so what makes complex numbers may refuse them."""
    (out,) = CASES[op.name][0].step.infer(avals(CASES[op.name][0], first_taken(op)))
    return dtype.is_half and out.dtype.is_complex


def first_taken(op: Any) -> DType:
    return next(d for d in OF_EACH_KIND if d.kind in op.accepts)


def refusal(case: Case, operands: tuple[Aval, ...]) -> str:
    """The dtype that the message names, in TensorFlow's word for it; "" where there is no error."""
    try:
        case.step.infer(operands)
    except InvalidArgumentError as e:
        return next((a.dtype.cname for a in operands if a.dtype.cname in str(e)), "not named")
    return ""


@each_op(lambda op: isinstance(op, Pointwise) and len(op.operands) > 1)
def test_shapes_that_do_not_broadcast(op: Pointwise, checks: Checks) -> None:
    """Each operand in turn has a size of its own; the message shows all shapes."""
    case = CASES[op.name][0]
    fitting = avals(case, next(d for d in (*OF_EACH_KIND,) if case.takes(d)))
    for k, a in enumerate(fitting):
        operands = (*fitting[:k], aval((2, 5), a.dtype), *fitting[k + 1 :])
        refused(case, operands, "(2, 5)", "(2, 3)", "incompatible shapes")
        checks()


@each_op(lambda op: isinstance(op, Pointwise))
def test_number_of_operands(op: Pointwise, checks: Checks) -> None:
    for count in (0, len(op.operands) + 1):
        with pytest.raises(TypeError, match=rf"`{op.name}` takes {len(op.operands)} operands, got {count}"):
            CASES[op.name][0].step.infer((aval((), float32),) * count)
        checks()


@each_op(lambda op: isinstance(op, Contraction))
def test_contractions_that_do_not_fit(op: Contraction, checks: Checks) -> None:
    """Another rank than there are letters, another size of a shared letter, strings."""
    for case in CASES[op.name]:
        a, b = avals(case, float32)
        refused(case, (aval((*a.dims, 2), float32), b), f"`{case.sample.params['subscripts']}`")
        refused(case, avals(case, dtypes.string), "string")
        checks(2)
        shared = set(case.sample.params["subscripts"].split("->")[0].split(",")[0]) & set(
            case.sample.params["subscripts"].split("->")[0].split(",")[1]
        )
        if shared:
            refused(case, (aval(tuple(n + 7 for n in a.dims), float32), b), "incompatible shapes")
            checks()


# Composites that only compare numbers.
TAKE_INTEGERS = {"max_pool"}


@each_op(lambda op: isinstance(op, Composite))
def test_composites_take_floats_only(op: Composite, checks: Checks) -> None:
    case = CASES[op.name][0]
    assert case.takes(dtypes.int32) is (op.name in TAKE_INTEGERS)
    for dtype in (dtypes.complex64 if op.name in TAKE_INTEGERS else dtypes.int32, dtypes.string, dtypes.bool_):
        refused(case, avals(case, dtype))
        checks()
