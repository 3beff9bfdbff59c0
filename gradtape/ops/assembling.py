"""The value of `assemble`: terms written into one array, block by block. Floor: ops.

A term whose positions are evenly spaced is a strided part of the result; its letters are ordered by their steps, so
that terms of one part are summed in the cache and written once. Other terms are written by index, after positions that
meet have been added up axis by axis."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from gradtape.ir.index import Index
from gradtape.ops.placement import Place, Product

BLOCK = 1 << 16  # elements that stay in the second-level cache
MARKED = 1 << 26  # elements of a result up to which it is found out once where parts of it meet
LAYERS = 16  # so often a position may be met until writing one element after the other is faster

Vectors = Sequence[Any]  # index vectors that are only known when running


class Part(NamedTuple):
    """A strided part of an array, in elements."""

    start: int
    shape: tuple[int, ...]
    steps: tuple[int, ...]


class Host(Protocol):
    """Where results come from, and how large products are written."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array with anything in it."""

    def zeros(self, shape: tuple[int, ...], dtype: Any, written: Sequence[Part] | None) -> Any:
        """Zeros, of which only these parts will ever be written, through `view`; None: nobody knows."""

    def view(self, array: Any, part: Part) -> Any:
        """The part of an array from here, to write to."""

    def product(self, a: Any, b: Any, out: Any) -> None:
        """out = a * b; the operands have as many axes as `out`, of its sizes or 1."""

    def share(self, rows: int, work: int, run: Callable[[int, int], None]) -> None:
        """`run(start, stop)` for all rows, perhaps in several threads; `work`: elements that are touched."""


class Placed(NamedTuple):
    """A term whose positions are known: its part of the result with letters from the largest step on (None where
    positions are not evenly spaced), and the order of letters in that."""

    term: Product
    part: Part | None
    letters: tuple[int, ...]


Groups = dict[Part, list[list[Any]]]  # by part: the factors of each of its terms


def assembler(xp: Any, host: Host, shape: tuple[int, ...], dtype: Any, terms: Sequence[Product]) -> Callable[..., Any]:
    """The function (*factors, *vectors) -> array of an `assemble` step."""
    fixed = [None if is_late(t) else placed(t, shape, ()) for t in terms]
    if all(p is not None and p.part is not None and 0 not in p.term.sizes for p in fixed):
        return _planned(xp, host, shape, dtype, [p for p in fixed if p is not None])
    count = sum(len(t.factors) for t in terms)

    def run(*arrays: Any) -> Any:
        vectors, left = arrays[count:], iter(arrays)
        own = dtype.numpy_dtype if dtype else arrays[0].dtype
        groups: Groups = {}
        scattered = []
        for known, t in zip(fixed, terms, strict=True):
            factors = list(itertools.islice(left, len(t.factors)))
            if 0 in t.sizes:
                continue
            found = known if known is not None else placed(t, shape, vectors)
            if found.part is None:
                t, factors = condensed(xp, t, factors, vectors, own)
                found = placed(t, shape, vectors)
            if found.part is None:
                scattered.append((t, factors))
            else:
                spread = [way(f) for way, f in zip(_spreads(found), factors, strict=True)]
                groups.setdefault(found.part, []).append(_few(xp, spread))
        out, parts = _begun(host, shape, own, list(groups), known=not scattered)
        for k, part in enumerate(parts):
            add_up(xp, host, host.view(out, part), groups[part], fresh=k == 0)
        for t, factors in scattered:
            _write_by_index(xp, out, t, factors, vectors)
        return out

    return run


