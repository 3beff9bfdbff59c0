"""`kernel_op`: the public function. Floor: api."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from gradtape.kernel_ops.base import KernelOp, checked_name
from gradtape.kernel_ops.describing import Options, of_compiled, of_text
from gradtape.kernel_ops.scalar import ScalarKernel
from gradtape.kernels import numba_cuda


def kernel_op(
    kernel: Any = None,
    *,
    name: str | None = None,
    derivative: Any = None,
    signature: str | None = None,
    shapes: Callable[..., Any] | None = None,
    sizes: Callable[..., Any] | None = None,
    types: Any = (),
    dtypes: Any = None,
    static: Mapping[str, Any] | None = None,
    grid: Any = None,
    block: Any = None,
    shared: Any = None,
    host: Callable[..., Any] | None = None,
    backward: Any = None,
    backward_host: Callable[..., Any] | None = None,
    linear: bool = False,
) -> Any:
    """A function or kernel of your own as an op: differentiable, to be run for many rows at once.

    A plain Python function of numbers becomes an elementwise op. It is read, not run: arithmetic, comparisons, `if`,
    loops over known numbers, functions of `math`, NumPy and `tf.math` that work element by element, and
    functions written like it. It becomes one formula, which is fused with what stands around it, on the host and on a
    GPU, and whose derivatives of all orders follow. Parameters behind `*` are static: numbers that belong to the op.

    A text in CUDA C++ holds a kernel. Its parameters are, in any order, pointers to constants (the operands), other
    pointers (the results), and numbers by value: sizes under the names that `signature` has for them, `size` (how many
    loops there are: for "()->()" that is how many elements), and static parameters. Operands are broadcast along
    their loop axes, which become one; arrays lie in one piece, the last axis fastest.

    A kernel of Numba's (`numba.cuda.jit`) has parameters for the operands, then for the results, then for numbers, by
    the same names. Its arrays have the shapes (size, core).

    Args:
      kernel: the function, the text, or the kernel of Numba's.
      name: of the op; by default that of the function or the kernel. Of several kernels in a text it names one.
      derivative: the partial derivative: a scalar function of the operands, by their names, and of `out`, the result;
        or a tuple of such functions, one for each operand. Of plain functions it replaces the formula's.
      signature: the core axes of operands and results, as NumPy's generalized functions have them: "()->()" for single
        numbers, "(n),(n)->()" for rows. All axes before are loops, over which the kernel goes itself; what lies at one
        position of them must not depend on others.
      shapes: without a signature, a function of the operands' shapes (and static parameters) to the result's shape, or
        a list of shapes. Such a kernel sees arrays as a whole; rows of a Jacobian run one after the other, with a
        warning.
      sizes: a function to a dictionary of the sizes that only results have; it may ask for other sizes and for static
        parameters by name.
      types: letters that stand for dtypes in a text, "T" or ("T", "U"), or a dictionary from letters to the dtypes that
        they may be (float32 and float64).
      dtypes: of the results of a kernel of Numba's: a dtype, one for each, or a function of the operands' dtypes. By
        default that of the first operand with fractions.
      static: values of static parameters for calls that give none.
      grid, block, shared: blocks and threads along one to three axes, and bytes of shared memory: numbers, or functions
        that may ask for `size`, sizes and static parameters by name. By default there are 256 threads in a block and
        one thread for each element of the largest result.
      host: what runs where there is no GPU (kernels of Numba's simulator need none): a function of NumPy arrays as the
        kernel sees them (size, core), and of static parameters by name, to the results.
      backward: the gradient: a kernel (or the name of one in the same text) whose operands are those of the op, then
        its results if it takes them, then the cotangents, and whose results are the cotangents of the operands that
        have fractions; or another kernel op of these; or a Python function of the operation (`inputs`, `outputs`,
        `get_attr`) and the cotangents, as for `tf.RegisterGradient`, which finds an op without one by its name.
      backward_host: as `host`, of the backward kernel.
      linear: the backward kernel is linear in its cotangents, so that forward mode is allowed (of single numbers), and
        rows keep their structure.

    Returns:
      A `KernelOp`, to be called with operands by position and static parameters by name; its `check` compares
      derivatives with differences.

    Raises:
      TypeError: a function that does more than single numbers allow (the message says in which line); arguments that do
        not belong to such a kernel.
      ValueError: a function whose source is not known, a text whose parameters cannot be passed, a wrong signature.
      LookupError: when a gradient is asked for and there is none.
      UnimplementedError: when it runs without a GPU, and has no form for the host.

    >>> import math
    >>> import gradtape as tf
    >>> @tf.kernel_op
    ... def bump(x, width, *, height=1.0):
    ...     r = x / width
    ...     return height * math.exp(-1 / (1 - r * r)) if abs(r) < 1 else 0.0
    >>> x = tf.constant([0.0, 0.5, 2.0])
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = bump(x, 1.0)
    >>> print(y.numpy().round(4), tape.gradient(y, x).numpy().round(4)[1])
    [0.3679 0.2636 0.    ] -0.4686

    >>> import numpy as np
    >>> text = '''
    ... extern "C" __global__ void row_norm(const float* x, float* norm, int size, int n) {
    ...     int row = blockIdx.x * blockDim.x + threadIdx.x;
    ...     if (row >= size) return;
    ...     float sum = 0;
    ...     for (int k = 0; k < n; ++k) sum += x[row * n + k] * x[row * n + k];
    ...     norm[row] = sqrtf(sum);
    ... }'''
    >>> row_norm = tf.kernel_op(
    ...     text,
    ...     signature="(n)->()",
    ...     host=lambda x: np.sqrt((x * x).sum(-1)),
    ...     backward=lambda op, up: (up / op.outputs[0])[..., None] * op.inputs[0],
    ... )
    >>> x = tf.constant([[3.0, 4.0], [6.0, 8.0]])
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = row_norm(x)
    >>> print(y.numpy(), tape.gradient(y, x).numpy().round(1))
    [ 5. 10.] [[0.6 0.8]
     [0.6 0.8]]
    """
    options = Options(
        derivative=derivative, signature=signature, shapes=shapes, sizes=sizes, types=types, dtypes=dtypes,
        static=static, grid=grid, block=block, shared=shared, host=host, backward=backward,
        backward_host=backward_host, linear=linear,
    )  # fmt: skip
    if kernel is None:
        return functools.partial(kernel_op, name=name, **vars(options))
    if isinstance(kernel, str):
        return of_text(kernel, name, options)
    if numba_cuda.is_kernel(kernel) and not numba_cuda.is_function(kernel):
        return of_compiled(kernel, name, options)
    if not callable(kernel):
        raise TypeError(
            f"`kernel_op` wants a plain Python function, a text in CUDA C++ or a kernel of Numba's, got {kernel!r}."
        )
    if given := [f.name for f in fields(options) if getattr(options, f.name) and f.name != "derivative"]:
        raise TypeError(f"`{given[0]}` belongs to kernels in CUDA C++ and of Numba's, not to plain Python functions.")
    function = numba_cuda.python_of(kernel) if numba_cuda.is_kernel(kernel) else kernel
    made: KernelOp = ScalarKernel(checked_name(name, kernel), function, derivative)
    return made
