"""Bodies for one choice of which unknown sizes are alike: ranges of sizes, and formulas that hold in each. Floor:
saving."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from gradtape.ir.aval import Aval
from gradtape.saving import values
from gradtape.saving.bodies import Body
from gradtape.saving.choices import Pattern, Place, Ranges, are_in, at, count, cut_at, example_of, jumps, with_size
from gradtape.saving.formulas import Formulas, NoFormula, Sizes
from gradtape.saving.graphs import Unsaved
from gradtape.saving.matching import Found, Held, constants_of, decided, runs, same, tree_of, worked

MAX_BODIES = 96
NARROW = 6  # ranges of so few sizes are written size by size
STRIDES = (1, 2, 3, 4, 8, 24, 120, 720)  # of sizes, where a function takes multiples of something
OFFSETS = (0, 1, 2, 3, 4, 5, 6, 9, 14, 23, 37, 60, 96, 155, 251, 777)  # of the examples that formulas are found from
SMALL = 61  # sizes for examples of functions that are computed in other ways for large ones
FAR = (1.31, 1.87, 2.23, 2.9, 3.41, 4.73, 5.39, 6.17, 6.9, 7.53)  # times the examples: formulas are checked there
REFINED = 8  # times that an example is added
MORE = 40  # sizes of a range that are tried besides those of all ranges; a range of no more is tried whole
FIRST = 6  # examples at least
MAX_MADE = 1 << 24  # elements of constants that a trace for large sizes may make


class Function(Protocol):
    """What is traced: for known shapes, and for other choices of which sizes are known.

    Attributes:
      near: numbers that its program mentions.
      tried: sizes for which it is traced.
      beyond: a number that is mentioned, and too large to be tried.
      count: how many bodies there are so far.
      constant: the number of a constant in the file."""

    near: list[int]
    tried: list[int]
    beyond: int | None
    count: int
    constant: Callable[[Any], int]

    def body(self, avals: tuple[Aval, ...]) -> Body | Exception: ...

    def of_places(
        self, avals: tuple[Aval, ...], places: list[Place], fixed: dict[Place, int]
    ) -> list[dict[str, Any]]: ...


class OfPattern:
    """The bodies for one choice of which sizes are alike."""

    def __init__(
        self,
        of: Function,
        avals: tuple[Aval, ...],
        places: list[Place],
        fixed: dict[Place, int],
        pattern: Pattern,
    ) -> None:
        self.of, self.avals, self.places, self.fixed, self.pattern = of, avals, places, fixed, pattern
        self.sizes = count(pattern)

    def bodies(self) -> list[dict[str, Any]]:
        if not self.sizes:
            truth = self._truth(())
            if isinstance(truth, Exception):
                return []
            return [
                self._entry(
                    (),
                    Found(
                        tree_of(truth, [[Held(t)] for t in truth.constants], 0) | {"parts": []},
                        (),
                        truth.truths,
                        truth.seen,
                    ),
                )
            ]
        self._check_growth()
        return self._of_ranges(tuple((0, self._top[1]) for _ in range(self.sizes)))

    def _check_growth(self) -> None:
        """Raises NoFormula where the graph has more steps for each row: a loop that Python does."""
        made = [self._truth(tuple(SMALL + n + 7 * k for k in range(self.sizes))) for n in range(4)]
        counts = [len(t.text["graph"]["nodes"]) for t in made if isinstance(t, Body)]
        if len(counts) == len(made) and all(a < b for a, b in itertools.pairwise(counts)):
            raise NoFormula("its graph has steps for each row: Python goes through them, or a function that is mapped")

    def _truth(self, sizes: Sizes) -> Body | Exception:
        return self.of.body(at(self.avals, self.pattern, sizes))

    @functools.cached_property
    def _top(self) -> tuple[int, int | None]:
        """A size beyond all numbers of the program, and the largest that the bodies may take: where the function makes
        constants that grow fast, or mentions huge numbers, it cannot be tried there."""
        want = 2 * max(self.of.tried) + 1
        last = None if self.of.beyond is None else self.of.beyond - 2
        made = []
        for n in (64, 128):
            truth = self._truth(tuple(n + 8 * k for k in range(self.sizes)))
            made.append(1 if isinstance(truth, Exception) else sum(t._aval.size for t in truth.constants) + 1)
        growth = max(made[1] / made[0], 1.0)
        while made[1] * growth ** np.log2(max(max(FAR) * want, 128) / 128) > MAX_MADE and want > 64:
            want //= 2
            last = want if want < max(self.of.tried) else last
        return want, last

    @functools.cached_property
    def _strides(self) -> list[int]:
        own = [n for n in self.of.near if n <= 64]
        return sorted({*STRIDES, *own, min(math.lcm(*own), 5040)})

    def _examples(self, ranges: Ranges, start: int, offsets: Sequence[int]) -> list[Sizes]:
        """Choices of sizes near to the ends of ranges, all different from each other, that the function takes."""
        for stride in self._strides:
            found: dict[Sizes, None] = {}
            for s in range(len(offsets)):
                chosen = tuple(example_of(k, r, s, start, stride, offsets) for k, r in enumerate(ranges))
                if all(first <= n for n, (first, _) in zip(chosen, ranges, strict=True)):
                    if isinstance(self._truth(chosen), Exception):
                        break
                    found[chosen] = None
            else:
                if found:
                    return list(found)
        return []

    # ------------------------------------------------------------------ ranges

    def _of_ranges(self, ranges: Ranges) -> list[dict[str, Any]]:
        """Bodies for sizes in some ranges: one, or those of two parts of them.

        Raises:
          NoFormula: there is none for large sizes, though they have results.
        """
        narrow = next((k for k, (a, b) in enumerate(ranges) if b is not None and b - a < NARROW), None)
        if narrow is not None:
            return self._one_by_one(ranges, narrow)
        large = self._examples(ranges, self._top[0], OFFSETS)
        if not large:
            return self._shorter(ranges, None)
        try:
            return self._from(ranges, large, [])
        except NoFormula as e:
            failure = e
        small = self._examples(ranges, SMALL, [n for n in OFFSETS if n <= SMALL])
        if small and any(last is None for _, last in ranges):
            with contextlib.suppress(NoFormula):  # the first one is told
                return self._from(ranges, small, large[:1])
        return self._shorter(ranges, failure)

    def _from(self, ranges: Ranges, examples: list[Sizes], others: list[Sizes]) -> list[dict[str, Any]]:
        """Bodies with formulas from some examples, that hold for others too.

        Raises:
          NoFormula: there are none.
        """
        found: list[Found] = []
        single: list[dict[str, Any]] = []
        failure = NoFormula("what it computes depends on sizes")
        for group in self._groups(ranges, examples):
            if len(group) < FIRST:
                single += [b for s in group for b in self._single(examples[0], s)]
                continue
            body = self._refined(ranges, group[: len(OFFSETS)])
            if isinstance(body, Found):
                found.append(body)
                continue
            failure = body
            cut = self._cut(ranges, examples[0], group)
            if cut is not None:
                return self._split(ranges, *cut)
        far = self._far(ranges, examples[0])
        if not found or not all(self._holds(found, s) for s in (*far, *others) if are_in(s, ranges)):
            raise failure
        for k, n in self._trials(ranges):
            if not self._holds(found, with_size(examples[0], k, n)):
                if n > examples[0][k]:
                    raise failure
                return self._split(ranges, k, self._boundary(found, ranges, examples[0], k, n))
        self.of.count += len(found)
        if self.of.count > MAX_BODIES:
            raise Unsaved(
                f"what it computes depends on sizes in more than {MAX_BODIES} ways. Give the sizes in `input_signature`"
            )
        return [*single, *(self._entry(ranges, body) for body in found)]

    def _far(self, ranges: Ranges, example: Sizes) -> list[Sizes]:
        """Sizes that are larger than the examples."""
        return [
            tuple(
                n if last is not None else int(n * FAR[(i + 3 * k) % len(FAR)])
                for k, (n, (_, last)) in enumerate(zip(example, ranges, strict=True))
            )
            for i in range(len(FAR))
        ]

    def _single(self, example: Sizes, sizes: Sizes) -> list[dict[str, Any]]:
        """Bodies for one size alone, where few have the truths that it has."""
        differ = [k for k, (a, b) in enumerate(zip(example, sizes, strict=True)) if a != b]
        return self._fixed_at(differ[0], sizes[differ[0]]) if len(differ) == 1 else []

    def _cut(self, ranges: Ranges, example: Sizes, group: list[Sizes]) -> tuple[int, int] | None:
        """Where sizes end for which truths are alike, if all of them are smaller than the example."""
        for k, (first, last) in enumerate(ranges):
            at = max(s[k] for s in group) + 1
            if first < at <= example[k] and (last is None or at <= last):
                return k, at
        return None

    def _shorter(self, ranges: Ranges, failure: NoFormula | None) -> list[dict[str, Any]]:
        """Bodies where the largest sizes of ranges have none: of the halves below.

        Raises:
          NoFormula: there is none for large sizes, though they have results.
        """
        k = max(range(self.sizes), key=lambda k: -1 if (last := ranges[k][1]) is None else last - ranges[k][0])
        first, last = ranges[k]
        if last is None:
            if failure is not None:
                raise failure
            return []
        middle = (first + last) // 2
        return [b for r in cut_at(ranges, k, middle + 1) for b in self._of_ranges(r)]

    def _one_by_one(self, ranges: Ranges, k: int) -> list[dict[str, Any]]:
        first, last = ranges[k]
        assert last is not None
        return [b for n in range(first, last + 1) for b in self._fixed_at(k, n)]

    def _fixed_at(self, k: int, n: int) -> list[dict[str, Any]]:
        """Bodies where a size is known."""
        group = [p for p, size in self.pattern if size == ("size", k)]
        return self.of.of_places(self.avals, self.places, self.fixed | dict.fromkeys(group, n))

    def _split(self, ranges: Ranges, k: int, at: int) -> list[dict[str, Any]]:
        return [b for r in cut_at(ranges, k, at) for b in self._of_ranges(r)]

    def _trials(self, ranges: Ranges) -> Iterator[tuple[int, int]]:
        """Sizes that bodies are checked for: the largest first."""
        for k, span in enumerate(ranges):
            yield from ((k, n) for n in reversed(self._tried(span)))

    def _tried(self, span: tuple[int, int | None]) -> list[int]:
        """Sizes of a range that are tried."""
        first, last = span
        end = self._top[0] if last is None else last + 1
        more = range(first, end)
        if len(more) > MORE:
            more = random.Random(0).sample(more, MORE if last is not None else MORE // 2)  # type: ignore[assignment]
        return sorted({*more, *(n for n in self.of.tried if first <= n and (last is None or n <= last))})

    def _boundary(self, found: Any, ranges: Ranges, example: Sizes, k: int, wrong: int) -> int:
        """The first size from which on bodies hold."""
        low, high = wrong, min(n for n in (*self._tried(ranges[k]), example[k]) if n > wrong)
        while high - low > 1:
            middle = (low + high) // 2
            if self._holds(found, with_size(example, k, middle)):
                high = middle
            else:
                low = middle
        return high

    # ------------------------------------------------------------------ bodies

    def _groups(self, ranges: Ranges, examples: list[Sizes]) -> Iterator[list[Sizes]]:
        """The sizes for which truths that Python asked for are alike, large ones first; all examples if it asked
        for none."""
        every = list(examples)
        if any(t.truths for s in examples if isinstance(t := self._truth(s), Body)):
            every += [with_size(examples[0], k, n) for k, n in self._trials(ranges)]
            small = [tuple(n + 3 * k for k in range(self.sizes)) for n in reversed(self.of.tried)]
            every += [s for s in small if self.sizes > 1 and are_in(s, ranges)]
            every += [s for s in self._far(ranges, examples[0]) if are_in(s, ranges)]
        groups = self._by_truths(every)
        few = [s for g in groups.values() if len(g) < FIRST for s in g]
        near = [with_size(s, k, s[k] + d) for s in few for k in range(self.sizes) for d in range(-FIRST, FIRST + 1)]
        return iter(self._by_truths([*every, *(s for s in near if are_in(s, ranges))] if few else every).values())

    def _by_truths(self, every: Sequence[Sizes]) -> dict[Any, list[Sizes]]:
        groups: dict[Any, list[Sizes]] = {}
        for s in dict.fromkeys(every):
            truth = self._truth(s)
            if isinstance(truth, Body):
                groups.setdefault(tuple(truth.truths), []).append(s)
        return groups

    def _found(self, group: list[Sizes]) -> Found | NoFormula:
        """The body with formulas for some sizes, or why there is none. Sizes at which a step falls away, since it
        changes nothing there, are none of the examples; the body has to give the same there."""
        outlines: dict[Any, list[Sizes]] = {}
        for s in group:
            if isinstance(truth := self._truth(s), Body):
                outlines.setdefault(truth.outline, []).append(s)
        most = max(outlines.values(), key=len)
        try:
            found = self._merged(most)
        except NoFormula as e:
            return e
        if not all(self._holds([found], s) for s in group if s not in most):
            return NoFormula("what it computes depends on sizes")
        return found

    def _refined(self, ranges: Ranges, group: list[Sizes]) -> Found | NoFormula:
        """The body with formulas for some sizes, and for those where its parts of sizes go up: where a formula says
        that otherwise than the function, the size is one more example."""
        body = self._found(group)
        for _ in range(REFINED):
            if isinstance(body, NoFormula):
                break
            wrong = next((s for s in jumps(body, group[0], ranges) if not self._holds([body], s)), None)
            if wrong is None:
                return body
            group = [*group, wrong]
            body = self._found(group)
        return body if isinstance(body, NoFormula) else NoFormula("what it computes depends on sizes")

    def _merged(self, group: list[Sizes]) -> Found:
        """The body with formulas from examples.

        Raises:
          NoFormula: there is none.
        """
        truths = [t for s in group if isinstance(t := self._truth(s), Body)]
        other = next((t for t in truths if t.seen != truths[0].seen), None)
        if other is not None:
            raise NoFormula(decided(truths[0].seen, other.seen))
        if len(group) < FIRST:
            raise NoFormula("what it computes depends on sizes")
        formulas = Formulas(group, self.of.near)
        together = [constants_of(tensors) for tensors in zip(*(t.constants for t in truths), strict=True)]
        made = formulas.merged([tree_of(t, together, i) for i, t in enumerate(truths)])
        return Found(made | {"parts": formulas.parts}, group[0], truths[0].truths, truths[0].seen)

    def _holds(self, found: Sequence[Found], sizes: Sizes) -> bool:
        """Whether the bodies do for some sizes what the function does: one of them the same, or none anything."""
        truth = self._truth(sizes)
        if isinstance(truth, Exception):
            return not any(runs(t) for body in found if (t := worked(body, sizes)) is not None)
        like = [body for body in found if body.truths == truth.truths]
        return not like or any(
            body.seen == truth.seen and same(t, truth) for body in like if (t := worked(body, sizes)) is not None
        )

    def _entry(self, ranges: Ranges, found: Found) -> dict[str, Any]:
        """A body with the shapes that it is for, in which the k-th unknown size is `{"size": k}`; and sizes that it
        takes."""
        named = {p: {"size": k[1]} if isinstance(k, tuple) else k for p, k in self.pattern}
        shapes = [
            [values.dtype_text(a.dtype), *(named.get((i, k), n) for k, n in enumerate(a.shape or ()))]
            for i, a in enumerate(self.avals)
        ]
        asked = found.text["asked"]
        constants, of_asked = (
            [self.of.constant(c.tensor) if isinstance(c, Held) else c for c in part]
            for part in (found.text["constants"], asked["constants"])
        )
        body = found.text | {"constants": constants, "asked": asked | {"constants": of_asked}}
        return {
            "tensors": shapes,
            "ranges": [list(r) for r in ranges],
            "example": list(found.example),
            "body": body,
        }
