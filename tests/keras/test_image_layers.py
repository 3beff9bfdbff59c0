"""Layers of images, layer normalization and embeddings: values against NumPy, derivatives by differences, shapes, wrong
use."""

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
RNG = np.random.default_rng(3)
IMAGES = RNG.normal(size=(2, 7, 6, 4))


def turned(x: Any) -> Any:
    """Images with their channels first."""
    return np.moveaxis(x, -1, 1)


def weighted(layer: Any, *shape: int | None) -> list[Any]:
    """Weights for a layer, built for inputs of this shape."""
    layer.build(shape)
    values = [RNG.normal(size=v.shape) for v in layer.variables]
    layer.set_weights(values)
    return values


def check_shape(layer: Any, x: Any, found: Any) -> None:
    assert layer.compute_output_shape(x.shape) == tuple(found.shape)
    assert layer.compute_output_shape((None, *x.shape[1:])) == (None, *found.shape[1:])


# ------------------------------------------------------------------ Conv2D

CONVOLUTIONS: list[dict[str, Any]] = [
    {"kernel_size": 3},
    {"kernel_size": (3, 2), "padding": "SAME"},
    {"kernel_size": (2, 3), "strides": 2},
    {"kernel_size": 3, "strides": (2, 1), "padding": "same"},
    {"kernel_size": 3, "dilation_rate": (1, 2), "padding": "same"},
    {"kernel_size": 2, "dilation_rate": 2, "groups": 2},
    {"kernel_size": 1, "groups": 4, "filters": 4, "use_bias": False},
]


@pytest.mark.parametrize("first", [False, True], ids=["channels last", "channels first"])
@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_convolutions(options: dict[str, Any], first: bool) -> None:
    options = {"filters": 6, **options, "data_format": "channels_first" if first else None}
    layer = layers.Conv2D(**options, activation="tanh", dtype="float64")
    x = turned(IMAGES) if first else IMAGES
    kernel, *bias = weighted(layer, None, *x.shape[1:])
    assert kernel.shape == (*layer.kernel_size, 4 // layer.groups, layer.filters) and len(bias) == layer.use_bias
    same = layer.padding == "same"
    wanted = r.convolved(IMAGES, kernel, layer.strides, layer.dilation_rate, same, layer.groups)
    wanted = np.tanh(wanted + (bias[0] if bias else 0.0))
    found = layer(x)
    np.testing.assert_allclose(found.numpy(), turned(wanted) if first else wanted, rtol=1e-12, atol=1e-12)
    check_shape(layer, x, found)


def test_convolutions_take_integers_and_other_sizes_than_at_first() -> None:
    layer = layers.Conv2D(1, 2, kernel_initializer="ones")
    found = layer(np.full((1, 2, 3, 1), 200, np.uint8))
    assert found.dtype == tf.float32 and found.numpy().ravel().tolist() == [800.0, 800.0]
    assert layer(tf.ones([3, 5, 4, 1])).shape == (3, 4, 3, 1)
    assert layer.compute_output_shape((None, None, 9, 1)) == (None, None, 8, 1)


def test_weights_of_a_convolution() -> None:
    layer = layers.Conv2D(3, 2, name="c", kernel_constraint=tf.abs, bias_constraint=tf.nn.relu)
    layer.build((None, 4, 4, 2))
    assert [v.path for v in layer.trainable_variables] == ["c/kernel", "c/bias"]
    assert layer.kernel.constraint is tf.abs and layer.bias.constraint is tf.nn.relu
    assert (layer.bias.numpy() == 0).all()
    # glorot: the fans count the window's elements
    assert 0 < np.abs(layer.kernel.numpy()).max() <= np.sqrt(6 / (4 * 2 + 4 * 3))
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layers.Conv2D(3, 2)))):
        assert twin.kernel_size == (2, 2) and twin(tf.ones([1, 4, 4, 2])).shape == (1, 3, 3, 3)


# ------------------------------------------------------------------ pooling


