"""What all ops of users' own kernels share. Floor: api."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from typing import Any

from gradtape.api.testing import check_gradients
from gradtape.runtime.tensor import Tensor


class KernelOp:
    """A kernel as a differentiable op. `tf.kernel_op` makes it.

    Attributes:
      name: as messages call it, and under which `tf.RegisterGradient` finds it.
      names: what its operands are called.
      parameters: the names of its static parameters.
    """

    not_inside: str | None = "runs a kernel, of which no formula is known"  # why no scalar function may call it

    def __init__(self, name: str, names: Sequence[str], parameters: Sequence[str]) -> None:
        self.name, self.names, self.parameters = name, list(names), list(parameters)
        self.__name__ = name

    def __call__(self, *operands: Any, **static: Any) -> Any:
        """The result of the kernel, or a tuple of results."""
        raise NotImplementedError

    def check(self, *operands: Any, order: int = 1, modes: Sequence[str] = ("reverse",), **static: Any) -> None:
        """Compare its derivatives with central differences; float64 operands say most.

        Args:
          operands: what the op is called with.
          order: up to which order.
          modes: "reverse", "forward" or both.
          static: the op's parameters.

        Raises:
          AssertionError: derivatives that differ; it shows where.
          LookupError: it has no gradient.

        >>> import gradtape as tf
        >>> @tf.kernel_op
        ... def cube(x):
        ...     return x * x * x
        >>> cube.check(tf.constant([0.5, -2.0], tf.float64), order=2, modes=("reverse", "forward"))
        """
        check_gradients(lambda *given: self(*given, **static), list(operands), order, modes)

    def __repr__(self) -> str:
        return f"<kernel op {self.name}>"


def checked_name(name: Any, of: Any) -> str:
    """A name for an op: the one that was asked for, or that of a function.

    Raises:
      ValueError: it is no name.
    """
    found = name if name is not None else getattr(of, "__name__", None)
    if found == "<lambda>":
        return "scalar_function"
    if not isinstance(found, str) or not found.isidentifier() or keyword.iskeyword(found):
        raise ValueError(f"`name` of a kernel op should be an identifier, got {found!r}.")
    return found


def shown(operands: Sequence[Tensor]) -> str:
    """Operands in a message."""
    return ", ".join(repr(t._aval) for t in operands)
