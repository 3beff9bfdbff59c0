"""`gradtape.gradients`: filters of gradients, as functions and as scopes. Floor: api."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np
import optree

from gradtape.api.clipping import clip_by_norm
from gradtape.api.elementwise import cast, clip_by_value, stop_gradient
from gradtape.custom_rules import custom_gradient
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import TensorShape
from gradtape.overrides import override_gradient
from gradtape.recording import flatten
from gradtape.runtime.convert import convert
from gradtape.runtime.entering import Entering
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable

__all__ = ["Filter", "clip_norm", "clip_value", "reverse", "scale", "stop", "straight_through"]

NUMBERS = (int, float, complex, np.generic, np.ndarray, list, tuple, Tensor, Variable)
FLAT = ("rint", "floor", "ceil", "sign")  # ops whose derivative is zero or None, and whose steps go up


class Filter:
    """Hands values on and does something to their gradients: `filter(x)` to those of x, a structure of tensors; and
    `with filter:` to those of all that is computed in the block, where they leave it: the gradient that each tensor or
    variable from outside has by way of the block goes through the filter, once.

    >>> import gradtape as tf
    >>> half = tf.gradients.scale(0.5)
    >>> x = tf.Variable(3.0)
    >>> with tf.GradientTape() as tape:
    ...     with half:
    ...         y = x * x * x
    ...     z = y + half(x)
    >>> float(tape.gradient(z, x))
    14.0
    """

    def __init__(self, name: str, identity: Callable[[Tensor], Tensor]) -> None:
        self.name, self._identity = name, identity
        self._outer: dict[int, list[Any]] = {}  # by thread: what was in force around each block

    def __call__(self, x: Any) -> Any:
        """The same tensors, whose gradients are filtered."""
        leaves, structure = flatten(x)
        made = [self._identity(t) if t.dtype.is_differentiable else t for t in map(convert, leaves)]
        return made[0] if structure is None else optree.tree_unflatten(structure, made)

    def __enter__(self) -> Filter:
        self._outer.setdefault(threading.get_ident(), []).append(STATE.overrides)
        STATE.override(Entering(self._identity, STATE.overrides))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        STATE.override(self._outer[threading.get_ident()].pop())

    def __repr__(self) -> str:
        return f"<filter {self.name}>"


def _filter(name: str, rule: Callable[[Tensor], Any], *numbers: Any) -> Filter:
    """The identity with a rule for its gradient; `numbers`: what the rule combines with the gradient, element by
    element."""

    def identity(x: Tensor) -> Any:
        for number in numbers:
            shape = _tensor(number).shape
            if not _fits(shape, x.shape):
                raise InvalidArgumentError(
                    f"`{identity.__name__}` got incompatible shapes: {shape} does not broadcast to "
                    f"{x.shape}, the shape of the tensor and of its gradient."
                )
        return x, rule

    identity.__name__ = name.split("(")[0]
    return Filter(name, custom_gradient(identity))


def _fits(shape: TensorShape, whole: TensorShape) -> bool:
    """Whether something of a shape broadcasts to a tensor, as far as their shapes are known."""
    dims, wide = shape.dims_or_none, whole.dims_or_none
    if dims is None or wide is None:
        return True
    pairs = zip(reversed(dims), reversed(wide), strict=False)
    return len(dims) <= len(wide) and all(m is None or n in (None, 1, m) for n, m in pairs)


def _tensor(x: Any) -> Any:
    """A number as a tensor; a variable as it is, which is not read by that."""
    return x if isinstance(x, Variable) else convert(x)


def _is_whole(x: Any) -> bool:
    return isinstance(x, int | np.integer) and not isinstance(x, bool)


def _checked(function: str, name: str, x: Any, is_scalar: bool = False) -> None:
    """Whether an argument is a number, or a tensor of them.

    Raises:
      TypeError: it is none.
      ValueError: a tensor with axes, where a number is wanted."""
    if isinstance(x, str | bytes | bool) or not isinstance(x, NUMBERS):
        raise TypeError(f"`{name}` of `{function}` should be a number or a tensor, got {x!r}.")
    t = _tensor(x)
    if t.dtype.kind not in "fiuc":
        raise TypeError(f"`{name}` of `{function}` should hold numbers, got {t.dtype.name}.")
    if is_scalar and t.shape.rank:
        raise ValueError(
            f"`{name}` of `{function}` should be a number, got a tensor of shape {t.shape}. `{function}({name})` is a "
            f"filter, which tensors are given to: `{function}({name})(x)`."
        )


def clip_norm(norm: Any, axes: Any = None) -> Filter:
    """Gradients of a Euclidean norm above `norm` are shrunk to it.

    Args:
      norm: a positive number, or a tensor that is one.
      axes: the axes over which norms are taken; by default each tensor has one.

    Returns:
      A filter, which tensors are given to, one or a structure of them: `clip_norm(1.0)(x)`, `clip_norm(1.0)([x, y])`.

    Raises:
      TypeError: what is no number, or no axes.
      ValueError: a number that is not positive, or a tensor with axes.

    >>> import gradtape as tf
    >>> v = tf.Variable(2.0)
    >>> with tf.GradientTape() as tape:
    ...     y = tf.gradients.clip_norm(0.5)(v * v)
    >>> float(tape.gradient(y, v))
    2.0
    """
    _checked("clip_norm", "norm", norm, is_scalar=True)
    if axes is not None and not all(_is_whole(k) for k in (axes if isinstance(axes, list | tuple) else [axes])):
        raise TypeError(f"`axes` of `clip_norm` should be an integer or a list of them, got {axes!r}.")
    if isinstance(norm, int | float) and not norm > 0:
        raise ValueError(f"`norm` should be positive, got {norm}. `tf.gradients.stop` lets no gradient through.")
    return _filter(f"clip_norm({norm})", lambda up: clip_by_norm(up, norm, axes))


def clip_value(low: Any, high: Any) -> Filter:
    """Each element of a gradient is brought between two numbers.

    Raises:
      TypeError: what is no number and no tensor.
      ValueError: numbers of which the first is larger.
      InvalidArgumentError: later, tensors that do not broadcast to the one whose gradient it is.

    >>> import gradtape as tf
    >>> x = tf.Variable([1.0, 5.0])
    >>> with tf.GradientTape() as tape, tf.gradients.clip_value(-3.0, 3.0):
    ...     y = x * x
    >>> print(tape.gradient(y, x).numpy())
    [2. 3.]
    """
    _checked("clip_value", "low", low)
    _checked("clip_value", "high", high)
    if isinstance(low, int | float) and isinstance(high, int | float) and not low <= high:
        raise ValueError(f"`low` should not be above `high`, got {low} and {high}.")
    return _filter(f"clip_value({low}, {high})", lambda up: clip_by_value(up, low, high), low, high)


def scale(factor: Any) -> Filter:
    """Gradients are multiplied by a number or tensor.

    Raises:
      TypeError: what is neither.
      InvalidArgumentError: later, a tensor that does not broadcast to the one whose gradient it is.

    >>> import gradtape as tf
    >>> x = tf.Variable(3.0)
    >>> with tf.GradientTape() as tape:
    ...     y = tf.gradients.scale(10.0)(x) * 2.0
    >>> float(tape.gradient(y, x))
    20.0
    """
    _checked("scale", "factor", factor)
    return _filter(f"scale({factor})", lambda up: up * cast(factor, up.dtype), factor)


def reverse(factor: Any = 1.0) -> Filter:
    """Gradients change their sign, and are multiplied by a number: what adversaries in training are given.

    >>> import gradtape as tf
    >>> x = tf.Variable(3.0)
    >>> with tf.GradientTape() as tape:
    ...     y = tf.gradients.reverse()(x) * 2.0
    >>> float(tape.gradient(y, x))
    -2.0

    Source: Ganin et al., "Domain-Adversarial Training of Neural Networks" (2016), section 4.2.
    """
    _checked("reverse", "factor", factor)
    return _filter(f"reverse({factor})", lambda up: -up * cast(factor, up.dtype), factor)


def stop() -> Filter:
    """No gradient passes: what comes from outside is a constant.

    >>> import gradtape as tf
    >>> x = tf.Variable(3.0)
    >>> with tf.GradientTape() as tape:
    ...     with tf.gradients.stop():
    ...         weight = x * x
    ...     y = weight * x
    >>> float(tape.gradient(y, x))
    9.0
    """
    return Filter("stop()", stop_gradient)


def straight_through(f: Callable[..., Any] | None = None) -> Any:
    """A function with the gradient of the identity; without a function, a scope in which that is the gradient of
    `round`, `floor`, `ceil` and `sign`.

    Args:
      f: a function of tensors whose results have the shapes of its arguments.

    >>> import gradtape as tf
    >>> x = tf.Variable(1.3)
    >>> with tf.GradientTape() as tape, tf.gradients.straight_through():
    ...     y = tf.round(x * 2.0) * 5.0
    >>> float(y), float(tape.gradient(y, x))
    (15.0, 10.0)

    Source: Bengio, Léonard and Courville, "Estimating or propagating gradients through stochastic neurons" (2013).
    """
    if f is not None:
        return grad_pass_through(f)
    return override_gradient(dict.fromkeys(FLAT, _passed))


def _passed(op: Any, up: Tensor) -> list[Tensor | None]:
    return [up, *[None] * (len(op.inputs) - 1)]


def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function that computes f and has the gradient of the identity.

    >>> import gradtape as tf
    >>> x = tf.constant(1.3)
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = tf.grad_pass_through(tf.round)(x)
    >>> float(y), float(tape.gradient(y, x))
    (1.0, 1.0)
    """

    @custom_gradient
    def identity_backwards(*args: Any, **kwargs: Any) -> Any:
        def rule(*ups: Any, **options: Any) -> Any:
            variables = options.get("variables")
            gradients = ups[0] if len(ups) == 1 else list(ups)
            return gradients if variables is None else (gradients, [None] * len(variables))

        return f(*args, **kwargs), rule

    return identity_backwards