@pytest.mark.parametrize("first", [False, True], ids=["channels last", "channels first"])
@pytest.mark.parametrize(
    "options",
    [{}, {"pool_size": 3, "strides": 2, "padding": "same"}, {"pool_size": (2, 3), "strides": 1}, {"strides": (1, 3)}],
    ids=str,
)
@pytest.mark.parametrize("kind", ["MaxPooling2D", "AveragePooling2D"])
def test_pooling(kind: str, options: dict[str, Any], first: bool) -> None:
    data_format = "channels_first" if first else "channels_last"
    layer = getattr(layers, kind)(**options, data_format=data_format, dtype="float64")
    parts = r.windows(IMAGES, layer.pool_size, layer.strides, (1, 1), layer.padding == "same")
    wanted = (np.nanmax if kind == "MaxPooling2D" else np.nanmean)(parts, axis=(3, 4))
    x = turned(IMAGES) if first else IMAGES
    found = layer(x)
    np.testing.assert_allclose(found.numpy(), turned(wanted) if first else wanted, rtol=1e-12)
    check_shape(layer, x, found)
    assert layer.variables == []


@pytest.mark.parametrize("keepdims", [False, True])
def test_global_average(keepdims: bool) -> None:
    wanted = IMAGES.mean((1, 2), keepdims=keepdims)
    last = layers.GlobalAveragePooling2D(keepdims=keepdims, dtype="float64")
    first = layers.GlobalAveragePooling2D("channels_first", keepdims, dtype="float64")
    np.testing.assert_allclose(last(IMAGES).numpy(), wanted, rtol=1e-12)
    found = first(turned(IMAGES))
    np.testing.assert_allclose(found.numpy(), turned(wanted) if keepdims else wanted, rtol=1e-12)
    check_shape(last, IMAGES, last(IMAGES))
    check_shape(first, turned(IMAGES), found)
    counted = layers.GlobalAveragePooling2D()(np.arange(8, dtype=np.int32).reshape(1, 2, 2, 2))
    assert counted.dtype == tf.float32 and counted.numpy().tolist() == [[3.0, 4.0]]


def test_flatten_with_channels_first_puts_them_last() -> None:
    x = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
    found = layers.Flatten("channels_first")(x).numpy()
    assert found.tolist() == np.moveaxis(x, 1, -1).reshape(2, -1).tolist()
    assert layers.Flatten("channels_first")(x[0, 0]).numpy().tolist() == x[0, 0].tolist()


def test_other_names() -> None:
    for other, name in (("MaxPool2D", "MaxPooling2D"), ("AvgPool2D", "AveragePooling2D")):
        assert getattr(layers, other) is getattr(layers, name)
    assert layers.GlobalAvgPool2D is layers.GlobalAveragePooling2D and layers.Convolution2D is layers.Conv2D


# ------------------------------------------------------------------ LayerNormalization


@pytest.mark.parametrize("axis", [-1, 1, [1, 2], [-1, 1], (3,)], ids=str)
@pytest.mark.parametrize("options", [{}, {"center": False, "epsilon": 0.1}, {"scale": False}], ids=str)
def test_layer_normalization(options: dict[str, Any], axis: Any) -> None:
    layer = layers.LayerNormalization(axis=axis, dtype="float64", **options)
    values = weighted(layer, *IMAGES.shape)
    axes = tuple(sorted(k % 4 for k in np.atleast_1d(axis)))
    sizes = tuple(IMAGES.shape[k] for k in axes)
    gamma = values.pop(0) if layer.scale else np.ones(sizes)
    beta = values.pop(0) if layer.center else np.zeros(sizes)
    assert gamma.shape == beta.shape == sizes and not values
    wanted = r.normalized(IMAGES, axes, gamma, beta, options.get("epsilon", 1e-3))
    np.testing.assert_allclose(layer(IMAGES).numpy(), wanted, rtol=1e-11, atol=1e-12)
    assert layer.compute_output_shape((None, 7, 6, 4)) == (None, 7, 6, 4)


def test_layer_normalization_in_half_precision_does_not_overflow() -> None:
    layer = layers.LayerNormalization(dtype="float16", name="n")
    found = layer(np.array([[300.0, -300.0]], np.float16))
    assert found.dtype == tf.float16 and [v.path for v in layer.variables] == ["n/gamma", "n/beta"]
    np.testing.assert_allclose(found.numpy().astype(float), [[1.0, -1.0]], rtol=1e-3)
    assert layers.LayerNormalization()(np.array([[1, 3]])).dtype == tf.float32


