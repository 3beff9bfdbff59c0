"""`tf.function`: Python traced once per signature into a graph, then run as one call. Floor: tape."""

from __future__ import annotations

import functools
import inspect
import os
import traceback
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import optree

from gradtape.ir.aval import Aval
from gradtape.ir.bounded import Bounded
from gradtape.ir.errors import InvalidArgumentError, InvalidWhileTracedError, UnknownShapeError
from gradtape.runtime.convert import convert
from gradtape.runtime.eagerness import EAGERNESS
from gradtape.runtime.places import CONVERTED, is_own_file, place_at
from gradtape.runtime.state import STATE, replaced_gradients
from gradtape.runtime.tensor import EagerTensor, SymbolicTensorError, Tensor
from gradtape.runtime.variable import Variable
from gradtape.tracing import conversion
from gradtape.tracing.branching import Packed
from gradtape.tracing.carried import expanded
from gradtape.tracing.concrete import TRACING, ConcreteFunction, Trace, tensor_places
from gradtape.tracing.open import OpenTrace, TraceForEachShape
from gradtape.tracing.replaying import Capturing
from gradtape.tracing.signatures import Key, TensorSpec, as_argument, generalised, holds, key_of

NOT_FIRST = (
    "Creating variables on a non-first call to a function decorated with tf.function. Make them outside, or on the "
    "first call, and keep them."
)
NOT_ONCE = (
    "tf.function only supports singleton tf.Variables created on the first call. Make sure the tf.Variable is only "
    "created once, and kept, or created outside tf.function."
)
PYTHON = os.path.dirname(os.__file__) + os.sep
MAX_SCOPES = 8  # of other gradients, whose traces a function remembers
MAX_TRACES = 256  # per function; the least recently made trace is dropped first


