"""`tf.keras.mixed_precision`: half types for the arithmetic, float32 for the weights. Floor: keras."""

from gradtape.keras.optimizers.loss_scale import LossScaleOptimizer
from gradtape.keras.policies import DTypePolicy, dtype_policy, set_dtype_policy

Policy = DTypePolicy
global_policy = dtype_policy
set_global_policy = set_dtype_policy

__all__ = [
    "DTypePolicy",
    "LossScaleOptimizer",
    "Policy",
    "dtype_policy",
    "global_policy",
    "set_dtype_policy",
    "set_global_policy",
]
