"""An object and all that is in it, as JSON: modules, containers, variables, functions. Floor: saving."""

from __future__ import annotations

from typing import Any

from gradtape.api.generators import Generator
from gradtape.functions import Function
from gradtape.keras.layers import Layer
from gradtape.keras.optimizers import Optimizer
from gradtape.runtime.tensor import SymbolicTensor, Tensor
from gradtape.runtime.variable import Variable
from gradtape.saving import tracking, values
from gradtape.saving.functions import write_concrete, write_function
from gradtape.saving.tables import Tables
from gradtape.tracing.concrete import ConcreteFunction

HIDDEN = "_"  # attributes that begin so are saved where they hold state


class Objects:
    """The objects of a file that is being written, each once; the first is the root."""

    def __init__(self) -> None:
        self.tables = Tables()
        self.texts: list[Any] = []
        self.functions: list[Any] = []
        self._numbers: dict[int, int] = {}  # of objects, by id
        self._functions: dict[int, int] = {}
        self._variants: dict[int, tuple[int, int]] = {}  # of functions of one signature: function, and which of its own
        self._waiting: list[Any] = []  # functions that have a number, and no text yet
        self._held: list[Any] = []  # so that no id is given twice while this is at work

    def add(self, x: Any, path: str = "", extra: dict[str, Any] | None = None) -> int:
        """The number of an object; `extra`: further attributes of it.

        Raises:
          ValueError: there is something in it that no file holds.
        """
        if id(x) in self._numbers and not tracking.is_plain(x):
            return self._numbers[id(x)]
        number = self._numbers[id(x)] = len(self.texts)
        self._held.append(x)
        self.texts.append(None)
        self.texts[number] = self._text(x, path, extra or {})
        return number

    def _text(self, x: Any, path: str, extra: dict[str, Any]) -> dict[str, Any]:
        if isinstance(x, Variable):
            return {"variable": self.tables.variable(x, path or "variable")}
        if tracking.is_function(x):
            return {"function": self.function(x)}
        if isinstance(x, Generator):
            return {"generator": self.tables.variable(x.state, f"{path}/state")}
        if isinstance(x, Tensor) and not isinstance(x, SymbolicTensor):
            return {"constant": self.tables.constant(x)}
        if isinstance(x, list | tuple | dict):
            return self._container(x, path)
        if tracking.has_state(x):
            return self._module(x, path, extra)
        if tracking.is_plain(x):
            return {"value": values.write(x)}
        raise ValueError(
            f"`{path}` is {x!r} of type {type(x).__name__}, which no file holds, and stands beside variables or "
            "functions. Keep it elsewhere, or make it a `tf.Module`."
        )

    def _container(self, x: Any, path: str) -> dict[str, Any]:
        inner = [(k, self.add(v, _joined(path, k))) for k, v in tracking.parts(x)]
        if isinstance(x, dict):
            return {"dict": [[values.write(k), n] for k, n in inner]}
        return {"list" if isinstance(x, list) else "tuple": [n for _, n in inner]}

    def _module(self, x: Any, path: str, extra: dict[str, Any]) -> dict[str, Any]:
        kept = {k: v for k, v in tracking.attributes(x) if _is_kept(k, v)} | extra
        if isinstance(x, Optimizer):
            kept["iterations"] = x.iterations  # a property there
        return {
            "module": getattr(x, "saved_type", type(x).__name__),
            "attributes": [[k, self.add(v, _joined(path, k))] for k, v in kept.items()],
            "lists": self._lists(x) if isinstance(x, Layer) or getattr(x, "ordered", None) else None,
        }

    def _lists(self, layer: Any) -> list[list[int]]:
        """The variables of a layer in its own order, and those of them that are trained now."""
        return [
            [self.tables.variable(v, getattr(v, "path", v.name)) for v in of]
            for of in (layer.variables, layer.trainable_variables)
        ]

    def function(self, f: Any) -> int:
        """The number of a function. Variables that it makes are made now; its text is up to `write_functions`."""
        if id(f) not in self._functions:
            self._held.append(f)
            self._functions[id(f)] = len(self.functions)
            self.functions.append(None)
            if isinstance(f, Function) and f.options.signature is not None and not f.concrete_functions():
                f.get_concrete_function()
            self._waiting.append(f)
        return self._functions[id(f)]

    def write_functions(self) -> None:
        """Trace functions for their texts.

        Raises:
          ValueError: there is one that no file holds.
        """
        while self._waiting:
            f = self._waiting.pop(0)
            number = self._functions[id(f)]
            write: Any = write_function if isinstance(f, Function) else write_concrete
            self.functions[number] = write(f, self.tables)
            variants = f.concrete_functions() if isinstance(f, Function) else [f]
            self._held += variants
            self._variants |= {id(c): (number, k) for k, c in enumerate(variants)}

    def variant(self, c: ConcreteFunction) -> tuple[int, int]:
        """The number of a function and which of its signatures one is."""
        self.write_functions()
        if id(c) not in self._variants:
            self.function(c)
            self.write_functions()
        return self._variants[id(c)]


def _joined(path: str, key: Any) -> str:
    return f"{path}/{key}" if path else str(key)


def _is_kept(name: str, value: Any) -> bool:
    """Whether an attribute is saved: state always, values under public names."""
    return tracking.holds_state(value) or (not name.startswith(HIDDEN) and tracking.is_data(value))
