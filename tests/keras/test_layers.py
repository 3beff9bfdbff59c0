"""Layers: what they compute, when and how they are built, their variables and names, and wrong use."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.keras import references as r

layers = tf.keras.layers
RNG = np.random.default_rng(1)


def built(layer: Any, *shape: int | None) -> Any:
    layer.build(shape)
    return layer


# ------------------------------------------------------------------ Dense


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4), (2, 1, 3, 4), (0, 4)], ids=str)
def test_dense(shape: tuple[int, ...], use_bias: bool) -> None:
    layer = built(layers.Dense(3, activation="tanh", use_bias=use_bias, dtype="float64"), None, 4)
    kernel, bias, x = RNG.normal(size=(4, 3)), RNG.normal(size=3), RNG.normal(size=shape)
    layer.set_weights([kernel, bias] if use_bias else [kernel])
    wanted = np.tanh(x @ kernel + bias * use_bias)
    np.testing.assert_allclose(layer(x).numpy(), wanted, rtol=1e-12)
    assert len(layer.variables) == 1 + use_bias and layer.compute_output_shape(shape) == (*shape[:-1], 3)


def test_dense_casts_what_it_is_given_to_its_own_dtype() -> None:
    layer = layers.Dense(2, kernel_initializer="ones")
    for x in (np.ones((1, 3)), np.ones((1, 3), int), [[1.0, 1.0, 1.0]], tf.Variable(tf.ones([1, 3], tf.float64))):
        found = layer(x)
        assert found.dtype == tf.float32 and found.numpy().tolist() == [[3.0, 3.0]]
    assert layers.Dense(2, dtype="float64")(np.ones((1, 3), np.float32)).dtype == tf.float64


def test_gradients_pass_the_cast() -> None:
    x = tf.ones([1, 3], tf.float64)
    layer = layers.Dense(1, kernel_initializer="ones")
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x)
    g = tape.gradient(y, x)
    assert g.dtype == tf.float64 and g.numpy().tolist() == [[1.0, 1.0, 1.0]]


def test_units_may_be_a_numpy_integer() -> None:
    assert layers.Dense(np.int64(3)).units == 3


# ------------------------------------------------------------------ the other simple layers


def test_activation_layer() -> None:
    assert layers.Activation("relu")([-1.0, 2.0]).numpy().tolist() == [0.0, 2.0]
    assert layers.Activation(tf.square)([3.0]).numpy().tolist() == [9.0]


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3), (5,), (0, 3, 4), (2, 0, 4)], ids=str)
def test_flatten(shape: tuple[int, ...]) -> None:
    x = RNG.normal(size=shape).astype(np.float32)
    found = layers.Flatten()(x)
    assert found.numpy().tolist() == x.reshape(shape[0], int(np.prod(shape[1:]))).tolist()
    assert layers.Flatten().compute_output_shape(shape) == tuple(found.shape)
    assert layers.Flatten().compute_output_shape((None, 3, 4)) == (None, 12)


def test_dropout_keeps_the_mean_and_drops_the_rate() -> None:
    tf.random.set_seed(3)
    found = layers.Dropout(0.25)(tf.ones([200, 200]), training=True).numpy()
    assert set(found.ravel().tolist()) == {0.0, float(np.float32(4 / 3))}
    assert abs((found == 0).mean() - 0.25) < 0.01


def test_dropout_masks_gradients_as_it_masked_values() -> None:
    x = tf.ones([50])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layers.Dropout(0.5)(x, training=True)
    assert tape.gradient(y, x).numpy().tolist() == y.numpy().tolist()


def test_dropout_is_nothing_outside_of_training() -> None:
    x = tf.constant([1.0, np.nan])
    assert layers.Dropout(0.9)(x) is x and layers.Dropout(0.9)(x, training=False) is x
    assert layers.Dropout(0.0)(x, training=True) is x
    assert layers.Dropout(1.0)(x, training=True).numpy().tolist() == [0.0, 0.0]


def test_dropout_with_a_shared_fate() -> None:
    found = layers.Dropout(0.5, noise_shape=(None, 1))(tf.ones([64, 4]), training=True).numpy()
    assert (found == found[:, :1]).all() and {0.0, 2.0} == set(found.ravel().tolist())


# ------------------------------------------------------------------ BatchNormalization


@pytest.mark.parametrize("options", [{}, {"center": False, "epsilon": 0.1}, {"scale": False, "momentum": 0.5}], ids=str)
@pytest.mark.parametrize("axis, shape", [(-1, (6, 4)), (1, (3, 4, 2, 2)), (-1, (3, 2, 4)), (0, (4, 3))], ids=str)
def test_batch_normalization(axis: int, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    layer = built(layers.BatchNormalization(axis=axis, dtype="float64", **options), *shape)
    gamma, beta = RNG.normal(size=4), RNG.normal(size=4)
    if layer.scale:
        layer.gamma.assign(gamma)
    if layer.center:
        layer.beta.assign(beta)
    along = tuple(4 if k == axis % len(shape) else 1 for k in range(len(shape)))
    others = tuple(k for k in range(len(shape)) if k != axis % len(shape))
    gamma, beta = gamma * layer.scale + (not layer.scale), beta * layer.center
    mean, variance, keep = np.zeros(4), np.ones(4), options.get("momentum", 0.99)
    for step, training in enumerate([True, True, False, True, None]):
        x = RNG.normal(size=shape) * (1 + step) + step
        used = (x.mean(others), x.var(others)) if training else (mean, variance)
        if training:
            mean, variance = mean * keep + used[0] * (1 - keep), variance * keep + used[1] * (1 - keep)
        root = np.sqrt(used[1] + options.get("epsilon", 1e-3))
        wanted = (x - used[0].reshape(along)) / root.reshape(along) * gamma.reshape(along) + beta.reshape(along)
        np.testing.assert_allclose(layer(x, training=training).numpy(), wanted, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(layer.moving_mean.numpy(), mean, rtol=1e-12)
        np.testing.assert_allclose(layer.moving_variance.numpy(), variance, rtol=1e-12)


def test_batch_normalization_names_and_kinds_of_variables() -> None:
    layer = built(layers.BatchNormalization(name="bn"), None, 3)
    assert [v.path for v in layer.trainable_variables] == ["bn/gamma", "bn/beta"]
    assert [v.path for v in layer.non_trainable_variables] == ["bn/moving_mean", "bn/moving_variance"]


def test_a_frozen_batch_normalization_runs_in_inference() -> None:
    layer = built(layers.BatchNormalization(epsilon=0.0), None, 1)
    layer.trainable = False
    assert layer([[4.0]], training=True).numpy().tolist() == [[4.0]]
    assert layer.moving_mean.numpy().tolist() == [0.0] and layer.trainable_variables == []


def test_batch_normalization_in_half_precision_does_not_overflow() -> None:
    layer = layers.BatchNormalization(dtype="float16")
    found = layer(np.array([[300.0], [-300.0]], np.float16), training=True)
    assert found.dtype == tf.float16
    np.testing.assert_allclose(found.numpy().ravel().astype(float), [1.0, -1.0], rtol=1e-3)


def test_moving_statistics_are_not_recorded() -> None:
    layer = built(layers.BatchNormalization(), None, 2)
    x = tf.constant(RNG.normal(size=(4, 2)).astype(np.float32))
    with tf.GradientTape() as tape:
        tape.watch(layer.moving_mean)
        y = layer(x, training=True)
    assert tape.gradient(y, layer.moving_mean) is None
    with tf.GradientTape() as tape:
        layer(x, training=True)
    assert [v.name for v in tape.watched_variables()] == ["gamma", "beta"]


# ------------------------------------------------------------------ layers of one's own


class Double(layers.Layer):
    """Takes no `training`, and does not call `super().__init__()`."""

    def __init__(self) -> None:
        self.factor = tf.Variable(2.0)
        self.parts = {"first": [layers.Dense(2, name="in_a_dict")]}
        self.steps = tf.Variable(0, trainable=False)

    def call(self, inputs: Any) -> Any:
        return self.parts["first"][0](inputs) * self.factor


class Told(layers.Layer):
    """Remembers what it was told about training."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        self.training = training
        return inputs


