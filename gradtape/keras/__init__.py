"""`tf.keras`: layers, optimizers, losses and initializers, built on the public functions only. Floor: keras."""

from gradtape.keras import activations, config, initializers, layers, losses, mixed_precision, models, optimizers
from gradtape.keras.layers import Input, Layer
from gradtape.keras.losses import Loss
from gradtape.keras.models import Model, Sequential
from gradtape.keras.optimizers import Optimizer
from gradtape.keras.policies import DTypePolicy

__all__ = [
    "DTypePolicy",
    "Input",
    "Layer",
    "Loss",
    "Model",
    "Optimizer",
    "Sequential",
    "activations",
    "config",
    "initializers",
    "layers",
    "losses",
    "mixed_precision",
    "models",
    "optimizers",
]
