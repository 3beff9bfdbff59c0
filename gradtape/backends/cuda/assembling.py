"""Terms written into one array on a device. Floor: backends.

The plan is made once, from that of `ops/assembling.py`: terms whose positions are evenly spaced are strided parts, one
kernel for each part that writes the sum of its terms. Of other terms, what meets at one position of a letter is added
up first; then each value has a place of its own, to which it is added. Terms where that cannot be told are added up at
their places in the whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradtape.backends.cuda.device import Cuda, Known
from gradtape.backends.cuda.scattering import RowAdder
from gradtape.ir.dtypes import DType, int64, of_numpy
from gradtape.ir.index import Index
from gradtape.kernels import cuda_assemble
from gradtape.kernels.cuda_assemble import Factor, Places, Vector
from gradtape.kernels.cuda_sorting import SHORT
from gradtape.ops.assembling import Part, Placed, is_late, laid_out, pace_of, placed, slots_of, with_positions
from gradtape.ops.placement import Place, Product

Array = Any
Sizes = tuple[int, ...]
Source = Callable[[Sequence[Array]], Array]  # from the operands of the step to a factor
Terms = tuple[Product, ...]


@dataclass(frozen=True)
class Term:
    """A term; where its factors come from, and their dtypes; the same of the vectors that its places name; the bytes
    that are taken for it besides the result."""

    product: Product
    factors: tuple[Source, ...]
    dtypes: tuple[DType, ...]
    vectors: tuple[Source, ...]
    kinds: tuple[DType, ...]
    scratch: int = 0

    def having(self, c: int) -> list[int]:
        """The factors that have a letter."""
        return [k for k, letters in enumerate(self.product.factors) if c in letters]

    def places(self, c: int) -> list[Place]:
        """Where a letter stands."""
        return [p for axis in self.product.axes for p in axis if p.letter == c]

    def with_factor(self, gone: Sequence[int], letters: Sizes, source: Source, dtype: DType, scratch: int) -> Term:
        """The term with one factor in place of others, which takes so many bytes while it is made."""
        kept = [k for k in range(len(self.factors)) if k not in gone]
        product = self.product._replace(factors=(*(self.product.factors[k] for k in kept), letters))
        factors = (*(self.factors[k] for k in kept), source)
        dtypes = (*(self.dtypes[k] for k in kept), dtype)
        return replace(self, product=product, factors=factors, dtypes=dtypes, scratch=self.scratch + scratch)

    def along(self, k: int, letters: Sequence[int]) -> Factor:
        """A factor as loops over letters go through it."""
        return Factor(self.dtypes[k], strides(self.product.factors[k], self.product.sizes, letters))


class Assembler:
    """The plan of an `assemble` step for factors of some dtypes; called with the operands."""

    def __init__(self, cuda: Cuda, shape: Sizes, dtype: DType, terms: Terms, dtypes: Sequence[DType]) -> None:
        self.cuda, self.shape, self.dtype = cuda, shape, dtype
        self.size = math.prod(shape)
        self.groups: dict[Part, list[tuple[Placed, Term]]] = {}
        self.by_index: list[Callable[[Array, Sequence[Array]], None]] = []
        self.scratch = 0  # the most bytes that are taken at a time besides the result
        for term in _terms(terms, dtypes):
            if 0 not in term.product.sizes and self.size:
                self._add(term)
        order, fresh, whole = laid_out(list(self.groups), self.size)
        self.starts_empty = whole or not self.size
        self.parts = [self._part(p, first) for p, first in zip(order, fresh, strict=True)]

    def __call__(self, *arrays: Array) -> Array:
        make = self.cuda.empty if self.starts_empty else self.cuda.zeros
        out = make(self.shape, self.dtype.numpy_dtype)
        flat = out.reshape(-1)
        for run in (*self.parts, *self.by_index):
            run(flat, arrays)
        return out

    # ------------------------------------------------------------------ terms

    def _add(self, term: Term) -> None:
        at = self._even(term)
        if at is None:
            for c in range(len(term.product.sizes)):
                term = self._apart(term, c)
            at = self._even(term)
        if at is None and not self._is_apart(term):
            at, term = self._in_whole(term)
        if at is None:
            self.by_index.append(self._writer(term))
            self.scratch = max(self.scratch, term.scratch)
        else:
            assert at.part is not None
            self.groups.setdefault(at.part, []).append((at, term))

    def _even(self, term: Term) -> Placed | None:
        """Where a term is, if it is a strided part."""
        found = None if is_late(term.product) else placed(term.product, self.shape, ())
        return found if found is not None and found.part is not None else None

    def _is_apart(self, term: Term) -> bool:
        return all(n == 1 or any(_distinct(p) for p in term.places(c)) for c, n in enumerate(term.product.sizes))

    # ------------------------------------------------------------------ what meets

    def _apart(self, term: Term, c: int) -> Term:
        """The term with values of a letter added up that may stand at one position, if they can be told from others."""
        places, size = term.places(c), term.product.sizes[c]
        if size == 1 or len(places) > 1 or any(map(_distinct, places)):
            return term
        owners = term.having(c)
        letters = tuple(dict.fromkeys(d for k in owners for d in term.product.factors[k])) or (c,)
        source = term.factors[owners[0]] if len(owners) == 1 else self._multiplied(term, owners, letters)
        dtype = term.dtypes[owners[0]] if len(owners) == 1 else self.dtype
        sizes = tuple(term.product.sizes[d] for d in letters)
        added, where, scratch = self._added(term, source, places, sizes, letters.index(c))
        if len(owners) != 1:
            scratch += math.prod(sizes)
        term = term.with_factor(owners, letters, added, dtype, scratch * dtype.size)
        return replace(term, product=with_positions(term.product, c, where, bool(places)))

    def _added(
        self, term: Term, source: Source, places: Sequence[Place], shape: Sizes, axis: int
    ) -> tuple[Source, Any, int]:
        """A factor with values of one letter added up that stand at one position, the positions that are left (those
        that occur, or all there are if they are only known when running), and how many elements the factor has."""
        number = places[0].where if places else None
        if isinstance(number, int):
            extent, ids = places[0].extent, term.vectors[number]
            adder = RowAdder(self.cuda, shape, axis, extent)
            return lambda arrays: adder(source(arrays), ids(arrays)), np.arange(extent), math.prod(adder.shape)
        slots = slots_of(places[0], ()) if places else np.zeros(shape[axis], np.int64)
        where, numbers = np.unique(slots, return_inverse=True)
        fixed = RowAdder(self.cuda, shape, axis, len(where), numbers)
        return lambda arrays: fixed(source(arrays)), where, math.prod(fixed.shape)

    def _multiplied(self, term: Term, owners: Sequence[int], letters: Sizes) -> Source:
        """The product of some factors, with these letters."""
        product = term.product
        shape = tuple(product.sizes[d] for d in letters)
        factors = [term.along(k, letters) for k in owners]
        steps = strides(letters, product.sizes, letters)
        made = cuda_assemble.part(shape, steps, self.dtype, [factors], adds=False)
        program = self.cuda.program(made, [(shape, self.dtype.numpy_dtype)])
        sources = [term.factors[k] for k in owners]
        return lambda arrays: program(*(s(arrays) for s in sources))[0]

    def _in_whole(self, term: Term) -> tuple[Placed, Term]:
        """A term whose values may meet anywhere as one with the elements of the whole as its letter."""
        product, cuda, size = term.product, self.cuda, self.size
        letters = tuple(range(len(product.sizes)))
        values = self._multiplied(term, range(len(term.factors)), letters)
        at, sources = _walk(term, letters, self.shape)
        program = cuda.program(cuda_assemble.places(at, size), [((at.count,), np.dtype(np.int64))])
        adder = RowAdder(cuda, (at.count,), 0, size)

        def source(arrays: Sequence[Array]) -> Array:
            (where,) = program(*(s(arrays) for s in sources))
            return adder(values(arrays).reshape(-1), where)

        whole = Product((size,), ((0,),), ((Place(0, None, size),),))
        # The values, what they are added up in, and for each value its position and its key, twice when it is sorted.
        scratch = (at.count + size) * self.dtype.size + (2 + (at.count > SHORT)) * at.count * int64.size
        scratch += term.scratch
        term = replace(term, product=whole, factors=(source,), dtypes=(self.dtype,), scratch=scratch)
        return placed(whole, (size,), ()), term

    # ------------------------------------------------------------------ kernels

    def _part(self, part: Part, fresh: bool) -> Callable[[Array, Sequence[Array]], None]:
        group = self.groups[part]
        terms = [[t.along(k, at.letters) for k in range(len(t.factors))] for at, t in group]
        sources = [s for _, t in group for s in t.factors]
        self.scratch = max(self.scratch, sum(t.scratch for _, t in group))
        made = cuda_assemble.part(part.shape, part.steps, self.dtype, terms, adds=not fresh)
        program = self.cuda.program(made, [])

        def run(flat: Array, arrays: Sequence[Array]) -> None:
            program(*(s(arrays) for s in sources), into=[flat[part.start :]])

        return run

    def _writer(self, term: Term) -> Callable[[Array, Sequence[Array]], None]:
        """What adds the values of a term, each with a place of its own, to the result."""
        letters = _outermost_first(*_walk(term, tuple(range(len(term.product.sizes))), self.shape))
        at, vectors = _walk(term, letters, self.shape)
        factors = [term.along(k, letters) for k in range(len(term.factors))]
        program = self.cuda.program(cuda_assemble.write_at(at, self.size, self.dtype, factors), [])
        sources = (*term.factors, *vectors)

        def run(flat: Array, arrays: Sequence[Array]) -> None:
            program(*(s(arrays) for s in sources), into=[flat])

        return run


# ------------------------------------------------------------------ positions


def _terms(terms: Terms, dtypes: Sequence[DType]) -> list[Term]:
    """Terms whose factors, and then vectors, are the operands."""
    found, first = [], 0
    count = sum(len(t.factors) for t in terms)
    vectors = tuple(_operand(n) for n in range(count, len(dtypes)))
    for t in terms:
        behind = first + len(t.factors)
        factors = tuple(_operand(n) for n in range(first, behind))
        found.append(Term(t, factors, tuple(dtypes[first:behind]), vectors, tuple(dtypes[count:])))
        first = behind
    return found


def _operand(n: int) -> Source:
    return lambda arrays: arrays[n]


def _known(positions: Any) -> Source:
    found = np.ascontiguousarray(positions, np.int64).view(Known)
    return lambda arrays: found


def strides(own: Sizes, sizes: Sequence[int], letters: Sequence[int]) -> Sizes:
    """The strides of a factor with its own letters, in C order, along others; 0 along those that it does not have."""
    found, step = dict.fromkeys(letters, 0), 1
    for c in reversed(own):
        if c in found and sizes[c] > 1:
            found[c] = step
        step *= sizes[c]
    return tuple(found[c] for c in letters)


def _distinct(p: Place) -> bool:
    """Whether no two values of a letter stand at one position there, as far as it is known now."""
    return p.where is None or (isinstance(p.where, Index) and p.where.distinct)


def _outermost_first(at: Places, vectors: Sequence[Source]) -> Sizes:
    """Loops in the order in which neighbouring values stand side by side: those by index, then those of large steps."""
    by_index = {v.loop for v in at.vectors}
    return tuple(sorted(range(len(at.sizes)), key=lambda c: (c not in by_index, -abs(at.steps[c]))))


def _walk(term: Term, letters: Sizes, shape: Sizes) -> tuple[Places, list[Source]]:
    """Where the values of letters, as loops in this order, stand in a flat result; and its vectors of positions."""
    product = term.product
    start, steps = 0, [0] * len(letters)
    vectors: list[Vector] = []
    sources: list[Source] = []
    stride = math.prod(shape)
    for axis, extent in zip(product.axes, shape, strict=True):
        stride //= max(extent, 1)
        inner = stride
        for p in reversed(axis):
            loop = letters.index(p.letter)
            if isinstance(p.where, int):
                vectors.append(Vector(loop, term.kinds[p.where], inner, p.extent))
                sources.append(term.vectors[p.where])
            elif (pace := pace_of(slots := slots_of(p, ()))) is None:
                vectors.append(Vector(loop, int64, inner))
                sources.append(_known(slots))
            else:
                start += int(slots[0]) * inner if slots is not None and len(slots) else 0
                steps[loop] += pace * inner
            inner *= p.extent
    return Places(tuple(product.sizes[c] for c in letters), start, tuple(steps), tuple(vectors)), sources


def assembler(cuda: Cuda, dtypes: Sequence[DType], shape: Sizes, dtype: DType | None, terms: Terms) -> Assembler:
    """What adds up terms whose operands have these dtypes."""
    own = dtype or dtypes[0]
    found: Assembler = cuda.once(
        ("assemble", shape, own, terms, dtypes), lambda: Assembler(cuda, shape, own, terms, dtypes)
    )
    return found


def assemble(cuda: Cuda, *arrays: Array, **params: Any) -> Array:
    """The sum of terms, each a product of factors at the positions of its letters."""
    return assembler(cuda, tuple(of_numpy(a.dtype) for a in arrays), **params)(*arrays)


OPS: dict[str, Callable[..., Any]] = {"assemble": assemble}
