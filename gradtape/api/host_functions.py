"""Python functions as steps: `py_function`, `numpy_function`. Floor: api."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import DType, as_dtype
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ir.shapes import shape_text
from gradtape.ops.host import Rule, host_step
from gradtape.ops.op import apply
from gradtape.recording import leaves_of
from gradtape.runtime.convert import convert
from gradtape.runtime.devices import on_host
from gradtape.runtime.hosted import effect, is_at_call
from gradtape.runtime.places import place_of, user_frame
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import SymbolicTensor, SymbolicTensorError, Tensor, wrap
from gradtape.runtime.trace import NoValueYet, evaluated, outside
from gradtape.tape import GradientTape
from gradtape.tracing.conversion import raw_callbacks
from gradtape.transforms.differentiate import zeros

Function = Callable[[list[Tensor]], list[Tensor]]  # of tensors with values


@raw_callbacks
def py_function(func: Callable[..., Any], inp: Any, Tout: Any, name: str | None = None) -> Any:
    """The results of a Python function of tensors that have values; in a traced function it runs in each call.

    Gradients flow through it, to any order, as far as it is made of ops: pulling back runs it again under a tape.

    Args:
      func: takes the tensors of `inp`, and returns a tensor or a list of them.
      inp: a list of tensors.
      Tout: the dtype of the result, or a list of dtypes; [] for none.
      name: accepted for compatibility.

    Returns:
      A tensor, or a list of tensors where `Tout` is a list. While a function is traced, the shapes are those that
      `func` gives for the arguments of the first call, and must stay. Of the cotangents of a custom gradient's rule,
      which have no values until a gradient is computed, results have the shape of the first argument.

    Raises:
      InvalidArgumentError: results of other dtypes, or another number of them; in a traced function, of other shapes
        than the first time.

    >>> import gradtape as tf
    >>> def slow(x):
    ...     return x * x if x > 0 else x
    >>> x = tf.constant(3.0)
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = tf.py_function(slow, [x], tf.float32)
    >>> float(y), float(tape.gradient(y, x))
    (9.0, 6.0)

    Source: `tf.py_function` of TensorFlow 2.
    """
    dtypes = _dtypes(Tout)
    _check(func, "py_function")

    def run(tensors: list[Tensor]) -> list[Tensor]:
        return _results(func(*tensors), dtypes)

    return _shaped(_called(run, inp, dtypes, _rule_of(run)), Tout)


@raw_callbacks
def numpy_function(
    func: Callable[..., Any], inp: Any, Tout: Any, stateful: bool = True, name: str | None = None
) -> Any:
    """The results of a function of NumPy arrays; in a traced function it runs in each call. No gradient flows.

    Arguments, results and errors as of `py_function`.

    >>> import gradtape as tf
    >>> print(tf.numpy_function(lambda a: a[::-1], [tf.constant([1.0, 2.0])], tf.float32).numpy())
    [2. 1.]

    Source: `tf.numpy_function` of TensorFlow 2.
    """
    dtypes = _dtypes(Tout)
    _check(func, "numpy_function")

    def run(tensors: list[Tensor]) -> list[Tensor]:
        for recorder in STATE.recorders:
            for t in tensors:
                recorder.left(t, "`tf.numpy_function`")
        with outside():
            return _results(func(*(t.numpy() for t in tensors)), dtypes)

    return _shaped(_called(run, inp, dtypes, None), Tout)


def _check(func: Any, name: str) -> None:
    if not callable(func):
        raise TypeError(f"`{name}` wants a Python function as `func`, got {func!r}.")


def _dtypes(wanted: Any) -> list[DType]:
    return [as_dtype(d) for d in (wanted if isinstance(wanted, list | tuple) else [wanted])]


def _shaped(results: list[Tensor], wanted: Any) -> Any:
    return list(results) if isinstance(wanted, list | tuple) else results[0]


def _results(answer: Any, dtypes: Sequence[DType]) -> list[Tensor]:
    found = [] if answer is None else leaves_of(list(answer) if isinstance(answer, list | tuple) else [answer])
    if len(found) != len(dtypes):
        raise InvalidArgumentError(f"The function should return {len(dtypes)} values by its `Tout`, got {len(found)}.")
    try:
        made = [convert(x, None if isinstance(x, np.ndarray | np.generic) else d) for x, d in zip(found, dtypes)]
    except (TypeError, ValueError) as e:
        raise InvalidArgumentError(f"{type(e).__name__}: {e}") from e
    for t, d in zip(made, dtypes, strict=True):
        if t._aval.dtype is not d:
            raise InvalidArgumentError(f"The function should return {d.name} by its `Tout`, got {t.dtype.name}.")
    return made


def _called(run: Function, inp: Any, dtypes: Sequence[DType], rule: Rule | None) -> list[Tensor]:
    """At once, or as a step of the function that is traced."""
    tensors = [convert(x) for x in (inp if isinstance(inp, list | tuple) else [inp])]
    if not is_at_call():
        return run(tensors)
    remembered = _Remembered(run, tensors, dtypes)
    return effect(remembered, tensors, remembered.avals, rule)


class _Remembered:
    """A function that ran once while it was traced, to see the shapes of its results: its first call, if it is for the
    same arguments, does not run it again. Of cotangents, which have no values yet, it is taken to keep the shape."""

    def __init__(self, run: Function, tensors: Sequence[Tensor], dtypes: Sequence[DType]) -> None:
        self.run, self.lock = run, threading.Lock()
        self.inputs = [t._aval for t in tensors]
        self.first: tuple[list[Any], list[Any]] | None = None
        try:
            given = [evaluated(t) if isinstance(t, SymbolicTensor) else t for t in tensors]
        except NoValueYet:
            self.avals, self.why = [aval(self.inputs[0].dims, d) for d in dtypes], "the first of its arguments has"
            return
        except ValueError:
            raise SymbolicTensorError(
                f"{place_of(user_frame())}: the shape of what a Python function gives here is only known when it runs: "
                "its arguments depend on a branch or a loop, or there was no call yet."
            ) from None
        with outside():
            made = run(given)
        self.avals, self.why = [t._aval for t in made], "it gave the first time"
        self.first = [on_host(t._array) for t in given], [t._array for t in made]

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        with self.lock:
            first, self.first = self.first, None
        if first is not None and all(map(_equal, first[0], arrays)):
            return tuple(first[1])
        with outside():
            made = self.run([wrap(a, v) for a, v in zip(arrays, self.inputs, strict=True)])
        for t, v in zip(made, self.avals, strict=True):
            if t._aval is not v:
                raise InvalidArgumentError(
                    f"A Python function in a traced function gave shape {shape_text(t._aval.shape)}, and not "
                    f"{shape_text(v.shape)}, which {self.why}. Its shapes must stay, or depend on those of its "
                    "arguments alone."
                )
        return tuple(t._array for t in made)


def _equal(a: Any, b: Any) -> bool:
    a, b = np.asarray(on_host(a)), np.asarray(on_host(b))
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


# ------------------------------------------------------------------ the rule, which is such a function again


def _rule_of(run: Function) -> Rule:
    """The cotangents of the operands (behind the order of effects) by a tape around the function."""

    def rule(node: Node, cotangents: list[Value | None], wanted: list[bool]) -> Sequence[Value | None]:
        return _pulled(run, node, cotangents, wanted, lead=1)

    return rule


def _pulled(
    run: Function, node: Node, cotangents: list[Value | None], wanted: list[bool], lead: int
) -> Sequence[Value | None]:
    operands = node.inputs[lead:]
    marks = [w and v.aval.dtype.is_differentiable for v, w in zip(operands, wanted[lead:], strict=True)]
    if not any(marks):
        return [None] * len(node.inputs)
    ups = [
        zeros(v.aval) if g is None else g
        for v, g in zip(node.outputs[lead:], cotangents[lead:], strict=True)
        if v.aval.dtype.is_differentiable
    ]
    pull = _Pull(run, [v.aval for v in operands], marks)
    step = host_step(pull.on_arrays, [v.aval for v, m in zip(operands, marks, strict=True) if m], pull.rule)
    made = iter(apply(step, [*operands, *ups]))
    return [*[None] * lead, *(next(made) if m else None for m in marks)]


class _Pull:
    """A function of operands and cotangents to the cotangents of the operands that are marked: again one of tensors,
    which a tape can record."""

    def __init__(self, run: Function, avals: list[Aval], marks: list[bool]) -> None:
        self.forward, self.avals, self.marks = run, avals, marks

    def run(self, tensors: list[Tensor]) -> list[Tensor]:
        operands, ups = tensors[: len(self.marks)], tensors[len(self.marks) :]
        sources = [t for t, m in zip(operands, self.marks, strict=True) if m]
        with GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            results = [t for t in self.forward(operands) if t._aval.dtype.is_differentiable]
        found: list[Tensor] = tape.gradient(results, sources, ups, unconnected_gradients="zero")
        return [convert(t) for t in found]

    def on_arrays(self, *arrays: Any) -> Any:
        ups = [np.asarray(a) for a in arrays[len(self.marks) :]]
        with outside():
            given = [wrap(a, v) for a, v in zip(arrays, self.avals, strict=False)]
            made = self.run([*given, *(convert(a) for a in ups)])
        arrays_made = tuple(t._array for t in made)
        return arrays_made[0] if len(arrays_made) == 1 else arrays_made

    def rule(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> Sequence[Value | None]:
        """It is linear in the cotangents that it was given: what is pulled back to these does not depend on them, and
        may be read without them, as forward mode does."""
        of_operands = [w and k < len(self.marks) for k, w in enumerate(wanted)]
        of_ups = [w and not o for w, o in zip(wanted, of_operands, strict=True)]
        at_zero = [v if k < len(self.marks) else zeros(v.aval) for k, v in enumerate(node.inputs)]
        first = _pulled(self.run, node, cotangents, of_operands, lead=0)
        second = _pulled(
            self.run, Node(node.step, tuple(at_zero), tuple(v.aval for v in node.outputs)), cotangents, of_ups, lead=0
        )
        return [a if b is None else b for a, b in zip(first, second, strict=True)]
