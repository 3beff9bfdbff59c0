"""Tracing: tensors whose values are not known yet; ops on them become graph nodes. Floor: runtime.

A symbolic tensor has an aval and an id like any other, so that tapes record it; but it has no array. Whoever asks
for one gets `SymbolicTensorError`, and eager dispatch answers it by adding a node to the graph of the tracer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gradtape.backends.cpu import lower
from gradtape.backends.program import compile_graph
from gradtape.ir.aval import Aval
from gradtape.ir.graph import Graph, Value
from gradtape.ops.arithmetic import ASSIGNED, STOP_GRADIENT
from gradtape.ops.op import Step, apply
from gradtape.runtime.convert import is_shared
from gradtape.runtime.places import line_of, place_at, place_of, user_frame
from gradtape.runtime.state import STATE, new_id
from gradtape.runtime.tensor import SymbolicTensor, SymbolicTensorError, Tensor, wrap
from gradtape.runtime.trie import Trie
from gradtape.transforms.dependence import leaves

if TYPE_CHECKING:
    from gradtape.runtime.record import Recorder


class Tracer:
    """One graph in the making: its inputs, and the tensors from outside that it came to use."""

    is_open = False  # it is that of a function for more than one shape
    is_function = False  # it is a whole function or a block of one, and takes in all that is computed in it
    is_map = False  # it is that of what is done to each slice
    keeps_states = False  # of what random numbers are drawn from, and of the order of effects

    def __init__(self, inputs: Sequence[Aval]) -> None:
        self.inputs = [Value(a) for a in inputs]
        self.symbols = [self.symbol(v) for v in self.inputs]
        self.captured: dict[int, tuple[Tensor, Value]] = {}  # by id of the tensor
        self.lifted: dict[int, Value] = {}  # tensors with a value whose making is part of the graph all the same, by id
        # whether anybody may ask for derivatives of the graph
        self.differentiable: bool = bool(STATE.recorders) or any(t.differentiable for t in STATE.tracers)

    def symbol(self, v: Value) -> SymbolicTensor:
        """A tensor that stands for a value of this graph."""
        t = SymbolicTensor.__new__(SymbolicTensor)
        t._aval, t._id, t._value, t._tracer = v.aval, new_id(), v, self
        t._place = line_of(user_frame()) if self.is_function else None
        return t

    def value_of(self, t: Tensor) -> Value:
        """The graph value of a tensor; one from outside becomes an input."""
        if isinstance(t, SymbolicTensor) and t._tracer is self:
            value: Value = t._value
            return value
        if t._id in self.lifted:
            return self.lifted[t._id]
        found = self.captured.get(t._id)
        if found is None:
            found = self.captured[t._id] = (t, Value(t._aval))
        return found[1]

    def apply(self, step: Step, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """A step as a node of the graph; its results."""
        return tuple(self.symbol(v) for v in apply(step, [self.value_of(t) for t in inputs]))

    def graph(self, results: Sequence[Tensor]) -> tuple[Graph, list[Tensor]]:
        """The graph of some results over the inputs, then over what was captured; and that."""
        outputs = [self.value_of(t) for t in results]
        captured = list(self.captured.values())
        return Graph([*self.inputs, *(v for _, v in captured)], outputs), [t for t, _ in captured]

    def evaluated(self, t: SymbolicTensor) -> Any:
        """The array of a symbolic tensor, for the values that it is traced with.

        Raises:
          ValueError: there are none."""
        raise ValueError(f"{t!r} has no value while it is traced.")

    def run(self, f: Callable[..., Any], *args: Any) -> Any:
        """f(*args) with this tracer as the innermost one."""
        outer = STATE.tracers
        STATE.enter((*outer, self), STATE.recorders)
        try:
            return f(*args)
        finally:
            STATE.enter(outer, STATE.recorders)

    def take(self, step: Step, inputs: Sequence[Tensor]) -> Any:
        """The results of a step that becomes part of a graph, which this tracer, the innermost one, is asked first;
        None where the step runs at once."""
        outside = False
        for t in inputs:
            if isinstance(t, SymbolicTensor):
                return traced(step, inputs)
            outside = outside or is_outside(t)
        if outside and any(v.dtype.is_differentiable for v in step.infer(tuple(t._aval for t in inputs))):
            return traced(step, inputs)
        return None


def is_of_one_shape(state: Any) -> bool:
    """Whether all values of a variable have one shape, as those of all other state have."""
    found: bool = getattr(state, "is_of_one_shape", True)
    return found


def traced(step: Step, inputs: Sequence[Tensor], tracer: Tracer | None = None) -> Any:
    """A step as a node in the graph of a tracer (by default the innermost one that one of its operands belongs to); its
    result, or a tuple of results."""
    results = (tracer or _innermost(inputs)).apply(step, inputs)
    for recorder in STATE.recorders:
        recorder.record(step, inputs, results)
    return results[0] if len(results) == 1 else results


def is_outside(t: Tensor) -> bool:
    """Whether somebody may ask, around the function that is being traced, for derivatives by a tensor with a value:
    then what is computed of it is part of the graph."""
    function = function_tracer() if t._aval.dtype.is_differentiable else None
    if function is None:
        return False
    return (t._id < function.begin and not is_shared(t)) or any(r.is_watching(t) for r in function.around)


def _innermost(inputs: Sequence[Tensor]) -> Tracer:
    symbols = [t for t in inputs if isinstance(t, SymbolicTensor)]
    for t in symbols:
        if not any(t._tracer is tracer for tracer in STATE.tracers):
            raise out_of_scope(t)
        if t._tracer.is_open and t._tracer is not STATE.tracers[-1]:
            raise SymbolicTensorError(f"{place_of(user_frame())}: {t!r} is used in a function that is not converted.")
    for tracer in reversed(STATE.tracers):
        if tracer.is_function or any(tracer is t._tracer for t in symbols):
            return tracer
    raise AssertionError("the tracer of each of them is among those at work")


class OutOfScope(TypeError):
    """A symbolic tensor outlived what it was made in."""


def out_of_scope(t: SymbolicTensor) -> OutOfScope:
    """The error for a symbolic tensor that outlived the function, or the block of it, in which it was made."""
    made = f", made at {place_at(*t._place)}," if t._place else ""
    return OutOfScope(
        f"{t!r}{made} is out of scope at {place_of(user_frame())}: the function or the branch or loop that it belongs "
        "to had been traced. Return it from there, instead of keeping it in a list, an attribute or a global name."
    )


class NoValueYet(ValueError):
    """What depends on the cotangent of a rule is only known when a gradient is computed."""


class FunctionTracer(Tracer):
    """The graph of a whole function, which is called again later: variables are read when it is called and given
    their new values when it ends. The same for a block of a function: a branch, the body of a loop."""

    is_function = keeps_states = True

    def __init__(self, inputs: Sequence[Aval]) -> None:
        super().__init__(inputs)
        self.differentiable = True
        self.begin = new_id()  # older tensors are from outside
        self.around: tuple[Recorder, ...] = ()  # tapes of the function around a block of it
        self.variables: dict[int, tuple[Any, Value]] = {}  # by id: the variable (or other state), its first value
        self.present: dict[int, Tensor] = {}  # its value now
        self.held: list[tuple[Any, Value]] = []  # the same as `variables`, of the function around a part that is apart
        self.unknown: Sequence[Value] = ()  # the cotangents of a rule that is traced
        self.assigned: dict[int, Any] = {}
        self.created: list[Any] | None = None  # the variables that it makes; None: a block of a function
        self.trie = Trie()  # of what tapes in a whole function record: that is traced once, and then not needed
        self.is_block = False  # it may run often, or not at all
        self.counters: dict[int, tuple[int, bool]] = {}  # of a loop, by id: how many numbers; it goes through them all
        self.creates_no_more = ""  # why it must not make any
        self.examples: Sequence[Tensor] = self.symbols  # the inputs of the call for which it is traced

    def within(self, function: FunctionTracer | None, recorders: Sequence[Recorder]) -> None:
        """Be that of a block of a function, around which these record."""
        if function is not None:
            self.begin, self.around = function.begin, (*function.around, *recorders)

    def read(self, variable: Any) -> Tensor:
        """A variable's value at this point of the function."""
        found = self.present.get(variable._id)
        if found is None:
            start = Value(self._aval_before(variable))
            self.variables[variable._id] = (variable, start)
            found = self.present[variable._id] = self.symbol(start)
        return found

    def _aval_before(self, variable: Any) -> Aval:
        """That of a variable as this function begins, or as the block of one begins in the function around it."""
        found: Aval = variable._aval
        if is_of_one_shape(variable) or self.created is not None:
            return found
        for tracer in reversed(STATE.tracers[: STATE.tracers.index(self) if self in STATE.tracers else None]):
            if isinstance(tracer, FunctionTracer):
                return tracer.read(variable)._aval
        return found

    def assign(self, variable: Any, value: Tensor) -> None:
        """A variable's value from this point of the function on. For a tape around the function it stays the variable:
        no gradient flows through an assignment."""
        self.read(variable)
        if not is_of_one_shape(variable):
            (value,) = self.apply(STOP_GRADIENT.bind(), [value])
        elif value._aval.dtype.is_differentiable:
            (value,) = self.apply(ASSIGNED.bind(), [self.symbol(self.variables[variable._id][1]), value])
        self.present[variable._id] = value
        self.assigned[variable._id] = variable

    def evaluated(self, t: SymbolicTensor) -> Any:
        """The array of a symbolic tensor, as things are now; of the function's inputs, those of its first call.

        Raises:
          ValueError: it depends on what has no value.
          NoValueYet: that is a cotangent.
        """
        if leaves([t._value], self.unknown):
            raise NoValueYet(f"{t!r} depends on a cotangent, which has no value while a rule is traced.")
        state, captured = [*self.variables.values(), *self.held], list(self.captured.values())
        given = [*self.examples, *(c for c, _ in captured)]
        inputs = [*self.inputs, *(v for _, v in captured)]
        needed = set(map(id, leaves([t._value], inputs)))
        arrays = [self._array_of(x) if id(v) in needed else None for x, v in zip(given, inputs, strict=True)]
        with outside():
            run = compile_graph(Graph([*inputs, *(v for _, v in state)], [t._value]), lower)
            (array,) = STATE.run(run, *arrays, *(v.read()._array for v, _ in state))
        return array

    def _array_of(self, t: Tensor) -> Any:
        """The array of an input, which may come from the trace around this one."""
        if not isinstance(t, SymbolicTensor):
            return t._array
        if self.is_block or t._tracer is self or t._tracer.is_open:
            raise ValueError(
                f"{place_of(user_frame())}: the initial value of a variable depends on a tensor without a value. Make "
                "the variable outside, or give an initial value that does not."
            )
        return t._tracer.evaluated(t)


