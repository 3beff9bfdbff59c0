"""Gradient descent, with momentum. Floor: keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.keras.arguments import part, single
from gradtape.keras.optimizers.base import Optimizer
from gradtape.keras.optimizers.fading import faded
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable

# Momentum (Polyak, 1964; Nesterov's form as in Sutskever et al., 2013), with gradient g and rate α:
#
#     m ← momentum · m - α · g
#     x ← x + m                           (plain)
#     x ← x + momentum · m - α · g        (Nesterov: a look ahead along m)


def sgd_update(variable: Variable, gradient: Tensor, rate: Tensor) -> None:
    """One step without momentum: x ← x - α · g."""
    variable.assign_sub(gradient * rate)


def momentum_update(
    variable: Variable, m: Variable, gradient: Tensor, rate: Tensor, momentum: float, nesterov: bool
) -> None:
    """One step with momentum."""
    step = gradient * rate
    m.assign(faded(m * momentum - step))
    variable.assign_add(m * momentum - step if nesterov else m)


class SGD(Optimizer):
    """Gradient descent.

    Args:
      learning_rate: see `Optimizer`.
      momentum: from 0 to 1; how much of the last step is made again.
      nesterov: whether to look ahead along the momentum.
      **options: `weight_decay`, `clipnorm`, `use_ema`, ... as `Optimizer` takes them.

    Raises:
      ValueError: a momentum that is no number from 0 to 1.

    >>> import gradtape as tf
    >>> v, optimizer = tf.Variable(1.0), tf.keras.optimizers.SGD(learning_rate=0.1, momentum=0.9)
    >>> for _ in range(2):
    ...     optimizer.apply([tf.constant(1.0)], [v])
    >>> round(float(v), 6)  # steps of 0.1 and 0.9 · 0.1 + 0.1
    0.71
    """

    def __init__(
        self, learning_rate: Any = 0.01, momentum: float = 0.0, nesterov: bool = False, **options: Any
    ) -> None:
        super().__init__(learning_rate, **options)
        self.momentum, self.nesterov = part("momentum", momentum), bool(nesterov)
        self.momentums: list[Variable] = []

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        if self.momentum:
            self.momentums = [self.add_variable_from_reference(v, "momentum") for v in variables]

    def update_step(self, gradient: Tensor, variable: Variable, learning_rate: Tensor) -> None:
        if not self.momentum:
            sgd_update(variable, gradient, learning_rate)
            return
        m = self.momentums[self.index_of(variable)]
        momentum_update(variable, m, gradient, learning_rate, single(self.momentum), bool(self.nesterov))
