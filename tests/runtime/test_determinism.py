"""Determinism: chance is refused by name, nothing is computed otherwise until something is ready, and whatever order
threads and blocks run in on a device, results have the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.api import generators
from gradtape.api.seeds import SEEDS
from gradtape.backends import clusters
from gradtape.backends.cuda.blas import WORKSPACE
from gradtape.ir.determinism import DETERMINISM
from gradtape.kernels.outer import _outer
from gradtape.runtime import update
from gradtape.runtime.devices import DEVICES
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.cublas import Cublas
from tests.cuda_emulator.devices import emulated

r = tf.random


@pytest.fixture(autouse=True)
def required(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(DETERMINISM, "required", False)
    monkeypatch.setattr(generators, "_global", [])
    tf.config.experimental.enable_op_determinism()
    SEEDS.reset(None)
    yield
    SEEDS.reset(None)


CHANCE: dict[str, Callable[[], Any]] = {
    "normal": lambda: r.normal([2]),
    "uniform": lambda: r.uniform([2], 0, 5, tf.int32),
    "truncated_normal": lambda: r.truncated_normal([2]),
    "shuffle": lambda: r.shuffle([1, 2, 3]),
    "dropout": lambda: tf.nn.dropout(tf.ones([3]), 0.5),
    "a traced function": tf.function(lambda: r.normal([2])),
    "initializer": lambda: tf.keras.initializers.GlorotUniform()([2, 2]),
}


@pytest.mark.parametrize("name", CHANCE)
def test_random_numbers_want_a_seed(name: str) -> None:
    call = CHANCE[name]
    with pytest.raises(RuntimeError, match=r"require a seed to be set when determinism.*set_seed"):
        call()
    r.set_seed(1)
    first = call().numpy()
    r.set_seed(1)
    assert np.array_equal(call().numpy(), first)


def test_seeds_of_their_own_are_enough() -> None:
    assert r.normal([2], seed=3).shape == (2,) and r.stateless_normal([2], [1, 2]).shape == (2,)


def test_generators_of_chance_are_refused() -> None:
    for call in (r.Generator.from_non_deterministic_state, r.get_global_generator):
        with pytest.raises(RuntimeError, match=f"`{call.__name__}` cannot be called .*determinism is enabled"):
            call()
    r.set_global_generator(r.Generator.from_seed(1))
    assert r.get_global_generator().normal([2]).shape == (2,)


@pytest.mark.host("kernels of the host")
def test_kernels_are_there_before_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters.POLICY, "compile", "background")
    made: list[clusters.FusedKernel] = []
    plain = clusters.FusedKernel._look
    monkeypatch.setattr(clusters.FusedKernel, "_look", lambda self: (plain(self), made.append(self))[0])

    @tf.function
    def f(x: Any) -> Any:
        return tf.exp(tf.sin(x) * x) + tf.tanh(x)

    f(tf.constant(np.linspace(0, 1, 5000, dtype=np.float32)))
    assert made and all(k.native is not None for k in made)
    assert _outer.soon(np.float32) is not None


@pytest.mark.host("kernels of the host")
def test_updates_have_their_kernel_from_the_first_step_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters.POLICY, "asked", "background")
    monkeypatch.setattr(update, "_updates", {})
    v = tf.Variable(np.ones(update.COMPILED_FROM, np.float32))
    tf.keras.optimizers.Adam().apply([tf.ones([update.COMPILED_FROM])], [v])
    assert update._updates and all(u.kernel.native is not None for u in update._updates.values())


def test_products_have_memory_of_their_own_on_each_stream() -> None:
    with cupy_stand_in.using_device():
        cuda = emulated()
        library: Cublas = cuda.blas.library
        streams = [cupy_stand_in.cuda.Stream(non_blocking=True) for _ in range(2)]
        for stream in (*streams, streams[0]):
            with stream:
                cuda.blas._handle()
            (handle,) = library._handles.values()
            assert handle.workspace == WORKSPACE
        assert len({w.data.ptr for w in cuda.blas.own.workspaces.values()}) == 2
        DETERMINISM.required = False
        with streams[0]:
            cuda.blas._handle()
        assert handle.workspace == 0


def test_a_step_has_the_same_bits_in_whatever_order_threads_run() -> None:
    rng = np.random.default_rng(0)
    words, labels = rng.integers(0, 5, [40, 3]), rng.integers(0, 4, [40])

    def run(seed: int) -> list[Any]:
        before = DEVICES.device
        with cupy_stand_in.using_device(seed=seed):
            DEVICES.use(emulated())
            try:
                tf.random.set_seed(7)
                table, kernel = tf.Variable(r.normal([5, 8])), tf.Variable(r.normal([8, 4]))
                with tf.GradientTape() as tape:
                    x = tf.nn.dropout(tf.reduce_mean(tf.gather(table, words), 1), 0.2)
                    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x @ kernel))
                gradients = tape.gradient(loss, [table, kernel])
                return [loss.numpy(), *(tf.convert_to_tensor(g).numpy() for g in gradients)]
            finally:
                DEVICES.use(None if before is None else before.cuda)

    for a, b in zip(run(1), run(2), strict=True):
        assert np.array_equal(a, b) and np.any(a != 0)
