"""`custom_gradient`: a function that brings its own rule. Floor: tape.

The function runs as it is (and is recorded, for orders above the first). Its results are handed out under
new names that are connected to the arguments by the rule alone."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import optree

from gradtape.ir.aval import Aval
from gradtape.ir.shapes import broadcast, shape_text
from gradtape.ops.arithmetic import CAST
from gradtape.ops.layout import BROADCAST_TO, RESHAPE
from gradtape.recording import flatten, leaves_of
from gradtape.rule_arguments import positional, signature_of
from gradtape.runtime.convert import convert
from gradtape.runtime.dispatch import execute, unary
from gradtape.runtime.entering import entered, made_here
from gradtape.runtime.ruled import handed_out
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable
from gradtape.transforms.differentiate import filled_step


def custom_gradient(f: Callable[..., Any] | None = None, *, jvp: Callable[..., Any] | None = None) -> Any:
    """Give a function its own gradient.

    Args:
      f: takes tensors (or structures of them) and returns `(result, grad_fn)`. `grad_fn` takes one cotangent
        per tensor of the result and returns one gradient per argument, or None; where f reads variables it
        must take `variables=` too and return `(gradients, variable_gradients)`. Gradients are cast and broadcast
        to their arguments.
      jvp: the derivative for forward mode, `jvp(primals, tangents)`: tuples of the arguments and of their tangents
        (None beside what is no tensor of numbers with a fraction) to the tangents of the result, in its structure.
        Where f reads variables, it takes `variables=` and `variable_tangents=` too, two lists. It must be linear in
        the tangents. A `grad_fn` that is linear in its cotangents needs none.

    Returns:
      A function of the same arguments that returns the result alone. Tensors that are given by keyword are arguments
      like others, unless the rule returns gradients for what was given by position alone, as in TensorFlow; other
      keyword arguments are options, for which the rule returns no gradient, or None, and so are defaults.

    Raises:
      TypeError: f reads variables that `grad_fn` does not ask for, or a keyword-only argument is a tensor.
      ValueError: when the rule runs and returns the wrong number of gradients, or one of a wrong shape; in forward
        mode, a rule that may not be linear and came without `jvp`.

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
    if jvp is not None and not callable(jvp):
        raise TypeError(f"`jvp` should be a function of primals and tangents, got {type(jvp).__name__}.")
    if f is None:
        return functools.partial(custom_gradient, jvp=jvp)
    if not callable(f):
        raise TypeError(f"`custom_gradient` wants a function, got {type(f).__name__}.")
    return RuledFunction(f, jvp)


class RuledFunction:
    """A function with a gradient of its own. As a method it is that of the object, which is no argument: the rule
    returns no gradient for it."""

    def __init__(self, function: Callable[..., Any], jvp: Callable[..., Any] | None) -> None:
        functools.update_wrapper(self, function)
        self.function, self.jvp = function, jvp

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        args, kwargs, how = positional(self.function, args, kwargs)
        return _call(self.function, self.jvp, args, kwargs, how)

    def __get__(self, instance: Any, owner: Any = None) -> RuledFunction:
        if instance is None and owner is not type(None):
            return self
        return RuledFunction(self.function.__get__(instance, owner), self.jvp)

    def __repr__(self) -> str:
        return f"<custom gradient of {self.function!r}>"


def _call(
    f: Callable[..., Any],
    jvp: Callable[..., Any] | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    how: Sequence[str],
) -> Any:
    came = [h for a, h in zip(args, how, strict=True) for _ in optree.tree_leaves(a, none_is_leaf=True)]
    leaves: list[Any]
    leaves, arguments = optree.tree_flatten(args, none_is_leaf=True)  # type: ignore[arg-type]
    inputs = [convert(a) if isinstance(a, Tensor | Variable) else a for a in leaves]
    given = [a for a in leaves if isinstance(a, Variable)]
    scoped = STATE.overrides is not None
    if scoped:
        inputs = [entered(t) if isinstance(t, Tensor) else t for t in inputs]
        own: list[Any] = [a if isinstance(a, Variable) else t for a, t in zip(leaves, inputs, strict=True)]
        args = optree.tree_unflatten(arguments, own)  # type: ignore[assignment]
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
    pull = _Rule(f, rule, inputs, arguments, came, kwargs, variables, [t._aval for t in inner])
    others = [None if isinstance(t, Tensor) else t for t in inputs]

    def again(tensors: Sequence[Tensor]) -> list[Tensor]:
        given = iter(tensors)
        there: list[Any] = [next(given) if isinstance(t, Aval) else x for t, x in zip(pull.wanted, others, strict=True)]
        anew: Any = optree.tree_unflatten(arguments, there)
        return [convert(t) for t in leaves_of(_call(f, jvp, anew, kwargs, how))]

    pull.again = again
    if jvp is not None:
        pull.push = _Push(pull, jvp, inputs, arguments)
    outputs = handed_out(inner, [*operands, *variables], pull)
    if STATE.recorders:
        for recorder in STATE.recorders:
            for v in variables:
                recorder.read(v, v.read())
            read_as = [entered(v.read()) for v in variables] if scoped else variables
            recorder.record_custom([*operands, *read_as], outputs, pull)
        if scoped:
            made_here(outputs)
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
    signature = signature_of(rule)
    if signature is None:
        return False
    kinds = {p.kind for p in signature.parameters.values()}
    return "variables" in signature.parameters or inspect.Parameter.VAR_KEYWORD in kinds


