"""`Loss`: a value per example, weighted and reduced. Floor: keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.api.creation import convert_to_tensor
from gradtape.api.elementwise import cast, divide_no_nan
from gradtape.api.layout import expand_dims, squeeze
from gradtape.api.reductions import reduce_sum
from gradtape.ir.dtypes import DType, as_dtype, float32
from gradtape.keras.names import snake_case
from gradtape.runtime.tensor import Tensor

REDUCTIONS = ("sum_over_batch_size", "mean", "mean_with_sample_weight", "sum", "none", None)

EPSILON = 1e-7  # probabilities are clipped to [EPSILON, 1 - EPSILON] before their logarithm is taken


class Loss:
    """The base of all losses: subclasses implement `call(y_true, y_pred)`, one value per example.

    Args:
      name: the default is the class' name in lower case.
      reduction: "sum_over_batch_size" or "mean" (of all values), "sum", "mean_with_sample_weight" (the sum over
        that of the weights), "none" or None.
      dtype: what the arithmetic is done in, float32 by default; predictions and labels are cast to it.

    Raises:
      ValueError: an unknown reduction.

    >>> import gradtape as tf
    >>> class Cubic(tf.keras.losses.Loss):
    ...     def call(self, y_true, y_pred):
    ...         return tf.reduce_mean(tf.abs(y_true - y_pred) ** 3, axis=-1)
    >>> float(Cubic()([[0.0], [0.0]], [[1.0], [2.0]]))
    4.5
    """

    _dtype: DType = float32

    def __init__(self, name: str | None = None, reduction: str | None = "sum_over_batch_size", dtype: Any = None):
        if reduction not in REDUCTIONS:
            raise ValueError(f"`reduction` should be one of {REDUCTIONS}, got {reduction!r}.")
        self.name = name or snake_case(type(self).__name__)
        self.reduction = reduction
        self._dtype = float32 if dtype is None else as_dtype(dtype)

    @property
    def dtype(self) -> str:
        return self._dtype.name

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """One value per example."""
        raise NotImplementedError(f"Loss {type(self).__name__} does not have a `call()` method implemented.")

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Tensor:
        """The reduced loss.

        Args:
          y_true: labels.
          y_pred: predictions.
          sample_weight: factors for the values; a vector weighs examples.
        """
        values = self.call(self._labels(y_true), of_dtype(y_pred, self._dtype))
        return reduced(values, sample_weight, self.reduction)

    def _labels(self, y_true: Any) -> Tensor:
        return of_dtype(y_true, self._dtype)


class FunctionLoss(Loss):
    """A loss that is a function of (y_true, y_pred) and a few options."""

    def __init__(
        self, function: Callable[..., Tensor], name: str | None, reduction: str | None, dtype: Any, **options: Any
    ) -> None:
        super().__init__(name, reduction, dtype)
        self.function, self.options = function, options
        for key, value in options.items():
            setattr(self, key, value)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return self.function(y_true, y_pred, **self.options)


def of_dtype(value: Any, dtype: DType) -> Tensor:
    """The value as a tensor, cast to the dtype."""
    return cast(convert_to_tensor(value), dtype)


def floating(value: Any) -> Tensor:
    """The value as a tensor; integers and booleans become float32."""
    t = convert_to_tensor(value)
    return t if t._aval.dtype.is_floating else cast(t, float32)


def same_rank(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Two tensors of one rank where one of them only has a last axis of size 1 more: a vector gets that axis
    too, anything else loses it."""
    if x.ndim < y.ndim:
        y, x = same_rank(y, x)
        return x, y
    if x.ndim == y.ndim + 1 and x._aval.dims[-1] == 1:
        return (x, expand_dims(y, -1)) if y.ndim == 1 else (squeeze(x, -1), y)
    return x, y


def reduced(values: Tensor, sample_weight: Any, reduction: str | None) -> Tensor:
    """Weighted values, reduced."""
    weights = None
    if sample_weight is not None:
        values, weights = same_rank(values, of_dtype(sample_weight, values._aval.dtype))
        values = values * weights
    if reduction in (None, "none") or values._aval.dims in ((), (0,)):
        return values
    total = reduce_sum(values)
    if reduction == "sum":
        return total
    if reduction == "mean_with_sample_weight" and weights is not None:
        return divide_no_nan(total, reduce_sum(weights))
    count = values._aval.size
    return total / float(count) if count else total
