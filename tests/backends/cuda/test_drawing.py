"""Random words are those of the host, bit for bit; moments of gamma distributions agree with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradtape.backends.cuda import drawing
from gradtape.ops.op import lookup
from tests.backends.cuda.running import on_device
from tests.cuda_emulator.devices import fresh
from tests.op_table.running import results_of


@pytest.mark.parametrize("shape", [(), (1,), (4,), (7,), (3, 1111)])
@pytest.mark.parametrize("state", [(0, 0), (2**64 - 1, 2**63 + 5), (123456789 << 20, 2**32)])
def test_words(state: tuple[int, int], shape: tuple[int, ...]) -> None:
    words = np.array(state, np.uint64)
    (want,) = results_of(lookup("random_bits").bind(shape=shape), [words])
    there, here = on_device(
        [
            lambda cuda: drawing.random_bits(cuda, cuda.array(words), shape),
            lambda cuda: drawing.random_bits(cuda, words, shape),
        ]
    )
    for (found,) in (there, here):
        np.testing.assert_array_equal(found, want)
        assert (found.dtype, found.shape) == (np.uint32, shape)


def test_words_are_written_in_packs_and_nothing_waits() -> None:
    with fresh() as cuda:
        drawing.random_bits(cuda, np.array([1, 2], np.uint64), (10_000,))
        device = cuda.xp.device()
        assert not device.counts.synchronizations
        device.synchronize("count")
        (launch,) = device.counts.launches
        assert sum(t.wide_writes for t in launch.traffic.values()) == 2500


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("order", [0, 3])
def test_moments(dtype: Any, order: int) -> None:
    a, x = np.meshgrid([1.0, 1.5, 30.0, 2000.0], [0.01, 1.0, 29.0, 2500.0])
    a, x = a.astype(dtype), x.astype(dtype)
    (want,) = results_of(lookup("gamma_moment").bind(order=order), [a, x])
    ((found,),) = on_device([lambda cuda: drawing.gamma_moment(cuda, cuda.array(a), cuda.array(x), order)])
    unit = float(np.finfo(dtype).eps)
    limit = 2 * unit if dtype != np.float64 else 1e-12
    np.testing.assert_allclose(found.astype(np.float64), want.astype(np.float64), rtol=limit, atol=unit * 1e-3)
