"""Memory: operands that are views give what contiguous copies of them give, in value and in gradient, and are left as
they are.

All operands of the suite are read-only, so a kernel that writes to one fails in every test; here they are also laid
out in other orders. Results may differ in the last place, because NumPy sums and multiplies views in another order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradtape.ir.dtypes import DType
from gradtape.ops.op import Op
from gradtape.transforms.differentiate import vjp
from tests.op_table.cases import CASES, DOUBLE, Case, each_op
from tests.op_table.running import assert_near, compiled, noise, results_of
from tests.op_table.tally import Checks

pytestmark = pytest.mark.filterwarnings("error")


def column_major(a: Any) -> Any:
    return np.asarray(a, order="F")


def every_other(a: Any) -> Any:
    """A view that skips elements along every axis; what it skips is NaN, or large."""
    filler = np.nan if a.dtype.kind in "fc" else (a.dtype.type(1) if a.dtype.kind == "b" else 99)
    wide = np.full([2 * n + 1 for n in a.shape], filler, a.dtype)
    view = wide[(..., *[slice(1, None, 2)] * a.ndim)]
    view[...] = a
    return view


def backwards(a: Any) -> Any:
    """A view with negative strides."""
    back = (slice(None, None, -1),) * a.ndim
    return np.array(a[back], order="C")[back]


def one_number(a: Any) -> Any:
    """A view without strides: the first element everywhere."""
    return np.broadcast_to(np.asarray(a).ravel()[:1].reshape(()), a.shape) if a.size else a


def with_no_axes_as_arrays(a: Any) -> Any:
    """Arrays without axes where the runtime passes array scalars."""
    return np.asarray(a)


LAYOUTS: tuple[Callable[[Any], Any], ...] = (column_major, every_other, backwards, one_number, with_no_axes_as_arrays)


def laid_out(layout: Callable[[Any], Any], arrays: list[Any]) -> list[Any]:
    views = [np.asarray(layout(np.asarray(a))) for a in arrays]
    for view in views:
        view.flags.writeable = False
    return views


def contiguous(arrays: list[Any]) -> list[Any]:
    return [np.ascontiguousarray(a).reshape(a.shape)[()] for a in arrays]


def in_each_dtype(op: Op) -> list[tuple[Case, DType]]:
    return [(case, dtype) for case in CASES[op.name] for dtype in case.dtypes(DOUBLE)[:2]]


def assert_results_near(got: Any, want: Any, about: object) -> None:
    assert len(got) == len(want), about
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype, f"{about}: {a.dtype}, contiguous {b.dtype}"
        assert_near(a, b, about, 1e-12)


def layouts_of(case: Case) -> Any:
    """All layouts; those alone that keep the elements, where a structure is asked of them."""
    asked = any(s.structure not in ("", "general") for s in case.sample.specs)
    return [layout for layout in LAYOUTS if layout is not one_number] if asked else LAYOUTS


@each_op()
def test_values_of_views(op: Op, checks: Checks) -> None:
    for case, dtype in in_each_dtype(op):
        for layout in layouts_of(case):
            views = laid_out(layout, case.draw(dtype))
            got = results_of(case.step, views)
            assert_results_near(got, results_of(case.step, contiguous(views)), (case, dtype, layout.__name__))
            checks()


@each_op()
def test_gradients_at_views(op: Op, checks: Checks) -> None:
    for case, dtype in in_each_dtype(op):
        graph = vjp(case.graph(dtype))
        program = compiled(graph)
        cotangents = noise([v.aval for v in case.graph(dtype).outputs], 8)
        for layout in layouts_of(case):
            views = laid_out(layout, [*case.draw(dtype), *cotangents])
            got = program(*views)
            assert_results_near(got, program(*contiguous(views)), (case, dtype, layout.__name__))
            checks()
