"""RMSprop. Floor: keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.api.elementwise import sqrt, square
from gradtape.keras.arguments import not_negative, part
from gradtape.keras.optimizers.base import Optimizer
from gradtape.keras.optimizers.fading import faded
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.update import update
from gradtape.runtime.variable import Variable

# RMSprop (Hinton, 2012; centred as in Graves, 2013), with gradient g and rate α:
#
#     v ← v · ρ + g² · (1 - ρ)
#     a ← a · ρ + g · (1 - ρ)                     (centred only, else a = 0)
#     m ← m · momentum + α · g / √(v - a² + ε)    (m = α · g / √… without momentum)
#     x ← x - m


def rmsprop_rule(*tensors: Tensor, rho: float, momentum: float, epsilon: float, centered: bool) -> tuple[Tensor, ...]:
    """One step: the variable, the mean square, the momentum and the mean gradient, as far as they are kept."""
    x, v, *kept, gradient, rate = tensors
    v = faded(v * rho + square(gradient) * (1 - rho))
    spread = v
    mean: tuple[Tensor, ...] = ()
    if centered:
        a = faded(kept[-1] * rho + gradient * (1 - rho))
        spread, mean = v - square(a), (a,)
    step = gradient * rate / sqrt(spread + epsilon)
    if not momentum:
        return x - step, v, *mean
    m = faded(kept[0] * momentum + step)
    return x - m, v, m, *mean


class RMSprop(Optimizer):
    """Steps scaled by a running mean of the gradient's square.

    Args:
      learning_rate: see `Optimizer`.
      rho: from 0 to 1; how slowly the means follow.
      momentum: from 0 to 1; how much of the last step is made again.
      epsilon: added to the mean square, under the root.
      centered: whether the square of the mean gradient is taken off the mean square, which leaves its variance.
      **options: `weight_decay`, `clipnorm`, `use_ema`, ... as `Optimizer` takes them.

    Raises:
      ValueError: `rho` or a momentum that is no number from 0 to 1.

    >>> import gradtape as tf
    >>> v, optimizer = tf.Variable(10.0), tf.keras.optimizers.RMSprop(learning_rate=0.1)
    >>> optimizer.apply([tf.constant(10.0)], [v])
    >>> round(float(v), 5)
    9.68377
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        centered: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, **options)
        self.rho, self.momentum = part("rho", rho), part("momentum", momentum)
        self.epsilon, self.centered = not_negative("epsilon", epsilon), bool(centered)
        self._kept: list[list[Variable]] = []  # per variable

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        names = ["velocity", *["momentum"] * (self.momentum > 0), *["average_gradient"] * self.centered]
        columns = [[self.add_variable_from_reference(v, name) for v in variables] for name in names]
        self._kept = [list(row) for row in zip(*columns, strict=True)]

    def update_step(self, gradient: Tensor, variable: Variable, learning_rate: Tensor) -> None:
        update(
            rmsprop_rule,
            [variable, *self._kept[self.index_of(variable)]],
            [gradient, learning_rate],
            rho=float(self.rho),
            momentum=float(self.momentum),
            epsilon=float(self.epsilon),
            centered=bool(self.centered),
        )
