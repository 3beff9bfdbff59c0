"""`tf.autodiff`. Floor: api."""

from gradtape.tape import GradientTape

__all__ = [
    "GradientTape",
]
