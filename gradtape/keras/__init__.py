"""`tf.keras`: layers, optimizers, losses and initializers, built on the public functions only. Floor: keras."""

from gradtape.keras import activations, initializers, layers, losses, models, optimizers
from gradtape.keras.layers import Input, Layer
from gradtape.keras.losses import Loss
from gradtape.keras.models import Model, Sequential
from gradtape.keras.optimizers import Optimizer

__all__ = [
    "Input",
    "Layer",
    "Loss",
    "Model",
    "Optimizer",
    "Sequential",
    "activations",
    "initializers",
    "layers",
    "losses",
    "models",
    "optimizers",
]