class Wrapper(layers.Layer):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def call(self, inputs: Any) -> Any:
        return self.inner(inputs)


def test_variables_of_attributes_and_of_layers_inside() -> None:
    layer = Double()
    assert [v.name for v in layer.variables] == ["Variable:0", "Variable:0"] and layer.name.startswith("double")
    layer(tf.ones([1, 3]))
    assert layer.built and [v.shape.rank for v in layer.variables] == [0, 0, 2, 1]
    assert [v.shape.rank for v in layer.trainable_variables] == [0, 2, 1]
    assert layer.non_trainable_variables == [layer.steps] and layer.count_params() == 10


def test_shared_layers_and_cycles_are_listed_once() -> None:
    dense = built(layers.Dense(2), None, 2)
    first, second = Wrapper(dense), Wrapper(dense)
    outer = tf.keras.Sequential([first, second])
    dense.owner = outer
    assert len(outer.variables) == 2


@pytest.mark.parametrize("training", [True, False, None])
def test_training_reaches_layers_inside_that_take_it(training: bool | None) -> None:
    told = Told()
    Wrapper(Wrapper(told))(tf.ones([1]), training=training)
    assert told.training is training
    told(tf.ones([1]))
    assert told.training is None


def test_training_said_inside_comes_first_and_may_be_positional() -> None:
    told = Told()
    told(tf.ones([1]), True)
    assert told.training is True
    tf.keras.Sequential([Wrapper(told)])(tf.ones([1]), training=False)
    assert told.training is False


