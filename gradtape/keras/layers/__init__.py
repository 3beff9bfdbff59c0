"""`tf.keras.layers`. Floor: keras."""

from gradtape.keras.layers.base import Layer
from gradtape.keras.layers.core import Activation, Dense, Dropout, Flatten, Input, InputLayer
from gradtape.keras.layers.inputs import InputSpec
from gradtape.keras.layers.normalization import BatchNormalization

__all__ = [
    "Activation",
    "BatchNormalization",
    "Dense",
    "Dropout",
    "Flatten",
    "Input",
    "InputLayer",
    "InputSpec",
    "Layer",
]
