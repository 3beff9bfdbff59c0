"""Assembled terms on the emulated device against a loop over their letters; launches, bytes, and what meets."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gradtape.backends.cuda.assembling import assemble
from gradtape.backends.cuda.device import Cuda
from gradtape.ir.dtypes import DType, bool_, complex64, float16, float32, int32
from gradtape.ir.index import Index
from gradtape.ops.placement import Place, Product
from tests.backends.cuda.running import on_device, placed
from tests.backends.cuda.test_samples import assert_near
from tests.backends.test_assembling import any_terms, by_loop
from tests.cuda_emulator.devices import fresh

ROOM = 1.1
RNG = np.random.default_rng(5)


def drawn(dtype: DType, *shape: int) -> Any:
    values = RNG.integers(-3, 4, shape)
    return (values > 0 if dtype.is_bool else values).astype(dtype.numpy_dtype)


def programs(count: int, seed: int) -> Iterator[tuple[dict[str, Any], list[Any], list[Any]]]:
    """Parameters, factors and vectors of random steps."""
    r = random.Random(seed)
    for _ in range(count):
        shape, terms, shapes, vectors = any_terms(r)
        dtype = r.choice([float32, float32, int32, complex64, float16])
        factors = [drawn(dtype, *s) for s in shapes]
        yield {"shape": shape, "dtype": dtype, "terms": tuple(terms)}, factors, vectors


def called(p: dict[str, Any], operands: list[Any], layout: str = "plain") -> Callable[[Cuda], Any]:
    return lambda cuda: assemble(cuda, *(placed(cuda, a, layout) for a in operands), **p)


@pytest.mark.parametrize("seed", range(3))
def test_random_terms(seed: int) -> None:
    """Parts that are even, by index, met by others, and positions that are known now or late."""
    given = list(programs(40, seed))
    results = on_device(
        [called(p, [*f, *v], "shifted" if k % 3 else "plain") for k, (p, f, v) in enumerate(given)], seed
    )
    for (p, factors, vectors), (found,) in zip(given, results, strict=True):
        wanted = by_loop(p["shape"], list(p["terms"]), factors, vectors)
        assert_near(found, wanted.astype(p["dtype"].numpy_dtype), p)


def test_truth_values() -> None:
    """Products are true where all factors are, sums where one term is."""
    a, b = drawn(bool_, 4), drawn(bool_, 3)
    terms = (
        Product((4, 3), ((0,), (1,)), ((Place(0, None, 4),), (Place(1, None, 3),))),
        Product((3,), ((0,),), ((Place(0, None, 4),), (Place(0, None, 3),))),
    )
    ((found,),) = on_device([called({"shape": (4, 3), "dtype": None, "terms": terms}, [a, b, b])])
    wanted = a[:, None] & b
    wanted[np.arange(3), np.arange(3)] |= b
    np.testing.assert_array_equal(found, wanted)


def test_positions_outside_are_left_out() -> None:
    """Late positions, alone and beside others of the same letter."""
    x, where = drawn(float32, 4), np.array([2, -1, 5, 0])
    inside = (where >= 0) & (where < 5)
    single = (Product((4,), ((0,),), ((Place(0, 0, 5),),)),)
    double = (Product((4,), ((0,),), ((Place(0, None, 4),), (Place(0, 0, 5),))),)
    (one,), (two,) = on_device(
        [
            called({"shape": (5,), "dtype": None, "terms": single}, [x, where]),
            called({"shape": (4, 5), "dtype": None, "terms": double}, [x, where]),
        ]
    )
    wanted = np.zeros((4, 5), np.float32)
    wanted[np.flatnonzero(inside), where[inside]] = x[inside]
    np.testing.assert_array_equal(two, wanted)
    np.testing.assert_array_equal(one, wanted.sum(0))


# ------------------------------------------------------------------ launches and bytes


def axes(*places: tuple[int, int]) -> tuple[tuple[Place, ...], ...]:
    """Axes with a letter each, at all its positions."""
    return tuple((Place(c, None, n),) for c, n in places)


B, H, OUT = 24, 32, 20
JACOBIANS: dict[str, tuple[dict[str, Any], list[tuple[int, ...]], int]] = {
    "a product over all": (
        {
            "shape": (B, OUT, B, H),
            "terms": (Product((B, OUT, H), ((0, 1, 2),), axes((0, B), (1, OUT), (0, B), (2, H))),),
        },
        [(B, OUT, H)],
        1,
    ),
    "a kernel's": (
        {
            "shape": (B, OUT, H, 24),
            "terms": (Product((B, OUT, H, 24), ((0, 2), (0, 1, 3)), axes((0, B), (1, OUT), (2, H), (3, 24))),),
        },
        [(B, H), (B, OUT, 24)],
        1,
    ),
    "diagonal and all": (
        {
            "shape": (300, 300),
            "terms": (
                Product((300,), ((0,),), axes((0, 300), (0, 300))),
                Product((300, 300), ((0,), (1,)), axes((0, 300), (1, 300))),
            ),
        },
        [(300,), (300,), (300,)],
        2,
    ),
}


@pytest.mark.parametrize("about", JACOBIANS)
def test_each_part_is_written_once(about: str) -> None:
    params, shapes, launches = JACOBIANS[about]
    arrays = [drawn(float32, *s) for s in shapes]
    with fresh() as cuda:
        found = cuda.host(assemble(cuda, *map(cuda.array, arrays), dtype=None, **params))
        counted = cuda.xp.device().counts.launches
    wanted = by_loop(params["shape"], list(params["terms"]), arrays, []) if found.size < 1e5 else None
    assert wanted is None or np.array_equal(found, wanted)
    sizes = [int(np.prod(t.sizes)) * 4 for t in params["terms"]]
    least = sum(a.nbytes for a in arrays) + sum(sizes) + sum(sorted(sizes)[:-1])
    traffic = [t for x in counted for t in x.traffic.values()]
    assert len(counted) == launches
    assert sum(t.bytes_written for t in traffic) == sum(sizes)
    once = sum(t.unique_bytes_read + t.unique_bytes_written for t in traffic)
    assert once <= ROOM * least, once / least


def test_positions_known_now_are_sorted_once() -> None:
    """Repeated positions: two calls sort nothing on the device."""
    where = Index(RNG.integers(0, 6, 50))
    term = Product((50, 8), ((0, 1),), ((Place(0, where, 6),), (Place(1, None, 8),)))
    x = drawn(float32, 50, 8)
    with fresh() as cuda:
        for _ in range(2):
            found = cuda.host(assemble(cuda, cuda.array(x), shape=(6, 8), dtype=None, terms=(term,)))
        assert "sort" not in cuda.xp.device().counts.library_calls
    np.testing.assert_array_equal(found, by_loop((6, 8), [term], [x], []))
