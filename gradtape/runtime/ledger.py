"""The ledger: which op made which tensor, and where it was called, while debugging. Floor: runtime."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from gradtape.ops.op import Step
from gradtape.runtime.observing import Observer, observed_by
from gradtape.runtime.places import calling_place
from gradtape.runtime.state import DEFAULT, STATE, Overriding
from gradtape.runtime.tensor import Tensor

MAX_ENTRIES = 200_000  # of which the oldest are forgotten


class Entry(NamedTuple):
    """One step: its name, the ids of its operands, and where it was called."""

    name: str
    operands: tuple[int, ...]
    place: str


class Ledger:
    """Entries by id of the tensor that they made, and variables by id of the tensor that they were read as."""

    def __init__(self) -> None:
        self.entries: OrderedDict[int, Entry] = OrderedDict()
        self.names: dict[int, str] = {}  # of variables, by id
        self.variables: OrderedDict[int, int] = OrderedDict()

    def note(self, name: str, inputs: Sequence[Any], results: Sequence[Tensor]) -> None:
        entry = Entry(name, tuple([t._id for t in inputs]), calling_place())
        for t in results:
            self.entries[t._id] = entry
        while len(self.entries) > MAX_ENTRIES:
            self.entries.popitem(last=False)

    def read(self, variable: Any) -> None:
        """Note what a variable is read as."""
        known = STATE.reads.get(variable._id)
        self.variables[(variable._snapshot if known is None else known)._id] = variable._id
        self.names[variable._id] = variable.name
        while len(self.variables) > MAX_ENTRIES:
            self.variables.popitem(last=False)


class Noting(Observer):
    """Writes what it sees into a ledger."""

    def __init__(self, ledger: Ledger, beneath: Overriding | None) -> None:
        super().__init__(beneath)
        self.ledger = ledger

    def above(self, beneath: Overriding | None) -> Noting:
        return Noting(self.ledger, beneath)

    def saw(self, step: Step, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        self.ledger.note(step.name, inputs, results)


def present_ledger() -> Ledger | None:
    """The ledger that is being written on this thread."""
    found = observed_by(Noting, STATE.overrides)
    return found.ledger if isinstance(found, Noting) else None


def begin(ledger: Ledger) -> None:
    """Write a ledger on this thread from now on."""
    STATE.override(Noting(ledger, STATE.overrides))
    STATE.watchers = (*STATE.watchers, ledger.read)


def end(ledger: Ledger) -> None:
    """Write it no more."""
    STATE.override(_removed(ledger, STATE.overrides))
    STATE.watchers = tuple(w for w in STATE.watchers if w != ledger.read)


def _removed(ledger: Ledger, chain: Overriding | None) -> Overriding | None:
    if not isinstance(chain, Observer):
        return chain
    rest = _removed(ledger, chain.beneath)
    return rest if isinstance(chain, Noting) and chain.ledger is ledger else chain.above(rest)


def begin_everywhere() -> None:
    """A ledger on this thread and on those that start from now on."""
    ledger = present_ledger() or Ledger()
    if present_ledger() is None:
        begin(ledger)
    DEFAULT.overrides, DEFAULT.watchers = Noting(ledger, None), (ledger.read,)


def end_everywhere() -> None:
    """The opposite."""
    while (ledger := present_ledger()) is not None:
        end(ledger)
    DEFAULT.overrides, DEFAULT.watchers = None, ()