def of_all_slices(variable: str) -> SymbolicTensorError:
    """The error for a variable that should take what a map makes for all of its slices."""
    made = SymbolicTensorError(
        f"{place_of(user_frame())}: the variable `{variable}` would take what `tf.vectorized_map` computes for "
        "all slices at once. Return it from what is mapped, and assign it outside. From a `tf.random.Generator` draw "
        "in what is mapped itself, and not in a loop or a traced function there, or use `tf.random.normal` and such."
    )
    made.by_user = True
    return made


def map_tracer() -> Any:
    """The tracer of the map that does to each slice what is being traced; None: there is none. A function that is
    traced in one is not part of it: it may be called elsewhere."""
    for tracer in reversed(STATE.tracers):
        if tracer.is_map or (isinstance(tracer, FunctionTracer) and tracer.created is not None):
            return tracer if tracer.is_map else None
    return None


def state_tracer() -> Any:
    """The tracer of the innermost function, block of one, or map: it keeps the states of what random numbers are drawn
    from, and the order of effects."""
    return next((t for t in reversed(STATE.tracers) if t.keeps_states), None)


def evaluated(t: SymbolicTensor) -> Tensor:
    """A tensor that does not depend on the inputs of the function that is being traced, with its value."""
    array = t._tracer.evaluated(t)
    return wrap(array if t._aval.shape else array[()], t._aval)


