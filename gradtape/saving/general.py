"""Functions of unknown sizes: traced for several, and written as graphs whose numbers are formulas. Floor: saving.

What a function computes may change at some sizes: where a slice is cut off, where a branch is taken. So it is traced
for sizes of all magnitudes, for those near to every number that the program mentions, and for large ones. Formulas
are found for large sizes, and hold down to some size, which is searched for; smaller ones have formulas of their own,
or are written one by one. Truths that Python asked of tensors are written too, and must be what they were."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.saving.bodies import Body
from gradtape.saving.choices import Pattern, Place, at, count
from gradtape.saving.formulas import NoFormula
from gradtape.saving.graphs import Unsaved
from gradtape.saving.ranges import OfPattern

MAX_SIZES = 8  # unknown ones of one function
RANKS = range(6)  # that are tried where a rank is unknown
TRIED = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 25, 32, 33, 50, 64, 100, 128, 129, 200, 256)
LIKELY = 12  # sizes that are tried where others than these have no result
LARGEST = 1 << 17  # of the numbers of a program near to which it is traced

BodyAt = Callable[[tuple[Aval, ...]], Body]


class Generalised:
    """The bodies of one function for arguments of which something is unknown; `mentioned`: numbers of its program;
    `dims`: sizes of tensors in it."""

    def __init__(
        self, body_at: BodyAt, constant: Callable[[Any], int], mentioned: Iterable[int] = (), dims: Iterable[int] = ()
    ) -> None:
        self.body_at, self.constant = body_at, constant
        self.failures: list[Exception] = []
        self.count = 0
        numbers = sorted(n for n in mentioned if n > 1)
        near = [n for n in numbers if n <= LARGEST]
        self.beyond = next((n for n in numbers if n > LARGEST), None)
        sums = [a + b for a, b in itertools.combinations(near, 2)] if len(near) <= 12 else []
        self.near, self.likely = near, sorted({n for n in (*near, *dims) if 1 < n <= 4096})
        self.tried = sorted({*TRIED, *(n + d for n in near for d in (-1, 0, 1, 2)), *(2 * n for n in near), *sums})
        self.made: dict[Any, Body | Exception] = {}

    def bodies(self, avals: Sequence[Aval]) -> list[dict[str, Any]]:
        """What a file holds: bodies, each with the shapes that it is for. The first that fits a call is its own.

        Raises:
          Unsaved: there is none.
        """
        found = [b for ranked in _ranked(avals) for b in self._of_ranks(ranked)]
        if not found:
            why = self._why()
            raise Unsaved(
                f"it is traced for unknown sizes, {list(avals)}, and {why}. Call it with the shapes that matter and "
                "save that: trace it without `input_signature`, or give the sizes in there"
            ) from (self.failures[0] if self.failures else None)
        return list({json.dumps([b["tensors"], b["ranges"], b["body"]["asked"]]): b for b in found}.values())

    def _of_ranks(self, avals: tuple[Aval, ...]) -> list[dict[str, Any]]:
        places = [(i, k) for i, a in enumerate(avals) for k, n in enumerate(a.shape or ()) if n is None]
        if len(places) > MAX_SIZES:
            raise Unsaved(f"it has {len(places)} unknown sizes, and at most {MAX_SIZES} can be saved")
        self.made = {}
        return self.of_places(avals, places, {})

    def of_places(self, avals: tuple[Aval, ...], places: list[Place], fixed: dict[Place, int]) -> list[dict[str, Any]]:
        """Bodies where some sizes are fixed and the others are any."""
        free = [p for p in places if p not in fixed]
        for pattern in _patterns(places, free, fixed):
            try:
                found = OfPattern(self, avals, places, fixed, pattern).bodies()
            except NoFormula as e:
                self.failures.append(e)
                continue
            if found:
                alone = [p for p in free if count(pattern) < len(free)]
                ones = [b for p in alone for b in self.of_places(avals, places, fixed | {p: 1})]
                return [*ones, *found]
        if free and len(fixed) < 3 and not self.failures:
            sizes = [0, 1, *self.likely][:LIKELY]
            if len(free) == 1:
                self._check_others(avals, places, fixed, free[0], sizes)
            return [b for n in sizes for b in self.of_places(avals, places, fixed | {free[0]: n})]
        return []

    def _check_others(
        self, avals: tuple[Aval, ...], places: list[Place], fixed: dict[Place, int], free: Place, sizes: list[int]
    ) -> None:
        """Raises Unsaved where the function has results for more than these sizes."""
        known = {*fixed.items()}
        for n in self.tried:
            pattern = tuple((p, n if p == free else dict(known)[p]) for p in places)
            if n not in sizes and isinstance(self.body(at(avals, pattern, ())), Body):
                raise Unsaved(
                    f"it is traced for unknown sizes, {list(avals)}, and has results for some of them ({n}), which "
                    "follow no rule that a file can hold. Give the sizes in `input_signature`, or save traces of calls"
                )

    def body(self, avals: tuple[Aval, ...]) -> Body | Exception:
        """The function for known shapes, or why it takes none such."""
        if avals not in self.made:
            try:
                self.made[avals] = self.body_at(avals)
            except Unsaved:
                raise
            except Exception as e:  # noqa: BLE001 - sizes that are no program; others may be, and the first error is told
                self.made[avals] = e
        found = self.made[avals]
        return found

    def _why(self) -> str:
        """What stood in the way: that there is no formula, or else the first error."""
        if self.failures:
            return str(self.failures[0])
        first = next((e for e in self.made.values() if isinstance(e, Exception)), None)
        return f"for other sizes than some few there is no result: {first}"


def _ranked(avals: Sequence[Aval]) -> Iterator[tuple[Aval, ...]]:
    """The same with known ranks, one after the other; all unknown ones together, then two in all ways."""
    unknown = [i for i, a in enumerate(avals) if a.shape is None]
    ranks: list[tuple[int, ...]] = [(r,) * len(unknown) for r in RANKS] if unknown else [()]
    if len(unknown) == 2:
        ranks += [(a, b) for a, b in itertools.product(range(4), repeat=2) if a != b]
    for chosen in ranks:
        given = dict(zip(unknown, chosen, strict=True))
        yield tuple(aval((None,) * given[i], a.dtype) if i in given else a for i, a in enumerate(avals))


def _patterns(places: list[Place], free: list[Place], fixed: dict[Place, int]) -> Iterator[Pattern]:
    """Which unknown sizes are alike: none first, all last; beyond five sizes those of one axis in between."""
    if len(free) > 5:
        ways = [[f(p) for p in free] for f in (lambda p: p, lambda p: p[1], lambda p: 0)]
        groupings = [[list(dict.fromkeys(w)).index(n) for n in w] for w in ways]
    else:
        groupings = sorted(_groupings(len(free)), key=lambda g: -len(set(g)))
    for grouping in {tuple(g): None for g in groupings}:
        names = dict(zip(free, grouping, strict=True))
        yield tuple((p, fixed[p] if p in fixed else ("size", names[p])) for p in places)


def _groupings(count: int) -> list[list[int]]:
    """All ways to put things into groups, as the number of each one's group."""
    if count == 0:
        return [[]]
    return [[*g, k] for g in _groupings(count - 1) for k in range(max(g, default=-1) + 2)]
