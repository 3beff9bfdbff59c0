"""`tf.autograph`. Floor: api."""

from gradtape.api import autograph_experimental as experimental
from gradtape.tracing.conversion import to_code, to_graph

__all__ = ["experimental", "to_code", "to_graph"]
