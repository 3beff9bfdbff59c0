"""Products of matrices and tensors. Floor: api."""

from __future__ import annotations

from typing import Any

from gradtape.api.creation import convert_to_tensor
from gradtape.api.elementwise import cast
from gradtape.ir.dtypes import int8, int32, uint8
from gradtape.ir.errors import InvalidArgumentError
from gradtape.runtime import contract
from gradtape.runtime.convert import as_optional_dtype, convert, convert_all
from gradtape.runtime.tensor import Tensor


def matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    output_type: Any = None,
    grad_a: bool = False,
    grad_b: bool = False,
    name: str | None = None,
) -> Tensor:
    """The product of the matrices in the last two axes; axes before them broadcast.

    Args:
      a: (..., m, k), or (..., k, m) with `transpose_a` or `adjoint_a`.
      b: (..., k, n), or (..., n, k) with `transpose_b` or `adjoint_b`. Lists and arrays take the dtype of `a` if
        they can.
      transpose_a, transpose_b: transpose an operand first.
      adjoint_a, adjoint_b: transpose and conjugate an operand first.
      output_type: the dtype of the result; for operands of int8 or uint8 it may be int32, in which they are then added.
      a_is_sparse, b_is_sparse, grad_a, grad_b, name: hints that change nothing here, accepted for compatibility.

    Raises:
      InvalidArgumentError: fewer than two dimensions, sizes that do not fit, mixed dtypes, or another output type.

    >>> import gradtape as tf
    >>> print(tf.matmul([[1.0, 2.0]], [[3.0], [4.0]]).numpy())
    [[11.]]
    """
    if (transpose_a and adjoint_a) or (transpose_b and adjoint_b):
        raise ValueError("`matmul` takes one of transpose and adjoint for an operand, not both.")
    x = convert(a)
    y = convert_to_tensor(b, dtype_hint=x.dtype)
    wanted = as_optional_dtype(output_type)
    if wanted is not None and wanted is not x._aval.dtype:
        if wanted is not int32 or not (_is_byte(x) and _is_byte(y)):
            raise InvalidArgumentError(
                f"`matmul` of {x.dtype.name} and {y.dtype.name} gives no {wanted.name}: `output_type` may be int32 for "
                "operands of int8 and uint8. Use `tf.cast` on the operands or on the result."
            )
        x, y = cast(x, wanted), cast(y, wanted)
    return contract.matmul(x, y, transpose_a, transpose_b, adjoint_a, adjoint_b)


def _is_byte(x: Tensor) -> bool:
    return x._aval.dtype in (int8, uint8)


def matvec(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    adjoint_a: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Tensor:
    """The product of matrices (..., m, k) and vectors (..., k).

    >>> import gradtape as tf
    >>> print(tf.linalg.matvec([[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0]).numpy())
    [3. 7.]
    """
    x, y = convert(a), convert(b)
    column = contract.reshape(y, (*y._aval.dims, 1))
    result = contract.matmul(x, column, transpose_a, adjoint_a=adjoint_a)
    return contract.reshape(result, result._aval.dims[:-1])


def einsum(equation: str, *inputs: Any, **kwargs: Any) -> Tensor:
    """Sums of products over named axes, in the best order that opt_einsum finds.

    Args:
      equation: such as `"bij,bjk->bik"`; `...` stands for axes without names, a letter twice in one operand
        for its diagonal.
      inputs: one tensor per operand of the equation.
      kwargs: `optimize` and `name`, accepted for compatibility.

    Raises:
      ValueError: an equation that names another number of operands, or something else than axes.
      InvalidArgumentError: axes or sizes that do not agree with the operands, or mixed dtypes.

    >>> import gradtape as tf
    >>> print(tf.einsum("ij,j->i", [[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0]).numpy())
    [3. 7.]
    """
    unknown = set(kwargs) - {"optimize", "name"}
    if unknown:
        raise TypeError(f"`einsum` got unknown keyword arguments {sorted(unknown)}; it takes `optimize` and `name`.")
    return contract.einsum(equation, convert_all(inputs))


def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Tensor:
    """Sums of products over pairs of axes: the last `axes` of a with the first of b, or two lists of axes.

    >>> import gradtape as tf
    >>> print(tf.tensordot([1.0, 2.0], [3.0, 4.0], 1).numpy())
    11.0
    """
    x, y = convert_all([a, b])
    return contract.tensordot(x, y, axes)
