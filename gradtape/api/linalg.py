"""`tf.linalg`. Floor: api."""

from gradtape.api.clipping import global_norm
from gradtape.api.creation import eye
from gradtape.api.decompositions import eigh, eigvalsh, matrix_rank, qr, svd
from gradtape.api.diagonals import (
    adjoint,
    band_part,
    diag,
    diag_part,
    matrix_transpose,
    set_diag,
    tensor_diag,
    tensor_diag_part,
    trace,
)
from gradtape.api.norms import norm
from gradtape.api.products import einsum, matmul, matvec, tensordot
from gradtape.api.rows import l2_normalize
from gradtape.api.systems import (
    cholesky,
    cholesky_solve,
    cross,
    det,
    expm,
    inv,
    logdet,
    lstsq,
    normalize,
    pinv,
    slogdet,
    solve,
    triangular_solve,
)

__all__ = [
    "adjoint",
    "band_part",
    "cholesky",
    "cholesky_solve",
    "cross",
    "det",
    "diag",
    "diag_part",
    "eigh",
    "eigvalsh",
    "einsum",
    "expm",
    "eye",
    "global_norm",
    "inv",
    "l2_normalize",
    "logdet",
    "lstsq",
    "matmul",
    "matrix_rank",
    "matrix_transpose",
    "matvec",
    "norm",
    "normalize",
    "pinv",
    "qr",
    "set_diag",
    "slogdet",
    "solve",
    "svd",
    "tensor_diag",
    "tensor_diag_part",
    "tensordot",
    "trace",
    "triangular_solve",
]
