"""`tf.image`. Floor: api."""

from gradtape.api.blocks import extract_patches

__all__ = ["extract_patches"]
