"""Functions of unknown sizes: traced for several, and written as one graph whose numbers are formulas. Floor: saving.

Each unknown size is one of three: 0, 1 or many, since broadcasting and reductions tell these apart. Many is tried
first, all sizes different from each other; where that is no program, sizes of one axis alike, then all alike. Then 1
and 0, one size after the other: where the graph is what the formulas say, nothing is added; else it is written
besides."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gradtape.ir.aval import Aval, aval
from gradtape.saving import recipes, values
from gradtape.saving.bodies import Body
from gradtape.saving.formulas import NoFormula, Sizes, merged, worked_out
from gradtape.saving.graphs import Unsaved

EXAMPLES = 6  # of sizes, for each formula
MAX_SIZES = 8  # unknown ones of one function
RANKS = range(6)  # that are tried where a rank is unknown
PRIMES = [p for p in range(5, 400) if all(p % d for d in range(2, 20) if d < p)]
FAMILIES: tuple[Callable[[int], int], ...] = (  # what the sizes of examples are, by their number
    lambda i: PRIMES[i],
    lambda i: 61 + i,  # near to each other, for what is chosen by cost
    lambda i: 24 * PRIMES[i],  # for reshapes that want a divisor
)

BodyAt = Callable[[tuple[Aval, ...]], Body]
Place = tuple[int, int]  # an argument and its axis
Pattern = tuple[tuple[Place, Any], ...]  # for each unknown size: a number, or ("size", k)


class Generalised:
    """The bodies of one function for arguments of which something is unknown."""

    def __init__(self, body_at: BodyAt, constant: Callable[[Any], int], known: Callable[[Any], int | None]) -> None:
        self.body_at, self.constant, self.known = body_at, constant, known
        self.failed: Exception | None = None

    def bodies(self, avals: Sequence[Aval]) -> list[dict[str, Any]]:
        """What a file holds: bodies, each with the shapes that it is for. The first that fits a call is its own.

        Raises:
          Unsaved: there is none.
        """
        found = [b for ranked in _ranked(avals) for b in self._of_ranks(ranked)]
        if not found:
            why = self.failed or "no sizes fit"
            raise Unsaved(
                f"it is traced for unknown sizes, {list(avals)}, and {why}. Call it with the shapes that matter and "
                "save that: trace it without `input_signature`, or give the sizes in there"
            ) from self.failed
        return list({json.dumps(b["tensors"]): b for b in reversed(found)}.values())[::-1]

    def _of_ranks(self, avals: tuple[Aval, ...]) -> list[dict[str, Any]]:
        places = [(i, k) for i, a in enumerate(avals) for k, n in enumerate(a.shape or ()) if n is None]
        if len(places) > MAX_SIZES:
            raise Unsaved(f"it has {len(places)} unknown sizes, and at most {MAX_SIZES} can be saved")
        return self._of_places(avals, places, {})

    def _of_places(self, avals: tuple[Aval, ...], places: list[Place], fixed: dict[Place, int]) -> list[dict[str, Any]]:
        """Bodies where some sizes are fixed and the others are many."""
        free = [p for p in places if p not in fixed]
        for pattern in _patterns(places, free, fixed):
            found = self._body(avals, pattern)
            if found is not None:
                body, example = found
                small = self._small(avals, places, free, fixed, pattern, body)
                return [*small, _entry(avals, pattern, body, example)]
        return []

    def _small(
        self,
        avals: tuple[Aval, ...],
        places: list[Place],
        free: list[Place],
        fixed: dict[Place, int],
        pattern: Pattern,
        body: Any,
    ) -> list[dict[str, Any]]:
        """Bodies for sizes of 1 and 0, where they are others than the formulas give."""
        found: list[dict[str, Any]] = []
        count = _count(pattern)
        groups = [[p for p, k in pattern if k == ("size", c)] for c in range(count)]
        alone = [[p] for p in free] if count < len(free) else []  # where sizes had to be alike, each by itself
        for group, n in [(g, n) for g in groups for n in (1, 0)] + [(g, 1) for g in alone]:
            trial = fixed | dict.fromkeys(group, n)
            known = group in groups and self._is_covered(avals, pattern, body, groups.index(group), n)
            if not known:
                found += self._of_places(avals, places, trial)
        return found

    def _is_covered(self, avals: tuple[Aval, ...], pattern: Pattern, body: Any, size: int, n: int) -> bool:
        """Whether formulas give the graph for a size of 1 or 0; also where it has none."""
        sizes = tuple(n if c == size else FAMILIES[0](c) for c in range(_count(pattern)))
        try:
            truth = self._trees(avals, pattern, [sizes])
        except NoFormula:
            return False
        except Exception:  # noqa: BLE001 - the function has no result for such sizes, and the graph none either
            return True
        try:
            return truth is not None and worked_out(body, sizes) == worked_out(truth[0], sizes)
        except NoFormula:
            return False

    def _body(self, avals: tuple[Aval, ...], pattern: Pattern) -> Any:
        """The tree with formulas for a pattern, and sizes that it takes; None where there is none."""
        count = _count(pattern)
        for family in FAMILIES if count else FAMILIES[:1]:
            examples = [tuple(family(s * count + c) for c in range(count)) for s in range(EXAMPLES if count else 1)]
            try:
                return merged(self._trees(avals, pattern, examples), examples), examples[0]
            except Unsaved:
                raise
            except Exception as e:  # noqa: BLE001 - sizes that are no program; others may be, and the last error is told
                self.failed = self.failed or e
        return None

    def _trees(self, avals: tuple[Aval, ...], pattern: Pattern, examples: Sequence[Sizes]) -> list[Any]:
        """The bodies for some sizes as trees, with constants that are alike in all by their number."""
        made = [self.body_at(_at(avals, pattern, sizes)) for sizes in examples]
        if len({len(b.constants) for b in made}) > 1:
            raise NoFormula("the graph itself depends on sizes")
        together = [
            self._constants(tensors, bool(_count(pattern)))
            for tensors in zip(*(b.constants for b in made), strict=True)
        ]
        return [b.text | {"constants": [c[i] for c in together]} for i, b in enumerate(made)]

    def _constants(self, tensors: Sequence[Any], varies: bool) -> list[Any]:
        """A constant of several bodies: its number where it is the same in all, else how it is made in each."""
        arrays = [np.asarray(t) for t in tensors]
        if not varies or (len(arrays) > 1 and all(_equal(a, arrays[0]) for a in arrays)):
            return [self.constant(tensors[0])] * len(arrays)
        found = [self.known(t) for t in tensors]
        return [recipes.recipe_of(a) if k is None or len(arrays) > 1 else k for a, k in zip(arrays, found, strict=True)]


def _equal(a: Any, b: Any) -> bool:
    return bool(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes())


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
    """Which unknown sizes are alike: none, those of one axis, all."""
    seen = set()
    for group_of in (lambda p: p, lambda p: p[1], lambda p: 0):
        names: list[Any] = list(dict.fromkeys(group_of(p) for p in free))
        pattern = tuple((p, fixed[p] if p in fixed else ("size", names.index(group_of(p)))) for p in places)
        if pattern not in seen:
            seen.add(pattern)
            yield pattern


def _count(pattern: Pattern) -> int:
    return len({k for _, k in pattern if isinstance(k, tuple)})


def _at(avals: tuple[Aval, ...], pattern: Pattern, sizes: Sizes) -> tuple[Aval, ...]:
    """The shapes for some sizes."""
    known = {p: sizes[k[1]] if isinstance(k, tuple) else k for p, k in pattern}
    return tuple(
        aval(tuple(known.get((i, k), n) for k, n in enumerate(a.shape or ())), a.dtype) for i, a in enumerate(avals)
    )


def _entry(avals: tuple[Aval, ...], pattern: Pattern, body: Any, example: Sizes) -> dict[str, Any]:
    """A body with the shapes that it is for, in which the k-th unknown size is `{"size": k}`; and sizes that it
    takes."""
    named = {p: {"size": k[1]} if isinstance(k, tuple) else k for p, k in pattern}
    shapes = [
        [values.dtype_text(a.dtype), *(named.get((i, k), n) for k, n in enumerate(a.shape or ()))]
        for i, a in enumerate(avals)
    ]
    return {"tensors": shapes, "example": list(example), "body": body}
