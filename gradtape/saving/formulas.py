"""Numbers that depend on sizes: formulas found from examples, checked on others, and worked out again. Floor: saving.

A function for unknown sizes is written down for several choices of them. What all have alike stays; a whole number that
differs is a sum of products of sizes, over a divisor; a float is a number over such a product; a row of positions goes
up in equal steps. Two to four coefficients are found, and each formula holds for six choices or is refused."""

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
MAX_DIVISOR = 64
MAX_POWER = 2
MAX_DEGREE = 4
POWERS = (-1, 1, -0.5, 0.5)  # of a product of sizes, in formulas of floats
MAX_STEPS = 1 << 24


class NoFormula(ValueError):
    """Something depends on sizes in a way that no formula of ours has."""


# ------------------------------------------------------------------ from examples


def merged(parts: Sequence[Any], sizes: Sequence[Sizes]) -> Any:
    """One tree for several that differ in numbers alone, with formulas in their places.

    Raises:
      NoFormula: they differ in more, or by no formula.
    """
    first = parts[0]
    kinds = {type(p) for p in parts}
    if kinds == {dict}:
        if any(p.keys() != first.keys() for p in parts):
            raise NoFormula("the graph itself depends on sizes")
        return {k: merged([p[k] for p in parts], sizes) for k in first}
    if kinds == {list}:
        if any(len(p) != len(first) for p in parts):
            return _steps(parts, sizes)
        return [merged(together, sizes) for together in zip(*parts, strict=True)]
    if len(kinds) == 1 and all(p == first for p in parts):
        return first
    if kinds == {int}:
        return {WHOLE: whole(tuple(parts), tuple(sizes))}
    if kinds == {float}:
        return _real(parts, sizes)
    raise NoFormula(f"{first!r} is {parts[1]!r} for other sizes")


def _steps(parts: Sequence[Any], sizes: Sequence[Sizes]) -> dict[str, Any]:
    """Rows of whole numbers, of different lengths, that go up (or down) in equal steps."""
    rows = []
    for p in parts:
        if len(p) < 2 or any(type(n) is not int for n in p) or len(set(np.diff(p).tolist())) != 1:
            raise NoFormula("the graph itself depends on sizes")
        rows.append([p[0], p[1] - p[0], len(p)])
    return {STEPS: merged(rows, sizes)}


_known: dict[Any, Any] = {}


def whole(numbers: tuple[int, ...], sizes: tuple[Sizes, ...]) -> dict[str, Any]:
    """The formula of whole numbers: `terms`, each a coefficient and the powers of all sizes, over `over`."""
    key = (numbers, sizes)
    if key not in _known:
        if len(_known) > 10_000:
            _known.clear()
        _known[key] = next(_formulas(numbers, sizes), None)
    if _known[key] is None:
        raise NoFormula(f"the numbers {list(numbers)} follow no formula of the sizes {[list(s) for s in sizes]}")
    found: dict[str, Any] = _known[key]
    return found


def _formulas(numbers: Sequence[int], sizes: Sequence[Sizes]) -> Iterator[dict[str, Any]]:
    """Formulas that hold for all examples, simple ones first."""
    powers = _powers(len(sizes[0]))
    simple = [p for p in powers if sum(p) <= (2 if len(sizes[0]) < 4 else 1)]
    for count, among in ((1, powers), (2, simple), (3, simple)):
        for chosen in itertools.combinations(among, count):
            rows = [[Fraction(_product(s, p)) for p in chosen] + [Fraction(1)] for s in sizes]
            solved = _solved(rows, numbers)
            if solved is None:
                continue
            over = math.lcm(*(c.denominator for c in solved))
            if over <= MAX_DIVISOR:
                every = [*chosen, (0,) * len(sizes[0])]
                yield {
                    "terms": [[int(c * over), list(p)] for c, p in zip(solved, every, strict=True) if c],
                    "over": over,
                }


def _powers(count: int) -> list[Sizes]:
    """The products of sizes that a formula may have, by degree."""
    found = [p for p in itertools.product(range(MAX_POWER + 1), repeat=count) if 0 < sum(p) <= MAX_DEGREE]
    return sorted(found, key=lambda p: (sum(p), max(p), p))


def _product(sizes: Sizes, powers: Sequence[int]) -> int:
    return math.prod(n**p for n, p in zip(sizes, powers, strict=True))


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


def _real(parts: Sequence[float], sizes: Sequence[Sizes]) -> dict[str, Any]:
    """The formula of floats: whole numbers, or one number over (or times) a product of sizes, rounded as they are."""
    if all(math.isfinite(p) and p == int(p) for p in parts):
        with_whole = next(_formulas([int(p) for p in parts], sizes), None)
        if with_whole is not None:
            return {REAL: {"times": 1.0, "of": with_whole, "power": 1}}
    for powers in _powers(len(sizes[0])):
        of = {"terms": [[1, list(powers)]], "over": 1}
        for power in POWERS:
            products = [_power(_product(s, powers), power) for s in sizes]
            for times in _simple(parts[0] / products[0]):
                made = [_scaled(times, _product(s, powers), power) for s in sizes]
                if all(_same(p, x) for p, x in zip(parts, made, strict=True)):
                    return {REAL: {"times": times, "of": of, "power": power}}
    raise NoFormula(f"the numbers {list(parts)} follow no formula of the sizes {[list(s) for s in sizes]}")


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
        if len(powers) != len(sizes) or any(type(p) is not int or not 0 <= p <= MAX_POWER for p in powers):
            raise Damaged(f"{str(term)[:80]} is no term of a formula of {len(sizes)} sizes")
        total += term[0] * _product(sizes, powers)
    if type(over) is not int or not 0 < over <= MAX_DIVISOR:
        raise Damaged(f"{over!r} is no divisor of a formula")
    if total % over:
        raise NoFormula(f"it was saved for sizes that {over} divides")
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
