"""Assembled terms against a loop over their letters, in arrays of zeros that were written before."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from gradtape.backends import memory as zeros
from gradtape.backends import writing
from gradtape.ir.dtypes import float64
from gradtape.ir.index import Index
from gradtape.kernels import memory
from gradtape.ops import assembling
from gradtape.ops.assembling import assembler
from gradtape.ops.placement import Place, Product

Arrays = list[Any]


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> memory.Pool:
    """A pool of its own, for small arrays too."""
    monkeypatch.setattr(memory, "LARGE", 64)
    monkeypatch.setattr(memory, "POOL", memory.Pool(1 << 20))
    return memory.POOL


def by_loop(shape: tuple[int, ...], terms: list[Product], factors: Arrays, vectors: Arrays) -> Any:
    out, left = np.zeros(shape, np.result_type(float, *factors)), iter(factors)
    for t in terms:
        own = [next(left) for _ in t.factors]
        for at in np.ndindex(*t.sizes):
            value = math.prod((f[tuple(at[c] for c in letters)] for f, letters in zip(own, t.factors)), start=1.0)
            position = []
            for axis in t.axes:
                k = 0
                for p in axis:
                    slots = vectors[p.where] if isinstance(p.where, int) else p.where.array if p.where else None
                    k = k * p.extent + (at[p.letter] if slots is None else slots[at[p.letter]])
                position.append(k)
            out[tuple(position)] += value
    return out


def slots(r: random.Random, size: int, extent: int) -> list[int]:
    """Positions: any, evenly spaced, or each at most once."""
    kind = r.choice(["any", "even", "distinct"])
    if kind == "even":
        first, step = r.randrange(extent), r.choice([-1, 0, 1, 2])
        return [(first + step * k) % extent for k in range(size)]
    return r.sample(range(extent), size) if kind == "distinct" and size <= extent else r.choices(range(extent), k=size)


def any_terms(r: random.Random) -> tuple[tuple[int, ...], list[Product], list[tuple[int, ...]], Arrays]:
    """A shape, terms, the shapes of their factors, and index vectors known only when running."""
    extents = [[r.randint(1, 4) for _ in range(r.choice([0, 1, 1, 1, 2]))] for _ in range(r.randint(0, 3))]
    terms, shapes, vectors = [], [], []
    for _ in range(r.randint(0, 4)):
        sizes = [r.randint(r.random() > 0.05, 4) for _ in range(r.randint(1, 4))]
        axes = []
        for axis in extents:
            places = []
            for extent in axis:
                c, where = r.randrange(len(sizes)), None
                if sizes[c] != extent or r.random() < 0.4:
                    where = Index(np.array(slots(r, sizes[c], extent), np.int64))
                if where is not None and r.random() < 0.3:
                    vectors.append(where.array)
                    where = len(vectors) - 1
                places.append(Place(c, where, extent))
            axes.append(tuple(places))
        letters = range(len(sizes))
        factors = [tuple(r.sample(letters, r.randint(0, len(sizes)))) for _ in range(r.randint(0, 4))]
        shapes += [tuple(sizes[c] for c in f) for f in factors]
        terms.append(Product(tuple(sizes), tuple(factors), tuple(axes)))
    return tuple(map(math.prod, extents)), terms, shapes, vectors


@pytest.mark.parametrize("seed", range(12))
def test_terms_are_what_a_loop_writes(seed: int, pool: memory.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    r, rng = random.Random(seed), np.random.default_rng(seed)
    for _ in range(100):
        monkeypatch.setattr(assembling, "BLOCK", r.choice([1, 4, 16]))
        monkeypatch.setattr(assembling, "LAYERS", r.choice([1, 2, 16]))
        monkeypatch.setattr(zeros, "FEW", r.choice([1, 4]))
        shape, terms, shapes, vectors = any_terms(r)
        run = assembler(np, writing, shape, float64, terms)
        for _ in range(2):
            factors = [rng.standard_normal(s) for s in shapes]
            found = run(*factors, *vectors)
            np.testing.assert_allclose(found, by_loop(shape, terms, factors, vectors), atol=1e-12)
            del found
    assert pool.hits > 20


def diagonal(n: int) -> Product:
    return Product((n,), ((0,),), ((Place(0, None, n),), (Place(0, None, n),)))


def test_zeros_in_a_block_with_a_note_stay_zeros(pool: memory.Pool) -> None:
    """Another pattern, another dtype, a smaller and a larger array, an array with anything in it."""
    ones = np.ones(20)
    anti = Product((20,), ((0,),), ((Place(0, None, 20),), (Place(0, Index(np.arange(20)[::-1]), 20),)))
    for shape, term, dtype in [
        ((20, 20), diagonal(20), np.float64),
        ((20, 20), anti, np.float64),
        ((26, 28), diagonal(20)._replace(axes=((Place(0, None, 26),), (Place(0, None, 28),))), np.float32),
        ((20, 20), diagonal(20), np.float64),
        ((21, 21), diagonal(21), np.float64),
    ]:
        factor = np.ones(term.sizes, dtype)
        found = assembler(np, writing, shape, None, [term])(factor)
        assert found.sum() == term.sizes[0] and found.max() == 1
        del found
    filled = memory.empty((21, 21), np.dtype(np.float64))
    filled[...] = 7
    del filled
    assert assembler(np, writing, (20, 20), None, [diagonal(20)])(ones).sum() == 20
    assert pool.hits >= 5


def test_a_sparse_result_is_read_only_and_a_full_one_is_not(pool: memory.Pool) -> None:
    run = assembler(np, writing, (20, 20), None, [diagonal(20)])
    assert not run(np.ones(20)).flags.writeable
    whole = Product((20, 20), ((0,), (1,)), ((Place(0, None, 20),), (Place(1, None, 20),)))
    assert assembler(np, writing, (20, 20), None, [whole])(np.ones(20), np.ones(20)).flags.writeable


class Host:
    """The host's way of writing, with a list of what was asked for zeros."""

    def __init__(self) -> None:
        self.zeroed: list[tuple[int, ...]] = []
        self.empty, self.view, self.product = writing.empty, writing.view, writing.product

    def zeros(self, shape: tuple[int, ...], dtype: Any, written: Any) -> Any:
        self.zeroed.append(shape)
        return writing.zeros(shape, dtype, written)


