"""Traces for shapes that are not all known: Python runs once, and what it calls is written down and called again for
each shape. Floor: tape.

User code sees *open* tensors, whose unknown dimensions are None. Each call of one of our functions is performed in a
*world*, where shapes are known (at first those of the call that is traced), and noted as an action. Functions that the
user gives to ours (branches, bodies of loops, what is mapped) run once too, as blocks of actions."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import optree

from gradtape.forward import ForwardAccumulator
from gradtape.ir.aval import Aval, aval
from gradtape.ir.bounded import Bounded
from gradtape.ir.errors import InvalidArgumentError, UnknownShapeError
from gradtape.ir.shapes import TensorShape
from gradtape.ops.op import Step
from gradtape.recording import Recording
from gradtape.runtime.dispatch import execute
from gradtape.runtime.places import is_own_file
from gradtape.runtime.ranges import SymbolicRange
from gradtape.runtime.state import STATE, new_id
from gradtape.runtime.tensor import SymbolicTensor, SymbolicTensorError, Tensor, no_value
from gradtape.runtime.trace import FunctionTracer
from gradtape.tracing.actions import Action, Block, Slot, World
from gradtape.tracing.concrete import TRACING, Trace
from gradtape.tracing.replaying import Capturing
from gradtape.tracing.signatures import common_shape
from gradtape.tracing.status import MARK
from gradtape.tracing.tensor_array import TensorArray

MAX_SHAPES = 256  # per trace
GUESSES = (2, 1, 3, 4, 5, 6, 7, 8, 16, 24, 64, 120, 720)  # of unknown sizes, where no call says what they are
NO_MORE = "Variables are created when a function is traced first, not for each shape."
OBJECTS = (
    Recording,
    ForwardAccumulator,
    SymbolicRange,
    TensorArray,
)  # what our functions return that is neither tensor nor constant


class OpenTensor(SymbolicTensor):
    """A tensor of a function that is traced for more than one shape."""

    __slots__ = ("_depends", "_rankless", "_slot")

    _depends: bool  # its shape may depend on the unknown dimensions of arguments
    _rankless: bool  # so may its rank
    _slot: Slot

    @property
    def shape(self) -> TensorShape:
        return TensorShape(self._tracer.shape_of(self))

    @property
    def ndim(self) -> int:
        rank = self.shape.rank
        if rank is None:
            raise no_value(self, "the rank", SymbolicTensorError)
        return rank

    def set_shape(self, shape: Any) -> None:
        known = self._tracer.world.known(self._slot)
        if not known.shape.is_compatible_with(shape):
            raise ValueError(
                f"Tensor's shape {known.shape} is not compatible with supplied shape {TensorShape(shape)}."
            )

    def __len__(self) -> int:
        dims = self.shape.dims_or_none
        if not dims or dims[0] is None:
            raise no_value(self, "`len()`", SymbolicTensorError)
        return dims[0]

    def __repr__(self) -> str:
        return f"<tf.Tensor: shape={self.shape}, dtype={self.dtype.name}>"

    __str__ = __repr__
    __hash__ = Tensor.__hash__


def _operator(name: str) -> Callable[..., Any]:
    method = getattr(Tensor, name)

    def perform(self: OpenTensor, *others: Any) -> Any:
        return self._tracer.perform(method, (self, *others), {})

    return perform


for _name in ("getitem", "matmul", "rmatmul", "eq", "ne", "pow", "rpow", "truediv", "rtruediv", "mod", "floordiv"):
    setattr(OpenTensor, f"__{_name}__", _operator(f"__{_name}__"))


class Callback:
    """A function of the user's that one of ours calls: it runs once, as a block that is noted."""

    def __init__(self, tracer: OpenTracer, f: Callable[..., Any]) -> None:
        self.tracer, self.f = tracer, f
        self.block: Block | None = None
        with contextlib.suppress(TypeError, ValueError):
            self.__signature__ = inspect.signature(f)
        self.__name__ = getattr(f, "__name__", "function")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.block is None:
            self.block, answer = self.tracer.noted(self.f, args, kwargs)
            return answer
        return self.block.run(self.tracer.world, (args, kwargs))


