"""Losses of numbers: squared, absolute, Huber. Floor: keras."""

from __future__ import annotations

from typing import Any

from gradtape.api.elementwise import abs, square, where
from gradtape.api.reductions import reduce_mean
from gradtape.keras.losses.base import FunctionLoss, floating, of_dtype, same_rank
from gradtape.runtime.tensor import Tensor


def _errors(y_true: Any, y_pred: Any) -> Tensor:
    """y_true - y_pred in the dtype of the predictions."""
    predicted = floating(y_pred)
    labels, predicted = same_rank(of_dtype(y_true, predicted._aval.dtype), predicted)
    return labels - predicted


def mean_squared_error(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of (y_true - y_pred)² over the last axis, in the dtype of `y_pred`.

    >>> import gradtape as tf
    >>> print(tf.keras.losses.mean_squared_error([[0.0, 1.0]], [[1.0, 3.0]]).numpy())
    [2.5]
    """
    return reduce_mean(square(_errors(y_true, y_pred)), -1)


def mean_absolute_error(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of |y_true - y_pred| over the last axis, in the dtype of `y_pred`.

    >>> import gradtape as tf
    >>> print(tf.keras.losses.mean_absolute_error([[0.0, 1.0]], [[1.0, 3.0]]).numpy())
    [1.5]
    """
    return reduce_mean(abs(_errors(y_true, y_pred)), -1)


def huber(y_true: Any, y_pred: Any, delta: float = 1.0) -> Tensor:
    """The mean over the last axis of e²/2 where |e| ≤ delta, else delta · |e| - delta²/2; e = y_true - y_pred.

    >>> import gradtape as tf
    >>> print(tf.keras.losses.huber([[0.0, 1.0]], [[1.0, 3.0]]).numpy())
    [1.]
    """
    error = _errors(y_true, y_pred)
    size = abs(error)
    return reduce_mean(where(size <= delta, 0.5 * square(error), delta * size - 0.5 * delta**2), -1)


class MeanSquaredError(FunctionLoss):
    """`mean_squared_error`, reduced; see `Loss` for the arguments.

    >>> import gradtape as tf
    >>> float(tf.keras.losses.MeanSquaredError()([[0.0], [1.0]], [[1.0], [3.0]]))
    2.5
    """

    def __init__(
        self, reduction: str | None = "sum_over_batch_size", name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(mean_squared_error, name, reduction, dtype)


class MeanAbsoluteError(FunctionLoss):
    """`mean_absolute_error`, reduced; see `Loss` for the arguments.

    >>> import gradtape as tf
    >>> float(tf.keras.losses.MeanAbsoluteError(reduction="sum")([[0.0], [1.0]], [[1.0], [3.0]]))
    3.0
    """

    def __init__(
        self, reduction: str | None = "sum_over_batch_size", name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(mean_absolute_error, name, reduction, dtype)


class Huber(FunctionLoss):
    """`huber`, reduced; see `Loss` for the arguments.

    >>> import gradtape as tf
    >>> float(tf.keras.losses.Huber()([[0.0], [1.0]], [[1.0], [3.0]]))
    1.0
    """

    def __init__(
        self,
        delta: float = 1.0,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(huber, name, reduction, dtype, delta=delta)
