"""Ops and steps: an op is one declaration, a step is an op with its static parameters. Floor: ops.

Kinds (`Pointwise`, `Reduction`, ...) subclass `Op` and carry the rules; declarations are instances."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import DType
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.graph import Node, Value
from gradtape.ops.samples import BadSample, Sample

MAX_CACHED = 4096  # structures remembered per step before its cache starts anew


class Cotangent(NamedTuple):
    """A cotangent, and where it can be other than zero (None: anywhere).

    A choice between two tensors (`select`) sends zeros into the branch that was not taken. There the partials
    of that branch must not matter, though they may be infinite; so the mask travels along with the cotangent,
    and kinds put it on their partials."""

    value: Value
    mask: Value | None = None


Rule = Callable[..., Sequence["Value | None"]]


class Step:
    """An op bound to its static parameters. Interned: equal ones are the same object."""

    __slots__ = ("__weakref__", "cache", "inferred", "lowered", "op", "params")

    def __init__(self, op: Op, params: dict[str, Any]) -> None:
        self.op = op
        self.params = params
        self.inferred: dict[tuple[Aval, ...], tuple[Aval, ...]] = {}
        self.lowered: dict[str, Callable[..., Any]] = {}  # by backend name
        self.cache: dict[Any, Any] = {}  # what other floors remember about this step

    @property
    def name(self) -> str:
        return self.op.name

    def infer(self, avals: tuple[Aval, ...]) -> tuple[Aval, ...]:
        """Shapes and dtypes of the results; raises TensorFlow's errors for operands that do not fit."""
        found = self.inferred.get(avals)
        if found is None:
            found = self.op.infer(avals, **self.params)
            if len(self.inferred) >= MAX_CACHED:
                self.inferred.clear()
            self.inferred[avals] = found
        return found

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.params.items())})"


class Op:
    """What all kinds share. A subclass says how results are inferred and how cotangents are pulled back. `listed`: it
    is found by its name, in the op table; one that a program makes while it runs is not."""

    kind = "op"

    def __init__(
        self,
        name: str,
        *,
        doc: str = "",
        samples: Iterable[Sample] = (),
        errors: Iterable[BadSample] = (),
        notes: str = "",
        listed: bool = True,
    ) -> None:
        self.name = name
        self.doc = doc
        self.samples = tuple(samples)
        self.errors = tuple(errors)
        self.notes = notes
        self.steps: dict[Any, Step] = {}
        if listed:
            register(self)

    def bind(self, **params: Any) -> Step:
        """The step of this op with these static parameters (hashable values)."""
        key = tuple(params.items())
        found = self.steps.get(key)
        return self._new(key, params) if found is None else found

    def _new(self, key: Any, params: dict[str, Any]) -> Step:
        if len(self.steps) >= MAX_CACHED:
            self.steps.clear()
        return self.steps.setdefault(key, Step(self, params))  # of two threads, that of the first one

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        raise TypeError(f"The kind of `{self.name}` does not say how its results are inferred.")

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        """The cotangents of the inputs, as graph values; None where no gradient flows."""
        raise TypeError(f"The kind of `{self.name}` does not say how cotangents are pulled back.")

    def pull(self, node: Node, given: list[Cotangent | None], wanted: list[bool]) -> list[Cotangent | None]:
        """`vjp` for masked cotangents. Kinds that know how to carry the mask on do; here it ends."""
        pulled = self.vjp(node, [None if c is None else c.value for c in given], wanted)
        return [None if v is None else Cotangent(v) for v in pulled]

    def invalid(self, text: str) -> InvalidArgumentError:
        """The error for operands that do not fit."""
        return InvalidArgumentError(f"`{self.name}` {text}")

    def __repr__(self) -> str:
        return f"<op {self.name}, {self.kind}>"


_registry: dict[str, Op] = {}


def register(op: Op) -> None:
    if op.name in _registry:
        raise ValueError(f"An op named `{op.name}` is declared already.")
    _registry[op.name] = op


def lookup(name: str) -> Op:
    """The op of this name.

    Raises:
      LookupError: with the nearest name.
    """
    found = _registry.get(name)
    if found is None:
        near = difflib.get_close_matches(name, _registry, 1)
        raise LookupError(f"There is no op `{name}`." + (f" Did you mean `{near[0]}`?" if near else ""))
    return found


def all_ops() -> tuple[Op, ...]:
    """All declared ops, by name."""
    return tuple(_registry[n] for n in sorted(_registry))


# ------------------------------------------------------------------ building graphs


def apply(step: Any, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """A new node; its results."""
    avals = step.infer(tuple(v.aval for v in inputs))
    return Node(step, tuple(inputs), avals).outputs


def emit(name: str, *inputs: Value, **params: Any) -> Value:
    """The (first) result of an op applied to graph values: how rules are written."""
    return apply(lookup(name).bind(**params), inputs)[0]


def constant(value: Any, dtype: DType, shape: tuple[int, ...] = ()) -> Value:
    """A number as a graph value; with a shape, an array full of it."""
    return emit("constant", value=value, dtype=dtype, shape=shape)


def _own(value: Any, dtype: DType) -> Any:
    """A number as the type of Python's that its dtype has, so that equal ones are written alike."""
    if type(value) in (int, float, bool):
        return float(value) if dtype.is_floating else bool(value) if dtype.is_bool else value
    return value


class Constant(Op):
    """A number known while the graph is made."""

    kind = "constant"

    def bind(self, **params: Any) -> Step:
        """The step of this number; -0.0, which equals 0.0, has one of its own."""
        params = params | {"value": _own(params["value"], params["dtype"])}
        value = params["value"]
        key = (*params.items(), None if value else "-" in str(value))
        found = self.steps.get(key)
        return self._new(key, params) if found is None else found

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        return (aval(params["shape"], params["dtype"]),)

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        return []


CONSTANT = Constant("constant", doc="A number known while the graph is made, repeated over a shape.")
