"""`tf.keras.optimizers.schedules`: learning rates that depend on the number of steps that were made. Floor: keras."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradtape.api.creation import constant, convert_to_tensor
from gradtape.api.elementwise import cast, ceil, cos, floor, maximum, minimum, where
from gradtape.api.elementwise import pow as power
from gradtape.ir.dtypes import float32
from gradtape.runtime.tensor import Tensor

__all__ = [
    "CosineDecay",
    "ExponentialDecay",
    "InverseTimeDecay",
    "LearningRateSchedule",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
]


class LearningRateSchedule:
    """A learning rate that is a function of how many steps were made, which may be a tensor of a traced function. Kinds
    of one's own define `__call__`."""

    def __call__(self, step: Any) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} should define `__call__(step)`, the rate of a step.")


class _Decay(LearningRateSchedule):
    """One that begins with a rate and goes down in so many steps."""

    def __init__(self, initial_learning_rate: Any, decay_steps: Any) -> None:
        if decay_steps is None or isinstance(decay_steps, str):
            raise TypeError(f"`decay_steps` should be a number of steps, more than 0, got {decay_steps!r}.")
        if decay_steps <= 0:
            raise ValueError(f"`decay_steps` should be more than 0, got {decay_steps!r}.")
        self.initial_learning_rate, self.decay_steps = initial_learning_rate, decay_steps

    @property
    def _first(self) -> Tensor:
        rate: Tensor = cast(self.initial_learning_rate, float32)
        return rate

    def _share(self, step: Any, staircase: bool) -> Tensor:
        """How often `decay_steps` were made."""
        share: Tensor = cast(step, float32) / self.decay_steps
        return floor(share) if staircase else share


class _DecayByRate(_Decay):
    """A decay whose speed is a number."""

    def __init__(
        self,
        initial_learning_rate: Any,
        decay_steps: Any,
        decay_rate: Any,
        staircase: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(initial_learning_rate, decay_steps)
        self.decay_rate, self.staircase, self.name = decay_rate, staircase, name or type(self).__name__


class ExponentialDecay(_DecayByRate):
    """initial_learning_rate · decay_rate^(step / decay_steps); `staircase`: only at whole multiples of `decay_steps`.

    Raises:
      ValueError: `decay_steps` that are not more than 0.

    >>> import gradtape as tf
    >>> rate = tf.keras.optimizers.schedules.ExponentialDecay(0.5, decay_steps=2, decay_rate=0.25)
    >>> [float(rate(step)) for step in range(3)]
    [0.5, 0.25, 0.125]
    """

    def __call__(self, step: Any) -> Tensor:
        factor = power(cast(self.decay_rate, float32), self._share(step, self.staircase))
        return self._first * factor


class InverseTimeDecay(_DecayByRate):
    """initial_learning_rate / (1 + decay_rate · step / decay_steps); `staircase`: only at whole multiples of
    `decay_steps`.

    Raises:
      ValueError: `decay_steps` that are not more than 0.

    >>> import gradtape as tf
    >>> rate = tf.keras.optimizers.schedules.InverseTimeDecay(0.5, decay_steps=1, decay_rate=1.0)
    >>> float(rate(1))
    0.25
    """

    def __call__(self, step: Any) -> Tensor:
        return self._first / (1.0 + self.decay_rate * self._share(step, self.staircase))


class PolynomialDecay(_Decay):
    """From the initial to the end rate by (1 - step / decay_steps)^power; `cycle`: then anew, over a multiple of
    `decay_steps`, rather than staying there.

    Raises:
      ValueError: `decay_steps` that are not more than 0.

    >>> import gradtape as tf
    >>> rate = tf.keras.optimizers.schedules.PolynomialDecay(1.0, decay_steps=4, end_learning_rate=0.5)
    >>> [float(rate(step)) for step in (0, 2, 9)]
    [1.0, 0.75, 0.5]
    """

    def __init__(
        self,
        initial_learning_rate: Any,
        decay_steps: Any,
        end_learning_rate: Any = 0.0001,
        power: Any = 1.0,
        cycle: bool = False,
        name: str = "PolynomialDecay",
    ) -> None:
        super().__init__(initial_learning_rate, decay_steps)
        self.end_learning_rate, self.power, self.cycle, self.name = end_learning_rate, power, cycle, name

    def __call__(self, step: Any) -> Tensor:
        share = self._share(step, False)
        share = share / maximum(ceil(share), 1.0) if self.cycle else minimum(share, 1.0)
        end = cast(self.end_learning_rate, float32)
        rate: Tensor = (self._first - end) * power(1.0 - share, cast(self.power, float32)) + end
        return rate


class CosineDecay(_Decay):
    """Half a wave of the cosine from the initial rate down to `alpha` times it. With a `warmup_target`, first
    `warmup_steps` in which the rate rises evenly to that, from which it then goes down.

    Raises:
      ValueError: `decay_steps` that are not more than 0.

    >>> import gradtape as tf
    >>> rate = tf.keras.optimizers.schedules.CosineDecay(1.0, decay_steps=4, alpha=0.5)
    >>> [round(float(rate(step)), 4) for step in (0, 2, 9)]
    [1.0, 0.75, 0.5]
    """

    def __init__(
        self,
        initial_learning_rate: Any,
        decay_steps: Any,
        alpha: float = 0.0,
        name: str = "CosineDecay",
        warmup_target: Any = None,
        warmup_steps: Any = 0,
    ) -> None:
        super().__init__(initial_learning_rate, decay_steps)
        self.alpha, self.name = alpha, name
        self.warmup_target, self.warmup_steps = warmup_target, warmup_steps

    def __call__(self, step: Any) -> Tensor:
        made = cast(step, float32)
        if self.warmup_target is None:
            return self._first * self._wave(made)
        top = cast(self.warmup_target, float32)
        if not self.warmup_steps:
            return top * self._wave(made)
        rising = (top - self._first) * (made / self.warmup_steps) + self._first
        falling = top * self._wave(made - float(self.warmup_steps))
        return where(made < float(self.warmup_steps), rising, falling)

    def _wave(self, made: Tensor) -> Tensor:
        wave = 0.5 * (1.0 + cos(math.pi * minimum(made / self.decay_steps, 1.0)))
        part: Tensor = (1.0 - self.alpha) * wave + self.alpha
        return part


class PiecewiseConstantDecay(LearningRateSchedule):
    """The first of the values up to and with the step that is the first boundary, then the next.

    Raises:
      ValueError: not one value more than boundaries.

    >>> import gradtape as tf
    >>> rate = tf.keras.optimizers.schedules.PiecewiseConstantDecay([1, 3], [1.0, 0.5, 0.25])
    >>> [float(rate(step)) for step in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    def __init__(self, boundaries: Sequence[Any], values: Sequence[Any], name: str = "PiecewiseConstant") -> None:
        if len(boundaries) != len(values) - 1:
            raise ValueError(
                f"There should be one value more than boundaries, got {len(boundaries)} boundaries and {len(values)} "
                "values."
            )
        self.boundaries, self.values, self.name = boundaries, values, name

    def __call__(self, step: Any) -> Tensor:
        made = convert_to_tensor(step)
        rate = constant(float(self.values[0]), float32)
        for boundary, value in zip(self.boundaries, self.values[1:], strict=True):
            rate = where(made > cast(boundary, made._aval.dtype), constant(float(value), float32), rate)
        return rate
