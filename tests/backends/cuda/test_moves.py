"""Kernels that move and combine elements: large operands, odd places, bytes, and what positions outside give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradtape.backends.cuda import moves, scattering
from gradtape.backends.cuda.device import Cuda
from gradtape.ir.errors import InvalidArgumentError
from gradtape.kernels import cuda_scatter
from gradtape.ops.op import lookup
from tests.backends.cuda.running import on_device, placed
from tests.backends.cuda.test_samples import OPS, assert_near
from tests.cuda_emulator.devices import fresh

ROOM = 1.1  # of what has to be read and written at least

RNG = np.random.default_rng(3)


def drawn(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.integers(-8, 9, shape).astype(dtype)


def ids(high: int, *shape: int, dtype: Any = np.int64) -> Any:
    return RNG.integers(0, high, shape).astype(dtype)


def called(name: str, arrays: list[Any], layout: str = "plain", **params: Any) -> Callable[[Cuda], Any]:
    return lambda cuda: OPS[name](cuda, *(placed(cuda, a, layout) for a in arrays), **params)


def wanted(name: str, arrays: list[Any], **params: Any) -> Any:
    """What NumPy gives in the dtype that kernels compute in."""
    half = arrays[0].dtype == np.float16
    wide = [arrays[0].astype(np.float32), *arrays[1:]] if half else arrays
    return np.asarray(lookup(name).value(np, *wide, **params)).astype(arrays[0].dtype)


# ------------------------------------------------------------------ scattering

SCATTERED = {
    "all at one position": ([drawn(5000, 3), np.full(5000, 2)], {"shape": (4, 3), "axis": 0}),
    "packs at one position": ([drawn(3000, 64), np.full(3000, 1)], {"shape": (2, 64), "axis": 0}),
    "wide rows at few": ([drawn(900, 132), ids(3, 900)], {"shape": (3, 132), "axis": 0}),
    "single elements": ([drawn(4000), ids(500, 4000)], {"shape": (500,), "axis": 0}),
    "each position once": ([drawn(600, 8), RNG.permutation(600)], {"shape": (600, 8), "axis": 0}),
    "runs of all lengths": ([drawn(3160, 2), np.repeat(np.arange(80), np.arange(80))], {"shape": (80, 2), "axis": 0}),
    "a middle axis": ([drawn(3, 700, 5), ids(9, 700)], {"shape": (3, 9, 5), "axis": 1}),
    "batches": ([drawn(4, 3, 300, 2), ids(7, 4, 300)], {"shape": (4, 3, 7, 2), "axis": 2, "batch_dims": 1}),
    "halves": ([drawn(2000, 8, dtype=np.float16), ids(2, 2000, dtype=np.int32)], {"shape": (2, 8), "axis": 0}),
}


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few elements make as many chunks as they can."""
    monkeypatch.setattr(cuda_scatter, "ENOUGH", 1 << 30)


@pytest.mark.parametrize("layout", ["plain", "shifted"])
@pytest.mark.parametrize("name", ["scatter_add", "scatter_max", "scatter_min"])
def test_scattering(short_chunks: None, name: str, layout: str) -> None:
    """Rows of one chunk, of two, of a few and of many, in packs and one by one; the same bits in any order."""
    given = []
    for arrays, params in SCATTERED.values():
        p = {"batch_dims": 0} | params
        if name != "scatter_add":
            p = {"size": p["shape"][p["axis"]], "axis": p["axis"], "batch_dims": p["batch_dims"]}
        given.append((arrays, p))
    calls = [called(name, arrays, layout, **p) for arrays, p in given]
    first, second = on_device(calls, 1), on_device(calls, 2)
    for about, (arrays, p), (a,), (b,) in zip(SCATTERED, given, first, second, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=about)
        assert_near(a, wanted(name, arrays, **p), about)


def test_sums_are_the_same_in_any_order_of_threads(short_chunks: None) -> None:
    x = RNG.normal(size=(2000, 8)).astype(np.float32)
    where = np.sort(ids(9, 2000)) % 4
    call = called("scatter_add", [x, where], shape=(4, 8), axis=0, batch_dims=0)
    found = [on_device([call], seed)[0][0] for seed in (1, 2, 3)]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    exact = np.zeros((4, 8))
    np.add.at(exact, where, x.astype(np.float64))
    np.testing.assert_allclose(found[0], exact, rtol=1e-5, atol=1e-4)


# ------------------------------------------------------------------ positions that do not exist


def test_positions_outside_are_left_out() -> None:
    x, where = drawn(4, 3), np.array([1, -1, 4, 3])
    inside = (where >= 0) & (where < 4)
    calls = [
        called("gather", [x, where], axis=0, batch_dims=0),
        called("scatter_add", [x, where], shape=(4, 3), axis=0, batch_dims=0),
        called("scatter_max", [x, where], size=4, axis=0, batch_dims=0),
    ]
    (gathered,), (added,), (largest,) = on_device(calls)
    np.testing.assert_array_equal(gathered, np.where(inside[:, None], x[where % 4], 0))
    some = [x[inside], where[inside]]
    np.testing.assert_array_equal(added, wanted("scatter_add", some, shape=(4, 3), axis=0, batch_dims=0))
    np.testing.assert_array_equal(largest, wanted("scatter_max", some, size=4, axis=0, batch_dims=0))


