"""`tf.test`: derivatives beside differences. Floor: api."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.api.differences import Array, numeric, reverse
from gradtape.recording import leaves_of
from gradtape.runtime.convert import convert
from gradtape.runtime.tensor import Tensor

__all__ = ["compute_gradient"]


def compute_gradient(
    f: Callable[..., Any], x: Sequence[Any], delta: float | None = None
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """The Jacobians of a function as the tape has them, and by central differences.

    Args:
      f: a function of tensors to a tensor.
      x: its arguments, a list or tuple of what can be made a tensor.
      delta: how far each number is moved; by default 1/1024.

    Returns:
      `(theoretical, numerical)`: of each one NumPy array per argument, of shape (elements of f(x), elements of the
      argument). A complex element is two, its real part first.

    Raises:
      ValueError: x is no list.
      TypeError: an argument without derivatives.

    >>> import gradtape as tf
    >>> theoretical, numerical = tf.test.compute_gradient(lambda x, y: x * y, [[1.0, 2.0], 3.0])
    >>> print(theoretical[0])
    [[3. 0.]
     [0. 3.]]
    >>> print(numerical[1])
    [[1.]
     [2.]]

    Source: `tf.test.compute_gradient` of TensorFlow 2.
    """
    if not callable(f):
        raise TypeError(f"`f` should be a function of tensors, got {type(f).__name__}.")
    if not isinstance(x, list | tuple):
        raise ValueError("`x` must be a list or tuple of the arguments of `f`, got " + type(x).__name__ + ".")
    xs = [convert(v) for v in x]
    for k, t in enumerate(xs):
        if not t.dtype.is_differentiable:
            raise TypeError(
                f"Argument {k} is {t.dtype.name}, which has no derivatives. Use `tf.cast`, or close over it."
            )

    def results(args: list[Tensor]) -> list[Tensor]:
        return [convert(t) for t in leaves_of(f(*args))]

    step = 1.0 / 1024.0 if delta is None else float(delta)
    return tuple(reverse(results, xs)), tuple(numeric(results, xs, k, step) for k in range(len(xs)))
