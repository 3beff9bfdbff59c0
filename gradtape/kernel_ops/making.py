"""`kernel_op`: the public function. Floor: api."""

from __future__ import annotations

import functools
from typing import Any

from gradtape.kernel_ops.base import KernelOp, checked_name
from gradtape.kernel_ops.scalar import ScalarKernel


def kernel_op(kernel: Any = None, *, name: str | None = None, derivative: Any = None) -> Any:
    """A function or kernel of your own as an op: differentiable, to be run for many rows at once.

    A plain Python function of numbers becomes an elementwise op. It is read, not run: arithmetic, comparisons, `if`,
    loops over known numbers, functions of `math`, NumPy and `tf.math` that work element by element, and
    functions written like it. It becomes one formula, which is fused with what stands around it, on the host and on a
    GPU, and whose derivatives of all orders follow. Parameters behind `*` are static: numbers that belong to the op.

    Args:
      kernel: the function.
      name: of the op; by default that of the function.
      derivative: the partial derivative, where it should be another one than the formula's: a scalar function of the
        operands, by their names, and of `out`, the result; or a tuple of such functions, one for each operand.

    Returns:
      A `KernelOp`, to be called with tensors of one dtype whose shapes broadcast. Its `check` compares derivatives with
      differences.

    Raises:
      TypeError: a function that does more than single numbers allow; the message says in which line.
      ValueError: a function whose source is not known.

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
    """
    if kernel is None:
        return functools.partial(kernel_op, name=name, derivative=derivative)
    made: KernelOp = ScalarKernel(checked_name(name, kernel), kernel, derivative)
    return made
