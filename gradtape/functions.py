"""`tf.function`: Python traced once per signature into a graph, then run as one call. Floor: tape."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

from gradtape.ir.aval import Aval
from gradtape.ir.dtypes import as_dtype, float32
from gradtape.ir.graph import Graph, Value
from gradtape.ir.shapes import TensorShape
from gradtape.recording import flatten
from gradtape.runtime.backward import CompiledGraph
from gradtape.runtime.convert import convert
from gradtape.runtime.state import STATE
from gradtape.runtime.tensor import SymbolicTensorError, Tensor
from gradtape.runtime.trace import FunctionTracer
from gradtape.runtime.variable import Variable

MAX_TRACES = 256  # per function; the least recently used trace is dropped first


class TensorSpec:
    """What a tensor must be: its shape (None for what may be anything) and dtype.

    >>> import gradtape as tf
    >>> tf.TensorSpec([None, 2], tf.float32)
    TensorSpec(shape=(None, 2), dtype=tf.float32, name=None)
    """

    def __init__(self, shape: Any, dtype: Any = float32, name: str | None = None) -> None:
        self.shape = TensorShape(shape)
        self.dtype = as_dtype(dtype)
        self.name = name

    @classmethod
    def from_tensor(cls, tensor: Any, name: str | None = None) -> TensorSpec:
        return cls(tensor.shape, tensor.dtype, name)

    def is_compatible_with(self, other: Any) -> bool:
        """Whether a tensor or spec is one of these."""
        return bool(self.dtype is other.dtype and self.shape.is_compatible_with(other.shape))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorSpec) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype!r}, name={self.name!r})"


class ConcreteFunction:
    """One trace: a graph over tensor arguments, variables and what else was used, and how results are put together."""

    def __init__(self, python: Callable[..., Any], leaves: Sequence[Any], spec: Any, name: str) -> None:
        self.name = name
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
        tracer = FunctionTracer([leaves[i]._aval for i in self.places])
        inside = list(leaves)
        for i, symbol in zip(self.places, tracer.symbols, strict=True):
            inside[i] = symbol
        args, kwargs = optree.tree_unflatten(spec, inside)
        outer, STATE.recorders = STATE.recorders, ()
        try:
            result = tracer.run(lambda: python(*args, **kwargs))
            self._finish(tracer, result)
        finally:
            STATE.recorders = outer

    def _finish(self, tracer: FunctionTracer, result: Any) -> None:
        parts, self.structure = flatten(result)
        self.constants = [None if p is None else ... for p in parts]
        results = tracer.run(lambda: [convert(p) for p in parts if p is not None])
        assigned = list(tracer.assigned.values())
        graph, captured = tracer.graph([*results, *(tracer.present[v._id] for v in assigned)])
        self.variables = [v for v, _ in tracer.variables.values()]
        self.suppliers = [s for s, _ in tracer.late.values()]
        self.captured, self.assigned, self.count = captured, assigned, len(results)
        inputs: list[Value] = [
            *tracer.inputs,
            *(v for _, v in tracer.variables.values()),
            *(s._value for _, s in tracer.late.values()),
            *graph.inputs[len(tracer.inputs) :],
        ]
        self.compiled = CompiledGraph(Graph(inputs, graph.outputs))

    def run(self, leaves: Sequence[Any]) -> Any:
        """The results for other values of the tensor arguments."""
        tensors = [leaves[i] for i in self.places]
        state = [v.read() for v in self.variables]
        results = self.compiled([*tensors, *state, *(s() for s in self.suppliers), *self.captured])
        for v, new in zip(self.assigned, results[self.count :], strict=True):
            v.assign(new)
        given = iter(results[: self.count])
        parts = [None if c is None else next(given) for c in self.constants]
        return parts[0] if self.structure is None else optree.tree_unflatten(self.structure, parts)

    @property
    def graph(self) -> Graph:
        return self.compiled.graph


class Function:
    """A Python function that is traced once for each signature; see `tf.function`."""

    def __init__(self, python: Callable[..., Any], input_signature: Sequence[TensorSpec] | None) -> None:
        functools.update_wrapper(self, python)
        self.python_function = python
        self.name = getattr(python, "__name__", type(python).__name__)
        self.input_signature = None if input_signature is None else tuple(input_signature)
        self._signature = inspect.signature(python)
        self._traces: OrderedDict[Any, ConcreteFunction] = OrderedDict()
        self._eager: set[Any] = set()
        self._count = 0
        self._lock = threading.RLock()
        self._methods: weakref.WeakKeyDictionary[Any, Function] = weakref.WeakKeyDictionary()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: each object has traces of its own."""
        if instance is None:
            return self
        found = self._methods.get(instance)
        if found is None:
            reference = weakref.ref(instance)
            python = self.python_function

            @functools.wraps(python)
            def bound(*args: Any, **kwargs: Any) -> Any:
                return python(reference(), *args, **kwargs)

            bound.__signature__ = _without_first(self._signature)  # type: ignore[attr-defined]
            found = self._methods[instance] = Function(bound, self.input_signature)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = self._arguments(args, kwargs)
        key = (spec, tuple(map(_key, leaves)))
        if key in self._eager:
            return self.python_function(*args, **kwargs)
        try:
            concrete = self._trace(key, leaves, spec)
        except SymbolicTensorError as e:
            self._eager.add(key)
            warnings.warn(
                f"`{self.name}` asks for the value of a tensor while it is traced, so it runs as Python, op by op: {e}",
                stacklevel=2,
            )
            return self.python_function(*args, **kwargs)
        return concrete.run(leaves)

    def _trace(self, key: Any, leaves: Sequence[Any], spec: Any) -> ConcreteFunction:
        with self._lock:
            found = self._traces.get(key)
            if found is None:
                self._count += 1
                found = ConcreteFunction(self.python_function, leaves, spec, self.name)
                self._traces[key] = found
                if len(self._traces) > MAX_TRACES:
                    self._traces.popitem(last=False)
            return found

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        """The leaves of all arguments, arrays and what the input signature says as tensors, and their structure."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given: tuple[Any, ...] = bound.args
        if self.input_signature is not None:
            given = (*self._checked(given[: len(self.input_signature)]), *given[len(self.input_signature) :])
        arguments: Any = (given, bound.kwargs)
        leaves, spec = optree.tree_flatten(arguments, none_is_leaf=True)
        return [_argument(x) for x in leaves], spec

    def _checked(self, given: Sequence[Any]) -> list[Any]:
        assert self.input_signature is not None
        if len(given) != len(self.input_signature):
            raise TypeError(
                f"`{self.name}` takes {len(self.input_signature)} arguments by its input signature, got {len(given)}."
            )
        found = []
        for i, (x, s) in enumerate(zip(given, self.input_signature, strict=True)):
            t = convert(x, None if isinstance(x, Tensor | Variable) else s.dtype)
            if not s.is_compatible_with(t):
                raise TypeError(
                    f"Argument {i} of `{self.name}` should be {s}, got shape {t.shape} and dtype {t.dtype.name}."
                )
            found.append(t)
        return found

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        """The trace for these arguments."""
        leaves, spec = self._arguments(args, kwargs)
        return self._trace((spec, tuple(map(_key, leaves))), leaves, spec)

    def experimental_get_tracing_count(self) -> int:
        """How often Python was traced."""
        return self._count + sum(f._count for f in self._methods.values())

    def __repr__(self) -> str:
        return f"<tf.function {self.name}>"


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Sequence[TensorSpec] | None = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: str | None = None,
    experimental_autograph_options: Any = None,
    experimental_attributes: Any = None,
    experimental_relax_shapes: bool | None = None,
    experimental_compile: bool | None = None,
    experimental_follow_type_hints: bool | None = None,
) -> Any:
    """Trace a Python function once for each signature into a graph, and run that.

    A signature is the shapes and dtypes of tensor arguments and the values of all others. Variables are read when the
    function is called and assigned when it ends; a tape outside sees one call. Python's side effects happen once per
    trace. A function that asks for the value of a tensor, for instance in Python's `if`, is not traced: it runs op by
    op, with a warning.

    Args:
      func: the function; without it, a decorator is returned.
      input_signature: a `TensorSpec` per argument, to which arguments are converted and against which they are checked.

    All other arguments are accepted for compatibility.

    >>> import gradtape as tf
    >>> @tf.function
    ... def f(x):
    ...     return x * x
    >>> x = tf.constant(3.0)
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = f(x)
    >>> float(tape.gradient(y, x)), f.experimental_get_tracing_count()
    (6.0, 1)

    Source: `tf.function` of TensorFlow 2.
    """
    if func is None:
        return lambda f: Function(f, input_signature)
    return Function(func, input_signature)


def _argument(x: Any) -> Any:
    if isinstance(x, np.ndarray | np.generic):
        return convert(x)
    return x


def _key(x: Any) -> Any:
    """What of an argument is part of the signature."""
    if isinstance(x, Tensor):
        aval: Aval = x._aval
        return aval
    if isinstance(x, Variable):
        return ("variable", x._id)
    if isinstance(x, set):
        return ("set", frozenset(x))
    if isinstance(x, bytearray):
        return ("bytearray", bytes(x))
    try:
        hash(x)
    except TypeError:
        return _Itself(x)
    return (type(x), x)


class _Itself:
    """An object that has no hash, as part of a signature: equal to itself alone. It is held, so that no other object
    can take its place."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.held is self.held

    def __hash__(self) -> int:
        return id(self.held)


def _without_first(signature: inspect.Signature) -> inspect.Signature:
    parameters = list(signature.parameters.values())
    return signature.replace(parameters=parameters[1:])
