"""Checks of values: one truth value comes from the device, and the elements only where one of them is bad."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gradtape as tf
from gradtape.backends.cuda.checking import all_finite
from tests.backends.cuda.running import on_device
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.device import Counts

DTYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64, np.complex128)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_each_element_is_looked_at(bad: float) -> None:
    cases: list[tuple[Any, bool]] = []
    for dtype in DTYPES:
        for shape in ((), (1,), (3, 7), (2, 0), *([(70_001,)] if dtype is np.float32 else [])):
            good = np.ones(shape, dtype)
            cases.append((good, True))
            for place in {0, good.size // 2, good.size - 1} if good.size else ():
                one = good.reshape(-1).copy()
                one[place] = complex(1, bad) if np.iscomplexobj(one) else bad
                cases.append((one.reshape(shape), False))
    cases.append((np.full((4, 6), np.nan, np.float32)[:, ::7], False))
    found = on_device([lambda cuda, a=a: cuda.array(np.array(all_finite(cuda, cuda.array(a)))) for a, _ in cases])
    for (a, want), (got,) in zip(cases, found, strict=True):
        assert bool(got) is want, (a.dtype, a.shape)


def test_one_byte_is_read(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    x = tf.constant(np.ones([300], np.float32))
    sizes: list[int] = []
    read = cupy_stand_in.asnumpy
    monkeypatch.setattr(cupy_stand_in, "asnumpy", lambda a: (sizes.append(a.nbytes), read(a))[1])
    assert tf.debugging.check_numerics(x, "x")._array is x._array
    assert sizes == [1] and len(counts.launches) == 1
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"x : Tensor had NaN values: 300 of 300, first nan at \[0\]"
    ):
        tf.debugging.check_numerics(x * np.nan, "x")
    assert sizes == [1, 1, 1200]


def test_every_op_watched_copies_nothing_that_is_good(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    x = tf.constant(np.ones([300], np.float32))
    sizes: list[int] = []
    read = cupy_stand_in.asnumpy
    monkeypatch.setattr(cupy_stand_in, "asnumpy", lambda a: (sizes.append(a.nbytes), read(a))[1])
    tf.debugging.enable_check_numerics()
    try:
        y = tf.exp(x) + 1.0
        assert set(sizes) == {1} and y.shape == (300,)
        with pytest.raises(tf.errors.InvalidArgumentError, match="of op `log`"):
            tf.math.log(x - 1.0)
    finally:
        tf.debugging.disable_check_numerics()
