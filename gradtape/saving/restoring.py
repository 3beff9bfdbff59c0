"""Values of a checkpoint on their way to variables, those included that are not made yet. Floor: saving."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from gradtape.ir.aval import Aval, aval_of
from gradtape.ir.errors import InvalidArgumentError
from gradtape.ir.shapes import shape_text
from gradtape.runtime.attaching import stop_waiting, wait
from gradtape.runtime.tensor import from_array
from gradtape.runtime.trace import outside
from gradtape.runtime.variable import Variable
from gradtape.saving import tracking
from gradtape.saving.object_graph import Node, children, variables


class Restoration:
    """A checkpoint being restored: what has its value, and what waits for an object. Objects are not kept alive."""

    def __init__(self, root: Any, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.matched: dict[tuple[int, int], Any] = {}  # by ids of objects, and of what they are in the file: the object
        self.consumed: set[int] = set()  # ids of nodes whose value a variable has
        self.assigned: set[int] = set()  # ids of variables that have a value of the file
        self.waiting: list[tuple[Any, Callable[[], None]]] = []
        self.partial = True  # what could not be restored is told by an error
        self.match(root, nodes[0])
        self.partial = False

    def match(self, x: Any, node: Node) -> None:
        """Give an object, and all in it, what the file has under their names.

        Raises:
          ValueError: a variable of another shape; none has a new value then.
          InvalidArgumentError: a variable of another dtype.
        """
        found = self._pairs(x, node)
        for v, n in found:
            check(v, aval_of(n.value))
        with outside():
            for v, n in found:
                v.assign(from_array(n.value))
                self.assigned.add(v._id)
                self.consumed.add(id(n))
        if found and not self.unused():
            self._rest()

    def _pairs(self, x: Any, node: Node) -> list[tuple[Variable, Node]]:
        """Variables without a value of the file, and what they are in it; objects on the way begin to wait."""
        found: dict[int, tuple[Variable, Node]] = {}
        seen: set[tuple[int, int]] = set()
        waiting = [(x, node)]
        while waiting:
            x, node = waiting.pop()
            key = (id(x), id(node))
            if key in seen:
                continue
            seen.add(key)
            if isinstance(x, Variable):
                if x._id not in self.assigned and node.value is not None:
                    found[x._id] = (x, node)
                continue
            if tracking.has_state(x) and (key not in self.matched or self.matched[key]() is not x):
                self.matched[key] = self._wait(x, node)
            waiting += [(c, node.children[n]) for n, c in children(x) if n in node.children]
        return list(found.values())

    def _wait(self, x: Any, node: Node) -> Any:
        ref = weakref.ref(x)

        def attached() -> None:
            owner = ref()
            if owner is not None:
                self.match(owner, node)

        wait(x, attached)
        self.waiting.append((ref, attached))
        return ref

    def _rest(self) -> None:
        """All values have found a variable."""
        for ref, f in self.waiting:
            owner = ref()
            if owner is not None:
                stop_waiting(owner, f)
        self.waiting = []

    # ------------------------------------------------------------------ what is missing

    def unused(self) -> list[Node]:
        """Values of the file that no variable has."""
        return [n for n in self.nodes if n.value is not None and id(n) not in self.consumed]

    def unset(self, root: Any) -> list[tuple[str, Variable]]:
        """Variables in an object that have no value of the file."""
        return [(path, v) for path, v in variables(root) if v._id not in self.assigned]

    def __del__(self) -> None:
        if self.partial or sys.is_finalizing():
            return
        left = self.unused()
        if left:
            warnings.warn(
                f"A checkpoint was restored, and {len(left)} of its values found no variable: "
                f"{', '.join(n.path for n in left[:5])}. `restore(...).expect_partial()` says that this is meant.",
                stacklevel=2,
            )


def check(v: Variable, found: Aval) -> None:
    """Whether a value fits a variable.

    Raises:
      ValueError: its shape differs.
      InvalidArgumentError: its dtype differs.
    """
    if found.shape != v._aval.shape:
        raise ValueError(
            f"Received incompatible tensor with shape {shape_text(found.shape)} when attempting to restore variable "
            f"with shape {shape_text(v._aval.shape)} and name {v.name}."
        )
    if found.dtype is not v._aval.dtype:
        raise InvalidArgumentError(
            f"The checkpoint has a value of dtype {found.dtype.name} for the variable {v.name}, whose dtype is "
            f"{v._aval.dtype.name}."
        )