class _Rule:
    """The rule of one call: cotangents of its differentiable results to cotangents of its tensors. It holds none of
    the arguments, but what a message says of them."""

    def __init__(
        self,
        f: Callable[..., Any],
        rule: Callable[..., Any],
        inputs: list[Any],
        arguments: Any,
        came: list[str],
        options: dict[str, Any],
        variables: list[Variable],
        results: Sequence[Aval],
    ) -> None:
        self.function, self.rule, self.variables = f, rule, variables
        self.name = getattr(f, "__name__", "function")
        self.arguments, self.came, self.options = arguments, came, options
        self.wanted: list[Aval | None] = [t._aval if isinstance(t, Tensor) else None for t in inputs]
        self.results = list(results)
        self.push: Callable[[Sequence[Tensor]], Sequence[Tensor | None]] | None = None
        self.again: Callable[[Sequence[Tensor]], Sequence[Tensor]] | None = None

    def __call__(self, *cotangents: Tensor) -> Sequence[Tensor | None]:
        given = iter(cotangents)
        ups = [next(given) if a.dtype.is_differentiable else nothing(a) for a in self.results]
        if self.variables:
            answer, of_variables = self._with_variables(ups)
        else:
            answer, of_variables = self.rule(*ups), []
        gradients = self._matched(self._listed(answer))
        due = [*self.wanted, *(v._aval for v in self.variables)]
        every = enumerate(zip([*gradients, *of_variables], due, strict=True))
        return [fitted(g, a, self.name, functools.partial(self._place, i)) for i, (g, a) in every if a is not None]

    def _place(self, k: int) -> str:
        """The argument, or behind these the variable, that the k-th gradient is for."""
        count = len(self.wanted)
        return f"argument {k}, `{self._names()[k]}`" if k < count else f"variable `{self.variables[k - count].name}`"

    def _matched(self, gradients: list[Any]) -> list[Any]:
        """One gradient for each argument. There may be None for options that were given by keyword too, and, where
        tensors were, for defaults; or none for these; or, as TensorFlow has it, none but for what was given by
        position."""
        count = len(self.wanted)
        if len(gradients) == count or (
            len(gradients) in self._all_bound() and all(g is None for g in gradients[count:])
        ):
            return gradients[:count]
        passed = [h != "by default" for h in self.came]
        for due in (passed, [h == "by position" for h in self.came]):
            if len(gradients) == sum(due):
                given = iter(gradients)
                return [next(given) if d else None for d in due]
        names = ", ".join(
            f"`{n}`" if a is not None else f"`{n}` (no tensor: None)"
            for n, a, p in zip(self._names(), self.wanted, passed, strict=True)
            if p
        )
        raise ValueError(
            f"custom_gradient function expected to return {sum(passed)} gradients, but returned {len(gradients)} "
            f"instead: `{self.name}` has {sum(passed)} arguments: {names}."
        )

    def _all_bound(self) -> set[int]:
        """How many gradients would be due, had the options been given by position, or the defaults too."""
        signature = signature_of(self.function)
        positional = [
            p.name for p in (signature.parameters.values() if signature else ()) if p.kind is p.POSITIONAL_OR_KEYWORD
        ]
        options = len(leaves_of([v for k, v in self.options.items() if k in positional]))
        found = {len(self.wanted) + options} if self.options else set()
        if "by keyword" in self.came:
            first = {path[0] for path in self.arguments.paths()}
            rest = [p for p in positional[len(first) :] if p not in self.options]
            found.add(len(self.wanted) + options + len(rest))
        return found

    def _names(self) -> list[str]:
        """The arguments as the function calls them."""
        signature = signature_of(self.function)
        known = list(signature.parameters.values()) if signature else []
        positional = [p.name for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        rest = next((p.name for p in known if p.kind is p.VAR_POSITIONAL), "args")
        found = []
        for first, *inside in self.arguments.paths():
            k = first - len(positional)
            name = positional[first] if k < 0 else f"{rest}[{k}]"
            found.append(name + "".join(f"[{p!r}]" for p in inside))
        return found

    def _with_variables(self, ups: list[Tensor | None]) -> tuple[Any, list[Any]]:
        answer = self.rule(*ups, variables=self.variables)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise TypeError(
                f"The rule of `{self.name}` reads variables and should return (gradients, variable_gradients), "
                f"got {type(answer).__name__}."
            )
        of_variables = list(answer[1]) if isinstance(answer[1], list | tuple) else [answer[1]]
        if len(of_variables) != len(self.variables):
            names = ", ".join(f"`{v.name}`" for v in self.variables)
            raise ValueError(
                f"The rule of `{self.name}` must return gradients for each of its {len(self.variables)} variables, "
                f"got {len(of_variables)}: it reads {names}."
            )
        return answer[0], of_variables

    def _listed(self, answer: Any) -> list[Any]:
        """The gradients as a flat list; a single one need not be in a list."""
        if answer is None or isinstance(answer, Tensor | Variable):
            return [answer]
        return leaves_of(answer) if isinstance(answer, list | tuple | dict) else [answer]


class _Push:
    """The JVP of one call: tangents of its differentiable operands to those of its differentiable results."""

    def __init__(self, rule: _Rule, jvp: Callable[..., Any], inputs: list[Any], arguments: Any) -> None:
        self.rule, self.jvp, self.inputs, self.arguments = rule, jvp, inputs, arguments

    def __call__(self, tangents: Sequence[Tensor]) -> Sequence[Tensor | None]:
        given = iter(tangents)
        of_inputs = [next(given) if isinstance(t, Tensor) and t.dtype.is_differentiable else None for t in self.inputs]
        primals, along = (optree.tree_unflatten(self.arguments, x) for x in (self.inputs, of_inputs))
        rule = self.rule
        if rule.variables:
            if not _takes_variables(self.jvp):
                names = ", ".join(v.name for v in rule.variables)
                raise TypeError(
                    f"`{rule.name}` reads variables ({names}), so that its `jvp` must take `variables=` and "
                    "`variable_tangents=`."
                )
            of_variables = [next(given) if v.dtype.is_differentiable else None for v in rule.variables]
            answer = self.jvp(primals, along, variables=rule.variables, variable_tangents=of_variables)
        else:
            answer = self.jvp(primals, along)
        answers = leaves_of(answer)
        if len(answers) != len(rule.results):
            raise ValueError(
                f"The `jvp` of `{rule.name}` should return a tangent for each of {len(rule.results)} results, got "
                f"{len(answers)}."
            )
        return [
            fitted(g, a, rule.name, functools.partial("result {} (from its `jvp`)".format, k))
            for k, (g, a) in enumerate(zip(answers, rule.results, strict=True))
            if a.dtype.is_differentiable
        ]


def nothing(result: Aval) -> Tensor | None:
    """The cotangent of a result that no gradient flows to: zeros, where its dtype has them."""
    zeros: Tensor | None = None if result.dtype.kind == "s" else execute(filled_step(result, 0), ())
    return zeros


def fitted(gradient: Any, due: Aval, name: str, place: Callable[[], str]) -> Tensor | None:
    """A gradient cast and broadcast to the shape and dtype of what it belongs to, which `place` names.

    Raises:
      ValueError: it has another shape that does not broadcast."""
    if gradient is None or not due.dtype.is_differentiable:
        return None
    try:
        t = convert(gradient)
    except (TypeError, ValueError) as e:
        raise type(e)(f"The rule of `{name}` returned {str(gradient)[:80]} for {place()}: {e}") from e
    if t._aval.dtype.kind == "s":
        raise TypeError(
            f"The rule of `{name}` returned text, {str(gradient)[:80]}, for {place()}, which is {due.dtype.name}: a "
            "gradient is a tensor of numbers, or None."
        )
    if t._aval.dtype is not due.dtype:
        t = unary(CAST.bind(dtype=due.dtype), t)
    if t._aval is due:
        return t
    try:
        whole = broadcast(t._aval.shape, due.shape)
    except ValueError:
        whole = None
    if whole == due.shape:
        return unary(BROADCAST_TO.bind(shape=due.dims), t)
    if [n for n in t._aval.dims if n != 1] == [n for n in due.dims if n != 1]:
        return unary(RESHAPE.bind(shape=due.dims), t)
    way_out = "sum over the axes that were broadcast" if whole == t._aval.shape else "return that shape"
    raise ValueError(
        f"The rule of `{name}` returned a gradient of shape {shape_text(t._aval.shape)} for {place()}, which has shape "
        f"{shape_text(due.shape)}: {way_out}, or return one that broadcasts to it."
    )
