"""Initializers: their moments, seeds and names; activations by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.keras.initializers import _fans

initializers, activations = tf.keras.initializers, tf.keras.activations
SHAPE = (300, 500)

# The variance that each should have, and the largest size that a value may have.
RANDOM: dict[str, tuple[float, float]] = {
    "random_normal": (0.05**2, math.inf),
    "random_uniform": (0.1**2 / 12, 0.05),
    "truncated_normal": ((0.05 * 0.8796256610342398) ** 2, 0.1),
    "glorot_uniform": (2 / 800, math.sqrt(6 / 800)),
    "glorot_normal": (2 / 800, 2 * math.sqrt(2 / 800) / 0.8796),
    "he_uniform": (2 / 300, math.sqrt(6 / 300)),
    "he_normal": (2 / 300, 2 * math.sqrt(2 / 300) / 0.8796),
    "lecun_uniform": (1 / 300, math.sqrt(3 / 300)),
    "lecun_normal": (1 / 300, 2 * math.sqrt(1 / 300) / 0.8796),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", RANDOM)
def test_random_values(name: str, dtype: str) -> None:
    tf.random.set_seed(0)
    found = initializers.get(name)(SHAPE, dtype=dtype)
    assert found.dtype == dtype and found.shape == SHAPE
    values, (variance, limit) = found.numpy().astype(np.float64), RANDOM[name]
    assert abs(values.mean()) < 5 * math.sqrt(variance / values.size) + 1e-4 * (dtype == "float16")
    assert values.var() == pytest.approx(variance, rel=0.02) and np.abs(values).max() <= limit * 1.001


@pytest.mark.parametrize("name", RANDOM)
def test_seeds(name: str) -> None:
    kind = type(initializers.get(name))
    seeded = kind(seed=3)
    assert seeded((4, 4)).numpy().tolist() == seeded((4, 4)).numpy().tolist() == kind(seed=3)((4, 4)).numpy().tolist()
    assert seeded((4, 4)).numpy().tolist() != kind(seed=4)((4, 4)).numpy().tolist()
    free = kind()
    tf.random.set_seed(1)
    first, second = free((4, 4)).numpy().tolist(), free((4, 4)).numpy().tolist()
    tf.random.set_seed(1)
    assert first != second and [free((4, 4)).numpy().tolist() for _ in range(2)] == [first, second]


def test_fans() -> None:
    assert (
        _fans(()) == (1, 1) and _fans((3,)) == (3, 3) and _fans((3, 4)) == (3, 4) and _fans((5, 5, 3, 4)) == (75, 100)
    )


def test_variance_scaling_modes() -> None:
    found = initializers.VarianceScaling(3.0, "fan_out", "untruncated_normal", seed=0)(SHAPE).numpy()
    assert found.var() == pytest.approx(3 / 500, rel=0.02)
    for wrong in ({"scale": -1}, {"mode": "fan_all"}, {"distribution": "normally"}):
        with pytest.raises(ValueError, match=r"scale|mode|distribution"):
            initializers.VarianceScaling(**wrong)  # type: ignore[arg-type]


def test_constants() -> None:
    assert initializers.Zeros()((2,), "int32").numpy().tolist() == [0, 0]
    assert initializers.Ones()((2,)).dtype == tf.float32
    assert initializers.Constant(2.5)((2, 1)).numpy().tolist() == [[2.5], [2.5]]
    layer = tf.keras.layers.Dense(1, kernel_initializer=np.array([[1.0], [2.0]]), bias_initializer=3.0)
    assert layer([[1.0, 1.0]]).numpy().tolist() == [[6.0]]
    with pytest.raises(ValueError, match=r"array of shape \(2, 1\), the weight has shape \(3, 1\)"):
        initializers.Constant([[1.0], [2.0]])((3, 1))


def test_initializers_by_name() -> None:
    for name in ("glorot_uniform", "GlorotUniform", initializers.GlorotUniform, initializers.GlorotUniform()):
        assert isinstance(initializers.get(name), initializers.GlorotUniform)
    assert isinstance(initializers.get("zero"), initializers.Zeros)
    with pytest.raises(ValueError, match=r"initializer 'he_norm'.*Did you mean 'he_normal'\?.*Known names: constant, "):
        initializers.get("he_norm")
    with pytest.raises(ValueError, match="draws floating numbers, the weight has dtype int32"):
        initializers.RandomNormal()((2,), "int32")
    assert repr(initializers.RandomNormal(seed=1)) == "RandomNormal(mean=0.0, stddev=0.05, seed=1)"


def test_an_initializer_may_be_a_function() -> None:
    layer = tf.keras.layers.Dense(2, kernel_initializer=lambda shape, dtype: tf.ones(shape, dtype))
    assert layer([[1.0, 1.0]]).numpy().tolist() == [[2.0, 2.0]]


ROOT = float(np.float32(math.sqrt(0.5)))  # rounded, as in TensorFlow


def _split(x: Any, below: Any) -> Any:
    return np.where(x > 0, x, below)


SCALE, ALPHA = 1.0507009873554805, 1.6732632423543772
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "elu": lambda x: _split(x, np.expm1(x)),
    "exponential": np.exp,
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "leaky_relu": lambda x: _split(x, float(np.float32(0.2)) * x),
    "linear": lambda x: x,
    "log_sigmoid": lambda x: -np.log1p(np.exp(-x)),
    "log_softmax": lambda x: x - np.log(np.exp(x).sum()),
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "selu": lambda x: SCALE * _split(x, ALPHA * np.expm1(x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "gelu": lambda x: x * np.vectorize(math.erfc)(-x * ROOT) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softmax": lambda x: np.exp(x) / np.exp(x).sum(),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    x = np.linspace(-4, 7, 23)
    np.testing.assert_allclose(activations.get(name)(x).numpy(), ACTIVATIONS[name](x), rtol=1e-10, atol=1e-12)


def test_activations_with_options() -> None:
    x = np.array([-2.0, 0.2, 1.0, 5.0])
    found = activations.relu(x, negative_slope=0.5, max_value=3.0, threshold=0.4)
    np.testing.assert_allclose(found.numpy(), [-1.2, -0.1, 1.0, 3.0])
    np.testing.assert_allclose(activations.elu(x, alpha=0.5).numpy(), np.where(x > 0, x, 0.5 * np.expm1(x)))


def test_activations_by_name() -> None:
    assert activations.get(None) is activations.linear and activations.get(tf.nn.relu) is tf.nn.relu
    with pytest.raises(ValueError, match=r"activation 'softmx'.*Did you mean 'softmax'\?.*Known names: elu, .* tanh"):
        activations.get("softmx")
    with pytest.raises(ValueError, match="activation 3 of type int"):
        activations.get(3)
