"""One trace of a Python function: a graph over its tensors, its variables and what it captured. Floor: tape."""

from __future__ import annotations

import functools
import operator
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import optree

from gradtape.ir.aval import Aval
from gradtape.ir.graph import Graph, Value
from gradtape.kernels.memory import is_whole
from gradtape.ops.op import constant
from gradtape.runtime.collector import put_off
from gradtape.runtime.compiled import CompiledGraph
from gradtape.runtime.convert import convert, is_shared
from gradtape.runtime.devices import DEVICES, is_on_device
from gradtape.runtime.state import STATE
from gradtape.runtime.taking import taken
from gradtape.runtime.tensor import SymbolicTensor, SymbolicTensorError, Tensor
from gradtape.runtime.trace import FunctionTracer, is_of_one_shape, map_tracer, of_all_slices
from gradtape.runtime.variable import Variable
from gradtape.tracing.branching import Packed
from gradtape.tracing.replaying import Capturing, Replays
from gradtape.tracing.signatures import TensorSpec
from gradtape.transforms.remember import may_wait
from gradtape.transforms.simplify import rebuild_from

TRACING = threading.RLock()  # one thread traces at a time: a function that traces another one waits for no third
TRACES: weakref.WeakSet[Trace] = weakref.WeakSet()  # those that somebody holds
COUNTS: Counter[str] = Counter()  # traces made
_READ = operator.methodcaller("read")


class Trace:
    """The graph of a call: of tensors, variables as the call begins and captured tensors, to the results and to what
    assigned variables are when it ends."""

    capturing: Capturing | None = None  # how a device captures it; None: it does not

    def __init__(
        self,
        python: Callable[[list[Tensor]], Any],
        avals: Sequence[Aval],
        creates_no_more: str = "",
        examples: Sequence[Tensor] = (),
    ) -> None:
        self.replays = Replays()
        self._again = functools.partial(self._make, python, avals, creates_no_more, examples)
        self._again()
        if not self.shaped:
            del self._again
        TRACES.add(self)
        COUNTS["made"] += 1

    def _make(
        self,
        python: Callable[[list[Tensor]], Any],
        avals: Sequence[Aval],
        creates_no_more: str,
        examples: Sequence[Tensor],
    ) -> None:
        with put_off():
            self._traced(python, avals, creates_no_more, examples)

    def _traced(
        self,
        python: Callable[[list[Tensor]], Any],
        avals: Sequence[Aval],
        creates_no_more: str,
        examples: Sequence[Tensor],
    ) -> None:
        tracer = FunctionTracer(avals)
        self.tensors = len(avals)
        if examples:
            tracer.examples = examples
        tracer.created, tracer.creates_no_more = [], creates_no_more
        outer, STATE.recorders = STATE.recorders, ()
        watchers, STATE.watchers = STATE.watchers, ()
        try:
            self.results: Packed = tracer.run(lambda: _packed(python(list(tracer.symbols))))
        finally:
            STATE.recorders, STATE.watchers = outer, watchers
        self.created = tracer.created
        self.assigned = list(tracer.assigned.values())
        outputs = [*self.results.tensors, *(tracer.present[v._id] for v in self.assigned)]
        self.results.tensors = []  # these belong to the tracer, and all that it made to them
        graph, captured = tracer.graph(outputs)
        self.variables = [v for v, _ in tracer.variables.values()]
        # variables that may have other shapes in other calls, as they were in this one
        self.shaped = [(v, first.aval) for v, first in tracer.variables.values() if not is_of_one_shape(v)]
        inputs: list[Value] = [
            *tracer.inputs,
            *(v for _, v in tracer.variables.values()),
            *graph.inputs[len(tracer.inputs) :],
        ]
        given = list(zip(captured, inputs[len(inputs) - len(captured) :], strict=True))
        numbers = {id(v): n for t, v in given if (n := _number(t, tracer.begin)) is not None}
        self.captured = [t for t, v in given if id(v) not in numbers]
        self.compiled = CompiledGraph(_given(Graph(inputs, graph.outputs), numbers))

    def result_avals(self) -> list[Aval]:
        """Of the tensors among the results."""
        avals = self.compiled.avals
        return list(avals[: len(avals) - len(self.assigned)])

    def run(self, tensors: Sequence[Tensor]) -> Any:
        """The results for other tensors; variables are read now, and assigned at the end."""
        if self.shaped and any(v.aval_now() is not a for v, a in self.shaped):
            with TRACING:
                self._again()
                self.replays = Replays()
                self.__dict__.pop("_over", None)
        if self.capturing is None or DEVICES.device is None:
            return self._in_steps(tensors)
        made = self.replays.run(self, tensors, self.capturing)
        if made is not None:
            return self.results.with_tensors(made)
        results = self._in_steps(tensors)
        self.replays.note(self, tensors, self.capturing)
        return results

    def _in_steps(self, tensors: Sequence[Tensor]) -> Any:
        if not self.assigned:
            return self.results.with_tensors(self.compiled([*tensors, *map(_READ, self.variables), *self.captured]))
        found = self._written_over(tensors) if self._is_alone() else None
        if found is None:
            made = self.compiled([*tensors, *map(_READ, self.variables), *self.captured])
            found = made, range(len(self.assigned))
        made, left = found
        count = len(made) - len(self.assigned)
        for j in left:
            _assign(self.assigned[j], made[count + j])
        return self.results.with_tensors(made[:count])

    def _written_over(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], Iterable[int]] | None:
        """What a call makes, with new values of variables in the place of the old ones, and the numbers of those that
        are still to be assigned; None where somebody else holds an old value: a tensor that was read before, or another
        call."""
        kernel, over = self._over
        with taken([self.assigned[j] for j in over]) as own:
            if own is None:
                return None
            mine = {id(self.assigned[j]): t for j, t in zip(over, own, strict=True)}
            read = [mine[id(v)] if id(v) in mine else v.read() for v in self.variables]
            made = self.compiled([*tensors, *read, *self.captured], kernel)
            new = made[len(made) - len(self.assigned) :]
            there = {j for j, t in zip(over, own, strict=True) if new[j]._array is t._array}
        return made, [j for j in range(len(new)) if j not in there]

    @functools.cached_property
    def _over(self) -> tuple[Callable[..., Any] | None, list[int]]:
        """What runs the graph with new values of variables in their arrays, or None where that does not pay; and the
        numbers of these variables. A user's Python that is called may wait for a thread that reads one, so that all
        values have to be there."""
        place = {id(v): k for k, v in enumerate(self.variables, self.tensors)}
        first = len(self.compiled.avals) - len(self.assigned)
        pairs = {first + j: place[id(v)] for j, v in enumerate(self.assigned) if isinstance(v, Variable)}
        if any(may_wait(n) for n in self.compiled.runs.nodes):
            pairs = {}
        kernel, inputs = self.compiled.over(pairs)
        return kernel, [j for j, v in enumerate(self.assigned) if place.get(id(v)) in inputs]

    def _is_alone(self) -> bool:
        """Whether nothing looks at what is read, so that variables may be written over."""
        state = STATE
        return not (state.recorders or state.watchers or state.detour is not None or self._over[0] is None)