class Function:
    """A Python function that is traced once for each signature; see `tf.function`."""

    def __init__(self, python: Callable[..., Any], options: Options, owner: Any = None, scope: Any = None) -> None:
        functools.update_wrapper(self, python)
        self.python, self.options, self.scope = python, options, scope
        self.owner = None if owner is None else weakref.ref(owner)
        self.name = getattr(python, "__name__", type(python).__name__)
        self.signature = inspect.signature(python)
        if owner is not None:
            self.signature = _without_first(self.signature)
        self.__signature__ = self.signature  # of a method without its object: it may be made a function again
        self._has_defaults = any(p.default is not p.empty for p in self.signature.parameters.values())
        self._straight: dict[tuple[Aval, ...], Any] = {}  # traces for positional tensors alone: nothing to bind
        self._traces: OrderedDict[Key, ConcreteFunction] = OrderedDict()
        self._general: list[Key] = []  # signatures with unknown dimensions
        self._eager: set[Key] = set()
        self.capturing = Capturing(self.name, options.jit_compile)
        self._count = 0
        self._called = False
        self._methods: dict[int, tuple[Any, Function]] = {}  # by id of the object
        self._scoped: Bounded[Any, Function] = Bounded(MAX_SCOPES)  # the same, with other gradients for built-in ops

    @property
    def python_function(self) -> Callable[..., Any]:
        """The function that is traced."""
        owner = self.owner and self.owner()
        return self.python if owner is None else self.python.__get__(owner)

    @property
    def input_signature(self) -> tuple[Any, ...] | None:
        return self.options.signature

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: each object has traces of its own."""
        if instance is None:
            return self
        found = self._methods.get(id(instance))
        if found is None:
            key = id(instance)
            gone = weakref.ref(instance, lambda _: self._methods.pop(key, None))
            found = self._methods[key] = (gone, Function(self.python, self.options, instance))
        return found[1]

    # ------------------------------------------------------------------ calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if EAGERNESS.of_functions:
            return self.python_function(*args, **kwargs)
        if STATE.overrides != self.scope and (elsewhere := self._elsewhere()) is not None:
            return elsewhere(*args, **kwargs)
        avals = tuple([x._aval for x in args if type(x) is EagerTensor])
        alone = len(avals) == len(args) and not kwargs
        if alone and (trace := self._straight.get(avals)) is not None:
            return trace.run(args)
        leaves, spec = self._arguments(args, kwargs)
        key = (spec, tuple(map(key_of, leaves)))
        if self._eager and key in self._eager:
            return self._as_python(leaves, spec)
        try:
            concrete = self._traces.get(key) or self._found_or_traced(key, leaves)
            results = concrete.run(leaves)
        except SymbolicTensorError as e:
            if e.by_user:
                raise
            self._eager.add(key)
            _warn(self.name, e)
            return self._as_python(leaves, spec)
        if alone and len(leaves) == len(args) and not self._has_defaults and self.options.signature is None:
            self._straight[avals] = concrete.trace
        return results

    def _as_python(self, leaves: Sequence[Any], spec: Any) -> Any:
        """The Python function called on what would be traced: its arguments and results are tensors all the same."""
        args, kwargs = optree.tree_unflatten(spec, list(leaves))
        results = Packed(self.python_function(*args, **kwargs))
        return results.with_tensors(results.tensors)

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        """The trace for these arguments, among which may be `tf.TensorSpec`s; with an input signature, for that."""
        if replaced_gradients() != self.scope:
            return self._in_scope().get_concrete_function(*args, **kwargs)
        if self.options.signature is not None and not args and not kwargs:
            args = self.options.signature
        leaves, spec = self._arguments(args, kwargs)
        key = (spec, tuple(map(key_of, leaves)))
        return self._traces.get(key) or self._found_or_traced(key, leaves)

    def _elsewhere(self) -> Callable[..., Any] | None:
        """What is called instead, in a scope of other gradients or where functions run op by op; None: nothing else."""
        if STATE.overrides is not None and STATE.overrides.op_by_op:
            return self.python_function
        return self._in_scope() if replaced_gradients() != self.scope else None

    def _in_scope(self) -> Function:
        """The function with traces of its own for the gradients that built-in ops have now."""
        scope = replaced_gradients()
        return self._scoped.find(scope, lambda: self._again(scope))

    def _again(self, scope: Any) -> Function:
        """The function without traces, for other gradients of built-in ops."""
        return Function(self.python, self.options, self.owner and self.owner(), scope)

    def concrete_functions(self) -> list[ConcreteFunction]:
        """The traces that there are, in the order in which they were made."""
        return list({id(c): c for c in self._traces.values()}.values())

    def experimental_get_tracing_count(self) -> int:
        """How often Python was traced."""
        return self._count

    def _found_or_traced(self, key: Key, leaves: Sequence[Any]) -> ConcreteFunction:
        with TRACING:
            found = self._traces.get(key)
            if found is None:
                general = next((g for g in self._general if holds(g, key)), None)
                if general is not None:
                    found = self._traces[general]
            if found is None:
                wanted = self._wanted(key)
                found = self._keep(wanted, self._traced(wanted, leaves))
            return self._keep(key, found)

    def _wanted(self, key: Key) -> Key:
        """The signature for which a call is traced: as general as was asked for."""
        asked = self.options.avals
        if asked:
            return key[0], (*asked, *key[1][len(asked) :])
        return generalised(key, list(self._traces)) if self.options.reduce_retracing else key

    def _keep(self, key: Key, concrete: ConcreteFunction) -> ConcreteFunction:
        self._traces[key] = concrete
        if any(isinstance(k, Aval) and not k.is_known for k in key[1]) and key not in self._general:
            self._general.append(key)
        while len(self._traces) > MAX_TRACES:
            old, _ = self._traces.popitem(last=False)
            self._straight.clear()
            self._general = [g for g in self._general if g != old]
        return concrete

    def _traced(self, key: Key, leaves: Sequence[Any]) -> ConcreteFunction:
        """A trace for a signature. The first call may create variables; then it is traced once more without them."""
        spec, parts = key
        avals = [parts[i] for i in tensor_places(leaves)]
        first, self._called = not self._called, True
        trace = self._trace(avals, leaves, spec, "" if first else NOT_FIRST)
        if trace.created:
            trace = self._trace(avals, leaves, spec, NOT_ONCE)
        trace.capturing = self.capturing
        return ConcreteFunction(self.name, self._specs(leaves, avals), spec, trace, list(self.signature.parameters))

    def _specs(self, leaves: Sequence[Any], avals: Sequence[Aval]) -> list[Any]:
        """The leaves of a signature, with specs in the place of tensors, named as the input signature names them."""
        found, names = list(leaves), self.options.names
        for k, (i, a) in enumerate(zip(tensor_places(leaves), avals, strict=True)):
            name = names[k] if k < len(names) else getattr(leaves[i], "name", None)
            found[i] = TensorSpec(a.shape, a.dtype, name if isinstance(name, str) else None)
        return found

    def _trace(self, avals: Sequence[Aval], leaves: Sequence[Any], spec: Any, creates_no_more: str) -> Any:
        self._count += 1
        places = tensor_places(leaves)

        def python(tensors: list[Tensor]) -> Any:
            inside = list(leaves)
            for i, t in zip(places, tensors, strict=True):
                inside[i] = t
            args, kwargs = optree.tree_unflatten(spec, inside)
            return self._run(*args, **kwargs)

        examples = [leaves[i] for i in places]
        given = examples if all(isinstance(x, Tensor) for x in examples) else ()
        try:
            if all(a.is_known for a in avals):
                return Trace(python, avals, creates_no_more, given)
            return self._open_trace(python, avals, creates_no_more, given)
        except InvalidArgumentError as e:
            if type(e) is InvalidArgumentError:
                e.__class__ = InvalidWhileTracedError  # with its traceback, its cause and its notes
            raise

    def _open_trace(
        self,
        python: Callable[[list[Tensor]], Any],
        avals: Sequence[Aval],
        creates_no_more: str,
        given: Sequence[Tensor],
    ) -> Any:
        """A trace for shapes that are not all known; where there is none, one for each shape."""
        try:
            return OpenTrace(python, avals, creates_no_more, given)
        except (UnknownShapeError, SymbolicTensorError) as e:
            if isinstance(e, SymbolicTensorError) and e.by_user:
                raise
            _warn(self.name, e, "cannot be traced for unknown dimensions", "it is traced anew for each shape")
            return TraceForEachShape(python)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        """The Python function itself, its `if`s and loops converted if that is wanted."""
        if self.owner is not None:
            args = (self.owner(), *args)
        return conversion.call(self.python, args, kwargs, enabled=self.options.autograph)

    # ------------------------------------------------------------------ arguments

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        """The leaves of all arguments, arrays and what the input signature says as tensors, and their structure."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given: tuple[Any, ...] = bound.args
        signature = self.options.signature
        if signature is not None:
            given = (*self._checked(given[: len(signature)], signature), *given[len(signature) :])
        arguments: Any = (given, bound.kwargs)
        leaves, spec = optree.tree_flatten(expanded(arguments), none_is_leaf=True)
        return [as_argument(x) for x in leaves], spec

    def _checked(self, given: Sequence[Any], signature: tuple[Any, ...]) -> list[Any]:
        if len(given) != len(signature):
            raise TypeError(f"`{self.name}` takes {len(signature)} arguments by its input signature, got {len(given)}.")
        return [self._fitted(x, s, i) for i, (x, s) in enumerate(zip(given, signature, strict=True))]

    def _fitted(self, x: Any, s: Any, i: int) -> Any:
        """An argument as its spec, or its structure of specs, wants it."""
        if not isinstance(s, TensorSpec):
            specs, structure = optree.tree_flatten(s, none_is_leaf=True)
            try:
                parts = structure.flatten_up_to(x)
            except ValueError as e:
                raise TypeError(f"Argument {i} of `{self.name}` should have the structure of {s}: {e}") from None
            return optree.tree_unflatten(structure, [self._fitted(p, t, i) for p, t in zip(parts, specs, strict=True)])
        if isinstance(x, TensorSpec):
            return x
        try:
            t = convert(x, None if isinstance(x, Tensor | Variable) else s.dtype)
        except (TypeError, ValueError) as e:
            raise TypeError(f"Argument {i} of `{self.name}` should be {s}: {e}") from None
        if not s.is_compatible_with(t):
            raise TypeError(
                f"Argument {i} of `{self.name}` should be {s}, got shape {t.shape} and dtype {t.dtype.name}."
            )
        return t

    def __repr__(self) -> str:
        return f"<tf.function {self.name}>"


