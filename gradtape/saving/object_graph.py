"""The objects of a checkpoint by their names: what is saved, and what a restored value belongs to. Floor: saving."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gradtape.runtime.variable import Variable
from gradtape.saving import tracking, values
from gradtape.saving.damage import Damaged, fields, listed, numbered

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"  # at the end of the names of arrays, as TensorFlow has them
ABOUT = "gradtape_checkpoint"  # the key of the objects in a file's metadata
VERSION = 1


def children(x: Any) -> Iterator[tuple[str, Any]]:
    """What has state in an object or container, by name."""
    if isinstance(x, Variable):
        return
    if isinstance(x, list | tuple | dict):
        named: Iterator[tuple[str, Any]] = ((str(k), v) for k, v in tracking.parts(x))
    else:
        named = iter(tracking.own(x).items())
    for name, value in named:
        if isinstance(value, Variable) or tracking.has_state(value) or _holds(value):
            yield name, value


def _holds(value: Any) -> bool:
    return isinstance(value, list | tuple | dict) and tracking.holds_state(value)


def variables(root: Any) -> Iterator[tuple[str, Variable]]:
    """All variables in an object with their paths, each once."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        path, x = waiting.pop(0)
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, Variable):
            yield path, x
        else:
            waiting += [(f"{path}/{_escaped(n)}" if path else _escaped(n), c) for n, c in children(x)]


def _escaped(name: str) -> str:
    """A name without the signs that paths have a meaning for, as TensorFlow spells it."""
    return name.replace(".", "..").replace("/", ".S")


class Written:
    """The objects of a checkpoint that is being written."""

    def __init__(self, root: Any) -> None:
        self.arrays: dict[str, Any] = {}
        self.objects: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}
        self._held: list[Any] = []
        waiting = [("", root)]
        self._number(root)
        while waiting:
            path, x = waiting.pop(0)
            text = self.objects[self._numbers[id(x)]]
            if isinstance(x, Variable):
                text["value"] = self._value(path, x)
            for name, child in children(x):
                if id(child) not in self._numbers:
                    waiting.append((f"{path}/{_escaped(name)}" if path else _escaped(name), child))
                text["children"].append([name, self._number(child)])

    def _number(self, x: Any) -> int:
        if id(x) not in self._numbers:
            self._numbers[id(x)] = len(self.objects)
            self._held.append(x)
            self.objects.append({"children": [], "value": None})
        return self._numbers[id(x)]

    def _value(self, path: str, v: Variable) -> Any:
        array = np.asarray(v)
        if v.dtype.kind == "s":
            return {"shape": list(array.shape), "strings": [values.write(bytes(s)) for s in array.reshape(-1)]}
        self.arrays[path + VALUE] = array
        return path + VALUE

    def about(self) -> dict[str, str]:
        """The objects, for the file's metadata."""
        return {ABOUT: json.dumps({"version": VERSION, "objects": self.objects}, separators=(",", ":"))}


class Node:
    """An object of a checkpoint: its children by name, and its value if it is a variable."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.children: dict[str, Node] = {}
        self.value: Any = None


def read_objects(arrays: Mapping[str, Any], about: Mapping[str, str]) -> list[Node]:
    """The objects of a file, the root first.

    Raises:
      Damaged: it is no checkpoint of ours.
    """
    if ABOUT not in about:
        raise Damaged("its metadata do not say that it is a checkpoint of gradtape")
    version, objects = fields(json.loads(about[ABOUT]), "version", "objects")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise Damaged(f"it is of version {version!r}, and versions up to {VERSION} can be read")
    nodes = [Node("(root)") for _ in listed(objects)]
    if not nodes:
        raise Damaged("it has no objects")
    for node, text in zip(nodes, objects, strict=True):
        inner, value = fields(text, "children", "value")
        for pair in listed(inner):
            if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
                raise Damaged(f"{str(pair)[:80]} is no name and number")
            child = numbered(pair[1], nodes, "object")
            node.children[pair[0]] = child
            child.path = f"{node.path}.{pair[0]}" if child.path == "(root)" and child is not nodes[0] else child.path
        node.value = _value(value, arrays)
    return nodes


def _value(value: Any, arrays: Mapping[str, Any]) -> Any:
    if value is None:
        return None
    if isinstance(value, dict):
        shape, strings = fields(value, "shape", "strings")
        found = np.array([None, *map(values.read, listed(strings))], object)[1:]
        return found.reshape(tuple(n or 0 for n in values.dims_of(shape)))
    if not isinstance(value, str) or value not in arrays:
        raise Damaged(f"there is no array {str(value)[:80]!r} in it")
    return arrays[value]