class ResultError(TypeError, ValueError):
    """A traced function returns what no tensor can be made of."""


def _packed(results: Any) -> Packed:
    try:
        return Packed(results)
    except SymbolicTensorError:
        raise
    except (TypeError, ValueError) as e:
        raise ResultError(
            f"To be compatible with tf.function, Python functions must return zero or more Tensors or None values: {e}"
        ) from e


def _number(t: Tensor, begin: int) -> Value | None:
    """A captured tensor as a number of the graph, if it is one of the program, and nobody outside has it to ask for a
    derivative by it; `begin`: tensors with larger ids were made while the function was traced."""
    kind = {"f": float, "i": int, "u": int, "b": bool}.get(t._aval.dtype.kind)
    if t._aval.shape != () or kind is None or isinstance(t, SymbolicTensor) or not (t._id > begin or is_shared(t)):
        return None
    return constant(kind(t._array), t._aval.dtype)


def _given(graph: Graph, numbers: dict[int, Value]) -> Graph:
    """A graph some of whose inputs are known."""
    if not numbers:
        return graph
    outputs = rebuild_from(graph, [numbers.get(id(v), v) for v in graph.inputs])
    return Graph([v for v in graph.inputs if id(v) not in numbers], outputs)


def _assign(state: Any, new: Tensor) -> None:
    """Give a variable, or other state, a value that was computed for it. It takes the array as it is where that costs
    no memory: no update writes over an array that anybody else holds."""
    if isinstance(state, Variable) and not STATE.tracers:
        array = new._array
        if type(array) is np.ndarray:
            fresh = array.shape and is_whole(array)
        else:
            is_number = isinstance(array, np.generic) and not STATE.recorders
            fresh = is_number or (is_on_device(array) and array.base is None)
        if fresh:
            state.overwrite(array)
            return
    if isinstance(state, Variable) and map_tracer() is not None:
        raise of_all_slices(state._name)
    state.assign(new)


