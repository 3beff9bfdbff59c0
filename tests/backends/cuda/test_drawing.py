"""Random words and integers are those of the host, bit for bit; numbers that are drawn by rejection accept the same
proposals; moments of gamma distributions agree with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gradtape as tf
from gradtape.backends.cuda import drawing
from gradtape.backends.cuda.table import OPS
from gradtape.ir import dtypes
from gradtape.ops.op import lookup
from tests.backends.cuda.running import on_device
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.device import Counts
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


STATE = np.array([2**63 + 11, 5 << 40], np.uint64)
ALPHAS = [0.0, np.nan, np.inf, -1.0, 1e-3, 0.3, 0.999, 1.0, 2.5, 100.0, 1e5]
RATES = [0.0, np.nan, np.inf, -1.0, 1e-3, 1.0, 9.99, 10.0, 12.0, 300.0, 1e7]
DRAWS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "signed integers": ("random_integers", [], {"shape": (7, 13), "low": -5, "span": 11, "dtype": dtypes.int64}),
    "half of all words": (
        "random_integers",
        [],
        {"shape": (501,), "low": -(2**63), "span": 2**63 + 1, "dtype": dtypes.int64},
    ),
    "bytes": ("random_integers", [], {"shape": (1001,), "low": -128, "span": 256, "dtype": dtypes.int8}),
    "all words": ("random_integers", [], {"shape": (5,), "low": 0, "span": 2**64, "dtype": dtypes.uint64}),
    **{
        f"truncated normal {dtype.name}": ("random_truncated_normal", [], {"shape": (400,), "dtype": dtype})
        for dtype in (dtypes.float64, dtypes.float32, dtypes.float16, dtypes.bfloat16)
    },
    **{
        f"gamma {dtype.name}": ("random_gamma", [np.array(ALPHAS).astype(dtype.numpy_dtype)], {"shape": (40, 11)})
        for dtype in (dtypes.float64, dtypes.float32, dtypes.bfloat16)
    },
    **{
        f"Poisson {dtype.name}": ("random_poisson", [np.array(RATES)], {"shape": (40, 11), "dtype": dtype})
        for dtype in (dtypes.float64, dtypes.float32, dtypes.int32)
    },
    "Poisson of whole rates": ("random_poisson", [np.array([3, 40])], {"shape": (30, 2), "dtype": dtypes.int64}),
}


def test_draws() -> None:
    """Where another proposal were accepted, the number would be quite another one."""
    found = on_device(
        [
            lambda cuda, name=name, given=given, params=params: OPS[name](
                cuda, *map(cuda.array, [STATE, *given]), **params
            )
            for name, given, params in DRAWS.values()
        ]
    )
    for (about, (name, given, params)), (got,) in zip(DRAWS.items(), found, strict=True):
        (want,) = results_of(lookup(name).bind(**params), [STATE, *given])
        assert (got.dtype, got.shape) == (want.dtype, want.shape), about
        if want.dtype.kind in "iu":
            np.testing.assert_array_equal(got, want, about)
        else:
            step = float(ml_dtypes.finfo(want.dtype).eps)
            np.testing.assert_allclose(
                got.astype(np.float64), want.astype(np.float64), 2e-14 if step < 1e-9 else step, 1e-15, err_msg=about
            )


CALLS: dict[str, Callable[[], Any]] = {
    "truncated_normal": lambda: tf.random.truncated_normal([100]),
    "integers": lambda: tf.random.uniform([100], 0, 7, tf.int32),
    "gamma": lambda: tf.random.gamma([50], [0.5, 2.0]),
    "poisson": lambda: tf.random.poisson([50], [0.5, 20.0]),
    "categorical": lambda: tf.random.categorical(tf.ones([4, 30]), 9),
    "shuffle": lambda: tf.random.shuffle(tf.ones([100, 3])),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_draw_on_the_device_and_wait_for_nothing(name: str, counts: Counts) -> None:
    call = CALLS[name]
    tf.random.set_seed(3)
    with tf.device("/CPU:0"):
        want = call()
    tf.random.set_seed(3)
    got, traced = call(), tf.function(call)()
    assert "GPU" in got.device and not counts.synchronizations
    assert (traced.shape, traced.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)


NO_ELEMENTS: dict[str, Callable[[], Any]] = {
    "normal": lambda: tf.random.normal([3, 0]),
    "truncated_normal": lambda: tf.random.truncated_normal([0]),
    "integers": lambda: tf.random.uniform([0, 7], 0, 7, tf.int32),
    "gamma": lambda: tf.random.gamma([0], [0.5, 2.0]),
    "poisson": lambda: tf.random.poisson([0], [0.5, 20.0]),
    "sort": lambda: tf.sort(tf.zeros([3, 0])),
}


@pytest.mark.parametrize("name", NO_ELEMENTS)
def test_nothing_is_launched_for_what_has_no_elements(name: str, counts: Counts) -> None:
    tf.random.set_seed(3)
    with tf.device("/GPU:0"):
        found = NO_ELEMENTS[name]()
    cupy_stand_in.device().synchronize("count")
    assert found.numpy().size == 0 and "GPU" in found.device
    assert not counts.launches and not set(counts.library_calls) - {"copy", "fill"}, counts


def test_generators_and_seeds_on_the_device_go_on_there(counts: Counts) -> None:
    """Nothing waits and nothing is copied, in traced functions neither, and their numbers are those of the host."""
    with tf.device("/CPU:0"):
        host, seed = tf.random.Generator.from_seed(3), tf.random.split([1, 2], 3)
        want = [host.normal([5]).numpy() for _ in range(3)]
        other = tf.random.stateless_normal([5], seed[1]).numpy()
    generator = tf.random.Generator.from_seed(3)
    f = tf.function(lambda g: g.normal([5]), jit_compile=False)
    first = tf.random.Generator.from_seed(1)
    first.normal([5]), f(first)  # numbers of the host are copied once
    counts.clear()
    found = [generator.normal([5]), f(generator), generator.normal([5])]
    assert not counts.synchronizations and not counts.copies_to_device
    with tf.device("/GPU:0"):
        there = tf.random.stateless_normal([5], tf.identity(seed[1]) + 0)
    assert not counts.synchronizations
    for a, b in zip([*found, there], [*want, other], strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-5)


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
