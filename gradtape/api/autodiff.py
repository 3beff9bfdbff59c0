"""`tf.autodiff`. Floor: api."""

from gradtape.forward import ForwardAccumulator
from gradtape.tape import GradientTape

__all__ = [
    "ForwardAccumulator",
    "GradientTape",
]