def _planned(xp: Any, host: Host, shape: tuple[int, ...], dtype: Any, terms: Sequence[Placed]) -> Callable[..., Any]:
    """The function where all is known but the factors."""
    groups: dict[Part, list[list[tuple[int, Callable[[Any], Any]]]]] = {}
    numbers = itertools.count()
    for p in terms:
        assert p.part is not None
        groups.setdefault(p.part, []).append([(next(numbers), way) for way in _spreads(p)])

    order, fresh, whole = laid_out(list(groups), math.prod(shape))

    def run(*arrays: Any, over: bool = False) -> Any:
        """`over`: the first operand is the first term, as `is_begun` says, and is added to."""
        own = dtype.numpy_dtype if dtype else arrays[0].dtype
        if over:  # a product may have come out in another order than that of its axes
            out = xp.ascontiguousarray(arrays[0])
        else:
            out = host.empty(shape, own) if whole else host.zeros(shape, own, order)
        for part, first in zip(order, fresh, strict=True):
            begun = over and first
            products = [[way(arrays[n]) for n, way in ways] for ways in groups[part][begun:]]
            if products:
                add_up(xp, host, host.view(out, part), [_few(xp, f) for f in products], fresh=first and not begun)
        return out

    return run


def laid_out(parts: list[Part], size: int) -> tuple[list[Part], list[bool], bool]:
    """Parts, one that is all of the result first; which of them meet none of those before them; and whether these leave
    nothing out."""
    order = sorted(parts, key=lambda p: math.prod(p.shape) != size)
    whole = bool(parts) and math.prod(order[0].shape) == size
    if whole or len(parts) < 2 or size > MARKED:
        return order, [k == 0 for k in range(len(order))], whole
    marks = np.zeros(size, np.int8)  # 1: written by a part that met no other, 2: met by one that did
    fresh = []
    for p in order:
        own = np.ndarray(p.shape, np.int8, marks, p.start, p.steps)
        fresh.append(not own.any())
        np.maximum(own, 1 if fresh[-1] else np.where(own == 1, 1, 2), out=own)
    return order, fresh, bool((marks == 1).all())


def is_begun(terms: Sequence[Product], shape: tuple[int, ...]) -> bool:
    """Whether the first factor is an array of the result's shape to which all other terms are added, at places that are
    known."""
    first, all_of_it = terms[0], tuple((Place(c, None, n),) for c, n in enumerate(shape))
    if first != Product(shape, (tuple(range(len(shape))),), all_of_it) or any(map(is_late, terms)):
        return False
    return all(t.sizes and 0 not in t.sizes and placed(t, shape, ()).part is not None for t in terms)


def _begun(host: Host, shape: tuple[int, ...], dtype: Any, parts: list[Part], known: bool) -> tuple[Any, list[Part]]:
    """The array to write to, and the parts in the order in which they are written: one that is all of it first."""
    size = math.prod(shape)
    whole = next((p for p in parts if math.prod(p.shape) == size), None)
    if whole is None:
        return host.zeros(shape, dtype, parts if known else None), parts
    return host.empty(shape, dtype), [whole, *(p for p in parts if p is not whole)]


# ------------------------------------------------------------------ where a term is


def is_late(t: Product) -> bool:
    """Whether any of a term's positions are only known when running."""
    return any(isinstance(p.where, int) for a in t.axes for p in a)


def slots_of(p: Place, vectors: Vectors) -> Any:
    """The positions of a place; None: one after the other."""
    return vectors[p.where] if isinstance(p.where, int) else None if p.where is None else p.where.array


def pace_of(slots: Any) -> int | None:
    """The common difference of positions; None where there is none."""
    if slots is None or len(slots) < 2:
        return 1
    step = int(slots[1]) - int(slots[0])
    return step if len(slots) == 2 or bool((slots[1:] - slots[:-1] == step).all()) else None