def test_positions_of_the_host_that_do_not_exist_are_refused() -> None:
    """They can be looked at without waiting."""
    x, where = drawn(4, 3), np.array([1, 4])
    with fresh() as cuda:
        rows = cuda.array(x)
        for run in (
            lambda: moves.gather(cuda, rows, where, axis=0, batch_dims=0),
            lambda: scattering.scatter_add(cuda, rows[:2], where, shape=(4, 3), axis=0, batch_dims=0),
            lambda: scattering.OPS["scatter_max"](cuda, rows[:2], where, size=4, axis=0, batch_dims=0),
        ):
            with pytest.raises(InvalidArgumentError, match=r"index 4 is not in \[0, 4\)"):
                run()


def test_slices_whose_beginning_is_on_the_device() -> None:
    """What lies outside is zero; so is what `unslice` does not reach."""
    x, begin = drawn(5, 4, 3), np.array([3, 2])
    cut = {"axes": (0, 2), "sizes": (2, 3), "strides": (1, -1)}
    far = called("slice", [x, np.array([4, 0])], **cut)
    back = {"axes": (0, 2), "sizes": (9, 6), "strides": (1, -1)}
    near, put_back = called("slice", [x, begin], **cut), called("unslice", [x, begin], **back)
    (inside,), (outside,), (put,) = on_device([near, far, put_back])
    np.testing.assert_array_equal(inside, x[3:5, :, 2::-1])
    expected = np.zeros((2, 4, 3), np.float32)
    expected[0, :, 0] = x[4, :, 0]
    np.testing.assert_array_equal(outside, expected)
    np.testing.assert_array_equal(put, wanted("unslice", [x, begin], **back))


# ------------------------------------------------------------------ many operands, places of 64 bits


def test_more_arrays_than_one_kernel_joins() -> None:
    parts = [drawn(3, n, 2) for n in (1, 4, 2, 0, 3, 1, 1, 2, 5, 1, 2)]
    with fresh() as cuda:
        found = moves.concat(cuda, *(cuda.array(p) for p in parts), axis=1)
        np.testing.assert_array_equal(cuda.host(found), np.concatenate(parts, axis=1))
        assert len(cuda.xp.device().counts.launches) == 2


LARGE: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "pad": ("pad", [drawn(20, 30, 64)], {"low": (1, 2, 0), "high": (0, 1, 0)}),
    "pad of odd rows": ("pad", [drawn(300, 121)], {"low": (0, 3), "high": (1, 2)}),
    "concat": ("concat", [drawn(200, 60), drawn(200, 40), drawn(200, 100)], {"axis": 1}),
    "undiagonal": ("undiagonal", [drawn(3, 150)], {}),
    "gather of rows": ("gather", [drawn(500, 128), ids(500, 300)], {"axis": 0, "batch_dims": 0}),
    "gather of short rows": ("gather", [drawn(500, 12), ids(500, 3000, dtype=np.int32)], {"axis": 0, "batch_dims": 0}),
    "gather of elements": ("gather", [drawn(20, 500), ids(500, 20, 300)], {"axis": 1, "batch_dims": 1}),
}


@pytest.mark.parametrize("index", ["32 bits", "64 bits"])
def test_large_operands(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if index == "64 bits":
        monkeypatch.setattr("gradtape.kernels.cuda_body.LONG", 1)
    results = on_device([called(name, arrays, **p) for name, arrays, p in LARGE.values()])
    for about, (name, arrays, p), (found,) in zip(LARGE, LARGE.values(), results, strict=True):
        np.testing.assert_array_equal(found, lookup(name).value(np, *arrays, **p), err_msg=about)


# ------------------------------------------------------------------ bytes


def traffic(call: Callable[[Cuda], Any]) -> tuple[int, int]:
    """Bytes that the kernels of a call moved, and the number of launches."""
    with fresh() as cuda:
        cuda.host(call(cuda))
        launches = cuda.xp.device().counts.launches
        return sum(x.bytes_moved for x in launches), len(launches)


@pytest.mark.parametrize("about", LARGE)
def test_bytes(about: str) -> None:
    name, arrays, p = LARGE[about]
    result = lookup(name).value(np, *arrays, **p)
    least = result.nbytes + sum(a.nbytes for a in arrays)
    if name == "gather":
        least = 2 * result.nbytes + arrays[1].nbytes
    moved, launches = traffic(called(name, arrays, **p))
    assert launches == 1
    assert 0.99 * least <= moved <= ROOM * least, moved / least


@pytest.mark.parametrize("about", ["packs at one position", "wide rows at few", "single elements"])
def test_bytes_of_sums(about: str) -> None:
    """Slices once, keys written and read, a part for each chunk, and the result."""
    arrays, p = SCATTERED[about]
    at = arrays[1].size
    moved, launches = traffic(called("scatter_add", arrays, batch_dims=0, **p))
    least = arrays[0].nbytes + 3 * 8 * at + int(np.prod(p["shape"])) * 4
    assert launches == 3
    assert moved <= 1.4 * least, moved / least
