"""`tf.compat`: names of TensorFlow 1, under `v1`. Floor: api."""

from gradtape.api import graphs as v1

__all__ = ["v1"]
