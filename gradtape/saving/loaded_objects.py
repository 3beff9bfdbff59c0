"""The objects of a file, made again: modules, containers, variables, functions. Floor: saving."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from gradtape.api.generators import Generator
from gradtape.api.seeds import SEEDS
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import string
from gradtape.module import Module
from gradtape.runtime.tensor import Tensor, from_array, wrap
from gradtape.runtime.variable import Variable
from gradtape.saving import values
from gradtape.saving.damage import Damaged, fields, listed, numbered
from gradtape.saving.loaded_functions import read_function


class LoadedModule(Module):
    """An object from a file: it has the variables, functions, containers and values that the saved one had.

    Attributes:
      saved_type: the name of the class that the saved object had.
      ordered: of a layer, its variables and those of them that are trained, in its order.
    """

    NOT_SAVED = frozenset({"_name", "_scope", "saved_type", "ordered", "signatures"})

    def __init__(self, saved_type: str) -> None:
        self._name, self._scope = "loaded", "loaded/"
        self.saved_type = saved_type
        self.ordered: list[list[Variable]] | None = None

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables of this object and of those in it; of a layer, in its order."""
        return super().variables if self.ordered is None else tuple(self.ordered[0])

    @property
    def trainable_variables(self) -> tuple[Variable, ...]:
        """Those that are trainable."""
        return super().trainable_variables if self.ordered is None else tuple(self.ordered[1])

    @property
    def non_trainable_variables(self) -> tuple[Variable, ...]:
        """Those that are not trainable."""
        trained = {v._id for v in self.trainable_variables}
        return tuple(v for v in self.variables if v._id not in trained)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} saved as a {self.saved_type}>"


class LoadedCallable(LoadedModule):
    """One that was saved with a traced `__call__`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return vars(self)["__call__"](*args, **kwargs)


class Loaded:
    """The tables of a file that is being read, and its objects."""

    def __init__(self, content: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        self.arrays = arrays
        self.variables = [self._variable(t) for t in listed(content["variables"])]
        self.constants = [self._constant(t) for t in listed(content["constants"])]
        self.functions = [read_function(t, self.state, self.constants) for t in listed(content["functions"])]
        self.texts = listed(content["objects"])
        self.objects: dict[int, Any] = {}
        self._open: set[int] = set()  # containers that are being made, and that nothing can hold yet

    # ------------------------------------------------------------------ tables

    def _array(self, place: Any) -> Tensor:
        """A tensor of an array in the weights, or of strings."""
        if isinstance(place, dict):
            shape, strings = fields(place, "shape", "strings")
            found = np.array([None, *map(values.read, listed(strings))], object)[1:]
            if not all(isinstance(s, bytes) for s in found):
                raise Damaged("strings should be bytes")
            dims = tuple(n or 0 for n in values.dims_of(shape))
            return wrap(found.reshape(dims), aval(dims, string))
        if not isinstance(place, str) or place not in self.arrays:
            raise Damaged(f"there is no array {str(place)[:80]!r} in the weights")
        return from_array(self.arrays[place])

    def _constant(self, text: Any) -> Tensor:
        return self._array(*fields(text, "array"))

    def _variable(self, text: Any) -> Variable:
        name, trainable, of, place = fields(text, "name", "trainable", "aval", "array")
        t = self._array(place)
        if t._aval is not values.aval_of(of):
            raise Damaged(f"the variable {str(name)[:80]!r} is {t._aval} in the weights, and {of} in the model")
        if not isinstance(name, str) or type(trainable) is not bool:
            raise Damaged(f"{str(name)[:80]!r} is no name of a variable, or {trainable!r} no truth value")
        return Variable.of_array(t._array, t._aval, trainable, name)

    def state(self, text: Any) -> Any:
        """A variable, or a stream of random numbers of this process."""
        if isinstance(text, dict) and "stream" in text:
            sequence = values.read(*fields(text, "stream"))
            if sequence is not None and [type(x) for x in sequence] != [str, int]:
                raise Damaged(f"{str(text)[:80]} is no stream of random numbers")
            return SEEDS.stream(sequence)
        (number,) = fields(text, "variable")
        return numbered(number, self.variables, "variable")

    # ------------------------------------------------------------------ objects

    def object(self, number: Any) -> Any:
        """An object by its number.

        Raises:
          Damaged: there is none, or a container that holds itself.
        """
        text = numbered(number, self.texts, "object")
        if number not in self.objects:
            if number in self._open:
                raise Damaged(f"the container number {number} holds itself")
            self._open.add(number)
            self.objects[number] = self._made(number, text)
        return self.objects[number]

    def _made(self, number: int, text: Any) -> Any:
        if not isinstance(text, dict):
            raise Damaged(f"{str(text)[:80]} is no object")
        if "module" in text:
            return self._module(number, text)
        ((kind, inner),) = text.items()
        if kind not in MAKERS:
            raise Damaged(f"there are no objects of kind {kind!r}")
        return MAKERS[kind](self, inner)

    def _module(self, number: int, text: Any) -> LoadedModule:
        name, attributes, lists = fields(text, "module", "attributes", "lists")
        pairs = [_pair(p) for p in listed(attributes)]
        kind = LoadedCallable if any(k == "__call__" for k, _ in pairs) else LoadedModule
        made = self.objects[number] = kind(str(name))
        if lists is not None:
            made.ordered = [[numbered(k, self.variables, "variable") for k in listed(of)] for of in listed(lists)]
            if len(made.ordered) != 2:
                raise Damaged("a layer has two lists of variables")
        for key, n in pairs:
            if not key.isidentifier() or (key.startswith("__") and key != "__call__"):
                raise Damaged(f"{key[:80]!r} is no name of an attribute")
            vars(made)[key] = self.object(n)
        return made

    def _list(self, inner: Any) -> list[Any]:
        return [self.object(n) for n in listed(inner)]

    def _dict(self, inner: Any) -> dict[Any, Any]:
        return {values.read(k): self.object(n) for k, n in (_pair(p, object) for p in listed(inner))}

    def _generator(self, inner: Any) -> Generator:
        return Generator.of_variable(numbered(inner, self.variables, "variable"))


def _pair(text: Any, key: type = str) -> tuple[Any, Any]:
    if not isinstance(text, list) or len(text) != 2 or not isinstance(text[0], key):
        raise Damaged(f"{str(text)[:80]} is no name and number")
    return text[0], text[1]


MAKERS: dict[str, Callable[[Loaded, Any], Any]] = {
    "variable": lambda of, inner: numbered(inner, of.variables, "variable"),
    "constant": lambda of, inner: numbered(inner, of.constants, "constant"),
    "function": lambda of, inner: numbered(inner, of.functions, "function"),
    "generator": Loaded._generator,
    "list": Loaded._list,
    "tuple": lambda of, inner: tuple(of._list(inner)),
    "dict": Loaded._dict,
    "value": lambda of, inner: values.read(inner),
}


class Signatures(Mapping[str, Any]):
    """The signatures of a saved model by name."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named

    def __getitem__(self, name: str) -> Any:
        return self._named[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)

    def __repr__(self) -> str:
        return f"Signatures({self._named})"
