"""What cuBLAS is asked for: one call for a batch of products, operands where they lie, sums carried as switches say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends.cuda.blas import FLOAT32, FLOAT64, MATH, TF32
from gradtape.runtime.devices import DEVICES
from tests.backends.cuda.test_launches import drawn
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.device import Counts

SIZES, BATCH, COMPUTE = slice(3, 6), 20, 21  # among the arguments of `cublasGemmStridedBatchedEx`
MANY = 70_000  # more than one axis of a grid takes


class Noted:
    """The library, and what it was asked for: (m, n, k), the batch, and how sums are carried."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.calls: list[tuple[tuple[int, ...], int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, name)

    def cublasGemmStridedBatchedEx(self, *arguments: Any) -> int:
        self.calls.append((arguments[SIZES], arguments[BATCH], arguments[COMPUTE]))
        status: int = self.library.cublasGemmStridedBatchedEx(*arguments)
        return status


@pytest.fixture
def noted(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> Noted:
    assert DEVICES.device is not None
    blas = DEVICES.device.cuda.blas
    made = Noted(blas.library)
    monkeypatch.setattr(blas, "library", made)
    return made


def slope(x: Any, w: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch([x, w])
        y = tf.tanh(x @ w)
    return tape.gradient(y, [x, w])


PRODUCTS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "matmul": (1, lambda x: x @ x),
    "einsum": (1, lambda x: tf.einsum("ab,cb->ac", x, x)),
    "a product and its gradients": (3, lambda x: slope(x, x * x)),
    "a traced function": (1, tf.function(lambda x: tf.tensordot(x, x, 1), jit_compile=False)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_switch_of_tf32_says_how_sums_of_float32_are_carried(name: str, noted: Noted) -> None:
    count, product = PRODUCTS[name]
    switch = tf.config.experimental.enable_tensor_float_32_execution
    x = drawn(6, 6)
    try:
        for enabled, compute in ((True, TF32), (False, FLOAT32), (True, TF32)):
            switch(enabled)
            assert tf.config.experimental.tensor_float_32_execution_enabled() is enabled
            noted.calls.clear()
            product(x)
            assert [c for _, _, c in noted.calls] == [compute] * count
    finally:
        switch(False)


@pytest.mark.parametrize("tf32", [True, False])
@pytest.mark.parametrize(
    "dtype, plain",
    [
        (tf.float32, None),
        (tf.complex64, None),
        (tf.float16, FLOAT32),
        (tf.bfloat16, FLOAT32),
        (tf.float64, FLOAT64),
        (tf.complex128, FLOAT64),
    ],
    ids=str,
)
def test_sums_of_every_dtype(
    dtype: Any, plain: int | None, tf32: bool, noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of halves are carried in float32, and doubles are not touched by the switch."""
    monkeypatch.setattr(MATH, "tf32", tf32)
    x = tf.cast(drawn(3, 4), dtype)
    tf.matmul(x, x, transpose_b=True)
    ((_, _, compute),) = noted.calls
    assert compute == (plain or (TF32 if tf32 else FLOAT32))


BATCHES: dict[str, tuple[tuple[tuple[int, ...], tuple[int, ...]], Callable[[Any, Any], Any], int]] = {
    "a batch": (((MANY, 2, 3), (MANY, 3, 2)), lambda a, b: a @ b, MANY),
    "both transposed": (((MANY, 3, 2), (MANY, 2, 3)), lambda a, b: tf.matmul(a, b, True, True), MANY),
    "turned views": (
        ((40, 3, 2), (40, 2, 3)),
        lambda a, b: tf.transpose(a, [0, 2, 1]) @ tf.transpose(b, [0, 2, 1]),
        40,
    ),
    "slices": (((9, 5, 8), (9, 8, 6)), lambda a, b: a[:, 1:, 2:] @ b[:, 2:, :4], 9),
    "one matrix for all": (((MANY, 2, 3), (3, 2)), lambda a, b: a @ b, 1),
    "two axes": (((5, 4, 2, 3), (5, 4, 3, 2)), lambda a, b: a @ b, 20),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_one_call(name: str, noted: Noted, counts: Counts) -> None:
    """However many products there are, and nothing is copied before."""
    shapes, product, batch = BATCHES[name]
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in shapes)
    given = tf.constant(a), tf.constant(b)
    cupy_stand_in.device().synchronize("operands")
    counts.clear()
    found = product(*given)
    assert [n for _, n, _ in noted.calls] == [batch]
    assert len(counts.library_calls) == 1 and not counts.synchronizations, counts.library_calls
    with tf.device("/CPU:0"):
        wanted = product(tf.constant(a), tf.constant(b)).numpy()
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)
    assert not counts.launches


def test_what_sums_over_nothing_asks_for_nothing(noted: Noted) -> None:
    found = tf.zeros([3, 0]) @ tf.zeros([0, 4])
    assert not noted.calls and np.array_equal(found.numpy(), np.zeros((3, 4)))
    assert (tf.zeros([0, 3]) @ tf.zeros([3, 4])).shape == (0, 4) and not noted.calls
