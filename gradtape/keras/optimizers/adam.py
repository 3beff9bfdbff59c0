"""Adam. Floor: keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.api.creation import constant
from gradtape.api.elementwise import cast, maximum, sqrt, square
from gradtape.api.elementwise import pow as power
from gradtape.keras.arguments import not_negative, part, single
from gradtape.keras.optimizers.base import Optimizer
from gradtape.keras.optimizers.fading import faded
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.update import update
from gradtape.runtime.variable import Variable

# Adam (Kingma and Ba, 2015, in the order of operations at the end of their section 2), with gradient g at step t:
#
#     α ← rate · √(1 - β₂ᵗ) / (1 - β₁ᵗ)         one number per step: `Adam.step_size`
#     m ← m + (g - m) · (1 - β₁)
#     v ← v + (g² - v) · (1 - β₂)
#     x ← x - m · α / (√v + ε)
#
# AMSGrad (Reddi et al., 2018) divides by the largest v so far: v̂ ← max(v̂, v).


def adam_rule(
    x: Tensor, m: Tensor, v: Tensor, gradient: Tensor, alpha: Tensor, beta_1: float, beta_2: float, epsilon: float
) -> tuple[Tensor, ...]:
    """One step of Adam: the variable and the running means of the gradient and of its square."""
    m = faded(m + (gradient - m) * (1 - beta_1))
    v = faded(v + (square(gradient) - v) * (1 - beta_2))
    return x - m * alpha / (sqrt(v) + epsilon), m, v


def amsgrad_rule(
    x: Tensor,
    m: Tensor,
    v: Tensor,
    largest: Tensor,
    gradient: Tensor,
    alpha: Tensor,
    beta_1: float,
    beta_2: float,
    epsilon: float,
) -> tuple[Tensor, ...]:
    """One step of AMSGrad: the variable, the running means and the largest mean square."""
    m = faded(m + (gradient - m) * (1 - beta_1))
    v = faded(v + (square(gradient) - v) * (1 - beta_2))
    largest = maximum(largest, v)
    return x - m * alpha / (sqrt(largest) + epsilon), m, v, largest


class Adam(Optimizer):
    """Steps scaled by running means of the gradient and of its square.

    Args:
      learning_rate: see `Optimizer`.
      beta_1, beta_2: how slowly the means of the gradient and of its square follow.
      epsilon: added to the root of the mean square.
      amsgrad: whether to divide by the largest mean square so far.
      **options: `weight_decay`, `clipnorm`, `use_ema`, ... as `Optimizer` takes them.

    Raises:
      ValueError: a beta that is no number from 0 to 1 (1 excluded).

    >>> import gradtape as tf
    >>> v, optimizer = tf.Variable([1.0, 1.0]), tf.keras.optimizers.Adam(learning_rate=0.1)
    >>> optimizer.apply([tf.constant([5.0, -0.01])], [v])
    >>> print(v.numpy().round(4))  # the first step is as long as the learning rate
    [0.9 1.1]
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, **options)
        for name, beta in (("beta_1", beta_1), ("beta_2", beta_2)):
            if part(name, beta) == 1:
                raise ValueError(f"`{name}` should be a number from 0 to 1, without 1, got {beta}.")
        self.beta_1, self.beta_2, self.epsilon = float(beta_1), float(beta_2), not_negative("epsilon", epsilon)
        self.amsgrad = bool(amsgrad)
        self._moments: list[tuple[Variable, Variable]] = []
        self._largest: list[Variable] = []

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._moments = [
            (self.add_variable_from_reference(v, "momentum"), self.add_variable_from_reference(v, "velocity"))
            for v in variables
        ]
        if self.amsgrad:
            self._largest = [self.add_variable_from_reference(v, "velocity_hat") for v in variables]

    def step_size(self, learning_rate: Tensor) -> Tensor:
        dtype = learning_rate._aval.dtype
        step = cast(self.iterations.read() + 1, dtype)
        first, second = (1.0 - power(constant(single(beta), dtype), step) for beta in (self.beta_1, self.beta_2))
        return learning_rate * sqrt(second) / first

    def update_step(self, gradient: Tensor, variable: Variable, learning_rate: Tensor) -> None:
        k = self.index_of(variable)
        numbers = {name: float(getattr(self, name)) for name in ("beta_1", "beta_2", "epsilon")}
        if self.amsgrad:
            update(amsgrad_rule, [variable, *self._moments[k], self._largest[k]], [gradient, learning_rate], **numbers)
        else:
            update(adam_rule, [variable, *self._moments[k]], [gradient, learning_rate], **numbers)


class AdamW(Adam):
    """Adam, with variables that decay before each step. Loshchilov and Hutter, 2019.

    Args:
      learning_rate: see `Optimizer`.
      weight_decay: variables lose this part of themselves times the learning rate; all but those that
        `exclude_from_weight_decay` names.
      beta_1, beta_2, epsilon, amsgrad: as for `Adam`.
      **options: as `Optimizer` takes them.

    Raises:
      ValueError: no `weight_decay`.

    >>> import gradtape as tf
    >>> v, optimizer = tf.Variable(2.0), tf.keras.optimizers.AdamW(learning_rate=0.5, weight_decay=0.25)
    >>> optimizer.apply([tf.constant(1.0)], [v])
    >>> round(float(v), 4)  # 2 - 2 · 0.25 · 0.5 - 0.5
    1.25
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay: float = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **options: Any,
    ) -> None:
        if weight_decay is None:
            raise ValueError("`weight_decay` of `AdamW` should be a number, got None. Use `Adam`.")
        super().__init__(learning_rate, beta_1, beta_2, epsilon, amsgrad, weight_decay=weight_decay, **options)
