"""`tf.keras.layers`. Floor: keras."""

from gradtape.keras.layers.base import Layer
from gradtape.keras.layers.convolution import Conv2D
from gradtape.keras.layers.core import Activation, Dense, Dropout, Flatten, Input, InputLayer
from gradtape.keras.layers.embedding import Embedding
from gradtape.keras.layers.inputs import InputSpec
from gradtape.keras.layers.normalization import BatchNormalization, LayerNormalization
from gradtape.keras.layers.pooling import AveragePooling2D, GlobalAveragePooling2D, MaxPooling2D

# The other names that Keras has for them.
Convolution2D = Conv2D
MaxPool2D = MaxPooling2D
AvgPool2D = AveragePooling2D
GlobalAvgPool2D = GlobalAveragePooling2D

__all__ = [
    "Activation",
    "AveragePooling2D",
    "AvgPool2D",
    "BatchNormalization",
    "Conv2D",
    "Convolution2D",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAveragePooling2D",
    "GlobalAvgPool2D",
    "Input",
    "InputLayer",
    "InputSpec",
    "Layer",
    "LayerNormalization",
    "MaxPool2D",
    "MaxPooling2D",
]
