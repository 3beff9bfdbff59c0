"""The pool of large arrays: what comes back, what is dropped, and arrays that end at any moment."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends import clusters, memory
from gradtape.kernels import memory as host

FLOATS = np.dtype(np.float32)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> host.Pool:
    monkeypatch.setattr(host, "LARGE", 64)
    monkeypatch.setattr(host, "POOL", host.Pool(4096))
    return host.POOL


def test_memory_comes_back_with_the_last_view(pool: host.Pool) -> None:
    a = memory.empty((10, 10), FLOATS)
    where, view = a.ctypes.data, a[3:5]
    del a
    assert pool.bytes == 0
    del view
    assert pool.bytes == 400
    again = memory.empty((90,), FLOATS)  # a little smaller
    assert again.ctypes.data == where and pool.hits == 1
    assert memory.empty((10,), FLOATS).ctypes.data != where


def test_small_arrays_are_not_pooled(pool: host.Pool) -> None:
    assert memory.empty((3,), FLOATS).base is None
    assert memory.zeros((3,), FLOATS, None).sum() == 0
    assert not pool.free


def test_the_oldest_blocks_are_dropped(pool: host.Pool) -> None:
    arrays = [memory.empty((n,), np.dtype(np.uint8)) for n in (1000, 1500, 1600, 5000)]
    while arrays:
        arrays.pop(0)
    assert [block.nbytes for block, _ in pool.free] == [1500, 1600] and pool.bytes == 3100
    pool.clear()
    assert pool.bytes == 0


def test_an_array_that_ends_while_the_pool_is_asked_comes_back_later(pool: host.Pool) -> None:
    """As when garbage is collected, or a signal handled, while the lock is held."""
    a = memory.empty((100,), FLOATS)
    with pool.lock:
        del a
    assert not pool.free
    memory.empty((100,), FLOATS)
    assert pool.hits == 1


def resident() -> int:
    """Bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(host.TRIMMER is None, reason="this C library is not GNU's and has no `malloc_trim`")
def test_what_the_c_library_keeps_goes_back() -> None:
    """Once it has seen a large block end, it keeps blocks of that size, unless it had twice as much already."""
    host.trim()
    for size in (24, 20):
        np.ones(size << 20, np.uint8)
    held = resident()
    host.trim()
    assert held - resident() > 15 << 20


def test_a_large_kernel_gives_back_what_op_by_op_took(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(clusters, "trim", lambda: asked.append(1))
    monkeypatch.setattr(clusters.POLICY, "compile", "now")
    f = tf.function(lambda x: tf.reduce_sum(tf.tanh(x) * tf.exp(x)))
    f(tf.ones([100, 3]))
    assert not asked
    for _ in range(2):
        f(tf.ones([1 << 9, 1 << 9]))
    assert len(asked) == 1
