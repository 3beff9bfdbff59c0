"""Other gradients for built-in ops: rules by name, and scopes in which ops are recorded with them. Floor: tape.

In a scope an op runs as ever, and its results are handed out under new names that only the rule connects to the
operands, as those of a function with a custom gradient are. Outside of scopes one question is asked of each op."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gradtape.custom_rules import fitted, nothing
from gradtape.ir.aval import Aval
from gradtape.op_types import nearest, op_named, own_gradient, types
from gradtape.ops.op import Op, Step
from gradtape.runtime.dispatch import execute
from gradtape.runtime.observing import beneath
from gradtape.runtime.ruled import handed_out
from gradtape.runtime.state import STATE, replaced_gradients
from gradtape.runtime.tensor import Tensor

Rule = Callable[..., Any]  # of the operation and the cotangents of its results


# ------------------------------------------------------------------ rules by name


class Registry:
    """Rules by the name that they were registered under."""

    def __init__(self) -> None:
        self.rules: dict[str, Rule] = {}
        self.lock = threading.Lock()

    def add(self, name: str, rule: Rule) -> None:
        with self.lock:
            if name in self.rules or name in types():
                where = f"`{_named(self.rules[name])}`" if name in self.rules else "the op itself"
                raise KeyError(
                    f"Registering two gradients with name '{name}'! It has one of {where}. Choose another name, and "
                    "use it with `gradient_override_map`."
                )
            self.rules[name] = rule

    def get(self, name: str) -> Rule:
        found = self.rules.get(name)
        if found is None:
            raise LookupError(
                f"The gradient registry has no entry for '{name}'{nearest(name, self.rules)} Register the rule "
                "with `@tf.RegisterGradient` first."
            )
        return found


REGISTRY = Registry()


class RegisterGradient:
    """A decorator that registers a rule under a name: for `gradient_override_map`, and for the kernel op of that name
    that has no gradient of its own.

    Args:
      op_type: the name; it can be given once in a process.

    Raises:
      TypeError: the name is no string.
      KeyError: the name has a rule already.

    >>> import gradtape as tf
    >>> @tf.RegisterGradient("HalfOfSquare")
    ... def half(op, grad):
    ...     return grad * op.inputs[0]
    >>> x = tf.constant(3.0)
    >>> with tf.GradientTape() as tape, tf.gradient_override_map({"Square": "HalfOfSquare"}):
    ...     tape.watch(x)
    ...     y = tf.square(x)
    >>> float(y), float(tape.gradient(y, x))
    (9.0, 3.0)

    Source: `tf.RegisterGradient` of TensorFlow 2.
    """

    def __init__(self, op_type: str) -> None:
        if not isinstance(op_type, str):
            raise TypeError(f"`op_type` must be a string, got {type(op_type).__name__}.")
        self._op_type = op_type

    def __call__(self, f: Rule) -> Rule:
        """Register f, which takes the operation and the cotangents of its results and returns those of its operands."""
        if not callable(f):
            raise TypeError(f"The rule of '{self._op_type}' must be a function, got {type(f).__name__}.")
        REGISTRY.add(self._op_type, f)
        return f


def no_gradient(op_type: str) -> None:
    """Say that the kernel op of a name, or what `gradient_override_map` maps to it, has no gradient by any operand.

    Raises:
      TypeError: the name is no string.
      KeyError: the name has a rule already.

    >>> import gradtape as tf
    >>> tf.no_gradient("Counted")
    >>> x = tf.constant(2.0)
    >>> with tf.GradientTape() as tape, tf.gradient_override_map({"Square": "Counted"}):
    ...     tape.watch(x)
    ...     y = tf.square(x)
    >>> print(tape.gradient(y, x))
    None

    Source: `tf.no_gradient` of TensorFlow 2.
    """
    RegisterGradient(op_type)(_nothing)


def _nothing(op: Operation, *grads: Tensor) -> list[None]:
    return [None] * len(op.inputs)


# ------------------------------------------------------------------ scopes


@contextlib.contextmanager
def gradient_override_map(op_type_map: Mapping[str, str]) -> Iterator[None]:
    """A scope in which ops are recorded with rules that were registered by name.

    Args:
      op_type_map: names of ops (TensorFlow's types such as "Square" and "Relu", or those of the op table, "square")
        to names of rules. The name of an elementwise op of as many operands stands for that op's own gradient:
        `{"Round": "Identity"}` lets gradients pass.

    Raises:
      TypeError: no dictionary of strings.
      ValueError: a name that no op has.
      LookupError: a name that no rule was registered under.

    >>> import gradtape as tf
    >>> @tf.RegisterGradient("DoubleSlope")
    ... def double(op, grad):
    ...     return grad * 2.0
    >>> x = tf.constant(0.0)
    >>> with tf.GradientTape() as tape, tf.gradient_override_map({"Sin": "DoubleSlope"}):
    ...     tape.watch(x)
    ...     y = tf.sin(x)
    >>> float(tape.gradient(y, x))
    2.0

    Source: `Graph.gradient_override_map` of TensorFlow, which has no effect on tapes there.
    """
    _check_names(op_type_map)
    for name, rule in op_type_map.items():
        if not isinstance(rule, str):
            raise TypeError(f"`op_type_map['{name}']` should be the name of a rule, got {type(rule).__name__}.")
    with _scope({name: _rule_named(rule, op_named(name)) for name, rule in op_type_map.items()}):
        yield


def _rule_named(name: str, of: Op) -> Rule:
    """The rule of a name for an op; the name of an op stands for that op's own gradient."""
    known = types().get(name)
    return REGISTRY.get(name) if known is None else own_gradient(known, of, name)


@contextlib.contextmanager
def override_gradient(rules: Mapping[str, Rule]) -> Iterator[None]:
    """A scope in which ops are recorded with other gradients: in eager code, in functions that are traced or called in
    it, and for all that a tape or a Jacobian asks afterwards.

    Args:
      rules: names of ops to functions of the operation (`inputs`, `outputs`, `type`, `get_attr`) and the cotangents of
        its results; they return one cotangent for each operand, or a single one.

    Raises:
      TypeError: no dictionary of functions.
      ValueError: a name that no op has; or, when a rule runs, gradients of a wrong number or shape.

    >>> import gradtape as tf
    >>> x = tf.constant([-1.0, 2.0])
    >>> guided = lambda op, grad: tf.nn.relu(grad) * tf.cast(op.inputs[0] > 0, grad.dtype)
    >>> with tf.GradientTape() as tape, tf.override_gradient({"relu": guided}):
    ...     tape.watch(x)
    ...     y = tf.reduce_sum(tf.nn.relu(x) * [3.0, -1.0])
    >>> print(tape.gradient(y, x).numpy())
    [0. 0.]
    """
    _check_names(rules)
    for name, rule in rules.items():
        if not callable(rule):
            raise TypeError(
                f"The rule of '{name}' should be a function of the operation and its cotangents, got "
                f"{type(rule).__name__}. Names of registered rules go to `gradient_override_map`."
            )
    with _scope(rules):
        yield


@contextlib.contextmanager
def _scope(rules: Mapping[str, Rule]) -> Iterator[None]:
    outer, known = STATE.overrides, replaced_gradients()
    here = {op_named(name).name: (name, rule) for name, rule in rules.items()}
    STATE.override(beneath(outer, Overrides(here if known is None else known.rules | here)))
    try:
        yield
    finally:
        STATE.override(outer)


class Overrides:
    """What a scope puts in the place of gradients: by op, the name it was asked for by and the rule."""

    def __init__(self, rules: Mapping[str, tuple[str, Rule]]) -> None:
        self.scope, self.op_by_op = self, False
        self.rules = dict(rules)
        self._key = frozenset(self.rules.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Overrides) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def run(self, step: Step, inputs: Sequence[Tensor]) -> Any:
        """The results of a step, connected to the operands by the scope's rule; None where it has none for the op."""
        found = self.rules.get(step.op.name)
        if found is None:
            return None
        return run_with(*found, step, inputs)


def run_with(
    kind: str, rule: Rule, step: Step, inputs: Sequence[Tensor], attributes: Mapping[str, Any] | None = None
) -> Any:
    """The results of a step, connected to the operands by a rule alone; `kind`: what the rule sees it as; `attributes`:
    what it may ask for by name (None: the step's parameters)."""
    outer = STATE.overrides
    STATE.override(None)
    recorders, STATE.recorders = STATE.recorders, ()
    try:
        made = execute(step, inputs)
        results = made if isinstance(made, tuple) else (made,)
        pull = _Pull(Operation(kind, step.params if attributes is None else attributes, inputs, results), rule)
        outputs = handed_out(results, inputs, pull)
        pull.operation.outputs = tuple(outputs)
    finally:
        STATE.override(outer)
        STATE.recorders = recorders
    for recorder in recorders:
        recorder.record_custom(list(inputs), outputs, pull)
    return tuple(outputs) if isinstance(made, tuple) else outputs[0]


class Operation:
    """One run of an op, as a rule sees it.

    Attributes:
      type, name: the name of the op, as the scope has it.
      inputs, outputs: tensors.
      attributes: parameters by name, which `get_attr` gives too.
    """

    def __init__(
        self, kind: str, attributes: Mapping[str, Any], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> None:
        self.type = self.name = kind
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.attributes = attributes

    def get_attr(self, name: str) -> Any:
        """A parameter of the op, such as `axes` of a sum.

        Raises:
          ValueError: it has none of that name.
        """
        if name not in self.attributes:
            there = ", ".join(map(repr, self.attributes)) or "none"
            raise ValueError(f"Operation '{self.name}' has no attr named '{name}'. It has: {there}.")
        return self.attributes[name]

    def __repr__(self) -> str:
        return f"<operation {self.type} of {', '.join(repr(t._aval) for t in self.inputs)}>"


class _Pull:
    """A rule at work: cotangents of differentiable results to those of operands."""

    def __init__(self, operation: Operation, rule: Rule) -> None:
        self.push: Callable[[Sequence[Tensor]], Sequence[Tensor | None]] | None = None
        self.operation, self.rule = operation, rule
        self.function = rule
        self.again: Callable[[Sequence[Tensor]], Sequence[Tensor]] | None = None
        self.name = f"{operation.type}, {_named(rule)}"
        self.results: list[Aval] = [t._aval for t in operation.outputs]

    def __call__(self, *cotangents: Tensor) -> Sequence[Tensor | None]:
        outer = STATE.overrides
        STATE.override(None)
        try:
            given = iter(cotangents)
            ups = [next(given) if a.dtype.is_differentiable else nothing(a) for a in self.results]
            answers = self._listed(self.rule(self.operation, *ups))
            due = enumerate(zip(answers, self.operation.inputs, strict=True))
            return [fitted(g, t._aval, self.name, functools.partial("operand {}".format, i)) for i, (g, t) in due]
        finally:
            STATE.override(outer)

    def _listed(self, answer: Any) -> list[Any]:
        """A gradient for each operand; those that TensorFlow's operations have besides, such as axes, have none."""
        answers = list(answer) if isinstance(answer, list | tuple) else [answer]
        count = len(self.operation.inputs)
        if len(answers) < count or any(a is not None for a in answers[count:]):
            raise ValueError(
                f"The rule `{_named(self.rule)}` of '{self.operation.type}' returned {len(answers)} gradients for "
                f"{count} operands. Return one for each, or None."
            )
        return answers[:count]


# ------------------------------------------------------------------ names


def _check_names(mapping: Any) -> None:
    if not isinstance(mapping, Mapping):
        raise TypeError(f"Overrides should be a dictionary by names of ops, got {type(mapping).__name__}.")
    for name in mapping:
        if not isinstance(name, str):
            raise TypeError(f"Overrides should be a dictionary by names of ops, and one is {name!r}.")
        op_named(name)


def _named(rule: Rule) -> str:
    return getattr(rule, "__name__", type(rule).__name__)
