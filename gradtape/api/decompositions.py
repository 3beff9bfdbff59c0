"""Eigenvalues, singular values and orthogonal factors. Floor: api."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes

from gradtape.api.arguments import number_matrices
from gradtape.api.diagonals import adjoint
from gradtape.api.elementwise import cast
from gradtape.api.layout import concat, pad
from gradtape.api.reductions import reduce_max, reduce_sum
from gradtape.ir.dtypes import int32
from gradtape.ops import decompositions as d
from gradtape.runtime.contract import matmul
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import execute, unary
from gradtape.runtime.operators import operand
from gradtape.runtime.tensor import Tensor


class Qr(NamedTuple):
    """Orthonormal columns and an upper triangular matrix."""

    q: Tensor
    r: Tensor


def eigh(tensor: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The eigenvalues and eigenvectors of Hermitian matrices.

    Args:
      tensor: floating or complex matrices (..., n, n), of which the lower triangle is read.
      name: accepted for compatibility.

    Returns:
      The eigenvalues (..., n) in ascending order, of the dtype of the matrices, and the eigenvectors (..., n, n) as
      columns. The first component of an eigenvector that is nearly its largest is positive. Where eigenvalues are
      equal, the gradient leaves out what would rotate their vectors: it is that of every function that does not
      depend on their choice. Matrices that are not finite give NaN.

    Raises:
      InvalidArgumentError: the matrices are not square.

    >>> import gradtape as tf
    >>> values, vectors = tf.linalg.eigh([[2.0, 0.0], [0.0, 1.0]])
    >>> print(values.numpy())
    [1. 2.]
    """
    x = convert(tensor)
    values, vectors = execute(d.EIGH.bind(), (x,))
    return cast(values, x._aval.dtype), vectors


def eigvalsh(tensor: Any, name: str | None = None) -> Tensor:
    """The eigenvalues of Hermitian matrices, in ascending order.

    Args:
      tensor: floating or complex matrices (..., n, n), of which the lower triangle is read.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: the matrices are not square.

    >>> import gradtape as tf
    >>> print(tf.linalg.eigvalsh([[2.0, 0.0], [0.0, 1.0]]).numpy())
    [1. 2.]
    """
    x = convert(tensor)
    return cast(unary(d.EIGVALSH.bind(), x), x._aval.dtype)


def svd(tensor: Any, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None) -> Any:
    """The singular value decomposition A = U diag(s) V*.

    Args:
      tensor: floating or complex matrices (..., m, n).
      full_matrices: square U and V, instead of the first min(m, n) columns.
      compute_uv: whether U and V are returned.
      name: accepted for compatibility.

    Returns:
      s, (..., min(m, n)), real, in descending order; and, unless `compute_uv` is False, U and V. The first component
      of a column of U that is nearly its largest is positive. Where singular values are equal, the gradient leaves
      out what would rotate their vectors together; where they are 0, what would turn theirs. Matrices that are not
      finite give NaN.

    Raises:
      InvalidArgumentError: fewer than two axes.

    >>> import gradtape as tf
    >>> s, u, v = tf.linalg.svd([[3.0, 0.0], [0.0, 4.0]])
    >>> print(s.numpy())
    [4. 3.]
    """
    x = convert(tensor)
    if not compute_uv:
        return unary(d.SINGULAR_VALUES.bind(), x)
    return execute(d.SVD.bind(full=bool(full_matrices)), (x,))


def qr(input: Any, full_matrices: bool = False, name: str | None = None) -> Qr:
    """A = Q R, with orthonormal columns of Q and an upper triangular R.

    Args:
      input: floating or complex matrices (..., m, n).
      full_matrices: a square Q, instead of its first min(m, n) columns, and as many rows of R.
      name: accepted for compatibility.

    Returns:
      `q` and `r`. The diagonal of R is real, of either sign.

    Raises:
      InvalidArgumentError: fewer than two axes.

    >>> import gradtape as tf
    >>> q, r = tf.linalg.qr([[3.0], [4.0]])
    >>> print(r.numpy())
    [[-5.]]
    """
    x = convert(input)
    rows, columns = x._aval.dims[-2:] if x.ndim >= 2 else (0, 0)
    if rows >= columns:
        q, r = execute(d.QR.bind(full=bool(full_matrices)), (x,))
        if full_matrices and rows > columns:
            r = pad(r, [[0, 0]] * (x.ndim - 2) + [[0, rows - columns], [0, 0]])
        return Qr(q, r)
    q, r = execute(d.QR.bind(full=False), (x[..., :rows],))  # the first columns settle Q
    return Qr(q, concat([r, matmul(adjoint(q), x[..., rows:])], axis=-1))


def matrix_rank(a: Any, tol: Any = None, validate_args: bool = False, name: str | None = None) -> Tensor:
    """How many singular values of matrices are larger than a tolerance.

    Args:
      a: floating or complex matrices (..., m, n).
      tol: the tolerance; by default eps · max(m, n) times the largest singular value.
      validate_args, name: accepted for compatibility.

    Returns:
      The ranks, int32.

    Raises:
      TypeError: another dtype.
      ValueError: fewer than two axes.

    >>> import gradtape as tf
    >>> print(tf.linalg.matrix_rank([[1.0, 2.0], [2.0, 4.0]]).numpy())
    1
    """
    x = convert(a)
    number_matrices(x, "matrix_rank")
    s = unary(d.SINGULAR_VALUES.bind(), x)
    if tol is None:
        eps = float(ml_dtypes.finfo(s._aval.dtype.numpy_dtype).eps)
        limit = eps * max(x._aval.dims[-2:]) * reduce_max(s, axis=-1, keepdims=True)
    else:
        limit = operand(tol, s._aval.dtype)[..., None]
    return reduce_sum(cast(s > limit, int32), axis=-1)
