"""Recording: one step of a trie per op, so that the plan of a backward pass is found without a walk. Floor: runtime.

A recorder gives every tensor it has seen a slot: positive where gradients flow (it depends on something
watched), negative where it is a constant. A record is keyed by its step, the slots of its operands and the
avals of those that are new; equal programs walk equal paths. Only residuals are kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from gradtape.ir.aval import Aval
from gradtape.ir.graph import Node, Value
from gradtape.ops.arithmetic import IDENTITY
from gradtape.ops.call import CUSTOM_CALL, expecting
from gradtape.ops.op import Step
from gradtape.runtime.places import calling_place
from gradtape.runtime.tensor import Tensor
from gradtape.runtime.trace import whole_function
from gradtape.runtime.trie import TRIE, TrieNode
from gradtape.transforms.differentiate import residuals

READ = IDENTITY.bind()  # reading a variable: a record, because its value differs from read to read
MADE = "tf.Variable"  # how a variable gets its first value
WATCH = IDENTITY.bind(source=True)  # a source: keyed by its aval


class Rule(Protocol):
    """A gradient that is Python: of a function with a rule of its own, or of an op whose gradient was replaced.

    Attributes:
      name: of the function, for messages.
      push: what it does to tangents, where the user said so: tangents of the differentiable operands to those of the
        differentiable results, None for zero.
      function: what the user wrote.
      again: what calls the function on other tensors in the place of its own; None: it cannot be called anew."""

    name: str
    function: Any
    again: Callable[[Sequence[Tensor]], Sequence[Tensor]] | None
    push: Callable[[Sequence[Tensor]], Sequence[Tensor | None]] | None

    def __call__(self, *cotangents: Tensor) -> Sequence[Tensor | None]:
        """Cotangents of the differentiable results to those of all operands."""
        ...


class End(NamedTuple):
    """An op through which no gradient flows: the slots of its operands and the ids of its results."""

    step: Step
    operands: tuple[int, ...]
    results: tuple[int, ...]


class Exit(NamedTuple):
    """Where the value of a tensor was asked for."""

    how: str
    place: str


class Assignment(NamedTuple):
    """A variable that was overwritten: its id and name, the slot of what it got, and where."""

    variable: int
    name: str
    value: int
    how: str
    place: str


class Recorder:
    """What one tape has recorded since its last reset. What a signal handler or a finalizer runs in the midst of a
    record is recorded after it."""

    __slots__ = (
        "answers",
        "assigned",
        "busy",
        "ended",
        "ends",
        "exits",
        "hosts",
        "late",
        "ledger",
        "looks",
        "node",
        "places",
        "rules",
        "saved",
        "slots",
        "variables",
        "watch_accessed",
    )

    def __init__(self, watch_accessed: bool = True) -> None:
        function = whole_function()
        self.node = (TRIE if function is None else function.trie).root
        self.watch_accessed = watch_accessed
        self.variables: dict[int, Any] = {}  # watched ones by id
        self.slots: dict[int, int] = {}  # by id of tensor or variable
        self.saved: list[Tensor] = []
        self.places: dict[TrieNode, str] = {}  # where records were called, as far as it was noted
        self.hosts: list[Rule] = []
        # what `explain` tells of, besides the path: no arrays
        self.rules: list[str] = []  # names of custom rules, by ordinal, of a recorder that has given its tensors away
        self.answers: dict[int, tuple[int, ...]] = {}  # by ordinal: the operands that a rule answered with None
        self.ended = 0  # tensors with larger ids were made after the block had ended; 0: it has not
        self.ends: list[End] = []  # ops through which no gradient flows
        self.exits: dict[int, Exit] = {}  # by slot: what asked for values
        self.looks: dict[int, Exit] = {}  # by id of a variable: the same
        self.assigned: list[Assignment] = []
        self.ledger: Any = None  # where each op was called, in debugging
        self.busy = False
        self.late: list[Callable[[], Any]] = []

    def watch(self, x: Any) -> None:
        """Make a tensor or variable a source; one that already depends on a source keeps its history."""
        if self.busy:
            self.late.append(functools.partial(self.watch, x))
            return
        self.busy = True
        try:
            self._watch(x)
        finally:
            self.busy = False
        if self.late:
            self._catch_up()

    def _watch(self, x: Any) -> None:
        if self.slots.get(x._id, 0) > 0:
            return
        key = (WATCH, x._aval)
        child = self.node.then(key)
        if child is None:
            child = TrieNode(self.node.trie, self.node, key)
            child.count += 1
            child.results = (child.count,)
            child.saved = len(self.saved)
            self.node.add(child)
        self.node = child
        self.slots[x._id] = child.count

    def is_watching(self, x: Any) -> bool:
        return self.slots.get(x._id, 0) > 0

    def read(self, variable: Any, snapshot: Tensor) -> None:
        """A variable's present value: it depends on the variable, if that is watched (or is to be)."""
        slots = self.slots
        if slots.get(snapshot._id, 0) > 0:
            return
        if variable._id not in slots:
            was_watched = any(k in slots for k in variable.former)
            if not (self.watch_accessed and variable._trainable) and not was_watched:
                return
            self.watch_variable(variable)
        self.record(READ, (variable,), (snapshot,))

    def watch_variable(self, variable: Any) -> None:
        self.variables[variable._id] = variable
        self.watch(variable)

    def record(self, step: Step, inputs: Sequence[Any], outputs: Sequence[Tensor]) -> bool:
        """Record a step, if gradients flow through it; the answer says whether they do (no, where it is recorded
        later)."""
        if self.busy:
            self.late.append(functools.partial(self.record, step, inputs, outputs))
            return False
        self.busy = True
        try:
            recorded = self._record(step, inputs, outputs)
        finally:
            self.busy = False
        if self.late:
            self._catch_up()
        return recorded

    def _catch_up(self) -> None:
        while self.late:
            self.late.pop(0)()

    def _record(self, step: Step, inputs: Sequence[Any], outputs: Sequence[Tensor]) -> bool:
        slots = self.slots
        get = slots.get
        active = False
        key: list[Any] = [step]
        for t in inputs:
            slot = get(t._id)
            if slot is None:
                key.append(t._aval)
            else:
                key.append(slot)
                if slot > 0:
                    active = True
        if not active:
            return False
        where = tuple(key)
        child = self.node.first
        if child is None or child.key != where:
            child = self._other(where, inputs, outputs)
        if child is None:
            known = tuple(k for k in key[1:] if isinstance(k, int))
            self.ends.append(End(step, known, tuple([t._id for t in outputs])))
            return False
        self.node = child
        if child.asked:
            self.places[child] = calling_place()
        for i, slot in child.fresh:
            slots[inputs[i]._id] = slot
        for t, slot in zip(outputs, child.results, strict=True):
            if slot:
                slots[t._id] = slot
        saved = self.saved
        for i in child.keep_in:
            saved.append(inputs[i])
        for j in child.keep_out:
            saved.append(outputs[j])
        return True

    def left(self, t: Tensor, how: str) -> None:
        """Note that Python, or another library, asked for the value of a tensor."""
        slot = self.slots.get(t._id, 0)
        if slot > 0 and slot not in self.exits:
            self.exits[slot] = Exit(how, "" if self.ledger is None else calling_place())

    def looked_at(self, variable: Any, how: str) -> None:
        """The same of a variable, which is not read by that."""
        if variable._id not in self.looks:
            self.looks[variable._id] = Exit(how, "" if self.ledger is None else calling_place())

    def assigns(self, variable: Any, value: Tensor | None, how: str) -> None:
        """Note that a variable was overwritten."""
        place = "" if self.ledger is None else calling_place()
        slot = 0 if value is None else self.slots.get(value._id, 0)
        self.assigned.append(Assignment(variable._id, variable.name, slot, how, place))

    def emptied(self) -> Recorder:
        """The same without tensors and rules, for explanations."""
        self.rules = [rule.name for rule in self.hosts]
        self.saved, self.hosts = [], []
        return self

    def place_of(self, record: TrieNode) -> str:
        """Where a record was called; if that is only known of the first program of this structure, it says so."""
        record.asked = True
        return self.places.get(record) or f"in the first program of this structure {record.place}"

    def record_custom(self, inputs: Sequence[Any], outputs: Sequence[Tensor], rule: Rule) -> None:
        """Record a function with a rule of its own."""
        if self.busy:
            self.late.append(functools.partial(self.record_custom, inputs, outputs, rule))
            return
        step = CUSTOM_CALL.bind(ordinal=len(self.hosts), results=tuple(t._aval for t in outputs), absent=())
        if self.record(step, inputs, outputs):
            self.hosts.append(rule)
            if self.ledger is not None:
                self.ledger.note(rule.name, inputs, outputs)

    def _other(self, key: tuple[Any, ...], inputs: Sequence[Any], outputs: Sequence[Tensor]) -> TrieNode | None:
        """Where a record leads that is not the first one that came here."""
        others = self.node.others
        return others[key] if key in others else self._grow(key, inputs, outputs)

    def _grow(self, key: tuple[Any, ...], inputs: Sequence[Any], outputs: Sequence[Tensor]) -> TrieNode | None:
        """The first time that this record follows this path: what to keep, and which slots it makes."""
        parent, step = self.node, key[0]
        avals = tuple(t._aval for t in inputs)
        marks = tuple(isinstance(k, int) and k > 0 for k in key[1:])
        kept = residuals(step, avals, marks)
        if kept is None:
            parent.lead(key, None)
            return None
        child = TrieNode(parent.trie, parent, key)
        fresh = []
        for i, k in enumerate(key[1:]):
            if isinstance(k, Aval):
                child.count += 1
                fresh.append((i, -child.count))
        results = []
        for t in outputs:
            differentiable = t._aval.dtype.is_differentiable
            child.count += differentiable
            results.append(child.count if differentiable else 0)
        child.results, child.fresh = tuple(results), tuple(fresh)
        child.keep_in, child.keep_out = kept
        child.saved = len(self.saved)
        self.places[child] = child.place = calling_place()
        parent.add(child)
        return child


