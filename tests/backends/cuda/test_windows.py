"""Windows on the emulated device: images whose rows are packs, equal elements, NaN, bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradtape.backends.cpu import lower
from gradtape.ops.op import lookup
from gradtape.runtime.state import STATE
from tests.backends.cuda.running import on_device
from tests.backends.cuda.test_moves import called, traffic
from tests.backends.cuda.test_samples import assert_near

RNG = np.random.default_rng(11)
Sizes = tuple[int, ...]


def windows(window: Sizes, strides: Sizes, low: Sizes, high: Sizes, dilations: Sizes | None = None) -> dict[str, Sizes]:
    ones = (1,) * len(window)
    return {"window": window, "strides": strides, "dilations": dilations or ones, "low": low, "high": high}


def drawn(shape: Sizes, dtype: Any = np.float32, odd: float = 0.0) -> Any:
    """Few different numbers, so that many are equal; some NaN."""
    x = RNG.integers(-3, 4, shape).astype(dtype)
    if odd:
        x[RNG.random(shape) < odd] = np.nan
    return x


IMAGES: dict[str, tuple[Any, dict[str, Sizes]]] = {
    "side by side": (drawn((2, 16, 16, 8)), windows((2, 2), (2, 2), (0, 0), (0, 0))),
    "overlapping": (drawn((2, 11, 9, 16)), windows((3, 3), (2, 2), (1, 1), (1, 1))),
    "with NaN": (drawn((1, 12, 7, 3), odd=0.2), windows((3, 2), (1, 2), (1, 0), (0, 1))),
    "halves": (drawn((1, 10, 6, 16), np.float16), windows((2, 3), (1, 1), (0, 0), (0, 2), (2, 1))),
    "three axes": (drawn((1, 5, 4, 6, 4)), windows((2, 2, 3), (1, 2, 3), (0, 1, 0), (1, 0, 0))),
    "windows outside": (drawn((1, 3, 4)), windows((2,), (2,), (4,), (4,))),
    "large windows": (drawn((1, 20, 20, 4)), windows((17, 16), (1, 2), (0, 0), (0, 0))),
}


def wanted(name: str, arrays: list[Any], **params: Any) -> Any:
    """By the graph that the op stands for."""
    return np.asarray(STATE.run(lower(lookup(name).bind(**params)), *arrays))


@pytest.mark.parametrize("index", ["32 bits", "64 bits"])
@pytest.mark.parametrize("name", ["max_pool", "avg_pool", "max_pool_pick", "max_pool_input", "avg_pool_input"])
def test_images(name: str, index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if index == "64 bits":
        monkeypatch.setattr("gradtape.kernels.cuda_body.LONG", 1)
    given = []
    for x, p in IMAGES.values():
        results = wanted("max_pool", [x], **p)
        g = drawn(results.shape, x.dtype)
        arrays = {"max_pool_pick": [drawn(x.shape, x.dtype), x], "max_pool_input": [g, x], "avg_pool_input": [g]}
        sizes = {"shape": x.shape[1:-1]} if name.endswith("input") else {}
        given.append((arrays.get(name, [x]), sizes | p))
    found = on_device([called(name, arrays, **p) for arrays, p in given])
    for about, (arrays, p), (a,) in zip(IMAGES, given, found, strict=True):
        assert_near(a, wanted(name, arrays, **p), about)


def test_windows_added_up_in_their_order() -> None:
    """The same bits as on the host."""
    g = RNG.normal(size=(3, 20, 33, 5)).astype(np.float32)
    p = {"axis": 1, "length": 46, "stride": 2, "dilation": 1}
    p["length"] = (20 - 1) * 2 + 5
    ((found,),) = on_device([called("fold", [g], **p)])
    np.testing.assert_array_equal(found, lookup("fold").value(np, g, **p))
    moved, launches = traffic(called("fold", [g], **p))
    assert launches == 1 and moved == g.nbytes + found.nbytes


def test_bytes() -> None:
    """Of windows side by side each element is read once; the chosen ones are a byte for each window."""
    x, p = IMAGES["side by side"]
    for name, launches in (("max_pool", 1), ("avg_pool", 1)):
        assert traffic(called(name, [x], **p)) == (x.nbytes * 5 // 4, launches)
    g = drawn((2, 8, 8, 8))
    moved, launches = traffic(called("max_pool_input", [g, x], shape=(16, 16), **p))
    assert launches == 2
    assert moved <= 1.6 * (2 * x.nbytes + g.nbytes), moved
    moved, launches = traffic(called("avg_pool_input", [g], shape=(16, 16), **p))
    assert launches == 1 and moved == 2 * x.nbytes
