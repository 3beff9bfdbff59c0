"""What a file holds once however often it is used: variables, constants, other state. Floor: saving."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from gradtape.api.seeds import SEEDS
from gradtape.api.streams import Stream
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.variable import Variable
from gradtape.saving import values
from gradtape.saving.graphs import Unsaved


class Tables:
    """The tables of a file that is being written. Their arrays have names, by which the weights are found."""

    def __init__(self) -> None:
        self.variables: dict[int, tuple[int, Variable, str]] = {}  # by id: its number, itself, the name of its array
        self.constants: dict[Any, tuple[int, Any]] = {}  # by content: its number, the array
        self.names: set[str] = set()
        self._values: dict[str, tuple[Any, Any]] = {}  # by name: a variable's array where it is, and in this memory

    def variable(self, v: Variable, path: str) -> int:
        """The number of a variable; `path` becomes the name of its array, if it has none yet."""
        if v._id not in self.variables:
            self.variables[v._id] = (len(self.variables), v, self._free(path))
        return self.variables[v._id][0]

    def _free(self, path: str) -> str:
        name, k = path, 1
        while name in self.names:
            name, k = f"{path}_{k}", k + 1
        self.names.add(name)
        return name

    def state(self, x: Any) -> Any:
        """A variable or a stream of random numbers, as the file names it."""
        if isinstance(x, Variable):
            return {"variable": self.variable(x, f"captured/{x.name.replace(':', '_')}")}
        if isinstance(x, Stream):
            return {"stream": SEEDS.sequence_of(x)}
        raise Unsaved("it has effects (`tf.print`, assertions or Python functions), which no file holds")

    def constant(self, t: Tensor) -> int:
        """The number of a constant; equal ones are one."""
        array = np.asarray(t)
        key = _content(array)
        if key not in self.constants:
            self.constants[key] = (len(self.constants), array)
        return self.constants[key][0]

    def known(self, t: Tensor) -> int | None:
        """The number of a constant that is there already."""
        found = self.constants.get(_content(np.asarray(t)))
        return None if found is None else found[0]

    # ------------------------------------------------------------------ to the file

    def arrays(self) -> dict[str, Any]:
        """The arrays of the weights by name; strings are in the JSON. Those of variables are the same ones each time,
        unless the variables have changed."""
        held = {name: self._value(v, name) for _, v, name in self.variables.values() if v.dtype.kind != "s"}
        return held | {f"constants/{k}": a for k, a in self.constants.values() if not a.dtype.hasobject}

    def _value(self, v: Variable, name: str) -> Any:
        if name not in self._values or self._values[name][0] is not v.array:
            self._values[name] = (v.array, np.asarray(v))
        return self._values[name][1]

    def text(self) -> dict[str, Any]:
        """The tables as JSON."""
        return {
            "variables": [_variable(v, name) for _, v, name in self.variables.values()],
            "constants": [_constant(k, a) for k, a in self.constants.values()],
        }


def _content(array: Any) -> Any:
    if array.dtype.hasobject:
        return (array.shape, "string", tuple(array.reshape(-1)))
    return (
        array.shape,
        array.dtype.str,
        array.dtype.name,
        hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest(),
    )


def _variable(v: Variable, name: str) -> dict[str, Any]:
    return {
        "name": v._name,
        "trainable": v.trainable,
        "aval": values.aval_text(v._aval),
        "array": _strings(np.asarray(v)) if v.dtype.kind == "s" else name,
    }


def _constant(k: int, array: Any) -> Any:
    return {"array": _strings(array) if array.dtype.hasobject else f"constants/{k}"}


def _strings(array: Any) -> dict[str, Any]:
    return {"shape": list(np.shape(array)), "strings": [values.write(bytes(s)) for s in np.asarray(array).reshape(-1)]}
