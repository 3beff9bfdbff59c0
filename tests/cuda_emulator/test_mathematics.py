"""The functions that the emulator gives to kernels, against NumPy and mpmath."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import mpmath
import numpy as np
import pytest

from tests.cuda_emulator.device import Device

Unary = Callable[[str, np.ndarray], np.ndarray]

# Name in CUDA (of the double), points, reference.
BY_MPMATH: dict[str, tuple[list[float], Callable[[mpmath.mpf], mpmath.mpf]]] = {
    "erfinv": ([0.0, 1e-300, 1e-8, -0.3, 0.5, 0.9, -0.999999, 1 - 2**-50], mpmath.erfinv),
    "erfcinv": ([1e-300, 1e-20, 0.1, 0.5, 1.0, 1.4, 1.9, 2 - 2**-40], lambda x: mpmath.erfinv(1 - x)),
    "normcdfinv": ([1e-200, 1e-5, 0.25, 0.5, 0.7, 1 - 2**-40], lambda x: mpmath.sqrt(2) * mpmath.erfinv(2 * x - 1)),
    "normcdf": ([-30.0, -3.0, -0.1, 0.0, 2.0, 9.0], mpmath.ncdf),
    "erfcx": ([-3.0, 0.0, 0.7, 5.0, 12.0], lambda x: mpmath.exp(x * x) * mpmath.erfc(x)),
    "cyl_bessel_i0": ([0.0, 1e-9, -2.5, 8.0, 90.0], lambda x: mpmath.besseli(0, x)),
    "cyl_bessel_i1": ([0.0, 1e-9, -2.5, 8.0, 90.0], lambda x: mpmath.besseli(1, x)),
    "sinpi": ([0.0, 0.1, -0.5, 0.75, 1.0, -1.3, 1e6 + 0.25, 2.0**60], mpmath.sinpi),
    "cospi": ([0.0, 0.1, -0.5, 0.75, 1.0, -1.3, 1e6 + 0.25, 2.0**60], mpmath.cospi),
    "rsqrt": ([1e-300, 0.3, 2.0, 1e300], lambda x: 1 / mpmath.sqrt(x)),
    "rcbrt": ([1e-300, 0.3, 8.0], lambda x: 1 / mpmath.cbrt(x)),
    "exp10": ([-300.0, -1.5, 0.0, 2.0, 20.0], lambda x: mpmath.mpf(10) ** x),
}


BY_NUMPY = ["exp", "log", "sqrt", "sin", "cos", "tanh", "expm1", "log1p", "fabs", "floor", "rint"]
CONVERSIONS = ["__float2int_rn", "__float2int_rz", "__float2int_rd", "__float2int_ru", "__float2ll_rz"]
TYPES = {"float": np.float32, "double": np.float64, "int": np.int32, "long long": np.int64}


def kernels() -> Iterator[tuple[str, str, str, str]]:
    """A name, the function, and its two types, for all that is tested here."""
    for name in (*BY_MPMATH, *BY_NUMPY):
        yield name, name, "double", "double"
        yield f"{name}_of_float", name, "float", "float"
        yield f"{name}f", f"{name}f", "float", "float"
    for name in CONVERSIONS:
        yield name.strip("_"), name, "float", "long long" if "2ll" in name else "int"


@pytest.fixture(scope="module")
def unary() -> Unary:
    """Runs a kernel by its name."""
    device = Device()
    results = {name: TYPES[result] for name, _, _, result in kernels()}
    text = "\n".join(
        f'extern "C" __global__ void k_{name}(const {given}* x, {result}* out) '
        f"{{ out[threadIdx.x] = {function}(x[threadIdx.x]); }}"
        for name, function, given, result in kernels()
    )
    module = device.module(text)

    def run(name: str, x: np.ndarray) -> np.ndarray:
        dtype = np.dtype(results[name])
        out = device.alloc(dtype.itemsize * x.size)
        module.get_function(f"k_{name}")((1,), (x.size,), (device.alloc(x.nbytes).copy_from(x), out))
        return out.to_numpy(dtype)

    return run


@pytest.mark.parametrize("name", BY_MPMATH)
def test_what_the_host_lacks(unary: Unary, name: str) -> None:
    points, reference = BY_MPMATH[name]
    with mpmath.workdps(400):  # 1 - 1e-300 must not be 1
        wanted = np.array([float(reference(mpmath.mpf(x))) for x in points])
    assert np.allclose(unary(name, np.array(points)), wanted, rtol=2e-13, atol=0)
    with np.errstate(over="ignore", under="ignore"):
        single = np.array(points, np.float32)
    # Points that float32 has, and results that are neither subnormal nor too large.
    inside = (single.astype(float) == points) & (np.abs(wanted) < 3e38) & (np.abs(wanted) > 1e-37)
    assert inside.any()
    for spelling in (f"{name}f", f"{name}_of_float"):
        assert np.allclose(unary(spelling, single)[inside], wanted[inside], rtol=1.2e-7, atol=0)


def test_edges_of_inverse_functions(unary: Unary) -> None:
    x = np.array([-1.0, 1.0, 1.5, np.nan])
    assert np.array_equal(unary("erfinv", x), [-np.inf, np.inf, np.nan, np.nan], equal_nan=True)
    x = np.array([0.0, 2.0, -0.5, np.nan])
    assert np.array_equal(unary("erfcinv", x), [np.inf, -np.inf, np.nan, np.nan], equal_nan=True)


@pytest.mark.parametrize("name", BY_NUMPY)
def test_one_name_for_both_precisions(unary: Unary, name: str) -> None:
    reference = getattr(np, name)
    x = np.linspace(0.1, 4, 40)
    assert np.allclose(unary(name, x), reference(x), rtol=1e-15, atol=0)
    single = x.astype(np.float32)
    for spelling in (f"{name}f", f"{name}_of_float"):
        assert np.allclose(unary(spelling, single), reference(single.astype(float)), rtol=1.2e-7, atol=0)


def test_conversions_saturate(unary: Unary) -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 3e9, -3e9, np.nan, np.inf, -np.inf], np.float32)
    most, least = 2**31 - 1, -(2**31)
    ends = [most, least, 0, most, least]
    assert unary("float2int_rn", x).tolist() == [0, 2, 2, 0, -2, *ends]
    assert unary("float2int_rz", x).tolist() == [0, 1, 2, 0, -1, *ends]
    assert unary("float2int_rd", x).tolist() == [0, 1, 2, -1, -2, *ends]
    assert unary("float2int_ru", x).tolist() == [1, 2, 3, 0, -1, *ends]
    assert unary("float2ll_rz", x[:6]).tolist() == [0, 1, 2, 0, -1, 3_000_000_000]
