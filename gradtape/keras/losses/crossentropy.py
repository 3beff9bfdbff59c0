"""Losses of probabilities. Floor: keras.

From logits they are the ops that stay exact for large logits; from probabilities, which are clipped to
[1e-7, 1 - 1e-7] first, they are written out."""

from __future__ import annotations

from typing import Any

from gradtape.api.creation import convert_to_tensor
from gradtape.api.elementwise import cast, clip_by_value, log, sigmoid_cross_entropy_with_logits
from gradtape.api.layout import squeeze, transpose
from gradtape.api.reductions import reduce_mean, reduce_sum
from gradtape.api.rows import softmax_cross_entropy_with_logits, sparse_softmax_cross_entropy_with_logits
from gradtape.ir.dtypes import int64
from gradtape.keras.arguments import part
from gradtape.keras.losses.base import EPSILON, FunctionLoss, floating, of_dtype
from gradtape.runtime.tensor import Tensor


def _clipped(probabilities: Tensor) -> Tensor:
    return clip_by_value(probabilities, EPSILON, 1.0 - EPSILON)


def _same_shape(labels: Tensor, predicted: Tensor, way_out: str) -> None:
    if labels._aval.dims != predicted._aval.dims:
        raise ValueError(
            f"`y_true` and `y_pred` should have the same shape, got {labels.shape} and {predicted.shape}. {way_out}"
        )


def binary_crossentropy(
    y_true: Any, y_pred: Any, from_logits: bool = False, label_smoothing: float = 0.0, axis: int = -1
) -> Tensor:
    """-y · log(p) - (1 - y) · log(1 - p), the mean over an axis.

    Args:
      y_true: labels from 0 to 1, of the shape of `y_pred`.
      y_pred: probabilities, or logits if `from_logits`.
      from_logits: whether p = sigmoid(y_pred).
      label_smoothing: moves labels towards 1/2 by this part of the way.
      axis: of the mean.

    Raises:
      ValueError: different shapes.

    >>> import gradtape as tf
    >>> print(tf.keras.losses.binary_crossentropy([[0.0, 1.0]], [[0.5, 0.5]]).numpy())
    [0.6931472]
    """
    predicted = floating(y_pred)
    labels = of_dtype(y_true, predicted._aval.dtype)
    if label_smoothing:
        labels = labels * (1.0 - label_smoothing) + 0.5 * label_smoothing
    _same_shape(labels, predicted, "Use `tf.expand_dims(y_true, -1)` for labels that lack the last axis.")
    if from_logits:
        return reduce_mean(sigmoid_cross_entropy_with_logits(labels=labels, logits=predicted), axis)
    p = _clipped(predicted)
    return reduce_mean(-(labels * log(p) + (1.0 - labels) * log(1.0 - p)), axis)


def categorical_crossentropy(
    y_true: Any, y_pred: Any, from_logits: bool = False, label_smoothing: float = 0.0, axis: int = -1
) -> Tensor:
    """-sum(y · log(p)) over the axis of classes.

    Args:
      y_true: one-hot labels or probabilities, of the shape of `y_pred`.
      y_pred: probabilities (which are divided by their sum), or logits if `from_logits`.
      from_logits: whether p = softmax(y_pred).
      label_smoothing: moves labels towards 1/classes by this part of the way.
      axis: of the classes.

    Raises:
      ValueError: different shapes.

    >>> import gradtape as tf
    >>> print(tf.keras.losses.categorical_crossentropy([[0.0, 1.0]], [[0.5, 0.5]]).numpy())
    [0.6931472]
    """
    predicted = floating(y_pred)
    labels = of_dtype(y_true, predicted._aval.dtype)
    _same_shape(labels, predicted, "Use `SparseCategoricalCrossentropy` for labels that are class numbers.")
    if label_smoothing:
        labels = labels * (1.0 - label_smoothing) + label_smoothing / labels._aval.dims[axis]
    if from_logits:
        return softmax_cross_entropy_with_logits(_last(labels, axis), _last(predicted, axis))
    p = _clipped(predicted / reduce_sum(predicted, axis, True))
    return -reduce_sum(labels * log(p), axis)


