"""`tf.keras.losses`. Floor: keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.keras.losses.base import Loss
from gradtape.keras.losses.crossentropy import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    SparseCategoricalCrossentropy,
    binary_crossentropy,
    categorical_crossentropy,
    sparse_categorical_crossentropy,
)
from gradtape.keras.losses.regression import (
    Huber,
    MeanAbsoluteError,
    MeanSquaredError,
    huber,
    mean_absolute_error,
    mean_squared_error,
)
from gradtape.keras.names import by_name

__all__ = [
    "BinaryCrossentropy",
    "CategoricalCrossentropy",
    "Huber",
    "Loss",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "SparseCategoricalCrossentropy",
    "binary_crossentropy",
    "categorical_crossentropy",
    "get",
    "huber",
    "mean_absolute_error",
    "mean_squared_error",
    "sparse_categorical_crossentropy",
]

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "binary_crossentropy": binary_crossentropy,
    "categorical_crossentropy": categorical_crossentropy,
    "huber": huber,
    "mae": mean_absolute_error,
    "mean_absolute_error": mean_absolute_error,
    "mean_squared_error": mean_squared_error,
    "mse": mean_squared_error,
    "sparse_categorical_crossentropy": sparse_categorical_crossentropy,
}
_CLASSES: dict[str, Callable[..., Any]] = {
    c.__name__: c
    for c in (
        BinaryCrossentropy,
        CategoricalCrossentropy,
        Huber,
        MeanAbsoluteError,
        MeanSquaredError,
        SparseCategoricalCrossentropy,
    )
}


def get(identifier: Any) -> Any:
    """The loss function of that name, or a new loss for the name of a class; None and callables are themselves.

    Raises:
      ValueError: an unknown name; the message lists the known ones.

    >>> import gradtape as tf
    >>> tf.keras.losses.get("mse") is tf.keras.losses.mean_squared_error
    True
    """
    if identifier is None or callable(identifier):
        return identifier
    if isinstance(identifier, str) and identifier in _CLASSES:
        return _CLASSES[identifier]()
    return by_name("loss", _FUNCTIONS, identifier)