def whole_function() -> FunctionTracer | None:
    """The tracer of the function that is being traced around all others."""
    for tracer in STATE.tracers:
        if isinstance(tracer, FunctionTracer) and tracer.created is not None:
            return tracer
    return None


def creating() -> list[Any] | None:
    """Where the function that is being traced keeps the variables that it makes.

    Raises:
      ValueError: it must not make any.
    """
    for tracer in reversed(STATE.tracers):
        if isinstance(tracer, FunctionTracer) and tracer.created is not None:
            if tracer.creates_no_more:
                raise ValueError(f"{place_of(user_frame())}: {tracer.creates_no_more}")
            return tracer.created
    return None


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """A block that runs at once, and unrecorded, though a function is being traced around it."""
    held = STATE.tracers, STATE.recorders
    STATE.enter((), ())
    try:
        yield
    finally:
        STATE.enter(*held)


def open_tracer_of(x: Any) -> Any:
    """The tracer that notes what is done with a tensor, to do it again for other shapes."""
    return x._tracer if isinstance(x, SymbolicTensor) and x._tracer.is_open else None


def function_tracer() -> FunctionTracer | None:
    """The tracer of the innermost function, or block of one, that is being traced."""
    for tracer in reversed(STATE.tracers):
        if isinstance(tracer, FunctionTracer):
            return tracer
    return None
