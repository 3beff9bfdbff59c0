"""Functions of single elements against mpmath: the worst error on a sample of all magnitudes, of subnormal and huge
numbers and of the places where something happens; and that the loop's own fast-math flags do not harm them."""

from __future__ import annotations

import numpy as np
import pytest

from gradtape.ir.dtypes import DType, float32, float64
from gradtape.ops.op import lookup
from gradtape.ops.pointwise import Pointwise
from tests.kernels import compiled
from tools import accuracy, fit_vector_math

POINTS = 900
LARGEST = 4.0  # units in the last place, of every function in both dtypes

# The worst error of the functions that are not rounded correctly, in units in the last place, with some room. What all
# others give is compared with NumPy's, bit for bit, beside this.
BOUNDS: dict[str, float] = {
    "acos": 1.2,
    "acosh": 2.6,
    "asin": 0.9,
    "asinh": 2.1,
    "atan": 1.7,
    "atan2": 1.9,
    "atanh": 2.2,
    "cos": 1.1,
    "cosh": 1.8,
    "erf": 1.2,
    "erfc": 3.7,
    "exp": 1.1,
    "expm1": 2.2,
    "gelu": 3.7,
    "log": 0.9,
    "log1p": 1.2,
    "ndtr": 4.0,
    "pow": 1.4,
    "rsqrt": 1.6,
    "sigmoid": 2.5,
    "silu": 3.0,
    "sin": 0.9,
    "sinh": 1.9,
    "softplus": 1.8,
    "tan": 2.3,
    "tanh": 2.8,
}


def pointwise(name: str) -> Pointwise:
    op = lookup(name)
    assert isinstance(op, Pointwise)
    return op


def drawn(op: Pointwise, dtype: DType, count: int) -> list[np.ndarray]:
    """Operands, of which the first third of a pair is such that the result of a power is a number."""
    columns = accuracy.operands(op, dtype.numpy_dtype, count)
    if op.name == "pow":
        x, y = columns
        part, rng = slice(0, x.size // 3), np.random.default_rng(1)
        largest = float(np.log(np.finfo(x.dtype).max))
        with np.errstate(all="ignore"):
            y[part] = rng.uniform(-1.05 * largest, largest, x[part].size) / np.log(np.abs(x[part].astype("float64")))
    return columns


def worst(name: str, dtype: DType, count: int, flags: frozenset[str]) -> tuple[float, tuple[float, ...], int]:
    """The largest error of an op, where it is, and how many numbers were compared."""
    op, kind = pointwise(name), dtype.numpy_dtype
    columns = drawn(op, dtype, count)
    inside = np.abs(columns[0]) <= compiled.form_of(name).limit
    columns = [x[inside] for x in columns]
    largest, at, compared = 0.0, tuple(float("nan") for _ in columns), 0
    for got, xs in zip(compiled.run(name, *columns, flags=flags), zip(*columns, strict=True), strict=True):
        numbers = tuple(float(x) for x in xs)
        want = accuracy.exact(op, numbers)
        if want is None:
            continue
        compared += 1
        error = accuracy.ulps(float(got), want, kind, 0.0)
        if error > largest:
            largest, at = error, numbers
    return largest, at, compared


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_worst_error(name: str, dtype: DType) -> None:
    error, at, compared = worst(name, dtype, POINTS, compiled.CONTRACT)
    assert compared >= POINTS // 4, f"only {compared} numbers have a value"
    assert error <= BOUNDS[name], f"`{name}` of {at} in {dtype} is off by {error:.2f} ulp"


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("name", ["pow", "sin", "log1p", "erfc", "expm1", "asin"])
def test_flags_of_the_loop_change_nothing(name: str, dtype: DType) -> None:
    """Sums that may be reordered are asked for by flags of the whole loop; errors of rounding must survive them."""
    flags = frozenset({"contract", "reassoc", "arcp", "nsz"})
    error, at, _ = worst(name, dtype, 200, flags)
    assert error <= BOUNDS[name], f"`{name}` of {at} in {dtype} is off by {error:.2f} ulp"


def test_all_bounds_are_small() -> None:
    assert max(BOUNDS.values()) <= LARGEST


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_operands_beyond_the_limit(name: str, dtype: str) -> None:
    """The other form is right everywhere, and `is_beyond` says where it is needed."""
    limit = compiled.form_of(name).limit
    x = np.array([0.5, limit, -limit, limit * 1.5, -limit * 1e6, 1e22, -3e38, np.inf, np.nan], dtype)
    with np.errstate(invalid="ignore"):
        want = getattr(np, name)(x.astype("float64"))
    got = compiled.run(f"{name}_anywhere", x)
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype).eps)
    beyond = compiled.run("is_beyond", x)
    assert beyond.tolist() == [False, False, False, True, True, True, True, False, False]
    np.testing.assert_array_equal(compiled.run(name, x)[~beyond], got[~beyond])


@pytest.mark.parametrize("name", ["EXP", "LOG", "ATAN"])
def test_coefficients_can_be_made_again(name: str) -> None:
    from gradtape.kernels import vector_coefficients

    fit = next(f for f in fit_vector_math.FITS if f.name == name)
    for kind in fit.targets:
        written = getattr(vector_coefficients, f"{name}_{kind.upper()}")
        assert tuple(fit_vector_math.lowest(fit, kind)[0]) == written


def test_coefficients_are_those_of_the_fits() -> None:
    from gradtape.kernels import vector_coefficients

    made = {f"{fit.name}_{kind.upper()}" for fit in fit_vector_math.FITS for kind in fit.targets}
    written = {name for name, value in vars(vector_coefficients).items() if isinstance(value, tuple)}
    assert written == made | set(fit_vector_math.constants())