class Options:
    """How a function is traced."""

    def __init__(
        self, signature: Any, autograph: bool, reduce_retracing: bool, jit_compile: bool | None = None
    ) -> None:
        if not (signature is None or isinstance(signature, list | tuple)):
            raise TypeError(
                f"`input_signature` should be a list with a `tf.TensorSpec` per argument, got {signature!r}."
            )
        self.signature = None if signature is None else tuple(signature)
        specs: Any = self.signature or ()
        leaves = optree.tree_leaves(specs, none_is_leaf=True)
        self.avals = [_aval(s) for s in leaves]  # of the leaves of all arguments
        self.names = [s.name for s in leaves]
        self.autograph, self.reduce_retracing = autograph, reduce_retracing
        self.jit_compile = jit_compile


def _aval(spec: Any) -> Aval:
    if not isinstance(spec, TensorSpec):
        raise TypeError(
            f"`input_signature` should hold `tf.TensorSpec`s, got {spec!r}. Say `tf.TensorSpec(shape, dtype)`, with "
            "None for a dimension that differs from call to call, or leave the signature out."
        )
    return spec.aval


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Sequence[Any] | None = None,
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
    trace. `if`, `while`, `for`, `and`, `or` and `not` of tensors become part of the graph; of Python values they stay
    Python's. What a trace cannot hold, such as an op whose result has as many elements as its values say, makes the
    function run op by op, with one warning that names the op and the place.

    Args:
      func: the function; without it, a decorator is returned.
      input_signature: a `TensorSpec`, or a structure of them, per argument, to which arguments are converted and
        against which they are checked. Dimensions that are None there may differ from call to call.
      autograph: whether Python's control flow is converted.
      jit_compile: on a GPU a trace that has run a few times is captured into a CUDA graph, where nothing in it needs
        the host, and is one launch from then on. True: after its first call; False: never; None: if it pays.
      reduce_retracing: dimensions that differ between calls become unknown ones, so that there are few traces.

    All other arguments are accepted for compatibility.

    Raises:
      TypeError: an input signature that is no list of `TensorSpec`.
      ValueError: a variable is created in another call than the first.

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
    wanted = experimental_compile if jit_compile is None else jit_compile
    options = Options(input_signature, autograph, reduce_retracing or bool(experimental_relax_shapes), wanted)
    if func is None:
        return lambda f: Function(f, options)
    return Function(func, options)


def _warn(
    name: str,
    e: Exception,
    what: str = "",
    then: str = "it runs as Python, op by op",
) -> None:
    """Why a function is not traced: the op that wants a value, and where the user's program calls it."""
    place, op = "", ""
    for frame in traceback.extract_tb(e.__traceback__):
        if not is_own_file(frame.filename) and not frame.filename.startswith(PYTHON):
            place, op = f" at {place_at(frame.filename, frame.lineno or 0)}", ""
        elif not op and place and frame.name[:1].isalpha() and not frame.filename.startswith(CONVERTED):
            op = f" in `{frame.name}`"
    warnings.warn(
        f"`{name}` {what or getattr(e, 'says', '')}{op}{place}, so {then}: {e}",
        stacklevel=3,
    )


def _without_first(signature: inspect.Signature) -> inspect.Signature:
    parameters = list(signature.parameters.values())
    return signature.replace(parameters=parameters[1:])
