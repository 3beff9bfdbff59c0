"""What user code did, to do it again: calls of our functions, and functions of the user's made of them. Floor: tape."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import optree

from gradtape.runtime.state import STATE


@dataclass(frozen=True)
class Slot:
    """Where a world has the tensor or object that user code has as an open one."""

    number: int


@dataclass
class Action:
    """One call: the function (or the name of a method and the object's slot), its arguments, where results go."""

    function: Any
    arguments: list[Any]
    spec: Any
    results: list[Slot | None] = field(default_factory=list)

    def call(self, world: World) -> Any:
        args, kwargs = optree.tree_unflatten(self.spec, [world.known(x) for x in self.arguments])
        if isinstance(self.function, tuple):
            name, slot = self.function
            return getattr(world.values[slot.number], name)(*args, **kwargs)
        return self.function(*args, **kwargs)

    def run(self, world: World) -> None:
        """The call in another world than that in which it was noted."""
        leaves = optree.tree_leaves(self.call(world), none_is_leaf=True)
        for slot, x in zip(self.results, leaves, strict=True):
            if slot is not None:
                world.values[slot.number] = x


@dataclass
class Block:
    """A function of the user's as actions, from its arguments to its results."""

    inputs: list[Slot | None]
    actions: list[Action]
    outputs: list[Any]
    spec: Any

    def run(self, world: World, arguments: Sequence[Any]) -> Any:
        whole: Any = tuple(arguments)
        leaves: list[Any] = optree.tree_leaves(whole, none_is_leaf=True)
        for slot, x in zip(self.inputs, leaves, strict=True):
            if slot is not None:
                world.values[slot.number] = x
        for action in self.actions:
            action.run(world)
        return optree.tree_unflatten(self.spec, [world.known(x) for x in self.outputs])


class World:
    """The values of slots for one choice of shapes, and the state in which our functions run there."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}
        self.state: tuple[Any, Any] = STATE.tracers, STATE.recorders

    def known(self, x: Any) -> Any:
        return self.values[x.number] if isinstance(x, Slot) else x

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """From user code to ours."""
        outer = STATE.tracers, STATE.recorders
        STATE.enter(*self.state)
        try:
            yield
        finally:
            self.state = STATE.tracers, STATE.recorders
            STATE.enter(*outer)