def placed(t: Product, shape: tuple[int, ...], vectors: Vectors) -> Placed:
    """Where a term is in a result of a shape, given the vectors that its places name."""
    start, steps, moving = 0, [0] * len(t.sizes), [n == 1 for n in t.sizes]
    stride = math.prod(shape)
    for axis, extent in zip(t.axes, shape, strict=True):
        stride //= max(extent, 1)
        inner = stride
        for p in reversed(axis):
            slots = slots_of(p, vectors)
            pace = pace_of(slots)
            if pace is None:
                return Placed(t, None, ())
            if slots is not None and len(slots):
                start += int(slots[0]) * inner
            if t.sizes[p.letter] > 1:
                steps[p.letter] += pace * inner
                moving[p.letter] |= pace != 0
            inner *= p.extent
    if not all(moving):  # some positions are taken twice
        return Placed(t, None, ())
    letters = tuple(sorted((c for c, n in enumerate(t.sizes) if n > 1), key=lambda c: -abs(steps[c])))
    part = Part(start, tuple(t.sizes[c] for c in letters), tuple(steps[c] for c in letters))
    return Placed(t, part, letters)


def _spreads(at: Placed) -> list[Callable[[Any], Any]]:
    """How each factor of a term becomes one that broadcasts over the letters of its part."""
    return [_spread(letters, at.term.sizes, at.letters) for letters in at.term.factors]


def _spread(letters: tuple[int, ...], sizes: tuple[int, ...], over: tuple[int, ...]) -> Callable[[Any], Any]:
    order = [c for c in over if c in letters]
    perm = [letters.index(c) for c in (*order, *(c for c in letters if c not in order))]
    shape = [sizes[c] if c in letters else 1 for c in over]
    if shape == [sizes[c] for c in letters] and perm == sorted(perm):
        return lambda array: array
    return lambda array: array.transpose(perm).reshape(shape)


# ------------------------------------------------------------------ evenly spaced terms


def _few(xp: Any, factors: list[Any]) -> list[Any]:
    """At most two factors where small ones can be multiplied first; none stand for the number 1."""
    if len(factors) > 1:
        factors = sorted(factors, key=_size)
    while len(factors) > 2:
        a, b, *rest = factors
        size = math.prod(np.broadcast_shapes(a.shape, b.shape))
        if size > max(BLOCK, rest[-1].size):
            break
        factors = sorted([xp.multiply(a, b), *rest], key=_size)
    return factors


def _size(array: Any) -> int:
    return int(array.size)


def add_up(xp: Any, host: Host, view: Any, products: list[list[Any]], fresh: bool) -> None:
    """Write the sum of products of factors to a view (`fresh`), or add it to what is there."""
    if len(products) == 1 and len(products[0]) <= (2 if fresh else 1):
        if len(products[0]) == 2:
            first, second = products[0]
            host.product(first, second, view)
        else:
            _product(xp, view, products[0], fresh)
        return
    blocks = list(_blocks(view.shape))

    def run(start: int, stop: int) -> None:
        for block in blocks[start:stop]:
            part = view[block] if block else view
            for k, factors in enumerate(products):
                _product(xp, part, [_inside(f, block) for f in factors], fresh and k == 0)

    host.share(len(blocks), view.size * len(products), run)


