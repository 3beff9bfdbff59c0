"""Numbers that depend on sizes: formulas found from examples, checked on others, and worked out again. Floor: saving.

A function for unknown sizes is written down for several choices of them. What all have alike stays; a whole number that
differs is a sum of products of sizes, over a divisor; a float is a number over such a product; a row of positions goes
up in equal steps. Besides the sizes themselves there are *parts* of them, such as `(n + 1) // 2`: a formula that wants
one has it added to the list, and those after it count it among the sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from gradtape.saving.damage import Damaged, fields, listed

Sizes = tuple[int, ...]
WHOLE, REAL, STEPS = "of_sizes", "real_of_sizes", "steps_of_sizes"  # the keys of formulas in a file
MAX_DIVISOR = 1 << 16
MAX_POWER = 4
MAX_FACTORS = 4  # of a product
MAX_PARTS = 256
POWERS = (-1, 1, -0.5, 0.5)  # of a product of sizes, in formulas of floats
DIVISORS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 20, 24, 32, 64, 128)  # of parts
MAX_STEPS = 1 << 24
BIG = 1 << 62


class NoFormula(ValueError):
    """Something depends on sizes in a way that no formula of ours has."""


# ------------------------------------------------------------------ from examples


class Formulas:
    """The formulas for some examples of sizes; `parts`: `[size, add, over]` for each part that they need."""

    def __init__(self, sizes: Sequence[Sizes], divisors: Sequence[int] = ()) -> None:
        self.count = len(sizes[0])
        self.sizes = [tuple(s[k] for s in sizes) for k in range(self.count)]  # of each size, what it is in the examples
        self.parts: list[list[int]] = []
        self.divisors = sorted({*DIVISORS, *(d for d in divisors if 2 <= d <= MAX_DIVISOR)})
        self.known: dict[tuple[int, ...], Any] = {}

    def merged(self, trees: Sequence[Any]) -> Any:
        """One tree for several that differ in numbers alone, with formulas in their places.

        Raises:
          NoFormula: they differ in more, or by no formula.
        """
        first = trees[0]
        kinds = {type(p) for p in trees}
        if kinds == {dict}:
            if any(p.keys() != first.keys() for p in trees):
                raise NoFormula("what it computes depends on sizes")
            try:
                return {k: self.merged([p[k] for p in trees]) for k in first}
            except NoFormula as e:
                if type(first.get("op")) is str and not str(e).startswith("`"):
                    raise NoFormula(f"`{first['op']}`: {e}") from None
                raise
        if kinds == {list}:
            if any(len(p) != len(first) for p in trees):
                return self._steps(trees)
            return [self.merged(together) for together in zip(*trees, strict=True)]
        if len(kinds) == 1 and all(p == first for p in trees):
            return first
        if kinds == {int}:
            return {WHOLE: self.whole(tuple(trees))}
        if kinds == {float}:
            return self._real(trees)
        other = next(p for p in trees if type(p) is not type(first) or p != first)
        raise NoFormula(f"{first!r} is {other!r} for other sizes")

    def _steps(self, trees: Sequence[Any]) -> dict[str, Any]:
        """Rows of whole numbers, of different lengths, that go up (or down) in equal steps."""
        rows = []
        for p in trees:
            if len(p) < 2 or any(type(n) is not int for n in p) or len(set(np.diff(p).tolist())) != 1:
                raise NoFormula("what it computes depends on sizes")
            rows.append([p[0], p[1] - p[0], len(p)])
        return {STEPS: self.merged(rows)}

    def whole(self, numbers: tuple[int, ...]) -> dict[str, Any]:
        """The formula of whole numbers: `terms`, each a coefficient and the powers of all sizes, over `over`."""
        if numbers not in self.known:
            self.known[numbers] = next(self._polynomials(numbers), None) or self._in_parts(numbers)
        if self.known[numbers] is None:
            raise NoFormula(
                f"{_some(numbers)} follows no formula of the sizes {_some(list(zip(*self.sizes, strict=True)))}"
            )
        found: dict[str, Any] = self.known[numbers]
        return found

    def _polynomials(self, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Formulas that hold for all examples, simple ones first."""
        places = range(len(self.sizes))
        products = [p for n in range(1, MAX_FACTORS + 1) for p in itertools.combinations_with_replacement(places, n)]
        if len(self.sizes) > 6:  # sizes and parts, and products of few
            products = [p for p in products if len(p) < 3 or len(set(p)) == len(p)]
        target = np.array([float(n) for n in numbers])
        if np.abs(target).max() >= BIG or not products:
            return
        values = np.array([[float(n) for n in s] for s in self.sizes])
        rows = np.stack([values[list(p)].prod(0) for p in products])
        order = [range(len(products)), range(sum(len(p) < 3 for p in products))]
        for k in _alone(rows[order[0]], target):
            yield from self._exact([products[k]], numbers)
        few = [k for k in order[1] if len(products[k]) < 3]
        if len(few) > 60:
            few = [k for k in few if len(products[k]) < 2]
        for i, j in _together(rows, few, target):
            yield from self._exact([products[i], products[j]], numbers)
        if self.count <= 3 and len(numbers) >= 7:
            own = [k for k in few if max(products[k]) < self.count]
            for three in itertools.combinations(own, 3):
                yield from self._exact([products[k] for k in three], numbers)

    def _exact(self, products: Sequence[tuple[int, ...]], numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        """The formula over some products, if there is one."""
        every = [*products, ()]
        rows = [[Fraction(math.prod(self.sizes[k][s] for k in p)) for p in every] for s in range(len(numbers))]
        solved = _solved(rows, numbers)
        if solved is None:
            return
        over = math.lcm(*(c.denominator for c in solved))
        if over <= MAX_DIVISOR:
            terms = [[int(c * over), self._powers(p)] for c, p in zip(solved, every, strict=True) if c]
            yield {"terms": terms, "over": over}

    def _powers(self, product: Sequence[int]) -> list[int]:
        return [product.count(k) for k in range(len(self.sizes))]

    def _in_parts(self, numbers: Sequence[int]) -> dict[str, Any] | None:
        """The formula with a part of a size that is not among them yet."""
        every = [
            (size, over)
            for size in range(len(self.sizes))
            for over in self.divisors
            if max(self.sizes[size]) - min(self.sizes[size]) >= 2 * over  # else a part may stand for a step anywhere
        ]
        for size, over in every:
            add = _added(self.sizes[size], numbers, over)
            if add is not None:
                return self._with_parts([(size, add, over)], numbers)
        for size, over in every if len(numbers) >= 7 else ():
            whole = np.array([self.sizes[size], [1] * len(numbers)], np.float64)
            parts = [[(n + add) // over for n in self.sizes[size]] for add in range(min(over, 64))]
            for add, part in enumerate(parts):
                if _is_sum([*whole, np.array(part, np.float64)], numbers):
                    return self._with_parts([(size, add, over)], numbers)
            if over <= 8 and len(numbers) >= 9:
                for a, b in itertools.combinations(range(over), 2):
                    if _is_sum([*whole, *np.array([parts[a], parts[b]], np.float64)], numbers):
                        return self._with_parts([(size, a, over), (size, b, over)], numbers)
        return None

    def _with_parts(self, parts: Sequence[tuple[int, int, int]], numbers: Sequence[int]) -> dict[str, Any] | None:
        new = []
        for size, add, over in parts:
            part = tuple((n + add) // over for n in self.sizes[size])
            if part in self.sizes:
                new.append(self.sizes.index(part))
                continue
            if len(self.parts) >= MAX_PARTS:
                return None
            self.parts.append([size, add, over])
            self.sizes.append(part)
            new.append(len(self.sizes) - 1)
        own = {size for size, _, _ in parts}
        for products in ([(k,) for k in new], [*((k,) for k in own), *((k,) for k in new)]):
            found = next(self._exact(products, numbers), None)
            if found is not None:
                return found
        return None

    def _real(self, trees: Sequence[float]) -> dict[str, Any]:
        """The formula of floats: whole numbers, or one number over (or times) a product of sizes, rounded as they
        are."""
        if all(math.isfinite(p) and p == int(p) for p in trees):
            try:
                return {REAL: {"times": 1.0, "of": self.whole(tuple(int(p) for p in trees)), "power": 1}}
            except NoFormula:
                pass  # it may be a root, or a number with a fraction times one
        for count in range(1, MAX_FACTORS + 1):
            for product in itertools.combinations_with_replacement(range(len(self.sizes)), count):
                values = [math.prod(self.sizes[k][s] for k in product) for s in range(len(trees))]
                for power in POWERS if min(values) > 0 else ():
                    for times in _simple(trees[0] / _power(values[0], power)):
                        if all(_same(p, _scaled(times, v, power)) for p, v in zip(trees, values, strict=True)):
                            of = {"terms": [[1, self._powers(product)]], "over": 1}
                            return {REAL: {"times": times, "of": of, "power": power}}
        raise NoFormula(f"{_some(trees)} follows no formula of the sizes {_some(list(zip(*self.sizes, strict=True)))}")


def _some(values: Sequence[Any]) -> str:
    """The first of a row, for a message."""
    return ", ".join(str(v[0] if isinstance(v, tuple) and len(v) == 1 else v) for v in values[:4]) + ", ..."


def _alone(rows: Any, target: Any) -> list[int]:
    """The rows of which the target may be a multiple, plus a number."""
    if len(target) < 2:
        return []
    spread = rows - rows.mean(1, keepdims=True)
    wanted = target - target.mean()
    size = (spread * spread).sum(1)
    slope = np.divide(spread @ wanted, size, out=np.zeros(len(rows)), where=size > 0)
    off = np.abs(wanted - slope[:, None] * spread).max(1)
    return [k for k in range(len(rows)) if size[k] and off[k] <= 1e-6 * max(1.0, np.abs(target).max())]


def _together(rows: Any, few: Sequence[int], target: Any) -> Iterator[tuple[int, int]]:
    """The pairs of rows of which the target may be a sum of multiples, plus a number."""
    for a, i in enumerate(few):
        for j in few[a + 1 :]:
            if _is_sum([np.ones(len(target)), rows[i], rows[j]], target):
                yield i, j


def _is_sum(rows: Sequence[Any], target: Any) -> bool:
    """Whether a row may be a sum of multiples of others."""
    table = np.stack(rows, 1)
    wanted = np.asarray(target, np.float64)
    scale = np.abs(table).max(0)
    if not scale.all():
        return False
    found = np.linalg.lstsq(table / scale, wanted, rcond=None)[0]
    return bool(np.abs(table / scale @ found - wanted).max() <= 1e-6 * max(1.0, np.abs(wanted).max()))


def _added(sizes: Sequence[int], numbers: Sequence[int], over: int) -> int | None:
    """What has to be added to sizes, so that numbers are their parts; None: nothing."""
    low = max(k * over - n for n, k in zip(sizes, numbers, strict=True))
    high = min(k * over + over - 1 - n for n, k in zip(sizes, numbers, strict=True))
    return low if low <= high else None


def _solved(rows: list[list[Fraction]], numbers: Sequence[int]) -> list[Fraction] | None:
    """The coefficients that all rows agree on; None where there are none, or not one choice only."""
    count = len(rows[0])
    table = [[*row, Fraction(n)] for row, n in zip(rows, numbers, strict=True)]
    for k in range(count):
        pivot = next((i for i in range(k, len(table)) if table[i][k]), None)
        if pivot is None:
            return None
        table[k], table[pivot] = table[pivot], table[k]
        table[k] = [x / table[k][k] for x in table[k]]
        for i, row in enumerate(table):
            if i != k and row[k]:
                table[i] = [x - row[k] * y for x, y in zip(row, table[k], strict=True)]
    if any(row[count] for row in table[count:]):
        return None
    return [table[k][count] for k in range(count)]


def _power(product: int, power: float) -> float:
    return float(product) ** power


def _scaled(times: float, product: int, power: float) -> float:
    """A number times, or over, a power of a product of sizes."""
    return times / _power(product, -power) if power < 0 else times * _power(product, power)


def _simple(x: float) -> tuple[float, float]:
    """What a number may have been before it was rounded: a simple fraction, or itself."""
    return float(Fraction(x).limit_denominator(1000)), x


def _same(rounded: float, exact: float) -> bool:
    return rounded in (exact, float(np.float32(exact)))


# ------------------------------------------------------------------ worked out


def with_parts(sizes: Sizes, parts: Any) -> Sizes:
    """Sizes, and the parts of them that formulas use.

    Raises:
      Damaged: what are no parts.
    """
    found = list(sizes)
    if len(listed(parts)) > MAX_PARTS:
        raise Damaged(f"a function of {len(parts)} parts of sizes is none of ours")
    for part in parts:
        if not isinstance(part, list) or len(part) != 3 or any(type(n) is not int for n in part):
            raise Damaged(f"{str(part)[:80]} is no part of a size")
        size, add, over = part
        if not 0 <= size < len(found) or not 0 < over <= MAX_DIVISOR or abs(add) > BIG:
            raise Damaged(f"{str(part)[:80]} is no part of a size")
        found.append((found[size] + add) // over)
    return tuple(found)


def worked_out(tree: Any, sizes: Sizes) -> Any:
    """A tree without formulas.

    Raises:
      Damaged: what is no formula.
      NoFormula: one that these sizes do not fit.
    """
    if isinstance(tree, list):
        return [worked_out(t, sizes) for t in tree]
    if not isinstance(tree, dict):
        return tree
    if len(tree) == 1:
        ((key, inner),) = tree.items()
        if key in READERS:
            return READERS[key](inner, sizes)
    return {k: worked_out(t, sizes) for k, t in tree.items()}


def _whole_at(formula: Any, sizes: Sizes) -> int:
    terms, over = fields(formula, "terms", "over")
    total = 0
    for term in listed(terms):
        if not isinstance(term, list) or len(term) != 2 or type(term[0]) is not int:
            raise Damaged(f"{str(term)[:80]} is no term of a formula")
        powers = listed(term[1])
        if len(powers) > len(sizes) or any(type(p) is not int or not 0 <= p <= MAX_POWER for p in powers):
            raise Damaged(f"{str(term)[:80]} is no term of a formula of {len(sizes)} sizes")
        total += term[0] * math.prod(n**p for n, p in zip(sizes, powers, strict=False))
    if type(over) is not int or not 0 < over <= MAX_DIVISOR:
        raise Damaged(f"{over!r} is no divisor of a formula")
    if total % over:
        raise NoFormula(f"{over} does not divide {total}, a number that these sizes give")
    return total // over


def _real_at(formula: Any, sizes: Sizes) -> float:
    times, of, power = fields(formula, "times", "of", "power")
    if type(times) is not float or power not in POWERS:
        raise Damaged(f"{str(formula)[:80]} is no formula")
    product = _whole_at(of, sizes)
    if product < 0 or (power < 0 and not product):
        raise NoFormula(f"{product} has no power of {power}")
    return float(_scaled(times, product, power))


def _steps_at(formula: Any, sizes: Sizes) -> list[int]:
    start, step, count = (worked_out(x, sizes) for x in listed(formula))
    if any(type(n) is not int for n in (start, step, count)) or not 0 <= count <= MAX_STEPS:
        raise Damaged(f"{str(formula)[:80]} is no row of positions")
    return [start + step * i for i in range(count)]


READERS = {WHOLE: _whole_at, REAL: _real_at, STEPS: _steps_at}
