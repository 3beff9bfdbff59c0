"""`tf.data`: batches on their way to a device. Floor: api."""

from gradtape.api import data_experimental as experimental

__all__ = ["experimental"]