class Path:
    """A recorded program as graph nodes, made from a trie node by walking up to the root. `absent`: for
    custom calls, by ordinal, the operands for which the rule is expected to answer None."""

    def __init__(self, end: TrieNode, absent: Mapping[int, tuple[int, ...]]) -> None:
        self.absent = absent
        self.reached: list[Value] = []  # a result of each custom rule that is pulled back through
        self.values: dict[int, Value] = {}  # by slot
        self.nodes: list[Node] = []
        self.kept: dict[int, int] = {}  # id of a value -> where its tensor is in `saved`
        self.records: dict[int, TrieNode] = {}  # by id of a node
        for record in reversed(list(_upwards(end))):
            self._add(record)

    def _add(self, record: TrieNode) -> None:
        step, *operands = record.key
        if step is WATCH:
            self.values[record.results[0]] = Value(operands[0])
            return
        slots = record.operands
        for k, slot in record.fresh:
            self.values[slot] = Value(operands[k])
        if step.op is CUSTOM_CALL:
            step = expecting(step, self.absent.get(step.params["ordinal"], ()), self.reached)
        inputs = tuple(self.values[slot] for slot in slots)
        node = Node(step, inputs, step.infer(tuple(v.aval for v in inputs)))
        self.nodes.append(node)
        self.records[id(node)] = record
        self.values.update((slot, v) for slot, v in zip(record.results, node.outputs, strict=True) if slot)
        kept = [*(inputs[i] for i in record.keep_in), *(node.outputs[j] for j in record.keep_out)]
        for k, v in enumerate(kept):
            self.kept.setdefault(id(v), record.saved + k)

    def everything(self) -> list[Value]:
        """All values of the recorded program, those included that have no slot (masks among residuals)."""
        found = {id(v): v for v in self.values.values()}
        found.update((id(v), v) for n in self.nodes for v in n.outputs)
        return list(found.values())


def _upwards(node: TrieNode) -> Iterator[TrieNode]:
    """A record and those before it, latest first."""
    at: TrieNode | None = node
    while at is not None and at.key:
        yield at
        at = at.parent