# ------------------------------------------------------------------ Embedding


def test_embedding() -> None:
    layer = layers.Embedding(5, 3, name="e", embeddings_constraint=tf.nn.relu)
    ids = np.array([[0, 4, 4], [1, 2, 0]])
    found = layer(ids)
    table = layer.embeddings.numpy()
    assert found.numpy().tolist() == table[ids].tolist() and np.abs(table).max() <= 0.05
    assert [v.path for v in layer.variables] == ["e/embeddings"] and layer.embeddings.constraint is tf.nn.relu
    assert layer.compute_output_shape((None, 3)) == (None, 3, 3)
    for other in (ids.astype(np.uint8), ids + 0.9, tf.constant(ids, tf.int64)):
        assert layer(other).numpy().tolist() == table[ids].tolist()


def test_rows_of_an_embedding_get_sparse_gradients() -> None:
    layer = layers.Embedding(4, 2, weights=np.zeros((4, 2)))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer([[1, 1, 3]]) * [[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])
    g = tape.gradient(loss, layer.embeddings)
    assert isinstance(g, tf.IndexedSlices)
    tf.keras.optimizers.SGD(1.0).apply([g], [layer.embeddings])
    assert layer.embeddings.numpy().tolist() == [[0.0, 0.0], [-4.0, -6.0], [0.0, 0.0], [-5.0, -6.0]]


def test_embeddings_begin_with_given_weights() -> None:
    table = RNG.normal(size=(3, 2)).astype(np.float32)
    for weights in (table, [table], table.tolist()):
        layer = layers.Embedding(3, 2, weights=weights)
        assert layer.built and layer.get_weights()[0].tolist() == table.tolist()


# ------------------------------------------------------------------ derivatives

