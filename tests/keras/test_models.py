"""`Sequential` and `Model`: building, lists of layers, summaries, and training to a known loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.keras import references as r

layers, Sequential = tf.keras.layers, tf.keras.Sequential


def test_layers_run_one_after_the_other() -> None:
    model = Sequential([layers.Dense(2, kernel_initializer="ones"), layers.Activation(tf.square)])
    assert model([[1.0, 2.0]]).numpy().tolist() == [[9.0, 9.0]]
    model.add(layers.Dense(1, kernel_initializer="ones"))
    assert model([[1.0, 2.0]]).numpy().tolist() == [[18.0]]
    taken = model.pop()
    assert isinstance(taken, layers.Dense) and len(model.layers) == 2
    assert model([[1.0, 2.0]]).numpy().tolist() == [[9.0, 9.0]]


def test_an_empty_one_is_the_identity() -> None:
    assert Sequential()([1.0]).numpy().tolist() == [1.0] and Sequential().variables == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: Sequential([tf.keras.Input((2, 3)), layers.Flatten(), layers.Dense(4)]),
        lambda: Sequential([layers.Flatten(input_shape=(2, 3)), layers.Dense(4)]),
        lambda: Sequential([layers.InputLayer((2, 3), batch_size=5), layers.Flatten(), layers.Dense(4)]),
    ],
    ids=["Input", "input_shape", "batch_size"],
)
def test_a_known_input_shape_builds_at_once(make: Callable[[], Any]) -> None:
    model = make()
    assert model.built and [v.shape for v in model.variables] == [(6, 4), (4,)] and len(model.layers) == 2


def test_build_by_hand() -> None:
    model = Sequential([layers.Dense(3), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(1)])
    assert model.variables == []
    model.build((None, 2))
    assert [v.name for v in model.variables] == [
        "kernel", "bias", "gamma", "beta", "moving_mean", "moving_variance", "kernel", "bias",
    ]  # fmt: skip
    assert model.compute_output_shape((None, 2)) == (None, 1)


def test_models_inside_models() -> None:
    inner = Sequential([layers.Dense(2)], name="inner")
    outer = Sequential([inner, layers.Dense(1, name="last")], name="outer")
    outer(tf.ones([1, 3]))
    assert [v.path for v in outer.variables] == [
        f"outer/inner/{inner.layers[0].name}/kernel",
        f"outer/inner/{inner.layers[0].name}/bias",
        "outer/last/kernel",
        "outer/last/bias",
    ]


def test_summary() -> None:
    model = Sequential(
        [layers.Dense(4, name="first"), layers.BatchNormalization(name="norm"), layers.Dense(2, name="last")],
        name="net",
    )
    lines: list[str] = []
    model.summary(print_fn=lines.append)
    assert "first (Dense)" in lines[3] and lines[3].split()[-2:] == ["0", "(unbuilt)"]
    model(tf.ones([7, 3]))
    lines.clear()
    model.summary(print_fn=lines.append)
    assert lines[0] == 'Model: "net"'
    assert [line.split() for line in lines[3:6]] == [
        ["first", "(Dense)", "(None,", "4)", "16"],
        ["norm", "(BatchNormalization)", "(None,", "4)", "16"],
        ["last", "(Dense)", "(None,", "2)", "10"],
    ]
    assert lines[-3:] == ["Total params: 42", "Trainable params: 34", "Non-trainable params: 8"]


def test_wrong_use_is_explained() -> None:
    with pytest.raises(ValueError, match=r"Only layers can be added.*Activation"):
        Sequential([tf.nn.relu])
    with pytest.raises(ValueError, match="already has a layer named 'a'"):
        Sequential([layers.Dense(1, name="a"), layers.Dense(1, name="a")])
    with pytest.raises(ValueError, match="does not know its input's shape"):
        Sequential([layers.Dense(1)]).build()
    with pytest.raises(ValueError, match="no layer to take off"):
        Sequential().pop()
    with pytest.raises(ValueError, match="`Input` goes first"):
        Sequential([layers.Dense(1), tf.keras.Input((2,))])


# ------------------------------------------------------------------ training


def spirals(count: int = 60) -> tuple[Any, Any]:
    """Points on three arms that wind around each other, and the arm of each."""
    rng = np.random.default_rng(0)
    arm, along = np.arange(count) % 3, rng.uniform(0.2, 1.0, count)
    angle = arm * 2 * np.pi / 3 + 2.5 * along
    points = along[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    return points.astype(np.float32), arm


def fit(model: Any, optimizer: Any, steps: int) -> float:
    x, y = spirals()
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for _ in range(steps):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        optimizer.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))
    return float(loss(y, model(x)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.keras.optimizers.Adam(0.02),
        lambda: tf.keras.optimizers.SGD(0.3, momentum=0.9),
        lambda: tf.keras.optimizers.SGD(0.3, momentum=0.9, nesterov=True),
    ],
    ids=["adam", "momentum", "nesterov"],
)
def test_a_small_problem_is_learned(make: Callable[[], Any]) -> None:
    tf.random.set_seed(1)
    model = Sequential([layers.Dense(32, "tanh"), layers.Dense(32, "tanh"), layers.Dense(3)])
    assert fit(model, make(), 300) < 0.02


def test_a_problem_is_learned_with_batch_normalization() -> None:
    tf.random.set_seed(1)
    model = Sequential([layers.Dense(32, "relu"), layers.BatchNormalization(momentum=0.9), layers.Dense(3)])
    assert fit(model, tf.keras.optimizers.Adam(0.05), 300) < 0.05


def test_training_of_logistic_regression_equals_numpy() -> None:
    """Ten steps by hand, with the gradient (softmax - one hot) written out, give the same weights."""
    x, y = spirals()
    kernel, bias, wide = np.zeros((2, 3)), np.zeros(3), x.astype(np.float64)
    for _ in range(10):
        error = (r.softmax(wide @ kernel + bias) - np.eye(3)[y]) / len(y)
        kernel, bias = kernel - 0.5 * wide.T @ error, bias - 0.5 * error.sum(0)
    model = Sequential([layers.Dense(3, kernel_initializer="zeros")])
    model(x)
    fit(model, tf.keras.optimizers.SGD(0.5), 10)
    np.testing.assert_allclose(model.get_weights()[0], kernel, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(model.get_weights()[1], bias, rtol=1e-4, atol=1e-6)


def test_the_same_seed_trains_the_same_network() -> None:
    found = []
    for _ in range(2):
        tf.random.set_seed(9)
        model = Sequential([layers.Dense(8, "relu"), layers.Dropout(0.2), layers.Dense(3)])
        found.append(fit(model, tf.keras.optimizers.Adam(0.01), 5))
    assert found[0] == found[1]
