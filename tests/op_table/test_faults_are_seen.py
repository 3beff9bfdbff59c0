"""The checks themselves: a fault planted in a declaration, in a kernel or in a transform fails the check that is there
for it. Each fault is one that a rule could plausibly have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradtape.backends import program
from gradtape.ir.expr import fn, trace
from gradtape.ir.graph import Value
from gradtape.ops.op import emit, lookup
from gradtape.ops.samples import BadSample
from gradtape.transforms import simplify
from tests.op_table import test_derivatives as derivatives
from tests.op_table import test_edges as edges
from tests.op_table import test_errors as errors
from tests.op_table import test_halves as halves
from tests.op_table import test_layouts as layouts
from tests.op_table import test_programs as programs
from tests.op_table import test_residuals as residuals
from tests.op_table import test_simplify as simplifying
from tests.op_table import test_unknown_shapes as unknown
from tests.op_table import test_values as values
from tests.op_table.cases import CASES
from tests.op_table.tally import Checks

Check = Callable[[Any, Checks], None]


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What steps remember of kernels and rules is set aside, so that faults are seen and do not stay."""
    for name in ("sin", "multiply", "reduce_sum", "transpose", "concat", "softmax", "cumsum", "sqrt", "gather"):
        for case in CASES[name]:
            for memory in ("lowered", "cache", "inferred"):
                monkeypatch.setattr(case.step, memory, {})


def seen(check: Check, name: str) -> None:
    """The check of an op fails, by an assertion or by the error that the fault leads to."""
    with pytest.raises((AssertionError, ValueError, LookupError, RuntimeWarning)):
        check(lookup(name), Checks())


def kernel(monkeypatch: pytest.MonkeyPatch, name: str, run: Callable[..., Any]) -> None:
    for case in CASES[name]:
        monkeypatch.setitem(case.step.lowered, "cpu", run)


SIN_FAULTS: dict[str, Callable[[Any], Any]] = {
    "a last place that is off": lambda x: np.sin(x) * (1 + 64 * np.finfo(x.dtype).eps),
    "another function": np.cos,
    "a wider dtype": lambda x: np.sin(x.astype(np.complex128)),
    "an axis too many": lambda x: np.sin(x)[..., None],
}


@pytest.mark.parametrize("fault", SIN_FAULTS)
def test_values(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch, "sin", SIN_FAULTS[fault])
    seen(values.test_value_in_every_dtype, "sin")


def test_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch, "sqrt", lambda x: np.sqrt(np.abs(x)))
    seen(edges.test_special_numbers, "sqrt")


def test_a_sum_in_a_half_type(monkeypatch: pytest.MonkeyPatch) -> None:
    step = lookup("reduce_sum").bind(axes=(0,), keepdims=False)
    monkeypatch.setitem(step.lowered, "cpu", lambda x: np.cumsum(x, dtype=x.dtype)[-1])
    with np.errstate(all="ignore"):
        seen(halves.test_long_sums_are_carried_in_float32, "reduce_sum")


def test_an_operand_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch, "multiply", lambda x, y: np.multiply(x, y, out=np.asarray(x)))
    seen(layouts.test_values_of_views, "multiply")


def test_memory_order_taken_for_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch, "sin", lambda x: np.sin(np.ravel(x, order="K").reshape(x.shape)))
    seen(layouts.test_values_of_views, "sin")


PARTIALS: dict[str, tuple[Any, Check]] = {
    "another sign": (lambda x: -fn.cos(x), derivatives.test_first_derivative),
    "no gradient": (None, derivatives.test_first_derivative),
    "right to first order only": (
        lambda x: fn.stop_gradient(fn.cos(x)),
        derivatives.test_second_derivative,
    ),
    "not in the operand": (lambda x, out: fn.cos(x) + 0 * out, residuals.test_named_expectations),
}


@pytest.mark.parametrize("fault", PARTIALS)
def test_partials(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    partial, check = PARTIALS[fault]
    monkeypatch.setattr(lookup("sin"), "partials", (trace(partial) if partial else None,))
    seen(check, "sin")


def test_a_partial_that_is_not_conjugated(monkeypatch: pytest.MonkeyPatch) -> None:
    def bilinear(node: Any, g: Value) -> list[Value]:
        x, y = node.inputs
        return [emit("multiply", y, g), emit("multiply", x, g)]

    monkeypatch.setattr(lookup("multiply"), "rule", bilinear)
    seen(derivatives.test_first_derivative, "multiply")


def test_a_transpose_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = lambda node, g: [emit("reshape", g, shape=node.inputs[0].aval.dims)]  # noqa: E731
    monkeypatch.setattr(lookup("transpose"), "transpose", rule)
    seen(derivatives.test_first_derivative, "transpose")


def test_a_rule_that_is_not_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup("cumsum"), "rule", lambda node, g: [emit("square", g)])
    seen(derivatives.test_jvp_is_the_transpose_of_vjp, "cumsum")


def test_residuals_of_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def wasteful(node: Any, g: Value) -> list[Value | None]:
        x, indices = node.inputs
        zero = emit("multiply", x, emit("subtract", x, x))
        made = emit("scatter_add", g, indices, shape=x.aval.dims, **node.step.params)
        return [emit("add", made, zero), None]

    monkeypatch.setattr(lookup("gather"), "rule", wasteful)
    derivatives.test_first_derivative(lookup("gather"), Checks())  # right, and yet
    seen(residuals.test_named_expectations, "gather")


def test_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    op = lookup("concat")
    monkeypatch.setattr(op, "errors", (BadSample((((2,), "float32"),), ValueError, "", {"axis": 0}),))
    with pytest.raises(pytest.fail.Exception):
        errors.test_declared_errors(op, Checks())
    monkeypatch.setattr(type(lookup("multiply")), "common_dtype", lambda self, avals: avals[0].dtype)
    with pytest.raises(pytest.fail.Exception):
        errors.test_mixed_dtypes(lookup("multiply"), Checks())


def test_unknown_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup("transpose"), "shape", lambda x, perm: None if None in x else tuple(x[k] for k in perm))
    seen(unknown.test_one_unknown_dimension, "transpose")


def test_a_pass_that_is_not_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup("add"), "neutral", {1: 0})  # -0 + 0 is 0
    seen(simplifying.test_constants_for_an_operand, "add")


def test_a_pass_that_breaks_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    def shorter(step: Any, operands: Any) -> Value | None:
        return operands[0] if step.name == "multiply" else None

    monkeypatch.setattr(simplify, "PASSES", (("shorter", shorter),))
    monkeypatch.setattr(simplifying, "PASSES", simplify.PASSES)
    seen(simplifying.test_derived_graphs, "multiply")


@pytest.mark.parametrize("fault", ["a view", "a repeated scalar"])
def test_memory_shared_unawares(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "LARGE", 17)
    if fault == "a view":
        monkeypatch.setattr(lookup("transpose"), "view", False)
    else:
        monkeypatch.setattr(program, "_lenders", lambda node: [v for v in node.inputs if v.aval.shape != ()])
    check: Any = programs.test_an_op_among_others
    with pytest.raises((AssertionError, ValueError)):
        check(lookup("transpose" if fault == "a view" else "broadcast_to"), Checks(), None)
