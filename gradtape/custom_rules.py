"""`custom_gradient`: a function that brings its own rule. Floor: tape.

The function runs as it is (and is recorded, for orders above the first). Its results are handed out under
new names that are connected to the arguments by the rule alone."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import optree

from gradtape.checkpoints import Checkpointed
from gradtape.ir.aval import Aval
from gradtape.ir.shapes import broadcast, shape_text
from gradtape.ops.arithmetic import CAST
from gradtape.ops.layout import BROADCAST_TO, RESHAPE
from gradtape.recording import flatten, leaves_of
from gradtape.runtime.control import is_staged
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import execute, unary
from gradtape.runtime.ruled import handed_out
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable
from gradtape.tape import GradientTape
from gradtape.transforms.differentiate import filled_step


def custom_gradient(f: Callable[..., Any] | None = None) -> Any:
    """Give a function its own gradient.

    Args:
      f: takes tensors (or structures of them) and returns `(result, grad_fn)`. `grad_fn` takes one cotangent
        per tensor of the result and returns one gradient per argument, or None; where f reads variables it
        must take `variables=` too and return `(gradients, variable_gradients)`.

    Returns:
      A function of the same arguments that returns the result alone.

    Raises:
      TypeError: f reads variables that `grad_fn` does not ask for.
      ValueError: when the rule runs and returns the wrong number of gradients, or one of a wrong shape.

    >>> import gradtape as tf
    >>> @tf.custom_gradient
    ... def half_slope(x):
    ...     return x * 2.0, lambda up: up * 0.5
    >>> x = tf.constant(3.0)
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = half_slope(x)
    >>> float(y), float(tape.gradient(y, x))
    (6.0, 0.5)

    Source: `tf.custom_gradient` of TensorFlow 2.
    """
    if f is None:
        return custom_gradient
    signature = _signature(f)

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _positional(signature, args, kwargs)
        return _call(f, args, kwargs)

    return wrapped


def _signature(f: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of f, or None where Python does not know one (then keywords cannot be bound)."""
    try:
        return inspect.signature(f)
    except (TypeError, ValueError):
        return None


