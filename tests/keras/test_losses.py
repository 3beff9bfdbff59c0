"""Losses against NumPy in float64, for each reduction and weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.runtime.devices import is_on_device
from tests.keras import references as r

L = tf.keras.losses
RNG = np.random.default_rng(0)
TRUTH, NUMBERS = RNG.normal(size=(4, 3)), RNG.normal(size=(4, 3)) * 2
BITS, CHANCES = (RNG.uniform(size=(4, 3)) > 0.5).astype(float), RNG.uniform(0.01, 0.99, (4, 3))
CLASSES = np.array([0, 2, 1, 1])
ONE_HOT, LOGITS = np.eye(3)[CLASSES], RNG.normal(size=(4, 3)) * 4

CASES: dict[str, tuple[Any, dict[str, Any], Any, Any, Any]] = {
    "squared": (L.MeanSquaredError, {}, TRUTH, NUMBERS, r.squared(TRUTH, NUMBERS)),
    "absolute": (L.MeanAbsoluteError, {}, TRUTH, NUMBERS, r.absolute(TRUTH, NUMBERS)),
    "huber": (L.Huber, {"delta": 0.7}, TRUTH, NUMBERS, r.huber(TRUTH, NUMBERS, 0.7)),
    "binary": (L.BinaryCrossentropy, {}, BITS, CHANCES, r.binary(BITS, CHANCES)),
    "binary smoothed": (L.BinaryCrossentropy, {"label_smoothing": 0.2}, BITS, CHANCES, r.binary(BITS, CHANCES, 0.2)),
    "binary logits": (L.BinaryCrossentropy, {"from_logits": True}, BITS, LOGITS, r.binary(BITS, r.sigmoid(LOGITS))),
    "categorical": (L.CategoricalCrossentropy, {}, ONE_HOT, CHANCES, r.categorical(ONE_HOT, CHANCES)),
    "categorical smoothed": (
        L.CategoricalCrossentropy,
        {"label_smoothing": 0.3},
        ONE_HOT,
        CHANCES,
        r.categorical(ONE_HOT, CHANCES, 0.3),
    ),
    "categorical logits": (
        L.CategoricalCrossentropy,
        {"from_logits": True},
        ONE_HOT,
        LOGITS,
        r.categorical(ONE_HOT, r.softmax(LOGITS)),
    ),
    "sparse": (
        L.SparseCategoricalCrossentropy,
        {},
        CLASSES,
        r.softmax(LOGITS),
        r.categorical(ONE_HOT, r.softmax(LOGITS)),
    ),
    "sparse logits": (
        L.SparseCategoricalCrossentropy,
        {"from_logits": True},
        CLASSES,
        LOGITS,
        r.categorical(ONE_HOT, r.softmax(LOGITS)),
    ),
    "sparse column": (
        L.SparseCategoricalCrossentropy,
        {"from_logits": True},
        CLASSES[:, None],
        LOGITS,
        r.categorical(ONE_HOT, r.softmax(LOGITS)),
    ),
}


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.0, 0.5], [[1.0], [2.0], [0.0], [0.5]]], ids=str)
@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean", "sum", "mean_with_sample_weight", "none", None])
@pytest.mark.parametrize("case", CASES)
def test_value(case: str, reduction: str | None, weights: Any) -> None:
    kind, options, truth, predicted, values = CASES[case]
    loss = kind(**options, reduction=reduction, dtype="float64")
    found = loss(truth, predicted, sample_weight=weights)
    assert found.dtype == tf.float64
    np.testing.assert_allclose(found.numpy(), r.weighted(values, weights, reduction), rtol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_arithmetic_is_in_float32_unless_asked(case: str) -> None:
    kind, options, truth, predicted, values = CASES[case]
    found = kind(**options)(truth, predicted)
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found.numpy(), values.mean(), rtol=2e-6)


def test_functions_compute_in_the_dtype_of_the_predictions() -> None:
    found = L.mean_squared_error(np.array([[1, 2]]), tf.constant([[0.5, 2.0]], tf.float64))
    assert found.dtype == tf.float64 and found.numpy().tolist() == [0.125]
    assert L.mean_absolute_error(TRUTH.astype(np.float32), tf.constant(NUMBERS)).dtype == tf.float64


def test_probabilities_are_clipped() -> None:
    certain = tf.constant([[0.0, 1.0]], tf.float64)
    wrong = np.array([[1.0, 0.0]])
    for function in (L.binary_crossentropy, L.categorical_crossentropy):
        np.testing.assert_allclose(function(wrong, certain).numpy(), -np.log(1e-7), rtol=1e-9)
    np.testing.assert_allclose(L.sparse_categorical_crossentropy([0], certain).numpy(), -np.log(1e-7), rtol=1e-9)


def test_large_logits_stay_finite() -> None:
    logits = tf.constant([[1000.0, -1000.0]])
    assert L.BinaryCrossentropy(from_logits=True)([[0.0, 1.0]], logits).numpy() == 1000.0
    assert L.SparseCategoricalCrossentropy(from_logits=True)([1], logits).numpy() == 2000.0


def test_classes_along_another_axis() -> None:
    truth, logits = np.stack([ONE_HOT, ONE_HOT]).swapaxes(1, 2), np.stack([LOGITS, NUMBERS]).swapaxes(1, 2)
    found = L.CategoricalCrossentropy(from_logits=True, axis=1, reduction=None, dtype="float64")(truth, logits)
    wanted = [r.categorical(ONE_HOT, r.softmax(x)) for x in (LOGITS, NUMBERS)]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9)
    sparse = L.SparseCategoricalCrossentropy(from_logits=True, axis=1, reduction=None, dtype="float64")
    np.testing.assert_allclose(sparse(np.stack([CLASSES, CLASSES]), logits).numpy(), wanted, rtol=1e-9)


def test_a_last_axis_of_one_is_matched() -> None:
    vector, column = np.arange(3.0), np.array([[0.0], [1.0], [4.0]])
    assert (
        float(L.MeanSquaredError()(vector, column)) == float(L.MeanSquaredError()(column, vector)) == np.float32(4 / 3)
    )


def test_large_class_numbers_stay_exact() -> None:
    label = 2**24 + 1  # float32 would make it 2²⁴
    values = np.zeros((1, label + 1), np.float32)
    values[0, label] = 30.0
    assert float(L.SparseCategoricalCrossentropy(from_logits=True)([label], values)) < 1e-4


def test_gradients_flow_to_predictions_and_labels() -> None:
    truth, predicted = tf.constant([[1.0, 0.0]]), tf.constant([[0.5, 2.0]])
    with tf.GradientTape() as tape:
        tape.watch([truth, predicted])
        value = L.MeanSquaredError()(truth, predicted)
    to_truth, to_predicted = tape.gradient(value, [truth, predicted])
    np.testing.assert_allclose(to_predicted.numpy(), [[-0.5, 2.0]])
    np.testing.assert_allclose(to_truth.numpy(), [[0.5, -2.0]])


def test_wrong_use_is_explained() -> None:
    with pytest.raises(ValueError, match=r"`reduction` should be one of .*, got 'average'"):
        L.MeanSquaredError(reduction="average")
    with pytest.raises(ValueError, match=r"same shape, got .*SparseCategoricalCrossentropy"):
        L.CategoricalCrossentropy()(CLASSES, LOGITS)
    with pytest.raises(ValueError, match=r"one class number per row.*one-hot"):
        L.SparseCategoricalCrossentropy()(ONE_HOT, LOGITS)
    with pytest.raises(ValueError, match="same shape"):
        L.BinaryCrossentropy()(np.zeros(4), LOGITS)
    with pytest.raises(ValueError, match="`label_smoothing` should be a number from 0 to 1"):
        L.BinaryCrossentropy(label_smoothing=2.0)
    with pytest.raises(ValueError, match="Did you mean 'huber'"):
        L.get("hubert")


@pytest.mark.host("nobody waits for a device to find out that there is no such class")
def test_a_class_that_does_not_exist() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        L.SparseCategoricalCrossentropy(from_logits=True)([7, 0, 0, 0], LOGITS)


def test_losses_by_name() -> None:
    assert L.get("mse") is L.mean_squared_error and L.get(None) is None
    assert isinstance(L.get("BinaryCrossentropy"), L.BinaryCrossentropy)
    assert L.MeanSquaredError().name == "mean_squared_error" and L.Huber(name="h").name == "h"


def test_labels_that_are_no_class_have_no_gradient_that_is_a_number() -> None:
    """The gradient alone does not look at the labels; on a device, the loss does not either."""

    @tf.function
    def slopes(x: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x)
        return tape.gradient(loss, x)

    x = tf.constant(np.arange(12.0, dtype=np.float32).reshape(4, 3) % 5)
    for dtype in (tf.int32, tf.int64, tf.uint8):
        labels = tf.constant([0, 3, 2, 200], dtype)
        found = slopes(x, labels).numpy()
        assert np.isnan(found[[1, 3]]).all() and np.isfinite(found[[0, 2]]).all()
    assert np.isnan(slopes(x, tf.constant([0, -1, 2, 1])).numpy()[1]).all()


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_that_is_no_class(label: int) -> None:
    logits, labels = tf.zeros([2, 3]), tf.constant([1, label])
    if is_on_device(logits._array):
        found = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits).numpy()
        assert np.isfinite(found[0]) and np.isnan(found[1])
    else:
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def test_losses_by_their_shorter_names() -> None:
    found = tf.losses.binary_crossentropy([1.0, 0.0], [0.9, 0.2]).numpy()
    np.testing.assert_allclose(found, -(np.log(0.9) + np.log(0.8)) / 2, 1e-5)
    found = tf.losses.categorical_crossentropy([[0.0, 1.0]], [[0.3, 0.7]]).numpy()
    np.testing.assert_allclose(found, [-np.log(0.7)], 1e-5)
