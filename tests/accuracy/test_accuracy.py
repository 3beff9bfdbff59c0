"""Every pointwise op keeps its declared accuracy on a fixed sample, and the page of the manual has a row for each.

The sample is a small one of the kind that `tools/accuracy.py` draws: all magnitudes, subnormal and huge numbers, and
the neighbourhoods of zeros, poles and branch points. It finds an approximation used outside its interval, digits that
cancel, an argument that is rounded before something steep, and a dtype whose constants are too short."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gradtape.ir.dtypes import DType, float32, float64
from gradtape.ops import coefficients
from gradtape.ops.accuracy import BOUNDS, Bound, bound_of
from gradtape.ops.op import all_ops
from gradtape.ops.pointwise import Pointwise
from tests.op_table.scalar_reference import MP
from tools import accuracy, fit_special

POINTS = 100
OPS = accuracy.measured_ops()


@pytest.mark.parametrize("op", OPS, ids=[op.name for op in OPS])
def test_worst_error_is_within_the_bound(op: Pointwise) -> None:
    bound = bound_of(op.name)
    for dtype, allowed in ((float32, bound.single), (float64, bound.double)):
        found = accuracy.measure(op, dtype, POINTS, seed=1)
        assert found.count >= POINTS // 2, f"only {found.count} numbers have a value in {dtype}"
        assert found.ulps <= allowed, f"`{op.name}` of {found.at} in {dtype} is off by {found.ulps:.2f} ulp"


def test_bounds_above_the_rule_have_a_reason() -> None:
    rule = Bound()
    names = {op.name for op in all_ops()}
    for name, bound in BOUNDS.items():
        assert name in names, name
        assert bound != rule, f"`{name}` needs no entry"
        if bound.single > rule.single or bound.double > rule.double or bound.floor:
            assert len(bound.reason.split()) > 5, f"`{name}` does not say why"


def test_the_page_has_every_op() -> None:
    text = accuracy.PAGE.read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert listed == [op.name for op in OPS], "run `python tools/accuracy.py`"
    assert all(f"`{name}` (" in text for name in accuracy.UNMEASURED)


def test_the_page_keeps_the_bounds() -> None:
    """The figures of the page, which come from a larger sample, are within the bounds that it shows."""
    text = accuracy.PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \| .*? \| ([\d.]+) / ([\d.]+) \|", text, re.MULTILINE)
    assert len(rows) == len(OPS)
    for name, single, double, *bounds in rows:
        bound = bound_of(name)
        assert [float(b) for b in bounds] == [bound.single, bound.double], name
        assert float(single) <= bound.single, name
        assert float(double) <= bound.double, name


def test_what_is_not_measured_is_an_op() -> None:
    assert set(accuracy.UNMEASURED) <= {op.name for op in all_ops()}


def test_coefficients_are_those_of_the_fits() -> None:
    """Names and degrees; the numbers are made by the same program."""
    for fit in fit_special.FITS:
        found = getattr(coefficients, fit.name)
        assert (len(found.p) - 1, len(found.q) - 1) == fit.degrees, fit.name
    written = {name for name, value in vars(coefficients).items() if isinstance(value, coefficients.Ratio)}
    assert written == {fit.name for fit in fit_special.FITS}


@pytest.mark.parametrize("name", ["ERF", "DIGAMMA_FAR", "BESSEL_I0"])
def test_coefficients_can_be_made_again(name: str) -> None:
    fit = next(f for f in fit_special.FITS if f.name == name)
    for made, written in zip(fit_special.interpolate(fit), getattr(coefficients, name), strict=True):
        assert [float(c) for c in made] == list(written)


@pytest.mark.parametrize("dtype", [float32, float64])
def test_errors_are_counted_in_units_in_the_last_place(dtype: DType) -> None:
    """The ruler itself: neighbours of numbers are one unit away, also where the units change."""
    kind = dtype.numpy_dtype
    for x in (1.5, 1.0, -3.0, float(np.finfo(kind).smallest_subnormal) * 5):
        up = np.nextafter(kind.type(x), kind.type(np.inf))
        assert accuracy.ulps(float(up), MP.mpf(x), kind, 0.0) == 1.0
        assert accuracy.ulps(x, MP.mpf(x), kind, 0.0) == 0.0
    large = MP.mpf(2) ** 2000
    assert accuracy.ulps(float("inf"), large, kind, 0.0) == 0.0
    assert accuracy.ulps(1.0, large, kind, 0.0) == float("inf")
    assert accuracy.ulps(float("nan"), MP.mpf(1), kind, 0.0) == float("inf")
    assert accuracy.ulps(1e-3, MP.mpf(0), kind, 1.0) == pytest.approx(1e-3 / float(np.finfo(kind).eps))
