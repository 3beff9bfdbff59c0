"""The paths of recorded programs, one node for each record: equal programs walk equal paths, and what is known of a
program stands where its path ends. Floor: runtime."""

from __future__ import annotations

from typing import Any

MAX_NODES = 200_000  # structures remembered over all programs, before the trie starts anew
NONE: dict[Any, Any] = {}  # what a node has nothing of: never written to


class TrieNode:
    """One record at the end of a path of records. There are as many as programs have steps, so that a node holds no
    more than it must: most have one child, and nobody asks for a derivative there."""

    __slots__ = (
        "absent",
        "asked",
        "count",
        "first",
        "fresh",
        "keep_in",
        "keep_out",
        "key",
        "others",
        "parent",
        "place",
        "plans",
        "results",
        "saved",
        "trie",
    )

    def __init__(self, trie: Trie, parent: TrieNode | None, key: tuple[Any, ...]) -> None:
        self.trie, self.parent = trie, parent
        self.key = key  # the step, then per operand its slot, or its aval where it is new
        self.first: TrieNode | None = None
        self.others: dict[Any, TrieNode | None] = NONE  # besides the first, by key; None: nothing to record
        self.results: tuple[int, ...] = ()  # slots; 0 where no gradient flows
        self.fresh: tuple[tuple[int, int], ...] = ()  # (operand, slot) of constants met here first
        self.keep_in: tuple[int, ...] = ()
        self.keep_out: tuple[int, ...] = ()
        self.count: int = parent.count if parent else 0  # slots given so far
        self.saved = 0  # residuals kept before this record
        self.place = ""  # where it was called the first time that a record followed this path
        self.asked = False  # somebody wanted to know the place: from now on every recorder notes its own
        self.plans: dict[Any, Any] = NONE
        self.absent: dict[Any, Any] = NONE  # which answers of custom rules were None the last time

    @property
    def operands(self) -> list[int]:
        """The slots of the operands."""
        new = dict(self.fresh)
        return [new.get(i, k) for i, k in enumerate(self.key[1:])]

    def then(self, key: tuple[Any, ...]) -> TrieNode | None:
        """Where a record leads from here, if one has."""
        first = self.first
        return first if first is not None and first.key == key else self.others.get(key)

    def add(self, child: TrieNode) -> None:
        """Have paths go on here with one more record."""
        if self.first is None:
            self.first = child
        else:
            self.lead(child.key, child)
        self.trie.grown()

    def lead(self, key: tuple[Any, ...], child: TrieNode | None) -> None:
        """Have another record than the first lead to a node."""
        if self.others is NONE:
            self.others = {}
        self.others[key] = child

    def keep(self, key: Any, plan: Any) -> None:
        if self.plans is NONE:
            self.plans = {}
        self.plans[key] = plan

    def expect(self, key: Any, absent: Any) -> None:
        if self.absent is NONE:
            self.absent = {}
        self.absent[key] = absent


class Trie:
    """The root of all paths, replaced when it has grown too large."""

    def __init__(self) -> None:
        self.root = TrieNode(self, None, ())
        self.size = 0

    def grown(self) -> None:
        self.size += 1
        if self.size > MAX_NODES:
            self.clear()

    def clear(self) -> None:
        """Forget all structures; recorders at work keep their paths."""
        self.root, self.size = TrieNode(self, None, ()), 0


TRIE = Trie()
