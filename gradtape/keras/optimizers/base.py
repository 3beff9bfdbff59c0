"""`Optimizer`: which gradients go to which variables, and the state that updates keep. Floor: keras."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradtape.api.creation import convert_to_tensor, zeros
from gradtape.api.elementwise import cast
from gradtape.ir.dtypes import DType, as_dtype, float32, int64
from gradtape.keras import initializers
from gradtape.keras.arguments import REAL
from gradtape.keras.names import unique_name
from gradtape.keras.optimizers.averages import Averages, pace
from gradtape.keras.optimizers.clipping import clipping
from gradtape.keras.optimizers.decay import Exclusions, decay
from gradtape.keras.optimizers.stepping import Steps, numbers_of
from gradtape.keras.scope import unrecorded
from gradtape.keras.weight import Weight
from gradtape.runtime.attaching import Attaching
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.trace import outside
from gradtape.runtime.variable import Variable


class Optimizer(Attaching):
    """The base of all optimizers: subclasses make their state in `build` and change one variable in `update_step`.

    Updates are not recorded by tapes: assignments carry no gradient.

    Args:
      learning_rate: a number; a variable; or a function of the step (a float32 scalar: 0, 1, ...) or of nothing.
      weight_decay: before each step, variables lose this part of themselves times the learning rate.
      clipnorm: each gradient is scaled down to this norm.
      clipvalue: each element of the gradients is moved into [-clipvalue, clipvalue].
      global_clipnorm: all gradients are scaled by one factor, to this norm of all of them together.
      use_ema: whether to keep moving averages of the variables, which `finalize_variable_values` puts in their place.
      ema_momentum: how slowly they follow.
      ema_overwrite_frequency: after so many steps, and again after as many, they take the variables' place.
      loss_scale_factor: gradients are divided by it; `scale_loss` multiplies a loss by it.
      name: the default is the class' name in lower case.

    All of them are attributes too, which may be changed between two steps.

    Raises:
      ValueError: a learning rate that is none of these, more than one way to clip, a momentum or a frequency of
        averages that is none, an argument that no optimizer has.

    >>> import gradtape as tf
    >>> class Signed(tf.keras.optimizers.Optimizer):
    ...     def update_step(self, gradient, variable, learning_rate):
    ...         variable.assign_sub(tf.sign(gradient) * learning_rate)
    >>> v = tf.Variable([1.0, 2.0])
    >>> Signed(learning_rate=0.5).apply([tf.constant([3.0, -7.0])], [v])
    >>> print(v.numpy())
    [0.5 2.5]
    """

    NOT_SAVED = frozenset({"_trained", "_order", "_steps"})  # the variables that it changes are not its own
    # What a step does not depend on, or gets at each call.
    APART = frozenset({"_order", "_steps", "_rate", "_by_step", "name", "clipnorm", "clipvalue", "global_clipnorm"})

    def __init__(
        self,
        learning_rate: Any = 0.01,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        name: str | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise ValueError(f"`{type(self).__name__}` has no argument {', '.join(map(repr, unknown))}, got {unknown}.")
        self.name = name or unique_name(type(self))
        self.clipnorm, self.clipvalue, self.global_clipnorm = clipnorm, clipvalue, global_clipnorm
        clipping(clipnorm, clipvalue, global_clipnorm)
        if weight_decay is not None and not isinstance(weight_decay, REAL | Tensor | Variable):
            raise ValueError(f"`weight_decay` should be a number or None, got {weight_decay!r}.")
        self.weight_decay, self._undecayed = weight_decay, Exclusions()
        self.loss_scale_factor = loss_scale_factor
        self.use_ema, self.ema_momentum = bool(use_ema), ema_momentum
        self.ema_overwrite_frequency = ema_overwrite_frequency
        self._averages = Averages() if use_ema else None
        if use_ema:
            pace(ema_momentum, ema_overwrite_frequency)
        self.built = False
        self._variables: list[Variable] = []
        self._order: dict[int, int] = {}  # by id of a variable: which one of those the optimizer was built with
        self._trained: list[Variable] = []
        self._steps = Steps()
        self._iterations = self.add_variable((), dtype=int64, name="iteration")
        self._rate: Callable[..., Any] | Variable = self._as_rate(learning_rate)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Of a copy, or of one that was pickled: its variables are others."""
        vars(self).update(state)
        self._order = _places(self._trained)

    # ------------------------------------------------------------------ for subclasses

    def build(self, variables: Sequence[Variable]) -> None:
        """Make the state for these variables, once; the first `apply` does it."""
        if self.built:
            return
        for v in variables:
            if not isinstance(v, Variable):
                raise TypeError(f"An optimizer changes variables, got {v!r} of type {type(v).__name__}.")
        self._trained = list(variables)
        self._order = _places(self._trained)
        if self._averages is not None:
            self._averages.build(variables, lambda v: self.add_variable_from_reference(v, "average"))
        self.built = True

    def exclude_from_weight_decay(
        self, var_list: Iterable[Variable] | None = None, var_names: Iterable[str] | None = None
    ) -> None:
        """Choose which variables keep their size: called once, before the optimizer is built.

        Args:
          var_list: these.
          var_names: and all whose name has one of these words in it, such as "bias".

        Raises:
          ValueError: the optimizer is built already.

        >>> import gradtape as tf
        >>> optimizer = tf.keras.optimizers.AdamW(weight_decay=0.1)
        >>> optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
        """
        if self.built:
            raise ValueError(
                f"Call `exclude_from_weight_decay` before optimizer '{self.name}' is built: before `build` and its "
                "first step."
            )
        self._undecayed = Exclusions(var_list, var_names)

    def update_step(self, gradient: Tensor, variable: Variable, learning_rate: Tensor) -> None:
        """Change one variable. The gradient and the learning rate have its dtype."""
        raise NotImplementedError(f"Optimizer {type(self).__name__} does not have an `update_step()` implemented.")

    def step_size(self, learning_rate: Tensor) -> Tensor:
        """What `update_step` gets as its learning rate, worked out once per step and dtype, half types in float32."""
        return learning_rate

    def add_variable(self, shape: Any, initializer: Any = "zeros", dtype: Any = None, name: str = "variable") -> Weight:
        """A new variable of the optimizer's state."""
        kind = float32 if dtype is None else as_dtype(dtype)
        with outside():
            value = zeros(shape, kind) if initializer == "zeros" else initializers.get(initializer)(shape, dtype=kind)
        state = Weight(value, f"{self.name}/{name}", kind, trainable=False)
        self._variables.append(state)
        return state

    def add_variable_from_reference(
        self, reference_variable: Variable, name: str = "variable", initializer: Any = "zeros"
    ) -> Weight:
        """A new state variable of the shape and dtype of another one, named after it."""
        path = getattr(reference_variable, "path", None) or reference_variable.name.replace(":", "_")
        own = f"{path.replace('/', '_')}_{name}"
        return self.add_variable(reference_variable.shape, initializer, reference_variable.dtype, own)

    def index_of(self, variable: Variable) -> int:
        """Which one of the variables that the optimizer was built with this is."""
        return self._order[id(variable)]

    def scale_loss(self, loss: Any) -> Any:
        """The loss times `loss_scale_factor`, which `apply` takes out of its gradients again."""
        return loss if self.loss_scale_factor is None else loss * self.loss_scale_factor

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        """With `use_ema`, give the variables the values of their averages, at the end of training.

        Raises:
          ValueError: variables that the optimizer was not built with.
        """
        if self._averages is not None:
            self._averages.take_place(var_list)

    # ------------------------------------------------------------------ the learning rate

    @property
    def iterations(self) -> Variable:
        """How many steps were made."""
        return self._iterations

    @property
    def learning_rate(self) -> Any:
        """The present learning rate: the variable that holds it, or what the schedule gives for this step."""
        if isinstance(self._rate, Variable):
            return self._rate
        return self._rate(cast(self.iterations, float32)) if self._by_step else self._rate()

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        if isinstance(self._rate, Variable) and not isinstance(value, Variable) and not callable(value):
            self._rate.assign(_number(value))
            return
        self._variables = [v for v in self._variables if v is not self._rate]
        self._rate = self._as_rate(value)

    def _as_rate(self, value: Any) -> Callable[..., Any] | Variable:
        self._by_step = not isinstance(value, Variable) and callable(value) and _wants_step(value)
        if isinstance(value, Variable):
            self._variables.insert(1, value)
            return value
        if callable(value):
            schedule: Callable[..., Any] = value
            return schedule
        rate = Weight(_number(value), f"{self.name}/learning_rate", float32, trainable=False)
        self._variables.insert(1, rate)
        return rate

    # ------------------------------------------------------------------ updates

    @property
    def variables(self) -> list[Variable]:
        """The state: `iterations`, the learning rate where it is a variable, then what the updates keep."""
        return list(self._variables)

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> Variable:
        """Update variables, from pairs of a gradient and a variable.

        Returns:
          The `iterations` variable.

        Raises:
          ValueError: what is no list of pairs; otherwise see `apply`.

        >>> import gradtape as tf
        >>> v, optimizer = tf.Variable(1.0), tf.keras.optimizers.SGD(0.5)
        >>> int(optimizer.apply_gradients([(tf.constant(2.0), v)])), float(v)
        (1, 0.0)
        """
        self.apply(*self._parted(grads_and_vars))
        return self.iterations

    def _parted(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> tuple[list[Any], list[Variable]]:
        pairs: Any = list(grads_and_vars) if isinstance(grads_and_vars, Iterable) else grads_and_vars
        if (
            not isinstance(pairs, list)
            or not pairs
            or any(not isinstance(p, list | tuple) or len(p) != 2 for p in pairs)
        ):
            raise ValueError(f"`apply_gradients` wants pairs, `zip(gradients, variables)`, got {_short(pairs)}.")
        return [g for g, _ in pairs], [v for _, v in pairs]

    def apply(self, grads: Sequence[Any], trainable_variables: Iterable[Variable] | None = None) -> None:
        """Update variables with a list of gradients.

        Args:
          grads: one gradient per variable; None leaves the variable out, with a warning.
          trainable_variables: by default those that the optimizer was built with.

        Raises:
          ValueError: another number of gradients than variables, only None, a gradient of another shape than
            its variable, a variable that the optimizer was not built with.
        """
        gradients = list(grads)
        if not gradients:
            return
        variables = self._known(trainable_variables)
        if len(gradients) != len(variables):
            raise ValueError(
                f"An optimizer wants one gradient per variable, got {len(gradients)} for {len(variables)} variables."
            )
        with unrecorded():
            pairs = self._pairs(gradients, variables)
            if self.loss_scale_factor is not None:
                pairs = [(g / self.loss_scale_factor, v) for g, v in pairs]
            clip = clipping(self.clipnorm, self.clipvalue, self.global_clipnorm)
            if clip is not None:
                pairs = list(zip(clip([g for g, _ in pairs]), [v for _, v in pairs], strict=True))
            rate = convert_to_tensor(self.learning_rate)
            self._steps(self._change, numbers_of(self, self.APART), rate, pairs)
            _keep_constraints(pairs)

    def _known(self, variables: Iterable[Variable] | None) -> list[Variable]:
        """The variables to update; builds the optimizer with them the first time."""
        if variables is None:
            if not self.built:
                raise ValueError(
                    "`apply` without variables wants an optimizer that is built: call `optimizer.build(variables)`."
                )
            return self._trained
        found = list(variables)
        if not self.built:
            self.build(found)
        unknown = [v for v in found if id(v) not in self._order]
        if unknown:
            raise ValueError(
                f"Unknown variable: {unknown[0]!r}. This optimizer can only be called for the variables it was "
                "originally built with. Make a new one for a new set of variables, or `build` it with all of them."
            )
        return found

    def _pairs(self, gradients: Sequence[Any], variables: Sequence[Variable]) -> list[tuple[Tensor, Variable]]:
        """The gradients that are there, in their variables' dtypes."""
        missing = [_path(v) for g, v in zip(gradients, variables) if g is None]
        if len(missing) == len(variables):
            raise ValueError(
                f"No gradients provided for any variable: all {len(missing)} are None. Was the loss computed inside "
                "the tape's block, from these variables?"
            )
        if missing:
            warnings.warn(
                f"Gradients do not exist for variables {missing} when minimizing the loss. They stay as they are.",
                stacklevel=4,
            )
        return [(_fitting(g, v), v) for g, v in zip(gradients, variables) if g is not None]

    def _change(self, rate: Tensor, pairs: Sequence[tuple[Tensor, Variable]]) -> None:
        self._decay(rate, [v for _, v in pairs])
        sizes: dict[DType, Tensor] = {}
        for gradient, variable in pairs:
            dtype = variable._aval.dtype
            size = sizes.get(dtype)
            if size is None:
                size = sizes[dtype] = cast(self.step_size(cast(rate, _wide(dtype))), dtype)
            self.update_step(gradient, variable, size)
        if self._averages is not None:
            self._averages.follow(self._iterations, *pace(self.ema_momentum, self.ema_overwrite_frequency))
        self._iterations.assign_add(1)

    def _decay(self, rate: Tensor, variables: Sequence[Variable]) -> None:
        if not self.weight_decay:
            return
        for v in variables:
            if v not in self._undecayed:
                dtype = v._aval.dtype
                decay(v, cast(cast(rate, _wide(dtype)) * self.weight_decay, dtype))


def _keep_constraints(pairs: Sequence[tuple[Tensor, Variable]]) -> None:
    for _, variable in pairs:
        if variable.constraint is not None:
            variable.assign(variable.constraint(variable.read()))


def _wide(dtype: DType) -> DType:
    """What one number per step is worked out in."""
    return float32 if dtype.is_half else dtype


def _places(variables: Sequence[Variable]) -> dict[int, int]:
    """By id: which one of them a variable is."""
    return {id(v): k for k, v in enumerate(variables)}


def _wants_step(schedule: Callable[..., Any]) -> bool:
    """Whether a function that gives a learning rate takes the step."""
    return any(p.default is p.empty and p.kind is not p.VAR_KEYWORD for p in _parameters(schedule))


def _number(value: Any) -> float:
    try:
        if isinstance(value, str | bytes):
            raise TypeError(value)
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"`learning_rate` should be a number, a `tf.Variable` or a function of the step, got {value!r} of type "
            f"{type(value).__name__}."
        ) from None


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some built-in functions tell nothing; a schedule takes the step
        return [inspect.Parameter("step", inspect.Parameter.POSITIONAL_ONLY)]


def _fitting(gradient: Any, variable: Variable) -> Tensor:
    g = cast(convert_to_tensor(gradient), variable._aval.dtype)
    if g._aval is not variable._aval:
        raise ValueError(
            f"The gradient of variable '{_path(variable)}' should have its shape {variable.shape}, got {g.shape}."
        )
    return g


def _path(variable: Any) -> str:
    return str(getattr(variable, "path", None) or getattr(variable, "name", variable))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else text[:77] + "..."
