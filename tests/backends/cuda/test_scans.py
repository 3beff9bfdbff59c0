"""Running sums of every length: rows of a few threads, of a warp, of a block, in parts; columns, whole or in parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gradtape.backends.cuda.device import Cuda
from gradtape.backends.cuda.scans import OPS
from gradtape.ir.dtypes import float32
from gradtape.kernels import cuda_body
from gradtape.kernels.cuda_scans import STAGES, scan
from gradtape.ops.op import lookup
from tests.backends.cuda.running import on_device, texts_of
from tests.cuda_emulator.devices import fresh
from tests.op_table.running import assert_near, results_of

# Of a warp's parts, a warp with several rounds, a block, a block with a rest, in parts; columns, and those in parts.
SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((70, 3), 1),
    ((5, 64), 1),
    ((520, 140), 1),
    ((3, 1024), 1),
    ((2, 1501), 1),
    ((2, 9003), 1),
    ((4, 7, 5), 1),
    ((3, 1001, 2), 1),
]


def drawn(op: str, shape: tuple[int, ...], dtype: Any = np.float32) -> list[Any]:
    rng = np.random.default_rng(len(shape))
    count = 2 if op.startswith("logsumexps") else 1
    draws = [rng.uniform(-1, 1, shape) for _ in range(count)]
    if op == "cumprod":
        draws = [np.exp(0.1 * d) for d in draws]
    return [d.astype(dtype) for d in draws]


def params(op: str, axis: int, reverse: bool) -> dict[str, Any]:
    own = {"exclusive": reverse} if op == "cumsum" else {}
    return {"axis": axis, "reverse": reverse, **own}


def call(op: str, arrays: list[Any], given: dict[str, Any]) -> Callable[[Cuda], Any]:
    return lambda cuda: OPS[op](cuda, *map(cuda.array, arrays), **given)


def wanted(op: str, arrays: list[Any], given: dict[str, Any]) -> Any:
    """In double precision: sums of many numbers on the host have larger errors than those of the device."""
    wide = [a.astype(np.float64) for a in arrays]
    return results_of(lookup(op).bind(**given), wide)[0]


@pytest.mark.parametrize("op", STAGES)
def test_every_length(op: str) -> None:
    runs = [(drawn(op, s), params(op, axis, back)) for s, axis in SHAPES for back in (False, True)]
    for (arrays, given), (found,) in zip(runs, on_device([call(op, *r) for r in runs]), strict=True):
        assert found.dtype == np.float32
        assert_near(found, wanted(op, arrays, given), (op, arrays[0].shape, given), 1e-5)


@pytest.mark.parametrize("op", STAGES)
def test_halves_are_rounded_once(op: str) -> None:
    runs = [(drawn(op, s, dtype), params(op, 1, False)) for s in ((4, 600), (3, 9, 4)) for dtype in HALVES]
    for (arrays, given), (found,) in zip(runs, on_device([call(op, *r) for r in runs]), strict=True):
        unit = float(ml_dtypes.finfo(found.dtype).eps)
        want = wanted(op, arrays, given)
        assert found.dtype == arrays[0].dtype
        assert np.all(np.abs(found.astype(np.float64) - want) <= 0.51 * unit * np.abs(want) + 1e-5)


HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def test_integers_wrap() -> None:
    arrays = [np.full((2, 3000), 100, np.int8)]
    given = params("cumsum", 1, False)
    ((found,),) = on_device([call("cumsum", arrays, given)])
    np.testing.assert_array_equal(found, np.cumsum(arrays[0], axis=1, dtype=np.int8))


@pytest.mark.parametrize("op", [o for o in STAGES if "exp" in o])
def test_infinite_exponents(op: str) -> None:
    rows = np.array(
        [
            [-np.inf, -np.inf, 1, 2],
            [1, -np.inf, 3, -np.inf],
            [0, np.inf, 1, 2],
            [np.inf, np.inf, 1, 0],
            [1, np.nan, 0, 1],
        ],
        np.float32,
    )
    arrays = [rows, *drawn(op, rows.shape)[1:]]
    for back in (False, True):
        given = params(op, 1, back)
        ((found,), (columns,)) = on_device(
            [call(op, arrays, given), call(op, [a.T for a in arrays], given | {"axis": 0})]
        )
        with np.errstate(all="ignore"):
            want = wanted(op, arrays, given)
        assert_near(found, want, given, 1e-6)
        assert_near(columns.T, want, given, 1e-6)


@pytest.mark.parametrize("op", STAGES)
def test_the_same_bits_in_any_order_of_threads(op: str) -> None:
    arrays = drawn(op, (2, 9003))
    first, second = (on_device([call(op, arrays, params(op, 1, False))], seed) for seed in (1, 2))
    np.testing.assert_array_equal(first[0][0], second[0][0])


def test_what_is_read_and_written() -> None:
    """A row that a block has at once is read once; one in parts is read twice, and so is a column."""
    for shape, passes, launches in (((64, 1024), 1, 1), ((2, 40_000), 2, 2), ((50, 30, 8), 1, 1)):
        arrays = drawn("cumsum", shape)
        texts = texts_of(call("cumsum", arrays, params("cumsum", 1, False)))
        with fresh() as cuda:
            cuda.compile(texts)
            OPS["cumsum"](cuda, cuda.array(arrays[0]), **params("cumsum", 1, False))
            device = cuda.xp.device()
            device.synchronize("count")
            counted = device.counts.launches
            assert len(counted) == launches
            assert sum(x.bytes_moved for x in counted) <= 1.02 * (passes + 1) * arrays[0].nbytes
            wide = sum(t.wide_reads for x in counted for t in x.traffic.values())
            assert bool(wide) == (len(shape) == 2)
            assert not device.counts.library_calls


def test_texts_depend_on_size_classes_and_nothing_is_launched_for_nothing() -> None:
    first, second = (scan("cumsum", float32, (n, 1000), 1, False) for n in (700, 900))
    assert first.texts == second.texts and first != second
    assert scan("cumsum", float32, (3, 0), 1, False).launches == ()
    assert scan("logsumexps_pull", float32, (0, 3), 1, False).texts == ()


def test_places_of_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_body, "LONG", 1)
    runs = [(drawn("cumsum", s), params("cumsum", axis, False)) for s, axis in ((SHAPES[5]), SHAPES[7])]
    assert all("const int64 n" in t for t in texts_of(lambda cuda: [call("cumsum", *r)(cuda) for r in runs]))
    for (arrays, given), (found,) in zip(runs, on_device([call("cumsum", *r) for r in runs]), strict=True):
        assert_near(found, wanted("cumsum", arrays, given), given, 1e-5)
