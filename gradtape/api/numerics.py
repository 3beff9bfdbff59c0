"""NaN and infinity: one tensor checked, or every op; and where ops are called. Floor: api."""

from __future__ import annotations

from typing import Any

from gradtape.ops.checks import CHECK_NUMERICS
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import unary
from gradtape.runtime.ledger import begin_everywhere, end_everywhere
from gradtape.runtime.numerics import begin_checking, end_checking
from gradtape.runtime.tensor import Tensor


def check_numerics(tensor: Any, message: str, name: str | None = None) -> Tensor:
    """The tensor itself, if all of its elements are finite. Its gradient is checked too; in traced functions and in
    Jacobians, when they run. Forward mode makes no gradients, and checks the tensor's tangent; Jacobians are taken in
    reverse mode here, unless they are asked for in the other.

    Args:
      tensor: floating or complex numbers.
      message: begins the error's text.
      name: accepted for compatibility.

    Raises:
      InvalidArgumentError: NaN or infinity among its elements, with the first of them and its index; or another dtype.

    >>> import gradtape as tf
    >>> tf.debugging.check_numerics([1.0, float("nan")], "weights")
    Traceback (most recent call last):
    gradtape.ir.errors.InvalidArgumentError: weights : Tensor had NaN values: 1 of 2, first nan at [1].

    Source: `tf.debugging.check_numerics` of TensorFlow 2.
    """
    return unary(CHECK_NUMERICS.bind(message=str(message)), convert(tensor))


def enable_check_numerics(stack_height_limit: int = 30, path_length_limit: int = 50) -> None:
    """Look at the results of every op, forwards and backwards, for NaN and infinity, on this thread and on those that
    start later. The error names the first op that makes one, where it was called, the first bad element with its index,
    and from where to where the operands go; in a backward pass, it names the op whose gradient it is.

    While it lasts, traced functions run as Python and Jacobians go row by row, so that each op is seen: all is slower.

    Args:
      stack_height_limit, path_length_limit: accepted for compatibility.

    Raises:
      InvalidArgumentError: later, from the op.

    >>> import gradtape as tf
    >>> tf.debugging.enable_check_numerics()
    >>> x = tf.Variable(0.0)
    >>> try:
    ...     with tf.GradientTape() as tape:
    ...         y = tf.sqrt(x)
    ...     tape.gradient(y, x)
    ... except tf.errors.InvalidArgumentError as e:
    ...     print("in the gradient of `sqrt`" in str(e))
    ... finally:
    ...     tf.debugging.disable_check_numerics()
    True

    Source: `tf.debugging.enable_check_numerics` of TensorFlow 2.
    """
    begin_checking()


def disable_check_numerics() -> None:
    """Look no more; see `enable_check_numerics`.

    >>> import gradtape as tf
    >>> tf.debugging.disable_check_numerics()
    """
    end_checking()


def enable() -> None:
    """Note for each op where it was called, on this thread and on those that start later, so that `tape.explain` names
    files and lines. Each op costs several times as much.

    >>> import gradtape as tf
    >>> tf.debugging.enable()
    >>> x = tf.Variable(2.0)
    >>> x = x + 1.0
    >>> with tf.GradientTape() as tape:
    ...     y = x * x
    >>> tape.explain(y, x).cause
    'replaced'
    >>> tf.debugging.disable()
    """
    begin_everywhere()


def disable() -> None:
    """Note no more; see `enable`.

    >>> import gradtape as tf
    >>> tf.debugging.disable()
    """
    end_everywhere()
