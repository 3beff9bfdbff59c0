"""Loss scaling: small gradients of half types are kept from becoming zero. Floor: keras."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gradtape.api.elementwise import cast, is_finite, where
from gradtape.api.reductions import reduce_all
from gradtape.ir.dtypes import float32, int64
from gradtape.keras import initializers
from gradtape.keras.optimizers.base import Optimizer
from gradtape.keras.scope import unrecorded
from gradtape.runtime.convert import convert
from gradtape.runtime.indexed_slices import IndexedSlices
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable
from gradtape.tracing.branching import cond


class LossScaleOptimizer(Optimizer):
    """An optimizer for losses that are multiplied by a scale, so that their gradients do not vanish in float16.

    The loss is scaled with `scale_loss` before the tape is asked; `apply` takes the scale out again, before the
    inner optimizer clips or uses the gradients. Where one of them is not finite, the step is skipped and the scale
    halved; after `dynamic_growth_steps` good steps in a row it is doubled. Micikevicius et al., 2018.

    Args:
      inner_optimizer: what makes the steps.
      initial_scale: a power of two: dividing by it loses nothing.
      dynamic_growth_steps: how many good steps it takes until the scale is doubled.
      name: the default is the class' name in lower case.

    Raises:
      ValueError: an inner optimizer that is none, or is one of these; a scale or a number of steps that is not
        positive.

    >>> import gradtape as tf
    >>> v = tf.Variable(1.0)
    >>> optimizer = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.25), initial_scale=8.0)
    >>> with tf.GradientTape() as tape:
    ...     scaled = optimizer.scale_loss(v * v)
    >>> gradients = tape.gradient(scaled, [v])
    >>> float(gradients[0]), float(optimizer.get_unscaled_gradients(gradients)[0])
    (16.0, 2.0)
    >>> optimizer.apply(gradients, [v])
    >>> optimizer.apply([tf.constant(float("inf"))], [v])  # is skipped
    >>> float(v), float(optimizer.dynamic_scale), int(optimizer.iterations)
    (0.5, 4.0, 1)
    """

    def __init__(
        self,
        inner_optimizer: Optimizer,
        initial_scale: float = 2.0**15,
        dynamic_growth_steps: int = 2000,
        name: str | None = None,
    ) -> None:
        if not isinstance(inner_optimizer, Optimizer) or isinstance(inner_optimizer, LossScaleOptimizer):
            raise ValueError(
                "`inner_optimizer` should be an optimizer that scales no loss itself, "
                f"got {inner_optimizer!r} of type {type(inner_optimizer).__name__}."
            )
        if not initial_scale > 0 or not dynamic_growth_steps > 0:
            raise ValueError(
                "`initial_scale` and `dynamic_growth_steps` should be positive, "
                f"got {initial_scale!r} and {dynamic_growth_steps!r}."
            )
        self.inner_optimizer = inner_optimizer
        self.initial_scale, self.dynamic_growth_steps = float(initial_scale), int(dynamic_growth_steps)
        super().__init__(0.0, name=name)
        inner_optimizer.loss_scale_factor = None  # or gradients would be divided twice
        self.step_counter: Variable | None = None
        self._scale: Variable | None = None

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        self.step_counter = self.add_variable((), dtype=int64, name="step_counter")
        self._scale = self.add_variable((), initializers.Constant(self.initial_scale), name="dynamic_scale")
        self.inner_optimizer.build(variables)
        super().build(variables)

    # ------------------------------------------------------------------ the scale

    @property
    def dynamic_scale(self) -> Any:
        """The present scale: a variable, or the number that it will begin with."""
        return self.initial_scale if self._scale is None else self._scale

    def scale_loss(self, loss: Any) -> Tensor:
        """The loss times the present scale; half types become float32, which has room for it."""
        t = convert(loss)
        wide = cast(t, float32) if t._aval.dtype.is_half else t
        return wide * cast(self.dynamic_scale, wide._aval.dtype)

    def get_unscaled_gradients(self, grads: Sequence[Any]) -> list[Any]:
        """Gradients of a scaled loss without the scale, to be looked at or changed; half types become float32.

        Give them to `apply` with `scaled=False`."""
        return [None if g is None else _divided(g, self.dynamic_scale) for g in grads]

    # ------------------------------------------------------------------ updates

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]], scaled: bool = True) -> Variable:
        """As that of any optimizer; `scaled` as for `apply`."""
        gradients, variables = self._parted(grads_and_vars)
        self.apply(gradients, variables, scaled)
        return self.iterations

    def apply(
        self,
        grads: Sequence[Any],
        trainable_variables: Iterable[Variable] | None = None,
        scaled: bool = True,
    ) -> None:
        """Take the scale out of the gradients and give them to the inner optimizer, if all of them are finite.

        Args:
          grads, trainable_variables: as for any optimizer.
          scaled: False for gradients of a loss that was not scaled, or that `get_unscaled_gradients` gave.
        """
        gradients = list(grads)
        if not gradients:
            return
        variables = self._known(trainable_variables)
        with unrecorded():
            finite = _all_finite(gradients)
            plain = self.get_unscaled_gradients(gradients) if scaled else gradients
            # Both, in a traced function: on a device nobody waits to learn whether the step is skipped.
            cond(finite, lambda: self._step(plain, variables), self._skip, "apply", both=True)

    def _step(self, gradients: Sequence[Any], variables: Sequence[Variable]) -> None:
        assert self._scale is not None and self.step_counter is not None
        self.inner_optimizer.apply(gradients, variables)
        count = self.step_counter.read() + 1
        is_due = count >= self.dynamic_growth_steps
        self._scale.assign(where(is_due, self._scale.read() * 2.0, self._scale.read()))
        self.step_counter.assign(where(is_due, count * 0, count))

    def _skip(self) -> None:
        assert self._scale is not None and self.step_counter is not None
        self._scale.assign(self._scale.read() * 0.5)
        self.step_counter.assign(self.step_counter.read() * 0)

    # ------------------------------------------------------------------ what the inner optimizer has

    @property
    def variables(self) -> list[Variable]:
        """Its own state, then that of the inner optimizer."""
        return [*self._variables, *self.inner_optimizer.variables]

    @property
    def iterations(self) -> Variable:
        """How many steps the inner optimizer made: skipped ones do not count."""
        return self.inner_optimizer.iterations

    @property
    def learning_rate(self) -> Any:
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self.inner_optimizer.learning_rate = value

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        self.inner_optimizer.finalize_variable_values(var_list)


def _all_finite(gradients: Sequence[Any]) -> Tensor:
    found: Tensor | None = None
    for g in gradients:
        if g is not None:
            fine = reduce_all(is_finite(g.values if isinstance(g, IndexedSlices) else g))
            found = fine if found is None else found & fine
    return convert(True) if found is None else found


def _divided(gradient: Any, scale: Any) -> Any:
    """A gradient without the scale; of rows of a table, its rows."""
    if isinstance(gradient, IndexedSlices):
        return IndexedSlices(_divided(gradient.values, scale), gradient.indices, gradient.dense_shape)
    t = convert(gradient)
    wide = cast(t, float32) if t._aval.dtype.is_half else t
    return wide / cast(scale, wide._aval.dtype)
