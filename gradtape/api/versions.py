"""`tf.version`. Floor: api."""

from gradtape.version import __version__ as VERSION

__all__ = [
    "VERSION",
]
