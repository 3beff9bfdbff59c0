"""`tf.linalg`. Floor: api."""

from gradtape.api.clipping import global_norm
from gradtape.api.creation import eye
from gradtape.api.products import diag_part, einsum, matmul, matvec, tensordot, trace
from gradtape.api.reductions import norm
from gradtape.api.rows import l2_normalize

__all__ = [
    "diag_part",
    "einsum",
    "eye",
    "global_norm",
    "l2_normalize",
    "matmul",
    "matvec",
    "norm",
    "tensordot",
    "trace",
]