def _positional(
    signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Keyword arguments with tensors in their places, so that the rule answers for them; others, as in
    TensorFlow, are options that no gradient is due to."""
    if not _with_tensors(kwargs):
        return args, kwargs
    if signature is not None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        args, kwargs = bound.args, bound.kwargs
    if left := _with_tensors(kwargs):
        raise TypeError(
            f"The keyword-only arguments {left} of a custom-gradient function are tensors, for which its rule "
            "returns no gradient. Make them positional parameters."
        )
    return args, kwargs


def _with_tensors(kwargs: dict[str, Any]) -> list[str]:
    return [k for k, v in kwargs.items() if any(isinstance(t, Tensor | Variable) for t in leaves_of(v))]


def _call(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    inputs = [convert(a) if isinstance(a, Tensor | Variable) else a for a in leaves_of(list(args))]
    given = [a for a in leaves_of(list(args)) if isinstance(a, Variable)]
    read: dict[int, Variable] = {}

    def note(v: Variable) -> None:
        if v.trainable:
            read.setdefault(v._id, v)

    outer = STATE.watchers
    STATE.watchers = (*outer, note)
    try:
        answer = f(*args, **kwargs)
    finally:
        STATE.watchers = outer
    result, rule = _split(answer, f)
    results, structure = flatten(result)
    inner = [convert(r) for r in results]
    variables = [v for v in read.values() if not any(v is a for a in given)]
    operands = [t for t in inputs if isinstance(t, Tensor)]
    if variables and not _takes_variables(rule):
        raise TypeError(
            "If using @custom_gradient with a function that uses variables, then grad_fn must accept a keyword "
            f"argument 'variables'. It reads: {', '.join(v.name for v in variables)}."
        )
    pull = _Rule(rule, inputs, variables, [t._aval for t in inner], getattr(f, "__name__", "function"))
    outputs = handed_out(inner, [*operands, *variables], pull)
    if STATE.recorders:
        for recorder in STATE.recorders:
            for v in variables:
                recorder.read(v, v.read())
            recorder.record_custom([*operands, *variables], outputs, pull)
    if structure is None:
        return outputs[0]
    return optree.tree_unflatten(structure, outputs)


def _split(answer: Any, f: Callable[..., Any]) -> tuple[Any, Callable[..., Any]]:
    if not isinstance(answer, tuple) or len(answer) != 2 or not callable(answer[1]):
        raise TypeError(
            f"The custom-gradient function `{getattr(f, '__name__', f)}` should return (result, grad_fn), "
            f"got {type(answer).__name__}."
        )
    return answer


def _takes_variables(rule: Callable[..., Any]) -> bool:
    signature = _signature(rule)
    if signature is None:
        return False
    kinds = {p.kind for p in signature.parameters.values()}
    return "variables" in signature.parameters or inspect.Parameter.VAR_KEYWORD in kinds


class _Rule:
    """The rule of one call: cotangents of its differentiable results to cotangents of its tensors."""

    def __init__(
        self,
        rule: Callable[..., Any],
        inputs: list[Any],
        variables: list[Variable],
        results: Sequence[Aval],
        name: str,
    ) -> None:
        self.rule, self.variables, self.name = rule, variables, name
        self.wanted: list[Aval | None] = [t._aval if isinstance(t, Tensor) else None for t in inputs]
        self.results = list(results)

    def __call__(self, *cotangents: Tensor) -> Sequence[Tensor | None]:
        given = iter(cotangents)
        ups = [next(given) if a.dtype.is_differentiable else nothing(a) for a in self.results]
        if self.variables:
            answer, of_variables = self._with_variables(ups)
        else:
            answer, of_variables = self.rule(*ups), []
        gradients = self._listed(answer)
        if len(gradients) != len(self.wanted):
            raise ValueError(
                f"custom_gradient function expected to return {len(self.wanted)} gradients, but returned "
                f"{len(gradients)} instead: `{self.name}` has {len(self.wanted)} arguments."
            )
        due = [
            *zip(gradients, self.wanted, strict=True),
            *((g, v._aval) for g, v in zip(of_variables, self.variables, strict=True)),
        ]
        return [fitted(g, a, self.name, i) for i, (g, a) in enumerate(due) if a is not None]

    def _with_variables(self, ups: list[Tensor | None]) -> tuple[Any, list[Any]]:
        answer = self.rule(*ups, variables=self.variables)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise TypeError(
                f"The rule of `{self.name}` reads variables and should return (gradients, variable_gradients), "
                f"got {type(answer).__name__}."
            )
        of_variables = list(answer[1]) if isinstance(answer[1], list | tuple) else [answer[1]]
        if len(of_variables) != len(self.variables):
            raise ValueError(
                f"The rule of `{self.name}` must return gradients for each of its {len(self.variables)} variables, "
                f"got {len(of_variables)}."
            )
        return answer[0], of_variables

    def _listed(self, answer: Any) -> list[Any]:
        """The gradients as a flat list; a single one need not be in a list."""
        if answer is None or isinstance(answer, Tensor | Variable):
            return [answer]
        return leaves_of(answer) if isinstance(answer, list | tuple | dict) else [answer]


def nothing(result: Aval) -> Tensor | None:
    """The cotangent of a result that no gradient flows to: zeros, where its dtype has them."""
    zeros: Tensor | None = None if result.dtype.kind == "s" else execute(filled_step(result, 0), ())
    return zeros


def fitted(gradient: Any, due: Aval, name: str, place: int) -> Tensor | None:
    """A gradient cast and broadcast to the shape and dtype of what it belongs to."""
    if gradient is None or not due.dtype.is_differentiable:
        return None
    t = convert(gradient)
    if t._aval.dtype is not due.dtype:
        t = unary(CAST.bind(dtype=due.dtype), t)
    if t._aval is due:
        return t
    try:
        fits = broadcast(t._aval.shape, due.shape) == due.shape
    except ValueError:
        fits = False
    if fits:
        return unary(BROADCAST_TO.bind(shape=due.dims), t)
    if t._aval.size == due.size:
        return unary(RESHAPE.bind(shape=due.dims), t)
    raise ValueError(
        f"The rule of `{name}` returned a gradient of shape {shape_text(t._aval.shape)} for argument {place}, which "
        f"has shape {shape_text(due.shape)}. Return that shape, or one that broadcasts to it."
    )


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


def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function that keeps nothing for its gradient but its arguments, and runs again when the gradient is asked for.

    >>> import gradtape as tf
    >>> x = tf.constant(0.5)
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = tf.recompute_grad(lambda v: tf.sin(v) * tf.exp(v))(x)
    >>> round(float(tape.gradient(y, x)), 4)
    2.2373
    """

    traced = Checkpointed(f, 0)

    @functools.wraps(f)
    def forgetful(*args: Any, **kwargs: Any) -> Any:
        return traced(*args, **kwargs) if is_staged() else once(*args, **kwargs)

    @custom_gradient
    def once(*args: Any, **kwargs: Any) -> Any:
        outer, STATE.recorders = STATE.recorders, ()
        try:
            result = f(*args, **kwargs)
        finally:
            STATE.recorders = outer

        def rule(*ups: Any, variables: Any = None) -> Any:
            tape = GradientTape()
            with tape:
                tape.watch([a for a in leaves_of(list(args)) if isinstance(a, Tensor | Variable)])
                again = f(*args, **kwargs)
            sources = [a for a in leaves_of(list(args)) if isinstance(a, Tensor | Variable)]
            found = tape.gradient(leaves_of(again), [*sources, *(variables or [])], list(ups))
            given = iter(found)
            of_arguments = [next(given) if isinstance(a, Tensor | Variable) else None for a in leaves_of(list(args))]
            return of_arguments if variables is None else (of_arguments, list(given))

        return result, rule

    return forgetful
