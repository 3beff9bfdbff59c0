"""`checkpoint`: a function that keeps little for its gradient, and computes the rest again. Floor: tape."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import optree

from gradtape.ir.bounded import Bounded
from gradtape.ir.graph import Graph, order
from gradtape.ops.control import CHECKPOINT
from gradtape.ops.op import Step
from gradtape.runtime import control
from gradtape.runtime.chunks import budget_of
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable
from gradtape.tracing import conversion
from gradtape.tracing.branching import Packed
from gradtape.tracing.concrete import TRACING
from gradtape.tracing.signatures import as_argument, key_of
from gradtape.transforms.cost import multiply_adds
from gradtape.transforms.differentiate import augmented
from gradtape.transforms.remember import chosen
from gradtape.transforms.simplify import flattened, simplify

MAX_SIGNATURES = 64


@dataclass(frozen=True)
class CheckpointReport:
    """What a checkpointed function keeps for its gradient.

    Attributes:
      kept_bytes: of values that are kept besides arguments and results.
      full_bytes: of those that would be kept without a checkpoint.
      kept, full: how many values these are.
      multiply_adds: of what is computed again."""

    kept_bytes: int
    full_bytes: int
    kept: int
    full: int
    multiply_adds: int

    @property
    def saved_bytes(self) -> int:
        """The bytes that need not be held from the call to its gradient."""
        return self.full_bytes - self.kept_bytes


class Checkpointed:
    """A function that keeps no more than a budget; see `checkpoint`."""

    def __init__(self, fn: Callable[..., Any], budget: Any) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.budget = 0 if budget == 0 else budget_of(budget, "budget")
        self._made: Bounded[Any, _Traced] = Bounded(MAX_SIGNATURES)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = self._leaves(args, kwargs)
        if control.is_staged():
            return _Traced(self.fn, leaves, spec, self.budget).run(leaves)
        return self._traced(leaves, spec).run(leaves)

    def report(self, *args: Any, **kwargs: Any) -> CheckpointReport:
        """What is kept for the gradient by all floating arguments and trainable variables.

        >>> import gradtape as tf
        >>> f = tf.checkpoint(lambda x: tf.sin(tf.exp(tf.tanh(x))))
        >>> f.report(tf.ones([1000])).saved_bytes
        8000
        """
        leaves, spec = self._leaves(args, kwargs)
        return self._traced(leaves, spec).report()

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        arguments: Any = (args, kwargs)
        leaves, spec = optree.tree_flatten(arguments, none_is_leaf=True)
        return [as_argument(x) for x in leaves], spec

    def _traced(self, leaves: Sequence[Any], spec: Any) -> _Traced:
        with TRACING:
            key = (spec, tuple(map(key_of, leaves)))
            return self._made.find(key, lambda: _Traced(self.fn, leaves, spec, self.budget))


class _Traced:
    """One signature: a step over tensors, variables and what was captured."""

    def __init__(self, fn: Callable[..., Any], leaves: Sequence[Any], spec: Any, budget: int | None) -> None:
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]

        def block(tensors: list[Tensor]) -> list[Tensor]:
            inside = list(leaves)
            for i, t in zip(self.places, tensors, strict=True):
                inside[i] = t
            arguments: Any = optree.tree_unflatten(spec, inside)
            args, kwargs = arguments
            self.results = Packed(conversion.call(fn, args, kwargs))
            return self.results.tensors

        examples: list[Tensor] = [leaves[i] for i in self.places]
        self.block = control.Traced(block, [t._aval for t in examples], examples)
        self.needs, self.assigned, outputs = control.of_one(self.block)
        inputs = [*self.block.tracer.inputs, *self.needs.inputs(self.block)]
        self.step: Step = CHECKPOINT.bind(graph=simplify(flattened(Graph(inputs, outputs))), budget=_bytes(budget))

    def run(self, leaves: Sequence[Any]) -> Any:
        """The results for other tensors."""
        made = control.run(self.step, [*(leaves[i] for i in self.places), *self.needs.operands()])
        count = len(made) - len(self.assigned)
        for v, new in zip(self.assigned, made[count:], strict=True):
            v.assign(new)
        return self.results.with_tensors(made[:count])

    def report(self) -> CheckpointReport:
        graph: Graph = self.step.params["graph"]
        marks = tuple(v.aval.dtype.is_differentiable and self._flows(k) for k, v in enumerate(graph.inputs))
        count = len(graph.outputs)
        whole = augmented(graph, marks)
        full = whole.outputs[count:]
        small = chosen(whole, count, self.step.params["budget"])
        kept = small.outputs[count:]
        repeated = order(full, [*small.inputs, *small.outputs])
        sizes = [sum(v.aval.nbytes for v in values) for values in (kept, full)]
        return CheckpointReport(sizes[0], sizes[1], len(kept), len(full), sum(map(multiply_adds, repeated)))

    def _flows(self, k: int) -> bool:
        """Whether gradients are wanted for an input: an argument, or a variable that is trained."""
        held = [True] * len(self.places) + [isinstance(v, Variable) and v.trainable for v in self.needs.variables]
        return k < len(held) and held[k]


def _bytes(budget: int | None) -> int:
    return (1 << 62) if budget is None else budget


def checkpoint(fn: Callable[..., Any] | None = None, budget: Any = 0) -> Any:
    """A function whose gradient computes again what it needs and was not kept, so that little is held until then.

    Args:
      fn: a function of tensors (or structures of them) to tensors; without it, a decorator is returned. It is traced
        once for each signature, as by `tf.function`.
      budget: how much may be kept besides arguments and results: bytes, a size such as "20MiB", a fraction of the
        memory that is free; 0, by default, keeps nothing. What is kept is what spares most work per byte.

    Returns:
      A function of the same arguments; its method `report` says what it keeps and what that saves.

    Raises:
      ValueError: a budget that is no size.

    >>> import gradtape as tf
    >>> f = tf.checkpoint(lambda x: tf.sin(x) * tf.exp(x))
    >>> x = tf.constant(0.5)
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = f(x)
    >>> round(float(tape.gradient(y, x)), 4)
    2.2373

    Source: Chen et al., "Training deep nets with sublinear memory cost" (2016).
    """
    if fn is None:
        return functools.partial(checkpoint, budget=budget)
    if not callable(fn):
        raise TypeError(f"`checkpoint` wants a function of tensors, got {fn!r}. Write `gradtape.checkpoint(f)(x)`.")
    return Checkpointed(fn, budget)