def _blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Pieces of an array along its first axes."""
    axis = next((k for k in range(len(shape)) if math.prod(shape[k + 1 :]) <= BLOCK), 0)
    if not shape:
        yield ()
        return
    rows = max(1, BLOCK // max(1, math.prod(shape[axis + 1 :])))
    for lead in np.ndindex(shape[:axis]):
        for start in range(0, shape[axis], rows):
            yield (*(slice(i, i + 1) for i in lead), slice(start, start + rows))


def _inside(factor: Any, block: tuple[slice, ...]) -> Any:
    return factor[tuple(s if n > 1 else slice(None) for s, n in zip(block, factor.shape, strict=False))]


def _product(xp: Any, part: Any, factors: list[Any], fresh: bool) -> None:
    if len(factors) < 2:
        value = factors[0] if factors else 1
        if fresh:
            part[...] = value
        else:
            part += value
        return
    first, *middle, last = factors
    for f in middle:
        first = first * f
    if fresh:
        xp.multiply(first, last, out=part)
    else:
        part += first * last


# ------------------------------------------------------------------ terms by index


def condensed(xp: Any, t: Product, factors: list[Any], vectors: Vectors, dtype: Any) -> tuple[Product, list[Any]]:
    """Letters of which several values stand at one position, with those added up."""
    for c in range(len(t.sizes)):
        places = [p for a in t.axes for p in a if p.letter == c]
        owners = [k for k, letters in enumerate(t.factors) if c in letters]
        if len(places) > 1 or len(owners) > 1 or t.sizes[c] < 2:
            continue
        slots = np.zeros(t.sizes[c], np.int64) if not places else slots_of(places[0], vectors)
        if slots is None or pace_of(slots) not in (None, 0):
            continue
        fixed = places and isinstance(places[0].where, Index)
        met = _layers_of(places[0].where) if fixed else _layers(slots)
        if met is None:
            continue
        where, layers = met
        if owners:
            (k,) = owners
            factors[k] = _met(xp, factors[k], t.factors[k].index(c), layers)
        else:
            factors.append(xp.asarray(np.bincount(np.searchsorted(where, slots)).astype(dtype)))
            t = t._replace(factors=(*t.factors, (c,)))
        t = with_positions(t, c, where, bool(places))
    return t, factors


def _layers(slots: Any) -> tuple[Any, list[tuple[Any, Any]]] | None:
    """The positions that occur, and which values stand there: (numbers among the positions, values) for the first
    value of each, for the second, and so on. None where that would be too many."""
    where, inverse, counts = np.unique(slots, return_inverse=True, return_counts=True)
    if counts.max() > LAYERS or counts.max() == 1:
        return None
    order = np.argsort(inverse, kind="stable")
    begins = np.cumsum(counts) - counts
    layers = []
    for k in range(int(counts.max())):
        there = np.flatnonzero(counts > k)
        layers.append((there, order[begins[there] + k]))
    return where, layers


@functools.lru_cache(256)
def _layers_of(index: Index) -> tuple[Any, list[tuple[Any, Any]]] | None:
    return _layers(index.array)


def _met(xp: Any, factor: Any, axis: int, layers: list[tuple[Any, Any]]) -> Any:
    front = (slice(None),) * axis
    total = factor.take(layers[0][1], axis)
    for there, values in layers[1:]:
        part = factor.take(values, axis)
        if len(there) == total.shape[axis]:
            total += part
        else:
            total[(*front, there)] += part
    return total


def with_positions(t: Product, c: int, where: Any, stands: bool) -> Product:
    """A term with other positions of a letter, which `stands` on an axis or is on none."""
    sizes = tuple(len(where) if k == c else n for k, n in enumerate(t.sizes))
    axes = t.axes
    if stands:
        axes = tuple(tuple(p._replace(where=Index(where)) if p.letter == c else p for p in a) for a in t.axes)
    return t._replace(sizes=sizes, axes=axes)


def _write_by_index(xp: Any, out: Any, t: Product, factors: list[Any], vectors: Vectors) -> None:
    at = np.zeros((1,) * len(t.sizes), np.int64)
    told = {c for c, n in enumerate(t.sizes) if n == 1}
    stride = out.size
    for axis, extent in zip(t.axes, out.shape, strict=True):
        stride //= extent
        inner = stride
        for p in reversed(axis):
            slots = slots_of(p, vectors)
            where = np.arange(t.sizes[p.letter]) if slots is None else slots
            line = [1] * len(t.sizes)
            line[p.letter] = -1
            at = at + (where * inner).reshape(line)
            inner *= p.extent
            if slots is None or len(np.unique(slots)) == len(slots):
                told.add(p.letter)
    product = xp.ones((), out.dtype)
    for f, way in zip(factors, _spreads(Placed(t, None, tuple(range(len(t.sizes))))), strict=True):
        product = product * way(f)
    flat = out.reshape(-1)
    if len(told) == len(t.sizes):  # no two values meet
        flat[at] += product
    else:
        # along one axis, for which NumPy has a loop of its own
        xp.add.at(flat, xp.broadcast_to(at, t.sizes).reshape(-1), xp.broadcast_to(product, t.sizes).reshape(-1))