NETWORKS: dict[str, Callable[[], list[Any]]] = {
    "convolutions": lambda: [
        layers.Conv2D(4, 3, padding="same", strides=2, activation="tanh", groups=2, dtype="float64"),
        layers.Conv2D(3, 2, dtype="float64"),
        layers.Flatten(dtype="float64"),
    ],
    "pooling": lambda: [
        layers.MaxPooling2D(3, 2, "same", dtype="float64"),
        layers.AveragePooling2D(2, 1, dtype="float64"),
        layers.GlobalAveragePooling2D(dtype="float64"),
    ],
    "layer normalization": lambda: [
        layers.LayerNormalization([1, 3], dtype="float64"),
        layers.Flatten(dtype="float64"),
        layers.LayerNormalization(dtype="float64"),
    ],
}


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
@pytest.mark.parametrize("network", NETWORKS)
def test_gradients_of_networks(network: str, traced: bool) -> None:
    tf.random.set_seed(5)
    x = RNG.normal(size=(2, 4, 5, 4))
    model = tf.keras.Sequential(NETWORKS[network](), dtype="float64")
    weighted(model, None, 4, 5, 4)

    def value(inputs: Any) -> Any:
        return tf.reduce_sum(tf.sin(model(inputs)))

    def gradients(inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            result = value(inputs)
        return tape.gradient(result, [inputs, *model.trainable_variables])

    found = (tf.function(gradients) if traced else gradients)(tf.constant(x))
    with tf.device("/CPU:0"):  # wherever gradients are computed
        wanted = [r.numeric_gradient(lambda moved: float(value(moved)), x)]
        for v in model.trainable_variables:
            start = v.numpy()

            def moved(array: Any, v: Any = v) -> float:
                v.assign(array)
                return float(value(x))

            wanted.append(r.numeric_gradient(moved, start))
            v.assign(start)
    for g, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(g.numpy(), w, rtol=1e-6, atol=1e-8)


# ------------------------------------------------------------------ wrong use

ONES = np.ones((1, 4, 4, 2), np.float32)

WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: layers.Conv2D(0, 3), ValueError, "`filters` should be a positive integer, got 0"),
    (lambda: layers.Conv2D(4, 3, groups=3), ValueError, "multiple of `groups`, got filters=4, groups=3"),
    (lambda: layers.Conv2D(4, 3, groups=-1), ValueError, "`groups` should be a positive integer"),
    (lambda: layers.Conv2D(4, (3, 0)), ValueError, r"`kernel_size` should be positive, got \(3, 0\)"),
    (lambda: layers.Conv2D(4, (3, 3, 3)), ValueError, "`kernel_size` should be an integer or two of them"),
    (lambda: layers.Conv2D(4, 2.5), ValueError, "`kernel_size` should be an integer or two of them, got 2.5"),
    (lambda: layers.Conv2D(4, 3, 2, dilation_rate=2), ValueError, "do not go together, got strides"),
    (lambda: layers.Conv2D(4, 3, padding="causal"), ValueError, "'valid' or 'same', got 'causal'"),
    (lambda: layers.Conv2D(4, 3, data_format="NHWC"), ValueError, "'channels_first', got 'NHWC'"),
    (lambda: layers.Conv2D(4, 5)(ONES), ValueError, r"would be zero or negative: windows of size \(5, 5\)"),
    (lambda: layers.Conv2D(3, 2, groups=3)(ONES), ValueError, "The 2 channels .* a multiple of its 3 `groups`"),
    (lambda: layers.Conv2D(4, 2)(ONES[0]), ValueError, "expected min_ndim=4, found ndim=3.*expand_dims"),
    (lambda: layers.Conv2D(4, 2)(ONES[None]), ValueError, "expected max_ndim=4, found ndim=5"),
    (lambda: layers.Conv2D(4, 2).build((None, 4, 4, None)), ValueError, "number of channels .* should be known"),
    (lambda: layers.Conv2D(4, 2, kernel_constraint="nonneg")(ONES), ValueError, "function of the value, got 'nonneg'"),
    (lambda: layers.MaxPooling2D(0), ValueError, "`pool_size` should be positive"),
    (lambda: layers.MaxPooling2D(2, padding=1), ValueError, "'valid' or 'same', got 1"),
    (lambda: layers.AveragePooling2D()(ONES[0]), ValueError, "found ndim=3"),
    (lambda: layers.MaxPooling2D(5).compute_output_shape(ONES.shape), ValueError, "zero or negative"),
    (lambda: layers.GlobalAveragePooling2D()(ONES[0]), ValueError, "found ndim=3"),
    (lambda: layers.LayerNormalization(axis=2.0), TypeError, "`axis` should be an integer or a list"),
    (lambda: layers.LayerNormalization(axis=[]), TypeError, r"got \[\]"),
    (lambda: layers.LayerNormalization(axis=4)(ONES), ValueError, r"Axis 4 of layer .* \(1, 4, 4, 2\)"),
    (lambda: layers.LayerNormalization().build((None, None)), ValueError, "whose size should be known"),
    (lambda: layers.Embedding(0, 2), ValueError, "`input_dim` should be a positive integer"),
    (lambda: layers.Embedding(2, 1.5), ValueError, "`output_dim` should be a positive integer, got 1.5 of type float"),
    (lambda: layers.Embedding(2, 2, mask_zero=True), ValueError, "`mask_zero` should be False.*sample_weight"),
    (lambda: layers.Embedding(2, 2, weights=np.ones((2, 3))), ValueError, r"shape \(2, 2\) is not compatible"),
    (lambda: layers.Embedding(2, 2)([2]), tf.errors.InvalidArgumentError, "2"),
    (lambda: layers.Embedding(2, 2)([-1]), tf.errors.InvalidArgumentError, "-1"),
    (lambda: layers.Flatten("last"), ValueError, "`data_format`"),
    (lambda: layers.Dropout(0.5, noise_shape=3), ValueError, "`noise_shape` should be a list of positive .*got 3"),
    (lambda: layers.Dropout(0.5, noise_shape=[0, 1]), ValueError, r"positive integers and None, got \[0, 1\]"),
    (lambda: layers.Dropout(0.5, noise_shape=[1])(ONES, training=True), ValueError, "an entry for each axis"),
]


@pytest.mark.parametrize("make, kind, message", WRONG)
def test_wrong_use_is_explained(make: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()
