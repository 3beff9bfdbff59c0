"""`tf.keras.config`: the policy of layers that are made without a dtype, under Keras 3's name. Floor: keras."""

from gradtape.keras.policies import dtype_policy, set_dtype_policy

__all__ = ["dtype_policy", "set_dtype_policy"]