def test_a_failing_call_leaves_no_trace() -> None:
    class Failing(layers.Layer):
        def call(self, inputs: Any) -> Any:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        Failing()(tf.ones([1]), training=True)
    told = Told()
    told(tf.ones([1]))
    assert told.training is None


def test_several_inputs() -> None:
    class Sum(layers.Layer):
        def build(self, input_shape: Any) -> None:
            self.shapes = input_shape

        def call(self, inputs: Any) -> Any:
            return inputs[0] + inputs[1]

    layer = Sum()
    assert layer([np.ones((1, 2)), tf.ones([1, 2])]).numpy().tolist() == [[2.0, 2.0]]
    assert layer.shapes == [(1, 2), (1, 2)]


def test_weights_made_in_build_get_paths() -> None:
    model = tf.keras.Sequential([layers.Dense(1, name="last")], name="net")
    model(tf.ones([1, 2]))
    assert [v.path for v in model.variables] == ["net/last/kernel", "net/last/bias"]
    alone = built(layers.Dense(1, name="alone"), None, 2)
    assert alone.kernel.path == "alone/kernel" and alone.kernel.name == "kernel"
    assert isinstance(alone.kernel, tf.Variable)
    assert repr(alone.bias) == "<Variable path=alone/bias, shape=(1,), dtype=float32, value=[0.]>"


def test_building_twice_keeps_the_weights() -> None:
    layer = built(layers.Dense(1), None, 2)
    kernel = layer.kernel
    layer.build(tf.TensorShape([None, 2]))
    assert layer.kernel is kernel and len(layer.variables) == 2


def test_building_is_not_recorded() -> None:
    layer = layers.Dense(1)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(layer.variables)
        y = layer(tf.ones([1, 2]))
    assert tape.gradient(y, layer.variables) == [None, None]


