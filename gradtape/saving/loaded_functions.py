"""Functions from files: their bodies, traced for the shapes that they are called with. Floor: saving."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import optree

from gradtape.functions import Function, Options
from gradtape.ir.aval import Aval
from gradtape.ir.bounded import Bounded
from gradtape.ir.errors import InvalidArgumentError, OpError
from gradtape.runtime.convert import convert
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable
from gradtape.saving import values
from gradtape.saving.damage import Damaged, fields, listed
from gradtape.saving.loaded_bodies import LoadedBody
from gradtape.saving.structures import read_structure
from gradtape.saving.tables import Tables
from gradtape.tracing.concrete import TRACING, ConcreteFunction, Trace
from gradtape.tracing.open import MAX_SHAPES
from gradtape.tracing.replaying import Capturing
from gradtape.tracing.signatures import TensorSpec, common_shape, key_of

SHOWN = 8  # shapes that a message lists
KINDS = {k.name: k for k in inspect._ParameterKind}


class LoadedTrace:
    """What a function from a file does for one signature, as `concrete.Trace` does for one choice of shapes."""

    capturing: Capturing | None = None  # see there

    def __init__(self, bodies: Sequence[LoadedBody]) -> None:
        self.bodies = bodies
        self.made: Bounded[Any, Trace] = Bounded(MAX_SHAPES)

    def at(self, avals: tuple[Aval, ...], examples: Sequence[Tensor] = ()) -> Trace:
        """The trace for known shapes.

        Raises:
          InvalidArgumentError: the function was not saved for such shapes.
        """
        with TRACING:
            return self.made.find(avals, lambda: self._traced(avals, examples))

    def _traced(self, avals: tuple[Aval, ...], examples: Sequence[Tensor]) -> Trace:
        made = Trace(self._program(avals), avals, "A function from a file makes no variables.", examples)
        made.capturing = self.capturing
        return made

    def op_by_op(self, tensors: Sequence[Tensor]) -> Any:
        """The results of the graph's steps, each run by itself."""
        return self._program([t._aval for t in tensors])(list(tensors))

    def _program(self, avals: Sequence[Aval]) -> Callable[[list[Tensor]], Any]:
        for body in self.bodies:
            sizes = body.sizes_at(avals)
            if sizes is not None:
                return body.program(sizes)
        ways = list(dict.fromkeys(b.described() for b in reversed(self.bodies)))
        more = f"\n  and {len(ways) - SHOWN} more" if len(ways) > SHOWN else ""
        raise InvalidArgumentError(
            f"This function from a file has no result for {', '.join(map(str, avals))}. What it was saved for, letters "
            "being sizes:\n  " + "\n  ".join(ways[:SHOWN]) + more + "\nWhere others should do too, save it with a "
            "signature that has their shapes, or as a trace of a call with them."
        )

    def run(self, tensors: Sequence[Tensor]) -> Any:
        """The results for tensors of any shapes that fit."""
        return self.at(tuple(t._aval for t in tensors), tensors).run(tensors)

    def again(self) -> LoadedTrace:
        """The same without what it was traced for so far."""
        return LoadedTrace(self.bodies)

    def written(self, tables: Tables) -> list[dict[str, Any]]:
        """Its bodies, for another file."""
        return [b.written(tables) for b in self.bodies]

    def result_specs(self) -> list[TensorSpec]:
        """What the tensors of the results are."""
        every = zip(*(b.result_avals() for b in self.bodies), strict=True)
        return [TensorSpec(functools.reduce(common_shape, [a.shape for a in alike]), alike[0].dtype) for alike in every]

    @property
    def some(self) -> Trace:
        """One of the traces, to look at."""
        return self.at(self.bodies[-1].example_avals())

    @property
    def compiled(self) -> Any:
        return self.some.compiled

    @property
    def variables(self) -> list[Any]:
        return self.bodies[-1].state

    @property
    def captured(self) -> list[Tensor]:
        return self.some.captured