class ConcreteFunction:
    """A traced function for arguments of one signature; it is called with the tensors among them."""

    def __init__(self, name: str, leaves: Sequence[Any], spec: Any, trace: Any, names: Sequence[str] = ()) -> None:
        self.name, self.spec, self.trace = name, spec, trace
        self.names = tuple(names)  # of the positional parameters
        self.places = tensor_places(leaves)
        self.leaves = list(leaves)  # of the arguments, with specs in the place of tensors

    def run(self, leaves: Sequence[Any]) -> Any:
        """The results for these leaves of all arguments."""
        return self.trace.run([leaves[i] for i in self.places])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results for arguments of this signature: all of them, or the tensors alone in their order.

        Raises:
          TypeError: another number of tensors, or one of another shape or dtype.
        """
        arguments: Any = (args, kwargs)
        leaves, spec = optree.tree_flatten(arguments, none_is_leaf=True)
        given = [leaves[i] for i in self.places] if spec == self.spec else [*args, *kwargs.values()]
        if len(given) != len(self.places):
            raise TypeError(f"`{self.name}` was traced for {len(self.places)} tensors, got {len(given)} arguments.")
        return self.trace.run([self._fitting(x, k) for k, x in enumerate(given)])

    def _fitting(self, x: Any, k: int) -> Tensor:
        spec: TensorSpec = self.leaves[self.places[k]]
        t = convert(x, None if isinstance(x, Tensor | Variable) else spec.dtype)
        if not spec.is_compatible_with(t):
            raise TypeError(
                f"Tensor {k} of `{self.name}` should be {spec}, got shape {t.shape} and dtype {t.dtype.name}."
            )
        return t

    @property
    def structured_input_signature(self) -> Any:
        """The arguments, positional and by keyword, with specs in the place of tensors."""
        return optree.tree_unflatten(self.spec, self.leaves)

    @property
    def tensor_specs(self) -> list[TensorSpec]:
        """What the tensors among the arguments must be."""
        return [self.leaves[i] for i in self.places]

    @property
    def structured_outputs(self) -> Any:
        """The results, with specs in the place of tensors."""
        return self.trace.results.with_tensors(self.outputs)

    @property
    def outputs(self) -> list[TensorSpec]:
        """What the tensors among the results are; dimensions that may differ from call to call are None."""
        return [TensorSpec(a.shape, a.dtype) for a in self.trace.result_avals()]

    @property
    def output_shapes(self) -> Any:
        """The results, with shapes in the place of tensors."""
        return self.trace.results.with_tensors([s.shape for s in self.outputs])

    @property
    def output_dtypes(self) -> Any:
        """The results, with dtypes in the place of tensors."""
        return self.trace.results.with_tensors([s.dtype for s in self.outputs])

    @property
    def inputs(self) -> list[TensorSpec]:
        """What the tensors among the arguments must be, and then what the variables and tensors from outside are."""
        return [*self.tensor_specs, *map(TensorSpec.from_tensor, self.captured_inputs)]

    @property
    def graph(self) -> Graph:
        """The graph that a call runs."""
        found: Graph = self.trace.compiled.graph
        return found

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables that a call reads or assigns."""
        return tuple(v for v in self.trace.variables if isinstance(v, Variable))

    @property
    def trainable_variables(self) -> tuple[Variable, ...]:
        """Those variables that are trainable."""
        return tuple(v for v in self.variables if v.trainable)

    @property
    def captured_inputs(self) -> list[Any]:
        """The variables and tensors from outside."""
        return [*self.variables, *self.trace.captured]

    def __repr__(self) -> str:
        return f"<concrete function {self.name}>"


def tensor_places(leaves: Sequence[Any]) -> list[int]:
    """Which leaves of the arguments are tensors, or stand for some."""
    return [i for i, x in enumerate(leaves) if isinstance(x, Tensor | TensorSpec)]