def test_add_weight() -> None:
    layer = layers.Layer(dtype="float64")
    plain = layer.add_weight((2, 3))
    count = layer.add_weight(dtype="int32", trainable=False, name="count")
    assert (plain.dtype, plain.name, count.dtype, count.name) == (tf.float64, "variable", tf.int32, "count")
    assert layer.trainable_variables == [plain] and layer.non_trainable_variables == [count]


def test_freezing() -> None:
    model = tf.keras.Sequential([layers.Dense(2), layers.Dense(1)])
    model(tf.ones([1, 3]))
    model.layers[0].trainable = False
    assert [v.shape for v in model.trainable_variables] == [(2, 1), (1,)]
    assert [v.shape for v in model.non_trainable_variables] == [(3, 2), (2,)]
    model.trainable = False
    assert model.trainable_variables == [] and not model.layers[1].trainable and len(model.variables) == 4
    model.trainable = True
    assert len(model.trainable_variables) == 4


def test_weights_round_trip() -> None:
    model = tf.keras.Sequential([layers.Dense(3), layers.BatchNormalization(), layers.Dense(1)])
    model(tf.ones([2, 2]))
    weights = [RNG.normal(size=w.shape).astype(np.float32) for w in model.get_weights()]
    model.set_weights(weights)
    for found, wanted in zip(model.get_weights(), weights, strict=True):
        assert found.tolist() == wanted.tolist()
    weights[0][:] = 0
    model.get_weights()[0][:] = 0
    assert model.get_weights()[0].any()


def test_copies_and_pickles_have_weights_of_their_own() -> None:
    layer = built(layers.Dense(2, activation="relu", name="d"), None, 3)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert twin.kernel.path == "d/kernel" and twin.kernel is not layer.kernel
        assert twin(tf.ones([1, 3])).numpy().tolist() == layer(tf.ones([1, 3])).numpy().tolist()
        twin.kernel.assign_add(tf.ones([3, 2]))
        assert twin.variables[0] is twin.kernel and (twin.kernel.numpy() != layer.kernel.numpy()).all()


def test_names_are_unique_and_in_lower_case() -> None:
    first, second = layers.BatchNormalization(), layers.BatchNormalization()
    assert first.name.startswith("batch_normalization") and first.name != second.name
    assert layers.Dense(1, name="mine").name == "mine"


# ------------------------------------------------------------------ wrong use

WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: layers.Dense(0), ValueError, "`units` should be a positive integer, got 0"),
    (lambda: layers.Dense(2.5), ValueError, "`units` should be a positive integer, got 2.5 of type float"),
    (lambda: layers.Dense("3"), ValueError, "got '3' of type str"),
    (lambda: layers.Dense(True), ValueError, "got True"),
    (lambda: layers.Dense(1, "rellu"), ValueError, "Did you mean 'relu'.*Known names: elu"),
    (lambda: layers.Dense(1, kernel_initializer="glorot"), ValueError, "Known names: .*glorot_uniform"),
    (lambda: layers.Dense(1)(tf.ones([3])), ValueError, r"expected min_ndim=2, found ndim=1.*expand_dims"),
    (lambda: built(layers.Dense(1), None, 3)(tf.ones([2, 4])), ValueError, r"have value 3, but received .*\(2, 4\)"),
    (lambda: built(layers.Dense(1), None, None), ValueError, r"last axis .* should be known"),
    (lambda: layers.Dense(1).kernel, AttributeError, "'Dense' has no attribute 'kernel'. The layer is not built yet"),
    (lambda: layers.Dense(1).weight, AttributeError, "'Dense' has no attribute 'weight'.$"),
    (lambda: tf.keras.Sequential([layers.Dense(1)]).predict, AttributeError, "has no attribute 'predict'.$"),
    (lambda: layers.Dense(1)([tf.ones([1, 2]), tf.ones([1, 2])]), ValueError, "expects one tensor, got a list"),
    (lambda: built(layers.Dense(1), None, 2).set_weights([np.ones((2, 1))]), ValueError, "length 1.*expecting 2"),
    (lambda: layers.Dense(1).set_weights([np.ones((2, 1))]), ValueError, "expecting 0 weights. It is not built"),
    (
        lambda: built(layers.Dense(1), None, 2).set_weights([np.ones((1, 2)), np.ones(1)]),
        ValueError,
        r"weight 'kernel' of shape \(2, 1\) is not compatible .*\(1, 2\)",
    ),
    (lambda: layers.BatchNormalization(axis=3)(tf.ones([2, 2])), ValueError, r"along axis 3.*\(2, 2\)"),
    (lambda: layers.BatchNormalization(axis=[1, 2]), ValueError, "one integer"),
    (lambda: built(layers.BatchNormalization(), 2, 3)(tf.ones([2, 2, 3])), ValueError, "expected ndim=2, found ndim=3"),
    (lambda: layers.Dropout(1.5), ValueError, "`rate` should be a number from 0 to 1, got 1.5"),
    (lambda: layers.Layer()(tf.ones([1])), NotImplementedError, "does not have a `call"),
    (lambda: layers.Dense(1, kernel_size=3), TypeError, "kernel_size"),
]


