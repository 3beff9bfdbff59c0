"""Programs: a graph compiled with reuse of buffers gives the bits of the same graph run node by node, every value an
array of its own; also the second time, and with its operands left as they were.

Reuse begins at a size; here that size is 17 bytes, so that the small samples of every op go through it. The graphs
wrap an op so that its operands are the program's own buffers, are needed again after it, and its result may be
written over: an op whose result shares memory with an operand, unknown to the program, fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradtape.backends import formula, program
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, float64, int64
from gradtape.ir.graph import Graph, Value
from gradtape.ops.call import call_step
from gradtape.ops.op import Op, apply, emit
from gradtape.ops.pointwise import Pointwise
from gradtape.transforms.differentiate import vjp
from tests.op_table.cases import CASES, DOUBLE, Case, each_op, sealed
from tests.op_table.running import assert_near, assert_same_bits, compiled, node_by_node, noise, results_of
from tests.op_table.tally import Checks

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but scalars and the smallest arrays (a program need not write to what has no axes)."""
    monkeypatch.setattr(program, "LARGE", 17)


def changed(v: Value) -> Value:
    """The value with another sign: a ufunc, which may write over its operand."""
    if v.aval.dtype.is_bool:
        return emit("logical_not", v)
    return emit("negative", v) if v.aval.dtype.kind in "fci" else v


def wrapped(case: Case, dtype: DType) -> list[Graph]:
    """The op between nodes that own their buffers, with operands used before and after it."""
    graphs = []
    for keep_result, keep_operands in ((False, False), (True, False), (False, True)):
        inputs = [Value(v.aval) for v in case.graph(dtype).inputs]
        owned = [v if v.aval.dtype.is_integer else changed(v) for v in inputs]
        owned = [changed(v) if s.is_hermitian else v for v, s in zip(owned, case.sample.specs, strict=True)]
        results = apply(case.step, owned)
        outputs = [changed(r) for r in results]
        later = [changed(v) for v in owned if v.node is not None]
        again = [changed(v) for v in outputs if v.node is not None]
        kept = [*(results if keep_result else ()), *(owned if keep_operands else ())]
        graphs.append(Graph(inputs, [*again, *later, *kept]))
    return graphs


def has_matrices(graph: Graph) -> bool:
    """Whether an op wants matrices of some structure: LAPACK and BLAS round by where in memory they lie."""
    return any(s.structure for node in graph.nodes for sample in node.step.op.samples for s in sample.specs)


def assert_program_is_exact(graph: Graph, arrays: list[Any], about: object) -> None:
    want = node_by_node(graph, arrays)
    run, loose = compiled(graph), has_matrices(graph)
    for time in ("first", "second"):
        for a, b in zip(run(*arrays), want, strict=True):
            if b.dtype.kind == "c":  # NumPy multiplies them by other code where the result is written over an operand
                assert_near(a, b, (about, time, graph), 1e-14 if not loose else 1e-12)
            elif loose:
                assert_near(a, b, (about, time, graph), 1e-12)
            else:
                assert_same_bits(a, b, (about, time, graph))


@each_op()
def test_an_op_among_others(op: Op, checks: Checks, small_is_large: None) -> None:
    for case in CASES[op.name]:
        for dtype in case.dtypes(DOUBLE):
            for graph in wrapped(case, dtype):
                assert_program_is_exact(graph, case.draw(dtype), (case, dtype))
                checks()


@each_op()
def test_derivatives(op: Op, checks: Checks, small_is_large: None) -> None:
    for case in CASES[op.name]:
        for dtype in case.dtypes(DOUBLE):
            first = vjp(case.graph(dtype))
            for graph in (first, vjp(first)):
                extra = [v.aval for v in graph.inputs[len(case.sample.specs) :]]
                assert_program_is_exact(graph, [*case.draw(dtype), *noise(extra, 10)], (case, dtype))
                checks()


@each_op(lambda op: isinstance(op, Pointwise) and CASES[op.name][0].takes(float64))
def test_arrays_that_are_large(op: Pointwise, checks: Checks) -> None:
    """At the true sizes: reuse of buffers, and formulas in blocks (three of them, the last one short)."""
    shape = (2 * formula.BLOCK // 100 + 7, 100)
    assert np.prod(shape) > 2 * formula.BLOCK and np.prod(shape) * 8 > program.LARGE
    specs = op.samples[0].specs
    count = len(specs)
    for shapes in {(shape,) * count, (shape, *[()] * (count - 1)), (*[()] * (count - 1), shape), (shape[1:],) * count}:
        sample = type(op.samples[0])(tuple(s._replace(shape=n) for s, n in zip(specs, shapes)), op.samples[0].params)
        case = Case(op, sample, "large")
        arrays = case.draw(float64)
        for graph in wrapped(case, float64):
            assert_program_is_exact(graph, arrays, case)
            checks()


@each_op(lambda op: isinstance(op, Pointwise) and op.formula is not None)
def test_formulas_in_blocks(op: Pointwise, checks: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of four elements give what one pass gives."""
    for case in CASES[op.name]:
        for dtype in case.dtypes(DOUBLE):
            arrays = case.draw(dtype)
            (want,) = results_of(case.step, arrays)
            with monkeypatch.context() as patch:
                patch.setattr(formula, "BLOCK", 4)
                (got,) = results_of(case.step, arrays)
            assert got.dtype == want.dtype
            assert_near(got, want, case, 1e-14)
            checks()


def test_results_of_a_call_may_share_memory(small_is_large: None) -> None:
    """A call that returns a value and a view of it: writing over one must leave the other."""
    x = Value(aval((), float64))
    inner = emit("broadcast_to", x, shape=(2, 3))
    made = emit("exp", inner)
    call = call_step(Graph([x], [made, emit("reshape", made, shape=(3, 2))]))
    y = Value(aval((), float64))
    first, second = apply(call, [y])
    assert_call_is_exact(Graph([y], [emit("negative", first), emit("exp", second)]))
    first, second = apply(call, [y])
    assert_call_is_exact(Graph([y], [emit("exp", first), emit("negative", emit("negative", second))]))


def assert_call_is_exact(graph: Graph) -> None:
    assert_program_is_exact(graph, [np.float64(0.5)], "call")


def test_positions_are_not_written_over(small_is_large: None) -> None:
    x = Value(aval((3,), int64))
    moved = emit("add", emit("positions", value=(4, 5, 6)), x)
    assert_program_is_exact(Graph([x], [moved]), [sealed(np.array([1, 2, 3]))], "positions")