class LoadedFunction(Function):
    """A function from a file. It has the signatures that it was saved with; its Python goes through their steps."""

    def __init__(
        self,
        name: str,
        signature: inspect.Signature,
        options: Options,
        variants: Sequence[ConcreteFunction],
        scope: Any = None,
    ) -> None:
        def python(*args: Any, **kwargs: Any) -> Any:
            return self._op_by_op(args, kwargs)

        python.__name__ = python.__qualname__ = name
        python.__signature__ = signature  # type: ignore[attr-defined]
        super().__init__(python, options, scope=scope)
        self.variants = list(variants)
        for c in variants:
            c.trace.capturing = self.capturing
            self._keep((c.spec, tuple(map(key_of, c.leaves))), c)

    def concrete_functions(self) -> list[ConcreteFunction]:
        return self.variants

    def _again(self, scope: Any) -> Function:
        variants = [ConcreteFunction(c.name, c.leaves, c.spec, c.trace.again(), c.names) for c in self.variants]
        return LoadedFunction(self.name, self.signature, self.options, variants, scope)

    def _traced(self, key: Any, leaves: Sequence[Any]) -> ConcreteFunction:
        raise self._unmatched(leaves)

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        """The leaves of the arguments as one of the signatures wants them, and their structure.

        Raises:
          ValueError: no signature is like these.
        """
        c, leaves = self._matching(args, kwargs)
        return leaves, c.spec

    def _matching(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[ConcreteFunction, list[Any]]:
        """The first signature that arguments are of, and their leaves; if there is none, the first that they can be
        converted to."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments: Any = (bound.args, bound.kwargs)
        for convert_them in (False, True):
            for c in self.variants:
                found = _fitted(c, arguments, convert_them)
                if found is not None:
                    return c, found
        raise self._unmatched(optree.tree_leaves(arguments, none_is_leaf=True))

    def _op_by_op(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The results, one step after the other."""
        c, leaves = self._matching(args, kwargs)
        return c.trace.op_by_op([leaves[i] for i in c.places])

    def _unmatched(self, leaves: Sequence[Any]) -> ValueError:
        if not self.variants:
            return ValueError(
                f"Found zero restored functions for caller function `{self.name}`: it was not traced before it was "
                "saved. Call it once, or give it an `input_signature`, and save again."
            )
        options = "\n".join(f"  Option {k + 1}: {c.leaves}" for k, c in enumerate(self.variants))
        return ValueError(
            f"Could not find matching concrete function to call loaded from the SavedModel. `{self.name}` got:\n  "
            f"{[_shown(x) for x in leaves]}\nExpected these arguments to match one of the following "
            f"{len(self.variants)} option(s):\n{options}"
        )


def _shown(x: Any) -> Any:
    return TensorSpec(x.shape, x.dtype) if isinstance(x, Tensor | Variable) else x


def _fitted(c: ConcreteFunction, arguments: Any, convert_them: bool) -> list[Any] | None:
    """The leaves of arguments as a signature wants them; None where they are none of it."""
    try:
        leaves = c.spec.flatten_up_to(arguments)
    except ValueError:
        return None
    found = []
    for x, wanted in zip(leaves, c.leaves, strict=True):
        if isinstance(wanted, TensorSpec):
            x = _tensor(x, wanted, convert_them)
            if x is None:
                return None
        elif key_of(x) != key_of(wanted):
            return None
        found.append(x)
    return found


def _tensor(x: Any, wanted: TensorSpec, convert_it: bool) -> Any:
    if isinstance(x, Variable):
        x = x.value()
    if not isinstance(x, Tensor | TensorSpec):
        if not convert_it or x is None:
            return None
        try:
            x = convert(x, wanted.dtype)
        except (TypeError, ValueError, OpError):
            return None
    return x if wanted.is_compatible_with(x) else None


# ------------------------------------------------------------------ from JSON


def read_function(text: Any, state: Callable[[Any], Any], constants: Sequence[Tensor]) -> Any:
    """A function, or one of a single signature.

    Raises:
      Damaged: it is none.
    """
    name, parameters, signature, variants = fields(text, "name", "parameters", "input_signature", "variants")
    if not isinstance(name, str):
        raise Damaged(f"{str(name)[:80]} is no name of a function")
    found = [_read_variant(v, name, state, constants) for v in listed(variants)]
    if parameters is None:
        if len(found) != 1:
            raise Damaged(f"`{name}` should have one signature, it has {len(found)}")
        return found[0]
    asked = None if signature is None else read_structure(signature, _spec)
    options = Options(asked, autograph=False, reduce_retracing=False)
    return LoadedFunction(name, inspect.Signature([_parameter(p) for p in listed(parameters)]), options, found)


def _read_variant(text: Any, name: str, state: Callable[[Any], Any], constants: Sequence[Tensor]) -> ConcreteFunction:
    names, arguments, bodies = fields(text, "names", "arguments", "bodies")
    if not all(isinstance(n, str) for n in listed(names)):
        raise Damaged(f"the parameters of `{name}` have names that are no strings")
    given: Any = read_structure(arguments, lambda leaf: _argument(leaf, state))
    if not (
        isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], tuple) and isinstance(given[1], dict)
    ):
        raise Damaged(f"the arguments of `{name}` are no tuple and dictionary")
    whole: Any = given
    leaves, spec = optree.tree_flatten(whole, none_is_leaf=True)
    read = [LoadedBody(b, state, constants) for b in listed(bodies)]
    if not read:
        raise Damaged(f"`{name}` has a signature without a body")
    found = ConcreteFunction(name, leaves, spec, LoadedTrace(read), names)
    for body in read:
        body.check([s.aval for s in found.tensor_specs])
    return found


def _spec(text: Any) -> TensorSpec:
    of, name = fields(text, "tensor", "name")
    a = values.aval_of(of)
    if name is not None and not isinstance(name, str):
        raise Damaged(f"{str(name)[:80]} is no name of a tensor")
    return TensorSpec(a.shape, a.dtype, name)


def _argument(text: Any, state: Callable[[Any], Any]) -> Any:
    if not isinstance(text, dict):
        raise Damaged(f"{str(text)[:80]} is no argument")
    if "tensor" in text:
        return _spec(text)
    if "variable" in text:
        return state(text)
    return values.read(*fields(text, "value"))


def _parameter(text: Any) -> inspect.Parameter:
    name, kind, default = fields(text, "name", "kind", "default")
    if kind not in KINDS or not isinstance(name, str):
        raise Damaged(f"{str(text)[:80]} is no parameter")
    given = [read_structure(d, values.read) for d in listed(default)]
    return inspect.Parameter(name, KINDS[kind], default=given[0] if given else inspect.Parameter.empty)
