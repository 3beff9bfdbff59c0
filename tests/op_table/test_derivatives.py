"""Derivatives: the VJP graph of every op, and the VJP graph of that graph, against finite differences; forward mode
against reverse mode.

Each is run with random cotangents at every element of every operand, in float64 and complex128, where the gradient of
a real function of z = x + iy is ∂/∂x + i·∂/∂y. It finds a wrong partial, a missing conjugate, a wrong sum after a
broadcast, an operand whose gradient is lost, and rules that cannot be differentiated again. It cannot see what happens
at kinks, ties and poles, from which the samples keep away."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gradtape.ir.dtypes import DType
from gradtape.ir.graph import Graph
from gradtape.ops.op import Op
from gradtape.ops.opaque import Opaque
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.transforms.differentiate import jvp, residuals, vjp
from tests.op_table.cases import CASES, DOUBLE, Case, avals_of, each_op
from tests.op_table.running import Function, assert_near, compiled, inner, magnitude, noise, numeric_vjp, results_of
from tests.op_table.tally import Checks

pytestmark = pytest.mark.filterwarnings("error")

# The gradient is declared to be another than the slope.
DECLARED_OTHERWISE = {
    "assigned": "its gradient is that of the variable, and its slope that of what was assigned",
    "stop_gradient": "its gradient is none, whatever its slope",
    "random_gamma": "the gradient of what it draws is declared by `gamma_drawn`",
    "gamma_drawn": "its gradient is that of a number which was drawn for its shape parameter",
}

# Operands that count as constants: an order that is a whole number, an exponent whose derivative nobody declares.
CONSTANT_OPERANDS = {"polygamma": {0}, "zeta": {0}}


def flows(case: Case, dtype: DType) -> bool:
    """Whether the step declares a gradient for any of its operands."""
    avals = avals_of(case.draw(dtype))
    return residuals(case.step, avals, (True,) * len(avals)) is not None


def in_double(op: Op) -> Iterator[tuple[Case, DType]]:
    """Cases with a dtype in which differences are accurate: results in double precision, or of integers."""
    for case in CASES[op.name]:
        for dtype in case.dtypes(DOUBLE) if case.is_free else ():
            if all(v.aval.dtype in DOUBLE or not v.aval.dtype.is_differentiable for v in case.graph(dtype).outputs):
                yield case, dtype


def finite(op: Op) -> Iterator[tuple[Case, DType]]:
    """Those whose values are finite: the mean of nothing is NaN, its largest element -inf, and they have no slope."""
    for case, dtype in in_double(op):
        if all(np.all(np.isfinite(r)) for r in results_of(case.step, case.draw(dtype))):
            yield case, dtype


def is_differentiable(op: Op) -> bool:
    return op.name not in DECLARED_OTHERWISE and any(flows(case, d) for case, d in in_double(op))


def has_floats(op: Op) -> bool:
    return any(True for _ in in_double(op))


def assert_vjp_is_the_slope(graph: Graph, function: Function, arrays: list[object], about: tuple[Case, DType]) -> None:
    """The cotangents that the VJP graph of `graph` gives equal differences of `function`; the first operands are those
    of the case, whose declaration says within what they move."""
    cotangents = noise([v.aval for v in graph.outputs], 1)
    got = compiled(vjp(graph))(*arrays, *cotangents)
    hermitian = [s.is_hermitian for s in about[0].sample.specs]
    want = numeric_vjp(function, arrays, cotangents, hermitian)
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        if k not in CONSTANT_OPERANDS.get(about[0].op.name, ()):
            assert_near(a, b, (about, f"operand {k}"), 1e-7)


@each_op(lambda op: has_floats(op) and op.name not in DECLARED_OTHERWISE)
def test_first_derivative(op: Op, checks: Checks) -> None:
    """Where no gradient is declared, the VJP graph answers with zeros, and the slope must be zero as well."""
    for case, dtype in in_double(op):
        graph = case.graph(dtype)
        assert_vjp_is_the_slope(graph, compiled(graph), case.draw(dtype), (case, dtype))
        checks()


@each_op(is_differentiable)
def test_second_derivative(op: Op, checks: Checks) -> None:
    """The VJP graph is a function of operands and cotangent; its own VJP is compared with its differences."""
    for case, dtype in finite(op):
        first = vjp(case.graph(dtype))
        cotangents = noise([v.aval for v in case.graph(dtype).outputs], 2)
        assert_vjp_is_the_slope(first, compiled(first), [*case.draw(dtype), *cotangents], (case, dtype))
        checks()


@each_op(is_differentiable)
def test_third_derivative(op: Op, checks: Checks) -> None:
    """The VJP of the VJP of the VJP, for the first sample of an op."""
    for case, dtype in finite(op):
        if case.label == "0":
            graph = case.graph(dtype)
            arrays: list[object] = list(case.draw(dtype))
            for order in (3, 4):
                arrays += noise([v.aval for v in graph.outputs], order)
                graph = vjp(graph)
            assert_vjp_is_the_slope(graph, compiled(graph), arrays, (case, dtype))
            checks()


@each_op(is_differentiable)
def test_jvp_is_the_transpose_of_vjp(op: Op, checks: Checks) -> None:
    """⟨c, J t⟩ = ⟨Jᵀ c, t⟩ for the op and for its VJP graph."""
    for case, dtype in finite(op):
        graph, arrays = case.graph(dtype), list(case.draw(dtype))
        cotangents = noise([v.aval for v in graph.outputs], 5)
        for f, at in ((graph, arrays), (vjp(graph), [*arrays, *cotangents])):
            assert_transposed(f, at, (case, dtype))
            checks()


def assert_transposed(graph: Graph, arrays: list[object], about: object) -> None:
    tangents = noise([v.aval for v in graph.inputs], 6)
    cotangents = noise([v.aval for v in graph.outputs], 7)
    pushed = compiled(jvp(graph))(*arrays, *tangents)
    pulled = compiled(vjp(graph))(*arrays, *cotangents)
    forward, backward = inner(cotangents, pushed), inner(pulled, tangents)
    size = magnitude(cotangents, pushed) + magnitude(pulled, tangents)
    assert abs(forward - backward) <= 1e-10 * max(size, 1e-3), f"{about}: {forward} forwards, {backward} backwards"


@each_op(lambda op: not is_differentiable(op) and op.name not in ("assigned", "gamma_drawn"))
def test_no_gradient_is_declared_so(op: Op, checks: Checks) -> None:
    """An op through which nothing flows says it in its declaration: no partials, no rule, or a result of bools."""
    if isinstance(op, Pointwise):
        assert op.result == "bool" or op.accepts == "b" or (op.rule is None and set(op.partials) <= {None}), op
    elif isinstance(op, Reduction):
        assert op.partial is None and op.rule is None, op
    else:
        assert isinstance(op, Opaque) and op.rule is None, op
    checks()
