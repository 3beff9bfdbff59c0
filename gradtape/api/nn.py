"""`tf.nn`. Floor: api."""

from gradtape.api.elementwise import (
    elu,
    leaky_relu,
    relu,
    relu6,
    selu,
    sigmoid,
    sigmoid_cross_entropy_with_logits,
    silu,
    softplus,
    softsign,
    tanh,
)
from gradtape.api.elementwise import silu as swish
from gradtape.api.embedding import (
    embedding_lookup,
)
from gradtape.api.rows import (
    batch_normalization,
    bias_add,
    l2_loss,
    l2_normalize,
    log_softmax,
    moments,
    softmax,
    softmax_cross_entropy_with_logits,
    sparse_softmax_cross_entropy_with_logits,
)
from gradtape.api.sorting import (
    in_top_k,
    top_k,
)

__all__ = [
    "batch_normalization",
    "bias_add",
    "elu",
    "embedding_lookup",
    "in_top_k",
    "l2_loss",
    "l2_normalize",
    "leaky_relu",
    "log_softmax",
    "moments",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "sigmoid_cross_entropy_with_logits",
    "silu",
    "softmax",
    "softmax_cross_entropy_with_logits",
    "softplus",
    "softsign",
    "sparse_softmax_cross_entropy_with_logits",
    "swish",
    "tanh",
    "top_k",
]
