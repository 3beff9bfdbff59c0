"""Functions of complex numbers on the emulated device: infinities, NaN and the signs of zeros, also on branch cuts, are
NumPy's, and all other numbers are near."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradtape.ir.aval import aval_of
from gradtape.ir.dtypes import DType, complex64, complex128
from gradtape.ir.graph import Graph, Value
from gradtape.kernels.cuda_spelling import spells_cuda
from gradtape.ops.op import emit
from gradtape.ops.pointwise import Pointwise
from gradtape.transforms.fuse import fuse
from tests.kernels.cuda.running import Emulated
from tests.kernels.cuda.table import held
from tests.op_table.running import node_by_node

BOTH = pytest.mark.parametrize("dtype", [complex64, complex128], ids=lambda d: d.name)
ULPS = 6
# Where the largest numbers meet, which part of a product is infinite, and what is left of two equal ones, is as the
# processor adds.
PRODUCTS = frozenset({"square", "asin_slope", "acosh_slope"})
FUNCTIONS = [
    op.name
    for op in held()
    if isinstance(op, Pointwise)
    and (len(op.operands), op.result) == (1, "same")
    and "c" in op.accepts
    and not op.samples[0].params
    and op.name not in PRODUCTS
]


@pytest.fixture(scope="module")
def emulated() -> Emulated:
    return Emulated()


def results(emulated: Emulated, names: list[str], *arrays: Any) -> tuple[list[Any], list[Any]]:
    """What the device and the host make of operands, for each op; all in one kernel."""
    inputs = [Value(aval_of(a)) for a in arrays]
    graph = Graph(inputs, [emit(name, *inputs) for name in names])
    with np.errstate(all="ignore"):
        return emulated.graph(fuse(graph, spells_cuda, 1, siblings=True), arrays), node_by_node(graph, arrays)


def joined(re: Any, im: Any, dtype: DType) -> Any:
    z = np.empty(np.broadcast_shapes(np.shape(re), np.shape(im)), dtype.numpy_dtype)
    z.real, z.imag = re, im
    return z.ravel()


def odd(dtype: DType) -> Any:
    """All pairs of parts that are likely to be forgotten."""
    limits = np.finfo(dtype.numpy_dtype)
    ends = [limits.max, limits.tiny, limits.smallest_subnormal, limits.eps, 1 + limits.eps, 1 - limits.epsneg]
    sizes = [0.0, 0.5, 1.0, 2.5, 100.0, 1000.0, np.inf, *map(float, ends)]
    parts = np.array([*sizes, *(-x for x in sizes), np.nan])
    return joined(parts[:, None], parts[None, :], dtype)


def drawn(dtype: DType, count: int) -> Any:
    """Numbers of all sizes, some of them near the unit circle, some near 1, -1, i and -i."""
    rng = np.random.default_rng(0)
    most = np.finfo(dtype.numpy_dtype).maxexp - 4

    def part() -> Any:
        size = np.choose(
            rng.integers(0, 3, count), [rng.integers(-4, 5, count), *(rng.integers(-k, k, count) for k in (30, most))]
        )
        return rng.standard_normal(count) * 2.0**size

    def small(n: int) -> Any:
        return 2.0 ** -rng.integers(1, 50, n)

    z = joined(part(), part(), dtype)
    circle, points = np.split(rng.permutation(count)[: count // 2], 2)
    z[circle] = np.exp(1j * rng.uniform(0, 2 * np.pi, circle.size)) * (
        1 + rng.standard_normal(circle.size) * small(circle.size)
    )
    near = rng.standard_normal(points.size) + 1j * rng.standard_normal(points.size)
    z[points] = (1 + near * small(points.size)) * rng.choice([1, -1, 1j, -1j], points.size)
    return z


def differences(found: Any, wanted: Any) -> Any:
    """Where one part is NaN, infinite or a zero of some sign and the other is not; signs beside NaN are open."""
    bad = np.zeros(found.shape, bool)
    for one, other in (("real", "imag"), ("imag", "real")):
        a, b = getattr(found, one), getattr(wanted, one)
        signs = np.signbit(a) != np.signbit(b)
        kind = (np.isnan(a) != np.isnan(b)) | (np.isinf(a) != np.isinf(b))
        signed = (np.isinf(b) | ((a == 0) & (b == 0))) & signs & ~np.isnan(getattr(wanted, other))
        bad |= kind | (signed & ~np.isnan(b))
    return bad


def error(found: Any, wanted: Any) -> Any:
    """In units in the last place of the number, where both are finite."""
    limits = np.finfo(wanted.dtype)
    known = np.isfinite(found) & np.isfinite(wanted)
    unit = np.maximum(limits.eps * np.abs(wanted, where=known, out=np.ones(found.shape)), limits.smallest_subnormal)
    return np.where(known, np.abs(np.subtract(found, wanted, where=known, out=np.zeros_like(found))) / unit, 0)


@BOTH
def test_odd_numbers(emulated: Emulated, dtype: DType) -> None:
    z = odd(dtype)
    for name, found, wanted in zip(FUNCTIONS, *results(emulated, FUNCTIONS, z), strict=True):
        (bad,) = np.nonzero(differences(found, wanted) | (error(found, wanted) > ULPS))
        assert not bad.size, f"{name} of {z[bad[:5]]} gives {found[bad[:5]]}, wants {wanted[bad[:5]]}"


@BOTH
def test_numbers_of_all_sizes(emulated: Emulated, dtype: DType) -> None:
    z = drawn(dtype, 20_000)
    for name, found, wanted in zip(FUNCTIONS, *results(emulated, FUNCTIONS, z), strict=True):
        worst = int(np.argmax(error(found, wanted)))
        assert error(found, wanted)[worst] <= ULPS, f"{name} of {z[worst]} gives {found[worst]}, wants {wanted[worst]}"


@BOTH
def test_powers(emulated: Emulated, dtype: DType) -> None:
    """Whole ones by products; of others the error grows with that of y log(x), of which it is the exponential."""
    rng = np.random.default_rng(0)
    x = drawn(dtype, 20_000)
    x = x[np.abs(np.log2(np.abs(x))) < 20]
    y = joined(rng.uniform(-3, 3, x.size), rng.uniform(-3, 3, x.size), dtype)
    y[::3] = rng.integers(-9, 10, x.size)[::3]
    (found,), (wanted,) = results(emulated, ["pow"], x, y)
    grown = np.maximum(1, np.maximum(np.abs(y), np.abs(y * np.log(x))))
    assert np.max(error(found, wanted) / grown) <= ULPS


@BOTH
def test_powers_of_odd_numbers(emulated: Emulated, dtype: DType) -> None:
    x = odd(dtype)
    x = x[~np.isnan(x)]
    y = np.array([0, 1, 2, 3, -1, -2, 7, 50, 0.5, -0.5, 1j, -1j, 1 + 1j], dtype.numpy_dtype)
    x, y = (a.ravel() for a in np.meshgrid(x, y))
    (found,), (wanted,) = results(emulated, ["pow"], x, y)
    (bad,) = np.nonzero(differences(found, wanted))
    assert not bad.size, f"{x[bad[:5]]} ** {y[bad[:5]]} gives {found[bad[:5]]}, wants {wanted[bad[:5]]}"
