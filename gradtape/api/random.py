"""`tf.random`: counter-based random numbers (Philox), equal on every backend for one seed. Floor: api."""

from gradtape.api.sampling import *  # noqa: F403, all that it offers and nothing else
from gradtape.api.sampling import __all__ as __all__