class OpenTracer(FunctionTracer):
    """Notes what user code does; `examples`: the avals of the arguments in the first world."""

    is_open = True

    def __init__(self, avals: Sequence[Aval], examples: Sequence[Aval]) -> None:
        super().__init__([])
        self.world = World()
        self.log: list[Action] = []
        self.numbers = itertools.count()
        self.objects: dict[int, tuple[Any, Slot]] = {}  # by id
        self.avals = list(avals)
        self.rankless = any(a.shape is None for a in avals)
        self.sample = FunctionTracer(examples)
        self.depth = 0
        self.inputs_of_all: list[Slot | None] = []

    # ------------------------------------------------------------------ actions

    def perform(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], raw: bool = False) -> Any:
        """Call one of our functions, and note it. `raw`: functions among its arguments stay as they are."""
        arguments: Any = (tuple(map(_listed, args)), {k: _listed(v) for k, v in kwargs.items()})
        leaves, spec = optree.tree_flatten(arguments, none_is_leaf=True)
        depends = any(x._depends for x in leaves if isinstance(x, OpenTensor))
        rankless = any(x._rankless for x in leaves if isinstance(x, OpenTensor))
        owner = self._owner(getattr(f, "__self__", None))
        if owner is not None:
            f, depends, rankless = (f.__name__, owner[1]), True, self.rankless
        action = Action(f, [x if raw and inspect.isfunction(x) else self._reference(x) for x in leaves], spec)
        with self.world.entered():
            answer = action.call(self.world)
            if isinstance(answer, contextlib.AbstractContextManager) and not isinstance(answer, OBJECTS):
                raise SymbolicTensorError("Such a block is not part of traces for unknown dimensions.")
        self.log.append(action)
        found, shape = optree.tree_flatten(answer, none_is_leaf=True)
        given = [self._opened(x, action.results, depends, rankless) for x in found]
        return optree.tree_unflatten(shape, given)

    def _owner(self, x: Any) -> tuple[Any, Slot] | None:
        """The slot of an object whose method is called; a tape that user code made is made in other worlds too."""
        if isinstance(x, Recording) and id(x) not in self.objects:
            slot = Slot(next(self.numbers))
            arguments: Any = (x.options(), {})
            leaves, spec = optree.tree_flatten(arguments, none_is_leaf=True)
            self.log.append(Action(type(x), leaves, spec, [slot]))
            self.world.values[slot.number], self.objects[id(x)] = x, (x, slot)
        return self.objects.get(id(x))

    def apply(self, step: Step, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        made = self.perform(execute, (step, list(inputs)), {})
        return made if isinstance(made, tuple) else (made,)

    def read(self, variable: Any) -> Tensor:
        found: Tensor = self.perform(type(variable).read, (variable,), {})
        return found

    def assign(self, variable: Any, value: Tensor) -> None:
        self.perform(_assign, (variable, value), {})

    def evaluated(self, t: SymbolicTensor) -> Any:
        assert isinstance(t, OpenTensor)
        known = self.world.known(t._slot)
        return self.sample.evaluated(known) if isinstance(known, SymbolicTensor) else known._array

    def noted(self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Block, Any]:
        """Run user code on open arguments; the block, and the results of the present world."""
        arguments: Any = (args, kwargs)
        leaves, spec = optree.tree_flatten(arguments, none_is_leaf=True)
        inputs: list[Slot | None] = []
        opened = [self._opened(x, inputs, True, self.rankless) for x in leaves]
        if self.depth == 0:
            self.inputs_of_all = inputs
        given, named = optree.tree_unflatten(spec, opened)
        outer, self.log = self.log, []
        held, self.world.state = self.world.state, (STATE.tracers, STATE.recorders)
        STATE.enter((*STATE.tracers, self), ())
        self.depth += 1
        try:
            answer = f(*given, **named)
        finally:
            STATE.enter(*self.world.state)
            self.world.state = held
            actions, self.log = self.log, outer
            self.depth -= 1
        found, shape = optree.tree_flatten(answer, none_is_leaf=True)
        block = Block(inputs, actions, [self._reference(x) for x in found], shape)
        return block, optree.tree_unflatten(shape, [self.world.known(x) for x in block.outputs])

    def _reference(self, x: Any) -> Any:
        """What an action keeps of an argument."""
        if isinstance(x, OpenTensor):
            return x._slot
        if id(x) in self.objects:
            return self.objects[id(x)][1]
        if inspect.isfunction(x) and (hasattr(x, MARK) or not is_own_file(x.__code__.co_filename)):
            return Callback(self, x)
        if isinstance(x, SymbolicTensor):
            raise SymbolicTensorError(f"{x!r} belongs to another function than the one that is being traced.")
        return x

    def _opened(self, x: Any, slots: list[Slot | None], depends: bool, rankless: bool) -> Any:
        """What user code has of a value of the world; its slot goes to `slots`."""
        if not isinstance(x, (Tensor, *OBJECTS)):
            slots.append(None)
            return x
        slot = Slot(next(self.numbers))
        slots.append(slot)
        self.world.values[slot.number] = x
        if not isinstance(x, Tensor):
            self.objects[id(x)] = (x, slot)
            return x
        t = OpenTensor.__new__(OpenTensor)
        t._aval, t._id, t._tracer, t._slot = aval(None, x._aval.dtype), new_id(), self, slot
        t._depends, t._rankless, t._value, t._place = depends, rankless and depends, None, None
        return t

    # ------------------------------------------------------------------ shapes

    def shape_of(self, t: OpenTensor) -> tuple[int | None, ...] | None:
        """What is known of a shape: what does not change when the unknown dimensions do."""
        dims: tuple[int, ...] = self.world.known(t._slot)._aval.dims
        given = next((a for a, s in zip(self.avals, self.inputs_of_all, strict=False) if s == t._slot), None)
        if given is not None:
            return given.shape
        if not t._depends or t._rankless:
            return None if t._depends else dims
        other = self._probed(t)
        return tuple(m if other is not None and m == n else None for m, n in zip(dims, other or dims, strict=True))

    def _probed(self, t: OpenTensor) -> tuple[int, ...] | None:
        """The shape in a world in which all unknown dimensions are twice as large; None: there is no such world."""
        if self.depth != 1 or not any(t._slot in a.results for a in self.log):
            return None
        grown = [_grown(a, e.aval) for a, e in zip(self.avals, self.sample.inputs, strict=True)]
        tracer, held = FunctionTracer(grown), self.world
        outer = STATE.tracers, STATE.recorders
        try:
            STATE.enter((tracer,), ())
            self.world = World()
            inputs = zip(self.inputs_of_all, tracer.symbols, strict=True)
            self.world.values.update((s.number, x) for s, x in inputs if s is not None)
            for action in self.log:
                action.run(self.world)
                if t._slot in action.results:
                    break
            dims: tuple[int, ...] = self.world.known(t._slot)._aval.dims
            return dims
        except Exception:  # noqa: BLE001 - shapes that do not fit together in that world say nothing of the real one
            return None
        finally:
            STATE.enter(*outer)
            self.world = held


def _listed(x: Any) -> Any:
    """What can be gone over once only, such as `zip(gradients, variables)`, as a list."""
    return list(x) if isinstance(x, Iterator) else x


def _grown(wanted: Aval, example: Aval) -> Aval:
    if wanted.shape is None:
        return example
    dims = tuple(2 * n if m is None else n for m, n in zip(wanted.shape, example.dims, strict=True))
    return aval(dims, example.dtype)


def _assign(variable: Any, value: Tensor) -> None:
    variable.assign(value)


def open_tracer() -> OpenTracer | None:
    """The tracer that notes what user code does now."""
    tracer = STATE.tracers[-1] if STATE.tracers else None
    return tracer if isinstance(tracer, OpenTracer) else None


def is_ours_to_make(f: Any) -> bool:
    """Whether a class of ours makes what belongs to a call, and not to the program."""
    return inspect.isclass(f) and issubclass(f, OBJECTS)


class OpenTrace:
    """A trace whose graph is made for each choice of shapes, as `concrete.Trace` is for one."""

    capturing: Capturing | None = None

    def __init__(
        self,
        python: Callable[[list[Tensor]], Any],
        avals: Sequence[Aval],
        creates_no_more: str = "",
        examples: Sequence[Tensor] = (),
    ) -> None:
        if examples or all(a.is_known for a in avals):
            return self._trace(python, avals, [t._aval for t in examples] or avals, creates_no_more, examples)
        first: Exception | None = None
        for size in GUESSES:
            try:
                return self._trace(python, avals, [_guessed(a, size) for a in avals], creates_no_more, examples)
            except (UnknownShapeError, SymbolicTensorError):
                raise
            except (InvalidArgumentError, ValueError) as e:
                first = first or e
        assert first is not None
        first.add_note(
            f"Unknown sizes of {list(avals)} were tried as {', '.join(map(str, GUESSES))}, all alike; the error is "
            f"that for {GUESSES[0]}. Call the function with tensors first, or give the sizes that it needs."
        )
        raise first

    def _trace(
        self,
        python: Callable[[list[Tensor]], Any],
        avals: Sequence[Aval],
        known: Sequence[Aval],
        creates_no_more: str,
        examples: Sequence[Tensor],
    ) -> None:
        self.tracer = tracer = OpenTracer(avals, known)
        self.created = tracer.created = tracer.sample.created = []
        self.creates_no_more = creates_no_more
        tracer.creates_no_more = tracer.sample.creates_no_more = creates_no_more
        if examples:
            tracer.sample.examples = examples
        outer = STATE.tracers, STATE.recorders
        watchers, STATE.watchers = STATE.watchers, ()
        STATE.enter((*STATE.tracers, tracer.sample), ())
        try:
            self.block, _ = tracer.noted(python, (list(tracer.sample.symbols),), {})
        finally:
            STATE.enter(*outer)
            STATE.watchers = watchers
        self.made: Bounded[Any, Trace] = Bounded(MAX_SHAPES)

    def at(self, avals: tuple[Aval, ...], examples: Sequence[Tensor] = ()) -> Trace:
        """The trace for known shapes."""
        with TRACING:
            return self.made.find(avals, lambda: self._again(avals, examples))

    def python(self, tensors: list[Tensor]) -> Any:
        """What Python did, done again."""
        held, self.tracer.world = self.tracer.world, World()
        try:
            return self.block.run(self.tracer.world, ((tensors,), {}))
        finally:
            self.tracer.world = held

    def sizes_met(self) -> set[int]:
        """The sizes of all tensors for the shapes with which Python ran."""
        return {n for x in self.tracer.world.values.values() if isinstance(x, Tensor) for n in x._aval.dims}

    def _again(self, avals: tuple[Aval, ...], examples: Sequence[Tensor]) -> Trace:
        made = Trace(self.python, avals, NO_MORE, examples)
        made.capturing = self.capturing
        return made

    def run(self, tensors: Sequence[Tensor]) -> Any:
        """The results for tensors of any shapes that fit."""
        return self.at(tuple(t._aval for t in tensors), tensors).run(tensors)

    @property
    def some(self) -> Trace:
        """One of the traces, to look at."""
        return self.at(tuple(v.aval for v in self.tracer.sample.inputs))

    @property
    def results(self) -> Any:
        return self.some.results

    def result_avals(self) -> list[Aval]:
        """Of the tensors among the results: what is the same for two sizes of unknown dimensions; where the program
        takes no two, nothing is known of them but how many dimensions there are."""
        found: list[list[Aval]] = []
        for size in GUESSES:
            with contextlib.suppress(InvalidArgumentError, ValueError):
                found.append(self.at(tuple(_guessed(a, size) for a in self.tracer.avals)).result_avals())
            if len(found) == 2:
                return [aval(common_shape(a.shape, b.shape), a.dtype) for a, b in zip(*found, strict=True)]
        return [aval((None,) * len(a.dims), a.dtype) for a in self.some.result_avals()]

    @property
    def compiled(self) -> Any:
        return self.some.compiled

    @property
    def variables(self) -> list[Any]:
        return self.some.variables

    @property
    def captured(self) -> list[Tensor]:
        return self.some.captured


def _guessed(a: Aval, size: int) -> Aval:
    """Some shape that an unknown one may be."""
    return aval((size,) if a.shape is None else tuple(size if n is None else n for n in a.shape), a.dtype)


class TraceForEachShape:
    """What stands for an open trace where there is none: Python is traced for each choice of shapes."""

    capturing: Capturing | None = None

    def __init__(self, python: Callable[[list[Tensor]], Any]) -> None:
        self.python = python
        self.created: list[Any] = []
        self.made: Bounded[Any, Trace] = Bounded(MAX_SHAPES)

    def run(self, tensors: Sequence[Tensor]) -> Any:
        """The results for tensors of any shapes that fit."""
        avals = tuple(t._aval for t in tensors)
        with TRACING:
            trace = self.made.find(avals, lambda: Trace(self.python, avals, NO_MORE, tensors))
        trace.capturing = self.capturing
        return trace.run(tensors)
