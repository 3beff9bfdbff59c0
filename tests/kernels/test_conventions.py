"""What functions of single elements give at zeros, infinities, NaN and other places is what the op table gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gradtape.backends.cpu import lower
from gradtape.ops.op import lookup
from gradtape.runtime.state import STATE
from tests.kernels import compiled
from tests.kernels.test_accuracy import BOUNDS

INF, NAN = float("inf"), float("nan")
# The sign of a zero is not a matter of the op: the larger of 0.0 and -0.0.
ANY_ZERO = {"maximum", "minimum"}


def special(dtype: str) -> list[float]:
    limits = np.finfo(dtype)
    sizes = [
        0.0,
        limits.smallest_subnormal,
        limits.smallest_normal,
        0.3,
        0.5,
        1.0,
        1.5,
        2.0,
        3.0,
        100.0,
        1e10,
        limits.max,
    ]
    return [sign * float(x) for x in [*sizes, INF] for sign in (1, -1)] + [NAN]


def operands(name: str, dtype: str) -> list[np.ndarray]:
    """Every combination of the places."""
    form = compiled.form_of(name)
    known = {"bool": [False, True], "int": [0, 1, -1, 2, 7, -(2**31), 2**31 - 1]}
    values = known.get(dtype.rstrip("3264")) or special(dtype)
    lists = [values] * form.operands
    if form.condition:
        lists[0] = [False, True]
    columns = list(zip(*itertools.product(*lists), strict=True))
    dtypes = [dtype] * form.operands
    if form.condition:
        dtypes[0] = "bool"
    return [np.array(column, d) for column, d in zip(columns, dtypes, strict=True)]


@pytest.mark.parametrize("name, dtype", compiled.cases("fib"))
def test_special_values(name: str, dtype: str) -> None:
    columns = operands(name, dtype)
    compared = ~(np.abs(columns[0]) > compiled.form_of(name).limit) | np.isinf(columns[0])
    columns = [x[compared] for x in columns]
    got = compiled.run(name, *columns)
    want = STATE.run(lower(lookup(name).bind()), *columns)
    assert want.dtype == got.dtype
    right = agree(got, want, name) if got.dtype.kind == "f" else got == want
    faults = [(tuple(map(float, xs)), g, w) for *xs, g, w, r in zip(*columns, got, want, right, strict=True) if not r]
    assert not faults, f"`{name}` of {faults[0][0]} is {faults[0][1]}, not {faults[0][2]}"


def agree(got: np.ndarray, want: np.ndarray, name: str) -> np.ndarray:
    """The same infinities and zeros, with their signs, and NaN in the same places. Numbers are equal where the op is
    rounded correctly; that of others is another test's matter."""
    signs = (np.signbit(got) == np.signbit(want)) | (name in ANY_ZERO)
    with np.errstate(all="ignore"):
        near = (
            np.abs(got - want) <= 16 * np.finfo(got.dtype).eps * np.abs(want) + np.finfo(got.dtype).smallest_subnormal
        )
    numbers = near & (want != 0) & np.isfinite(want) if name in BOUNDS else np.zeros(got.shape, bool)
    return (np.isnan(got) & np.isnan(want)) | ((got == want) & signs) | numbers


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_of_negative_numbers(dtype: str) -> None:
    y = np.array([3, 2, -3, 0.5, 2**24 - 1, 2**24, 2.0**53, 1e30, -1, 0], dtype)
    x = np.full(y.shape, -1.0, dtype)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(compiled.run("pow", x, y), np.power(x, y))
        np.testing.assert_allclose(compiled.run("pow", 2 * x, y), np.power(2 * x, y))


@pytest.mark.parametrize("name, x", [("exp", -100.0), ("sigmoid", -100.0), ("erfc", 9.5), ("softplus", -95.0)])
def test_subnormal_results(name: str, x: float) -> None:
    """Results between the smallest normal number and 0 are numbers."""
    places = np.linspace(x, x * 1.001, 100).astype("float32")
    got = compiled.run(name, places)
    want = STATE.run(lower(lookup(name).bind()), places.astype("float64"))
    tiny = np.finfo("float32")
    assert (want < tiny.smallest_normal).all() and (want > 2 * tiny.smallest_subnormal).all()
    np.testing.assert_allclose(got, want, atol=2 * tiny.smallest_subnormal, rtol=0)
