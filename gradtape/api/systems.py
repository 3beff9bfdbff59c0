"""Inverses, linear systems, determinants and functions of matrices. Floor: api."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes

from gradtape.api.arguments import number_matrices
from gradtape.api.diagonals import adjoint as adjoint_of
from gradtape.api.diagonals import diag, diag_part
from gradtape.api.elementwise import cast, log, real
from gradtape.api.layout import roll
from gradtape.api.norms import norm
from gradtape.api.reductions import reduce_sum
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import shape_text
from gradtape.ops import determinants, matrix_functions, solving
from gradtape.runtime.contract import matmul
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import binary, execute, unary
from gradtape.runtime.operators import operand
from gradtape.runtime.tensor import Tensor


class LogMatrixDeterminant(NamedTuple):
    """The sign and the logarithm of the size of determinants."""

    sign: Tensor
    log_abs_determinant: Tensor


def inv(input: Any, adjoint: bool = False, name: str | None = None) -> Tensor:
    """The inverses of square matrices.

    Args:
      input: floating or complex matrices (..., n, n).
      adjoint: invert the conjugate transposes.
      name: accepted for compatibility.

    Returns:
      The inverses (..., n, n). In a stack of matrices one that has no inverse, or is not finite, becomes NaN, and the
      others are right; so are their gradients.

    Raises:
      InvalidArgumentError: no matrix is invertible (one on its own that is not, for instance), or they are not
        square.

    >>> import gradtape as tf
    >>> print(tf.linalg.inv([[2.0, 0.0], [0.0, 4.0]]).numpy())
    [[0.5  0.  ]
     [0.   0.25]]
    """
    inverse = unary(solving.INVERSE.bind(), convert(input))
    return adjoint_of(inverse) if adjoint else inverse


def solve(matrix: Any, rhs: Any, adjoint: bool = False, name: str | None = None) -> Tensor:
    """The solutions X of A X = B.

    Args:
      matrix: A, floating or complex, (..., n, n).
      rhs: B, of the same dtype, (..., n, k); axes before the last two broadcast.
      adjoint: solve with the conjugate transpose of A.
      name: accepted for compatibility.

    Returns:
      X, (..., n, k). In a stack, a singular matrix or one that is not finite gives NaN, and the others are right.

    Raises:
      InvalidArgumentError: no matrix is invertible, sizes that do not fit, or mixed dtypes.

    >>> import gradtape as tf
    >>> print(tf.linalg.solve([[2.0, 0.0], [0.0, 4.0]], [[1.0], [2.0]]).numpy())
    [[0.5]
     [0.5]]
    """
    a = convert(matrix)
    return binary(solving.SOLVE.bind(), adjoint_of(a) if adjoint else a, operand(rhs, a._aval.dtype))


def triangular_solve(
    matrix: Any, rhs: Any, lower: bool = True, adjoint: bool = False, name: str | None = None
) -> Tensor:
    """The solutions X of A X = B, where A is one triangle of a matrix. The other triangle is not read.

    Args:
      matrix: floating or complex, (..., n, n).
      rhs: B, of the same dtype, (..., n, k); axes before the last two broadcast.
      lower: A is the lower triangle, else the upper one.
      adjoint: solve with the conjugate transpose of A.
      name: accepted for compatibility.

    Returns:
      X, (..., n, k); where the diagonal holds a zero, the quotients of IEEE arithmetic: infinities and NaN.

    Raises:
      InvalidArgumentError: sizes that do not fit, or mixed dtypes.

    >>> import gradtape as tf
    >>> print(tf.linalg.triangular_solve([[2.0, 99.0], [2.0, 1.0]], [[2.0], [3.0]]).numpy())
    [[1.]
     [1.]]
    """
    a = convert(matrix)
    step = solving.TRIANGULAR_SOLVE.bind(lower=bool(lower), adjoint=bool(adjoint))
    return binary(step, a, operand(rhs, a._aval.dtype))


def cholesky(input: Any, name: str | None = None) -> Tensor:
    """The lower triangular factors L of A = L L*.

    Args:
      input: Hermitian positive definite matrices (..., n, n), of which the lower triangle is read.
      name: accepted for compatibility.

    Returns:
      L, (..., n, n). In a stack, a matrix that is not positive definite, or not finite, gives NaN, and the others are
      right. The gradient is Hermitian.

    Raises:
      InvalidArgumentError: no matrix is positive definite, or they are not square.

    >>> import gradtape as tf
    >>> print(tf.linalg.cholesky([[4.0, 2.0], [2.0, 5.0]]).numpy())
    [[2. 0.]
     [1. 2.]]
    """
    return unary(solving.CHOLESKY.bind(), convert(input))


def cholesky_solve(chol: Any, rhs: Any, name: str | None = None) -> Tensor:
    """The solutions X of A X = B from the Cholesky factor of A.

    Args:
      chol: L of A = L L*, (..., n, n); its lower triangle is read.
      rhs: B, of the same dtype, (..., n, k); axes before the last two broadcast.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: sizes that do not fit, or mixed dtypes.

    >>> import gradtape as tf
    >>> print(tf.linalg.cholesky_solve([[2.0, 0.0], [0.0, 1.0]], [[4.0], [3.0]]).numpy())
    [[1.]
     [3.]]
    """
    factor = convert(chol)
    return triangular_solve(factor, triangular_solve(factor, rhs), adjoint=True)


def pinv(a: Any, rcond: Any = None, validate_args: bool = False, name: str | None = None) -> Tensor:
    """The Moore-Penrose inverses of matrices.

    Args:
      a: floating or complex matrices (..., m, n).
      rcond: singular values up to this times the largest count as zero; a number, or one per matrix. By default
        10 · max(m, n) · eps of the dtype.
      validate_args, name: accepted for compatibility.

    Returns:
      The pseudo-inverses (..., n, m). Their gradient is that at a fixed rank.

    Raises:
      TypeError: another dtype.
      ValueError: fewer than two axes.
      InvalidArgumentError: an `rcond` that is not one per matrix.

    >>> import gradtape as tf
    >>> print(tf.linalg.pinv([[2.0, 0.0], [0.0, 0.0], [0.0, 0.0]]).numpy())
    [[0.5 0.  0. ]
     [0.  0.  0. ]]
    """
    x = convert(a)
    number_matrices(x, "pinv")
    dtype = x._aval.dtype
    if rcond is None:
        size = max(x._aval.dims[-2:])
        rcond = 10 * size * float(ml_dtypes.finfo(dtype.real_dtype.numpy_dtype).eps)
    return binary(matrix_functions.PINV.bind(), x, cast(operand(rcond, dtype), dtype))


def lstsq(matrix: Any, rhs: Any, l2_regularizer: Any = 0.0, fast: bool = True, name: str | None = None) -> Tensor:
    """The least-squares solutions X of A X = B, those of the smallest norm where there are many.

    Args:
      matrix: A, floating or complex, (..., m, n).
      rhs: B, of the same dtype, (..., m, k).
      l2_regularizer: λ: ‖A X - B‖² + λ ‖X‖² is minimised (by the fast way only).
      fast: solve the normal equations by a Cholesky factor, which squares the condition number and wants full rank;
        else multiply by the pseudo-inverse, which takes any rank.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: sizes that do not fit, mixed dtypes, or (fast) no matrix of full rank.

    >>> import gradtape as tf
    >>> print(tf.linalg.lstsq([[1.0], [1.0]], [[1.0], [3.0]]).numpy())
    [[2.]]
    """
    a = convert(matrix)
    b = operand(rhs, a._aval.dtype)
    if not fast:
        return matmul(pinv(a), b)
    rows, columns = a._aval.dims[-2:] if a.ndim >= 2 else (0, 0)
    if rows >= columns:
        gram = _regularized(matmul(a, a, adjoint_a=True), l2_regularizer)
        return cholesky_solve(cholesky(gram), matmul(a, b, adjoint_a=True))
    gram = _regularized(matmul(a, a, adjoint_b=True), l2_regularizer)
    return matmul(a, cholesky_solve(cholesky(gram), b), adjoint_a=True)


def _regularized(gram: Tensor, weight: Any) -> Tensor:
    """A A* + λ"""
    if isinstance(weight, int | float) and weight == 0:
        return gram
    n, dtype = gram._aval.dims[-1], gram._aval.dtype
    return gram + diag(cast(operand(weight, dtype), dtype) * operand([1.0] * n, dtype))


# ------------------------------------------------------------------ determinants


def det(input: Any, name: str | None = None) -> Tensor:
    """The determinants of square matrices.

    Their gradient is made of cofactors, so it and its own derivatives exist for singular matrices as well.

    Args:
      input: floating or complex matrices (..., n, n).
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: the matrices are not square.

    >>> import gradtape as tf
    >>> x = tf.constant([[1.0, 2.0], [2.0, 4.0]])
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = tf.linalg.det(x)
    >>> print(y.numpy())
    0.0
    >>> print(tf.round(tape.gradient(y, x)).numpy())
    [[ 4. -2.]
     [-2.  1.]]
    """
    return unary(determinants.DET.bind(), convert(input))


def slogdet(input: Any, name: str | None = None) -> LogMatrixDeterminant:
    """The sign and the logarithm of the size of determinants: det = sign · exp(log_abs_determinant).

    Args:
      input: floating or complex matrices (..., n, n).
      name: accepted for compatibility.

    Returns:
      `sign` and `log_abs_determinant`, both of the dtype of the input; 0 and -inf of singular matrices.

    Raises:
      InvalidArgumentError: the matrices are not square; at the gradient: none of them is invertible.

    >>> import gradtape as tf
    >>> sign, size = tf.linalg.slogdet([[0.0, 1.0], [1.0, 0.0]])
    >>> float(sign), float(size)
    (-1.0, 0.0)
    """
    x = convert(input)
    sign, size = execute(determinants.SLOGDET.bind(), (x,))
    return LogMatrixDeterminant(sign, cast(size, x._aval.dtype))


def logdet(matrix: Any, name: str | None = None) -> Tensor:
    """The logarithms of the determinants of Hermitian positive definite matrices, from their Cholesky factors.

    Raises:
      InvalidArgumentError: no matrix is positive definite.

    >>> import gradtape as tf
    >>> print(tf.linalg.logdet([[1.0, 0.0], [0.0, 1.0]]).numpy())
    0.0
    """
    return 2.0 * reduce_sum(log(real(diag_part(cholesky(matrix)))), axis=-1)


# ------------------------------------------------------------------ functions and products


def expm(input: Any, name: str | None = None) -> Tensor:
    """The exponentials Σ Aᵏ / k! of square matrices, by scaling and squaring of a Padé approximant.

    Source: Higham, The scaling and squaring method for the matrix exponential revisited, 2005.

    Args:
      input: floating or complex matrices (..., n, n).
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: the matrices are not square.

    >>> import gradtape as tf
    >>> print(tf.linalg.expm([[0.0, 1.0], [0.0, 0.0]]).numpy())
    [[1. 1.]
     [0. 1.]]
    """
    return unary(matrix_functions.EXPM.bind(), convert(input))


def normalize(tensor: Any, ord: Any = "euclidean", axis: Any = None, name: str | None = None) -> tuple[Tensor, Tensor]:
    """A tensor divided by its norm along axes, and the norm.

    Args:
      tensor: a floating or complex tensor.
      ord, axis: which norm, and along which axes, as for `tf.norm`.
      name: accepted for compatibility.

    Raises:
      ValueError: an order that does not exist for these axes.

    >>> import gradtape as tf
    >>> unit, size = tf.linalg.normalize([3.0, 4.0])
    >>> print(unit.numpy(), size.numpy())
    [0.6 0.8] [5.]
    """
    x = convert(tensor)
    size = cast(norm(x, ord, axis, keepdims=True), x._aval.dtype)
    return x / size, size


def cross(a: Any, b: Any, name: str | None = None) -> Tensor:
    """The cross products of vectors (..., 3).

    Raises:
      InvalidArgumentError: shapes that are not the same, or vectors of another length.

    >>> import gradtape as tf
    >>> print(tf.linalg.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]).numpy())
    [0. 0. 1.]
    """
    x = convert(a)
    y = operand(b, x._aval.dtype)
    if x._aval.shape != y._aval.shape or x.ndim == 0 or x._aval.dims[-1] != 3:
        raise InvalidArgumentError(
            f"`cross` wants two tensors of one shape (..., 3), got {shape_text(x._aval.shape)} and "
            f"{shape_text(y._aval.shape)}."
        )
    return roll(x * roll(y, -1, axis=-1) - roll(x, -1, axis=-1) * y, -1, axis=-1)