def _last(x: Tensor, axis: int) -> Tensor:
    """x with that axis moved to the end."""
    rank = x.ndim
    if axis % rank == rank - 1:
        return x
    return transpose(x, [*(k for k in range(rank) if k != axis % rank), axis % rank])


def sparse_categorical_crossentropy(y_true: Any, y_pred: Any, from_logits: bool = False, axis: int = -1) -> Tensor:
    """-log(p[y]) for class numbers y.

    Args:
      y_true: class numbers of shape (batch, ...), or (batch, ..., 1).
      y_pred: probabilities, or logits if `from_logits`, of shape (batch, ..., classes).
      from_logits: whether p = softmax(y_pred). Probabilities are taken to add up to 1.
      axis: of the classes.

    Raises:
      ValueError: labels that are not one per row.
      InvalidArgumentError: a label that is no class.

    >>> import gradtape as tf
    >>> print(tf.keras.losses.sparse_categorical_crossentropy([1], [[0.25, 0.75]]).numpy().round(4))
    [0.2877]
    """
    predicted = _last(floating(y_pred), axis)
    labels = convert_to_tensor(y_true)
    if labels.ndim == predicted.ndim and labels._aval.dims[axis] == 1:
        labels = squeeze(labels, axis)
    if labels._aval.dims != predicted._aval.dims[:-1]:
        raise ValueError(
            f"`y_true` should be one class number per row of `y_pred`: got shapes {labels.shape} and "
            f"{convert_to_tensor(y_pred).shape}. Use `CategoricalCrossentropy` for one-hot labels."
        )
    logits = predicted if from_logits else log(_clipped(predicted))
    return sparse_softmax_cross_entropy_with_logits(labels=_numbers(labels), logits=logits)


def _numbers(labels: Tensor) -> Tensor:
    return labels if labels._aval.dtype.is_integer else cast(labels, int64)


class BinaryCrossentropy(FunctionLoss):
    """`binary_crossentropy`, reduced; see `Loss` for the other arguments.

    >>> import gradtape as tf
    >>> round(float(tf.keras.losses.BinaryCrossentropy(from_logits=True)([[1.0]], [[0.0]])), 6)
    0.693147
    """

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        part("label_smoothing", label_smoothing)
        options = {"from_logits": from_logits, "label_smoothing": label_smoothing, "axis": axis}
        super().__init__(binary_crossentropy, name, reduction, dtype, **options)


class CategoricalCrossentropy(FunctionLoss):
    """`categorical_crossentropy`, reduced; see `Loss` for the other arguments.

    >>> import gradtape as tf
    >>> round(float(tf.keras.losses.CategoricalCrossentropy()([[1.0, 0.0]], [[0.5, 0.5]])), 6)
    0.693147
    """

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        part("label_smoothing", label_smoothing)
        options = {"from_logits": from_logits, "label_smoothing": label_smoothing, "axis": axis}
        super().__init__(categorical_crossentropy, name, reduction, dtype, **options)


class SparseCategoricalCrossentropy(FunctionLoss):
    """`sparse_categorical_crossentropy`, reduced; see `Loss` for the other arguments.

    >>> import gradtape as tf
    >>> loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    >>> round(float(loss([1, 0], [[0.0, 0.0], [0.0, 0.0]])), 6)
    0.693147
    """

    def __init__(
        self,
        from_logits: bool = False,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(sparse_categorical_crossentropy, name, reduction, dtype, from_logits=from_logits, axis=axis)

    def _labels(self, y_true: Any) -> Tensor:
        return convert_to_tensor(y_true)  # class numbers stay integers: float32 is exact to 2²⁴ only