@pytest.mark.parametrize("make, kind, message", WRONG)
def test_wrong_use_is_explained(make: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()


def test_set_weights_changes_nothing_where_one_does_not_fit() -> None:
    layer = built(layers.Dense(1), None, 2)
    before = layer.get_weights()
    with pytest.raises(ValueError, match="not compatible"):
        layer.set_weights([np.ones((2, 1)), np.ones(2)])
    assert [w.tolist() for w in layer.get_weights()] == [w.tolist() for w in before]


# ------------------------------------------------------------------ derivatives through everything

NETWORKS: dict[str, Callable[[], Any]] = {
    "dense": lambda: [layers.Dense(4, "tanh", dtype="float64"), layers.Dense(3, dtype="float64")],
    "batch normalization": lambda: [
        layers.Dense(4, "softplus", dtype="float64"),
        layers.BatchNormalization(dtype="float64"),
        layers.Dense(3, "elu", dtype="float64"),
    ],
    "other activations": lambda: [
        layers.Dense(4, "selu", dtype="float64"),
        layers.Activation("silu", dtype="float64"),
        layers.Dense(3, "softmax", dtype="float64"),
    ],
}
LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "squared": tf.keras.losses.MeanSquaredError(dtype="float64"),
    "huber": tf.keras.losses.Huber(dtype="float64"),
    "binary": tf.keras.losses.BinaryCrossentropy(from_logits=True, dtype="float64"),
    "categorical": tf.keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1, dtype="float64"),
    "sparse": lambda y, p: tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64")(
        tf.argmax(y, axis=1), p
    ),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("network", NETWORKS)
def test_gradients_of_networks(network: str, loss: str, training: bool) -> None:
    tf.random.set_seed(5)
    model = tf.keras.Sequential(NETWORKS[network](), dtype="float64")
    x = np.random.default_rng(2).normal(size=(5, 2))
    y = np.eye(3)[[0, 1, 2, 1, 0]]

    def value(inputs: Any) -> Any:
        return LOSSES[loss](y, model(inputs, training=training))

    value(x)
    inputs = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        result = value(inputs)
    sources = [inputs, *model.trainable_variables]
    found = tape.gradient(result, sources)
    with tf.device("/CPU:0"):  # wherever gradients are computed
        wanted = [r.numeric_gradient(lambda moved: float(value(moved)), x)]
        for v in model.trainable_variables:
            start = v.numpy()
            wanted.append(r.numeric_gradient(lambda moved, v=v: float(_with(v, moved, lambda: value(x))), start))
            v.assign(start)
    for g, w, s in zip(found, wanted, sources, strict=True):
        np.testing.assert_allclose(g.numpy(), w, rtol=1e-6, atol=1e-8, err_msg=repr(s))


def _with(v: Any, moved: Any, compute: Callable[[], Any]) -> Any:
    v.assign(moved)
    return compute()
