"""Traced functions as JSON: their parameters, and a body for each signature. Floor: saving."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from gradtape.functions import Function
from gradtape.ir.aval import Aval
from gradtape.runtime.variable import Variable
from gradtape.saving import values
from gradtape.saving.bodies import Body
from gradtape.saving.general import Generalised
from gradtape.saving.graphs import Unsaved
from gradtape.saving.lifting import Lifted
from gradtape.saving.loaded_functions import LoadedTrace
from gradtape.saving.mentioned import numbers_of
from gradtape.saving.structures import write_structure
from gradtape.saving.tables import Tables
from gradtape.tracing.concrete import ConcreteFunction, Trace
from gradtape.tracing.open import NO_MORE, OpenTrace
from gradtape.tracing.signatures import TensorSpec


def write_function(f: Function, tables: Tables) -> dict[str, Any]:
    """A function with all signatures that it was traced for.

    Raises:
      ValueError: one of its traces cannot be in a file; the message says why.
    """
    try:
        return {
            "name": f.name,
            "parameters": [_parameter(p) for p in f.signature.parameters.values()],
            "input_signature": None if f.options.signature is None else write_structure(f.options.signature, _spec),
            "variants": [write_variant(c, tables) for c in f.concrete_functions()],
        }
    except Unsaved as e:
        raise ValueError(f"`{f.name}` cannot be saved: {e}.") from e


def write_concrete(c: ConcreteFunction, tables: Tables) -> dict[str, Any]:
    """A function of one signature.

    Raises:
      ValueError: it cannot be in a file; the message says why.
    """
    try:
        return {
            "name": c.name,
            "parameters": None,
            "input_signature": None,
            "variants": [write_variant(c, tables)],
        }
    except Unsaved as e:
        raise ValueError(f"`{c.name}` cannot be saved: {e}.") from e


def write_variant(c: ConcreteFunction, tables: Tables) -> dict[str, Any]:
    """One signature: the arguments, and bodies for what they can be."""
    return {
        "names": list(c.names),
        "arguments": write_structure(c.structured_input_signature, lambda x: _argument(x, tables)),
        "bodies": _bodies(c, tables),
    }


def _bodies(c: ConcreteFunction, tables: Tables) -> list[dict[str, Any]]:
    avals = [s.aval for s in c.tensor_specs]
    if isinstance(c.trace, LoadedTrace):
        return c.trace.written(tables)
    if isinstance(c.trace, Trace):
        body = Body(c.trace, tables)
        asked = body.text["asked"] | {"constants": []}
        whole = body.text | {"constants": [tables.constant(t) for t in body.constants], "asked": asked, "parts": []}
        return [{"tensors": [values.aval_text(a) for a in avals], "ranges": [], "example": [], "body": whole}]
    python = c.trace.python

    def body_at(known: Sequence[Aval]) -> Body:
        again = Lifted(python)
        return Body(Trace(again, known, NO_MORE), tables, again.lifter)

    met = c.trace.sizes_met() if isinstance(c.trace, OpenTrace) else ()
    mentioned = numbers_of(c.trace.block if isinstance(c.trace, OpenTrace) else c.trace.python)
    return Generalised(body_at, tables.constant, mentioned, met).bodies(avals)


# ------------------------------------------------------------------ arguments


def _spec(x: Any) -> Any:
    return {"tensor": values.aval_text(x.aval), "name": x.name}


def _argument(x: Any, tables: Tables) -> Any:
    if isinstance(x, TensorSpec):
        return _spec(x)
    if isinstance(x, Variable):
        return {"variable": tables.variable(x, f"captured/{x.name.replace(':', '_')}")}
    try:
        return {"value": values.write(x)}
    except TypeError as e:
        raise Unsaved(f"it was called with {x!r}, and {e}. Make it an attribute of the module instead") from None


def _parameter(p: inspect.Parameter) -> dict[str, Any]:
    """A parameter; a default that no file holds is none there, and signatures that use it are not saved."""
    text = {"name": p.name, "kind": p.kind.name}
    if p.default is p.empty:
        return text | {"default": []}
    try:
        return text | {"default": [write_structure(p.default, values.write)]}
    except TypeError:
        return text | {"default": []}
