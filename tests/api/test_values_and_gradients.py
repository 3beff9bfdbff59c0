"""Every public function of the tables: its value by NumPy, its gradient by differences, whatever it is called with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.api import elementwise_calls, layout_calls, product_calls, reduction_calls, special_calls, window_calls
from tests.api.calls import Call, flat, is_real
from tests.devices import SESSION

TABLE = [
    c
    for module in (elementwise_calls, special_calls, reduction_calls, layout_calls, product_calls, window_calls)
    for c in module.CALLS
]


def numbers(result: Any) -> list[Any]:
    return [np.asarray(t) for t in flat(result)]


def check(got: Any, want: Any, tolerance: float) -> None:
    found, due = flat(got), numbers(want)
    assert len(found) == len(due)
    for g, w in zip(found, due, strict=True):
        assert isinstance(g, tf.Tensor)
        assert g.shape == w.shape
        assert np.allclose(np.asarray(g), w, rtol=tolerance, atol=tolerance, equal_nan=True), (g, w)


@pytest.mark.parametrize("c", TABLE, ids=str)
def test_value(c: Call) -> None:
    got, want = c.run([tf.constant(a) if isinstance(a, np.ndarray) else a for a in c.operands]), c.want(*c.operands)
    check(got, want, 1e-12)
    for g, w in zip(flat(got), numbers(want), strict=True):
        assert g.dtype == w.dtype, f"dtype {g.dtype.name} where NumPy has {w.dtype}"


@pytest.mark.parametrize("c", [c for c in TABLE if c.real], ids=str)
def test_what_becomes_a_tensor_is_taken_as_one(c: Call) -> None:
    want = [t.numpy() for t in flat(c.run([tf.constant(a) if isinstance(a, np.ndarray) else a for a in c.operands]))]
    for kind in (lambda a: a, tf.Variable, lambda a: np.asfortranarray(a[..., None])[..., 0]):
        got = c.run([kind(a) if is_real(a) else a for a in c.operands])
        # Single numbers are on the host, and variables on the device, where the last digits may be others.
        far = 0.0 if SESSION["device"] == "cpu" else 1e-12
        for g, w in zip(flat(got), want, strict=True):
            np.testing.assert_allclose(g.numpy(), w, rtol=far, atol=far)


@pytest.mark.host("as many kernels again for each dtype; tests/backends/cuda has every op in each")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("c", [c for c in TABLE if c.real and "dtype" not in c.options], ids=str)
def test_other_floating_dtypes_stay_what_they_are(c: Call, dtype: str) -> None:
    if dtype != "float32" and c.name in FLOAT32_AND_64_ONLY:
        with pytest.raises(TypeError, match=r"float16|bfloat16"):
            c.run([tf.constant(a, dtype) if is_real(a) else a for a in c.operands])
        return
    wide = flat(c.run([tf.constant(a) if isinstance(a, np.ndarray) else a for a in c.operands]))
    got = flat(c.run([tf.constant(a, dtype) if is_real(a) else a for a in c.operands]))
    tolerance = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1.5e-1}[dtype]
    for g, w in zip(got, wide, strict=True):
        if w.dtype == tf.float64:
            assert g.dtype == dtype
            if not np.any(np.abs(w.numpy()) > 1e30):
                size = max(1.0, float(np.max(np.abs(w), initial=0.0)))
                assert np.allclose(tf.cast(g, tf.float64), w, rtol=tolerance, atol=tolerance * size, equal_nan=True)
        elif w.dtype != tf.complex128:
            assert g.dtype == w.dtype


FLOAT32_AND_64_ONLY = {"complex"}


def weighted(result: Any) -> Any:
    """A scalar of all real tensors of a result."""
    total = tf.constant(0.0, tf.float64)
    for t in flat(result):
        if t.dtype == tf.complex128:
            t = tf.math.real(t) + tf.math.imag(t) * 0.7
        if t.dtype == tf.float64:
            w = np.cos(np.arange(t.numpy().size)).reshape(t.numpy().shape) + 1.3
            bounds = np.abs(t.numpy()) > 1e30  # the largest number stands for the extreme of nothing
            total = total + tf.reduce_sum(tf.where(bounds, 0.0, t) * w)
    return total


@pytest.mark.parametrize("c", [c for c in TABLE if c.real and c.slopes], ids=str)
def test_gradient(c: Call) -> None:
    sources = [tf.Variable(c.operands[i]) for i in c.real]

    def at(values: list[Any]) -> Any:
        operands = list(c.operands)
        for i, v in zip(c.real, values, strict=True):
            operands[i] = v
        return weighted(c.run(operands))

    with tf.GradientTape() as tape:
        y = at(sources)
    gradients = tape.gradient(y, sources)
    h = 1e-6
    for k, (g, s) in enumerate(zip(gradients, sources, strict=True)):
        assert g is not None, f"operand {k} is not connected"
        assert (g.shape, g.dtype) == (s.shape, s.dtype)
        direction = np.sin(np.arange(s.numpy().size) + 1.0).reshape(s.numpy().shape)
        ahead, behind = (
            [v.numpy() + (sign * h * direction if j == k else 0) for j, v in enumerate(sources)] for sign in (1, -1)
        )
        with tf.device("/CPU:0"):  # wherever gradients are computed
            differences = float(at(ahead) - at(behind)) / (2 * h)
        slope = float(np.sum(np.asarray(tf.convert_to_tensor(g)) * direction))
        assert slope == pytest.approx(differences, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("name", sorted({c.name for c in TABLE} - {"broadcast_dynamic_shape", "nn.silu", "nn.swish"}))
def test_the_name_argument_is_taken(name: str) -> None:
    """By all functions but those that have none in TensorFlow."""
    c = next(c for c in TABLE if c.name == name)
    named = Call(c.name, c.want, c.operands, c.options | {"name": "some_name"}, c.slopes, c.listed)
    plain = flat(c.run(c.operands))
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(flat(named.run(c.operands)), plain, strict=True))
