"""Mixed precision: which dtypes layers compute in and keep, and loss scaling that leaves no trace in what is learnt."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gradtape as tf

keras = tf.keras
layers = keras.layers
mixed = keras.mixed_precision
RNG = np.random.default_rng(7)
HALVES = {"mixed_float16": (tf.float16, 2e-3), "mixed_bfloat16": (tf.bfloat16, 2e-2)}


@pytest.fixture
def policy(request: pytest.FixtureRequest) -> Iterator[str]:
    """The global policy of that name."""
    before = mixed.global_policy()
    mixed.set_global_policy(request.param)
    yield request.param
    mixed.set_global_policy(before)


def network() -> Any:
    return keras.Sequential(
        [
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.LayerNormalization(),
            layers.Flatten(),
            layers.Dropout(0.25),
            layers.Dense(5, activation="tanh"),
            layers.Dense(3, dtype="float32"),
        ]
    )


# ------------------------------------------------------------------ policies


def test_policies() -> None:
    both = mixed.Policy("float64")
    assert (both.name, both.compute_dtype, both.variable_dtype) == ("float64", "float64", "float64")
    half = keras.DTypePolicy("mixed_float16")
    assert (half.compute_dtype, half.variable_dtype, half.get_config()) == (
        "float16",
        "float32",
        {"name": "mixed_float16"},
    )
    assert half == mixed.Policy("mixed_float16") != both and hash(half) == hash(mixed.Policy("mixed_float16"))
    assert keras.config.set_dtype_policy is mixed.set_global_policy
    assert (
        mixed.Policy()
        == keras.config.dtype_policy()
        == mixed.global_policy()
        == mixed.dtype_policy()
        == mixed.Policy("float32")
    )
    assert repr(half) == '<DTypePolicy "mixed_float16">'


@pytest.mark.parametrize("policy", ["mixed_bfloat16"], indirect=True)
def test_the_global_policy_is_that_of_layers_made_without_one(policy: str) -> None:
    class Bare(layers.Layer):
        """Does not call `super().__init__()`."""

        def __init__(self) -> None:
            self.inner = layers.Dense(2)

        def call(self, inputs: Any) -> Any:
            return inputs

    for layer in (layers.Dense(2), Bare(), Bare().inner, keras.Sequential()):
        assert (layer.compute_dtype, layer.variable_dtype, layer.dtype) == ("bfloat16", "float32", "float32")
        assert layer.dtype_policy == mixed.Policy(policy)
    assert layers.Dense(2, dtype="float32").dtype_policy == mixed.Policy("float32")
    assert layers.Dense(2, dtype=tf.float64).compute_dtype == "float64"
    assert layers.Dense(2, dtype=mixed.Policy("mixed_float16")).compute_dtype == "float16"


@pytest.mark.parametrize(
    "make, kind, message",
    [
        (lambda: mixed.Policy("mixed_float"), ValueError, "no policy 'mixed_float'. Did you mean 'mixed_float16'"),
        (lambda: mixed.Policy(16), TypeError, "`name` should be a text"),
        (lambda: mixed.set_global_policy("half precision"), ValueError, "A policy is 'mixed_float16'"),
        (lambda: layers.Dense(1, dtype=3.5), ValueError, "A policy should be .*got 3.5"),
        (lambda: mixed.LossScaleOptimizer("adam"), ValueError, "`inner_optimizer` should be an optimizer"),
        (lambda: mixed.LossScaleOptimizer(keras.optimizers.SGD(), 0.0), ValueError, "should be positive, got 0.0"),
        (
            lambda: mixed.LossScaleOptimizer(mixed.LossScaleOptimizer(keras.optimizers.SGD())),
            ValueError,
            "that scales no loss itself",
        ),
    ],
)
def test_wrong_use_is_explained(make: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()


# ------------------------------------------------------------------ layers


@pytest.mark.parametrize("policy", HALVES, indirect=True)
@pytest.mark.parametrize("training", [False, True])
def test_layers_compute_in_half_and_keep_single(policy: str, training: bool) -> None:
    half, rtol = HALVES[policy]
    x = RNG.normal(size=(4, 6, 6, 2))
    model = network()
    model.layers[5].rate = 0.0  # dropout: both networks keep all
    model(x)
    assert {v.dtype for v in model.variables} == {tf.float32}
    mixed.set_global_policy("float32")
    whole = network()
    whole.layers[5].rate = 0.0
    whole(x)
    whole.set_weights(model.get_weights())
    y: Any = tf.cast(x, tf.float32)
    for layer, other in zip(model.layers, whole.layers, strict=True):
        found = layer(y, training=training)
        assert found.dtype == (tf.float32 if layer is model.layers[-1] else half)
        y = other(y, training=training)
        np.testing.assert_allclose(tf.cast(found, tf.float32).numpy(), y.numpy(), rtol=8 * rtol, atol=8 * rtol)
    for v, w in zip(model.variables, whole.variables, strict=True):
        np.testing.assert_allclose(v.numpy(), w.numpy(), rtol=rtol, atol=rtol)  # moving statistics too


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_gradients_come_in_the_dtype_of_the_weights(traced: bool) -> None:
    layer = layers.Dense(2, dtype="mixed_float16", kernel_initializer="ones")
    layer.build((None, 3))

    def gradients(x: Any) -> Any:
        with tf.GradientTape() as tape:
            y = layer(x)
            assert y.dtype == tf.float16
            loss = tf.reduce_sum(tf.cast(y, tf.float32))
        return tape.gradient(loss, layer.trainable_variables)

    found = (tf.function(gradients) if traced else gradients)(tf.constant([[1.0, 2.0, 0.5]]))
    assert [g.dtype for g in found] == [tf.float32, tf.float32]
    assert found[0].numpy().tolist() == [[1.0, 1.0], [2.0, 2.0], [0.5, 0.5]]


def test_weights_of_layers_of_ones_own_are_seen_in_half() -> None:
    class Own(layers.Layer):
        def build(self, input_shape: Any) -> None:
            self.kernel = self.add_weight(input_shape[-1:], "ones")
            self.exact = self.add_weight((), "ones", autocast=False)
            self.total = self.add_weight((), "zeros", trainable=False)
            self.steps = self.add_weight((), dtype="int32", trainable=False)

        def call(self, inputs: Any) -> Any:
            seen = (inputs * self.kernel, self.kernel * 2.0, self.kernel[0], tf.identity(self.kernel))
            assert {t.dtype for t in seen} == {tf.float16}
            assert self.exact.value().dtype == tf.float32 and self.steps.value().dtype == tf.int32
            self.total.assign_add(tf.reduce_sum(seen[0]))  # half: is cast
            self.total.assign(self.total)
            return seen[0]

    layer = Own(dtype="mixed_float16")
    for run in (layer, tf.function(layer)):
        assert run(tf.ones([1, 3])).dtype == tf.float16
    assert float(layer.total) == 6.0 and (layer.kernel * 1.0).dtype == tf.float32
    for weight in (layer.kernel, layer.exact):
        for twin in (copy.deepcopy(weight), pickle.loads(pickle.dumps(weight))):
            assert type(twin) is type(weight) and twin.path == weight.path


def test_a_layer_in_single_inside_one_in_half() -> None:
    class Outer(layers.Layer):
        def __init__(self) -> None:
            super().__init__(dtype="mixed_float16")
            self.inner = layers.Dense(1, dtype="float32")

        def call(self, inputs: Any) -> Any:
            found = self.inner(inputs)
            assert (inputs.dtype, found.dtype, self.inner.kernel.value().dtype) == (tf.float16, tf.float32, tf.float32)
            return found

    Outer()(tf.ones([1, 2]))


# ------------------------------------------------------------------ loss scaling


def both(f: Callable[..., Any]) -> list[Callable[..., Any]]:
    return [f, tf.function(f)]


@pytest.mark.parametrize("which", [0, 1], ids=["eager", "traced"])
def test_steps_are_those_of_the_inner_optimizer(which: int) -> None:
    """The scale is taken out before gradients are clipped, and so are steps that are not finite."""
    v, w = tf.Variable([1.0, 2.0]), tf.Variable([1.0, 2.0])
    optimizer = mixed.LossScaleOptimizer(keras.optimizers.Adam(0.5, clipnorm=1.0), 1024.0, dynamic_growth_steps=3)
    plain = keras.optimizers.Adam(0.5, clipnorm=1.0)

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            scaled = optimizer.scale_loss(tf.reduce_sum(v**3 * x))
        optimizer.apply_gradients([(tape.gradient(scaled, v), v)])
        return scaled

    run = both(step)[which]
    scale, good = 1024.0, 0
    for k, x in enumerate([1.0, -2.0, 3.0, np.inf, 0.5, 1.0, np.nan, -np.inf, 2.0, 1.0, 1.0, 1.0]):
        run(tf.constant([x, 1.0]))
        if np.isfinite(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(w**3 * tf.constant([x, 1.0]))
            plain.apply_gradients([(tape.gradient(loss, w), w)])
            good += 1
            if good == 3:
                scale, good = scale * 2, 0
        else:
            scale, good = scale / 2, 0
        assert (float(optimizer.dynamic_scale), int(optimizer.step_counter)) == (scale, good), k
        np.testing.assert_allclose(v.numpy(), w.numpy(), atol=1e-4)  # 1 - 0.999 has few bits in single precision
    assert int(optimizer.iterations) == int(plain.iterations) == 9


def test_scaling_saves_gradients_that_float16_cannot_hold() -> None:
    x = tf.constant([[1e-5]])
    layer = layers.Dense(1, dtype="mixed_float16", kernel_initializer="ones")
    layer.build((None, 1))
    optimizer = mixed.LossScaleOptimizer(keras.optimizers.SGD(1.0))

    def gradient(scale: Callable[[Any], Any]) -> Any:
        with tf.GradientTape() as tape:
            loss = scale(tf.reduce_sum(tf.cast(layer(x), tf.float32)) * 1e-4)
        return tape.gradient(loss, layer.kernel)

    assert float(gradient(lambda loss: loss)[0, 0]) == 0.0
    scaled = gradient(optimizer.scale_loss)
    (found,) = optimizer.get_unscaled_gradients([scaled])
    np.testing.assert_allclose(found.numpy(), [[1e-9]], rtol=1e-2)
    before = layer.kernel.numpy()
    optimizer.apply([scaled * 1e8], [layer.kernel])
    np.testing.assert_allclose(layer.kernel.numpy(), before - 0.1, rtol=1e-2)


def test_gradients_without_the_scale_can_be_applied() -> None:
    v = tf.Variable(1.0)
    optimizer = mixed.LossScaleOptimizer(keras.optimizers.SGD(1.0))
    optimizer.apply([tf.constant(0.25)], [v], scaled=False)
    optimizer.apply_gradients([(tf.constant(0.25), v)], scaled=False)
    optimizer.apply_gradients([(tf.constant(np.nan), v)], scaled=False)
    assert float(v) == 0.5 and float(optimizer.dynamic_scale) == 2.0**14


def test_rows_and_missing_gradients_and_half_types() -> None:
    table, other = tf.Variable(tf.zeros([3, 1])), tf.Variable([1.0], dtype=tf.float16)
    optimizer = mixed.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=4.0)
    rows = tf.IndexedSlices([[4.0], [8.0]], [2, 2], [3, 1])
    (plain,) = optimizer.get_unscaled_gradients([rows])
    assert isinstance(plain, tf.IndexedSlices) and plain.values.numpy().tolist() == [[1.0], [2.0]]
    assert optimizer.get_unscaled_gradients([None, tf.ones([1], tf.float16)])[1].dtype == tf.float32
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        optimizer.apply([rows, None], [table, other])
    assert table.numpy().tolist() == [[0.0], [0.0], [-3.0]]
    optimizer.apply([rows, tf.constant([np.inf], tf.float16)], [table, other])
    assert table.numpy().tolist() == [[0.0], [0.0], [-3.0]] and float(optimizer.dynamic_scale) == 2.0
    optimizer.apply([rows, tf.constant([1.0], tf.float16)], [table, other])
    assert table.numpy()[2] == -9.0 and other.numpy().tolist() == [0.5]


def test_what_belongs_to_the_inner_optimizer() -> None:
    inner = keras.optimizers.SGD(0.5, loss_scale_factor=3.0, use_ema=True, name="sgd")
    optimizer = mixed.LossScaleOptimizer(inner, name="scaled")
    assert inner.loss_scale_factor is None and optimizer.dynamic_scale == 2.0**15
    optimizer.learning_rate = 0.25
    assert float(inner.learning_rate) == 0.25 and optimizer.learning_rate is inner.learning_rate
    v = tf.Variable(1.0, name="v")
    optimizer.build([v])
    assert [x.path for x in optimizer.variables] == [
        "scaled/iteration",
        "scaled/learning_rate",
        "scaled/step_counter",
        "scaled/dynamic_scale",
        "sgd/iteration",
        "sgd/learning_rate",
        "sgd/v_0_average",
    ]
    assert optimizer.dynamic_scale.dtype == tf.float32 and optimizer.step_counter.dtype == tf.int64
    optimizer.apply([tf.constant(2.0**15)], [v])
    v.assign(9.0)
    optimizer.finalize_variable_values([v])
    assert float(v) == 0.75


@pytest.mark.parametrize("policy", HALVES, indirect=True)
def test_a_network_learns_in_half_precision(policy: str) -> None:
    tf.random.set_seed(2)
    model = keras.Sequential([layers.Conv2D(8, 3, activation="relu"), layers.Flatten(), layers.Dense(2)])
    x = RNG.normal(size=(64, 5, 5, 1)).astype(np.float32)
    y = (x[:, 1:4, 1:4].sum((1, 2, 3)) > 0).astype(np.int64)
    optimizer = mixed.LossScaleOptimizer(keras.optimizers.AdamW(0.01))
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
            scaled = optimizer.scale_loss(loss)
        optimizer.apply(tape.gradient(scaled, model.trainable_variables), model.trainable_variables)
        return loss

    losses = [float(step()) for _ in range(40)]
    assert losses[-1] < 0.25 * losses[0] and int(optimizer.iterations) >= 35, losses
