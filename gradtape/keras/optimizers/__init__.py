"""`tf.keras.optimizers`. Floor: keras."""

from __future__ import annotations

from typing import Any

from gradtape.keras.names import by_name
from gradtape.keras.optimizers import schedules
from gradtape.keras.optimizers.adam import Adam, AdamW
from gradtape.keras.optimizers.base import Optimizer
from gradtape.keras.optimizers.loss_scale import LossScaleOptimizer
from gradtape.keras.optimizers.rmsprop import RMSprop
from gradtape.keras.optimizers.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "LossScaleOptimizer", "Optimizer", "RMSprop", "get", "schedules"]

_KNOWN: dict[str, type[Optimizer]] = {"adam": Adam, "adamw": AdamW, "rmsprop": RMSprop, "sgd": SGD}


def get(identifier: Any) -> Optimizer:
    """A new optimizer for a name; an optimizer is itself.

    Raises:
      ValueError: an unknown name; the message lists the known ones.

    >>> import gradtape as tf
    >>> round(float(tf.keras.optimizers.get("adam").learning_rate), 6)
    0.001
    """
    if isinstance(identifier, Optimizer):
        return identifier
    name = identifier.lower() if isinstance(identifier, str) else identifier
    return by_name("optimizer", _KNOWN, name)()