def block(rows: range, columns: range, n: int) -> Product:
    places = (
        (Place(0, Index(np.arange(rows.start, rows.stop)), n),),
        (Place(1, Index(np.arange(columns.start, columns.stop)), n),),
    )
    return Product((len(rows), len(columns)), ((0, 1),), places)


@pytest.mark.parametrize("border", [2, 3])
def test_blocks_that_leave_nothing_out_want_no_zeros(border: int) -> None:
    """Four blocks of a matrix; or three of the four, or blocks that overlap."""
    n, rng = 5, np.random.default_rng(0)
    halves = [range(border), range(border, n)]
    terms = [block(rows, columns, n) for rows in halves for columns in halves]
    factors = [rng.normal(size=t.sizes) for t in terms]
    for taken, zeroed in ((4, 0), (3, 1)):
        host = Host()
        out = assembler(np, host, (n, n), float64, terms[:taken])(*factors[:taken])
        assert len(host.zeroed) == zeroed
        np.testing.assert_array_equal(out, by_loop((n, n), terms[:taken], factors[:taken], []))
    wide = block(range(n), range(border - 1, n), n)
    for first, zeroed in (([0, 2], 1), ([0, 1, 2, 3], 0)):  # what meets others adds to what is there
        some, values = [terms[k] for k in first] + [wide], [factors[k] for k in first] + [rng.normal(size=wide.sizes)]
        host = Host()
        out = assembler(np, host, (n, n), float64, some)(*values)
        assert len(host.zeroed) == zeroed
        np.testing.assert_array_equal(out, by_loop((n, n), some, values, []))
