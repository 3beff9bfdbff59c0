"""The algebra of rows, move by move: letters, positions, axes of size 1 and 0, terms that merge and that do not.

Each test builds rows by hand and reads them back as a dense array, next to NumPy doing the same to dense rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gradtape.ir.dtypes import float64
from gradtape.ir.index import Index
from gradtape.transforms.rows import moves, products
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.leaving import expanded, written_out
from gradtape.transforms.rows.letters import Letter, Pair, matches, pair, whole
from gradtape.transforms.rows.sums import added, stored
from gradtape.transforms.rows.terms import Factor, Rows, Term, normal, rows_of, seed
from tests.transforms.row_bench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def eye(*shape: int) -> np.ndarray:
    n = int(np.prod(shape))
    return np.eye(n).reshape(shape + shape)


# ------------------------------------------------------------------ letters and axes


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (2, 1, 3), (0,), (2, 0)])
def test_a_seed_is_the_identity_without_factors(bench: Bench, shape: tuple[int, ...]) -> None:
    s = seed(shape, float64)
    assert all(not t.factors for t in s.terms)
    np.testing.assert_array_equal(bench.read(s), eye(*shape))


def test_an_axis_of_size_1_has_no_letter() -> None:
    assert whole(1) == ()
    (t,) = seed((1, 2), float64).terms
    assert t.rows[0] == t.own[0] == ()
    assert t.rows[1] is t.own[1]


def test_positions_that_say_nothing_are_none() -> None:
    c = Letter(3)
    assert pair(c, Index([0, 1, 2])).where is None
    assert pair(c, Index([0, 1, 2]), 4).where == Index([0, 1, 2])
    assert pair(c, Index([2, 1, 0])).where is not None


def test_matches_finds_every_pair_of_equal_numbers() -> None:
    a, b = np.array([3, 1, 3, 7]), np.array([3, 0, 1, 3])
    i, j = matches(a, b)
    found = sorted(zip(i.tolist(), j.tolist(), strict=True))
    assert found == [(p, q) for p in range(4) for q in range(4) if a[p] == b[q]]


def test_a_letter_of_size_0_ends_a_term(bench: Bench) -> None:
    c = Letter(0)
    rows = bench.term(Term((), (whole(2)[0:1],), ((Pair(c, Index([]), 3),),)), (2,), (3,))
    assert not rows.terms
    np.testing.assert_array_equal(bench.read(rows), np.zeros((2, 3)))
    assert products.nonzeros(rows) == 0
    assert products.described(rows) == "0"


def test_letters_on_no_axis_are_summed(bench: Bench) -> None:
    i, k, j = Letter(2), Letter(3), Letter(4)
    x, y = bench.operand(2, 3), bench.operand(3, 4)
    t = Term((Factor(x, (i, k)), Factor(y, (k, j))), ((pair(i),),), ((pair(j),),))
    rows = bench.term(t, (2,), (4,))
    assert len(rows.terms[0].factors) == 1
    np.testing.assert_array_equal(bench.read(rows), bench.array(x) @ bench.array(y))


def test_a_lone_letter_on_no_axis_gives_its_size(bench: Bench) -> None:
    gone = moves.transposed(bench.b, moves.broadcast(bench.b, seed((2,), float64), (5, 2)), [1])
    np.testing.assert_array_equal(bench.read(gone), 5 * eye(2))


def test_factors_that_share_no_summed_letter_stay_aside(bench: Bench) -> None:
    i, j = Letter(3), Letter(4)
    x, y = bench.operand(3), bench.operand(4)
    rows = bench.term(Term((Factor(x, (i,)), Factor(y, (j,))), ((pair(i),),), ((pair(j),),)), (3,), (4,))
    assert [f.value for f in rows.terms[0].factors] == [x, y]
    assert stored(rows) == 7
    np.testing.assert_array_equal(bench.read(rows), np.outer(bench.array(x), bench.array(y)))


def test_a_factor_goes_into_one_that_has_its_letters(bench: Bench) -> None:
    i, j = Letter(3), Letter(4)
    x, y = bench.operand(3, 4), bench.operand(4)
    rows = bench.term(Term((Factor(x, (i, j)), Factor(y, (j,))), ((pair(i),),), ((pair(j),),)), (3,), (4,))
    assert len(rows.terms[0].factors) == 1


def test_a_letter_may_stand_on_one_axis_twice(bench: Bench) -> None:
    c = Letter(3)
    x = bench.operand(3)
    rows = bench.term(Term((Factor(x, (c,)),), (), ((pair(c), pair(c)),)), (), (9,))
    want = np.zeros(9)
    want[[0, 4, 8]] = bench.array(x)
    np.testing.assert_array_equal(bench.read(rows), want)
    assert len(rows.terms[0].own[0]) == 1  # neighbours of one letter are joined


# ------------------------------------------------------------------ moves, against NumPy on dense rows

Shape = tuple[int, ...]
Do = Callable[[Bench, Rows], Rows]
AsNumPy = Callable[[np.ndarray], np.ndarray]


def at(ids: list[int]) -> Index:
    return Index(ids)


def _concatenated(b: Builder, parts: list[Rows]) -> Rows:
    """Rows one after the other along axis 0: each scattered to its place, and their sum."""
    total, placed, start = sum(v.shape[0] for v in parts), [], 0
    for v in parts:
        placed.append(moves.scattered(b, v, 0, Index(np.arange(v.shape[0]) + start), total))
        start += v.shape[0]
    return added(b, placed)


def concatenated(b: Builder, parts: list[Rows]) -> Rows:
    """Parts scattered to their places along the first axis, and their sum."""
    total, start, placed = sum(v.shape[0] for v in parts), 0, []
    for v in parts:
        placed.append(moves.scattered(b, v, 0, at(list(range(start, start + v.shape[0]))), total))
        start += v.shape[0]
    return added(b, placed)


MOVES: dict[str, tuple[Shape, Do, AsNumPy]] = {
    "merge": ((2, 3, 2), lambda t, v: moves.reshaped(t.b, v, (6, 2)), lambda a: a.reshape(-1, 6, 2)),
    "split": ((6,), lambda t, v: moves.reshaped(t.b, v, (2, 3)), lambda a: a.reshape(-1, 2, 3)),
    "a border that crosses": ((2, 3), lambda t, v: moves.reshaped(t.b, v, (3, 2)), lambda a: a.reshape(-1, 3, 2)),
    "axes of size 1": ((1, 3, 1), lambda t, v: moves.reshaped(t.b, v, (3, 1)), lambda a: a.reshape(-1, 3, 1)),
    "transpose": ((2, 3), lambda t, v: moves.transposed(t.b, v, [1, 0]), lambda a: a.transpose(0, 2, 1)),
    "sum": ((2, 3), lambda t, v: moves.transposed(t.b, v, [1]), lambda a: a.sum(1)),
    "sum of size 1": ((1, 3), lambda t, v: moves.transposed(t.b, v, [1]), lambda a: a.sum(1)),
    "broadcast": (
        (1, 3),
        lambda t, v: moves.broadcast(t.b, v, (2, 4, 3)),
        lambda a: np.broadcast_to(a[:, None], (len(a), 2, 4, 3)),
    ),
    "repeated ids": ((3,), lambda t, v: moves.gathered(t.b, v, 0, at([2, 0, 2, 2]), 4), lambda a: a[:, [2, 0, 2, 2]]),
    "no ids": ((3,), lambda t, v: moves.gathered(t.b, v, 0, at([]), 0), lambda a: a[:, []]),
    "ids of size 1": ((1, 2), lambda t, v: moves.gathered(t.b, v, 0, at([0, 0]), 2), lambda a: a[:, [0, 0]]),
    "meeting ids": (
        (4, 2),
        lambda t, v: moves.scattered(t.b, v, 0, at([1, 0, 1, 1]), 3),
        lambda a: np.stack([a[:, 1], a[:, [0, 2, 3]].sum(1), 0 * a[:, 0]], 1),
    ),
    "all ids meet": ((4,), lambda t, v: moves.scattered(t.b, v, 0, at([0] * 4), 1), lambda a: a.sum(1, keepdims=True)),
    "gather of a scatter": (
        (3,),
        lambda t, v: moves.gathered(t.b, moves.scattered(t.b, v, 0, at([4, 1, 1]), 5), 0, at([1, 2, 4, 1]), 4),
        lambda a: np.stack([a[:, 1] + a[:, 2], 0 * a[:, 0], a[:, 0], a[:, 1] + a[:, 2]], 1),
    ),
    "split of what was gathered": (
        (3, 2),
        lambda t, v: moves.reshaped(t.b, moves.gathered(t.b, v, 0, at([2, 0, 2, 1]), 4), (2, 4)),
        lambda a: a[:, [2, 0, 2, 1]].reshape(-1, 2, 4),
    ),
    "merge of what was gathered, and a slice": (
        (3, 2),
        lambda t, v: moves.gathered(
            t.b, moves.reshaped(t.b, moves.gathered(t.b, v, 0, at([2, 2]), 2), (4,)), 0, at([1, 2]), 2
        ),
        lambda a: a[:, [2, 2]].reshape(-1, 4)[:, [1, 2]],
    ),
    "diagonal": ((3, 3), lambda t, v: moves.diagonal(t.b, v), lambda a: np.diagonal(a, axis1=1, axis2=2)),
    "on the diagonal": (
        (3,),
        lambda t, v: moves.undiagonal(t.b, v),
        lambda a: np.stack([np.diag(r) for r in a]),
    ),
    "diagonal of a diagonal": ((3,), lambda t, v: moves.diagonal(t.b, moves.undiagonal(t.b, v)), lambda a: a),
    "concatenation with itself": (
        (2,),
        lambda t, v: _concatenated(t.b, [v, v, moves.gathered(t.b, v, 0, at([1]), 1)]),
        lambda a: np.concatenate([a, a, a[:, [1]]], 1),
    ),
    "one axis written out": ((2, 3), lambda t, v: expanded(t.b, v, 1), lambda a: a),
    "all axes written out": ((2, 3), lambda t, v: written_out(t.b, v), lambda a: a),
    "nothing left": ((2, 0), lambda t, v: moves.reshaped(t.b, v, (0, 3)), lambda a: a.reshape(len(a), 0, 3)),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves_of_the_identity(bench: Bench, name: str) -> None:
    shape, do, as_numpy = MOVES[name]
    n = int(np.prod(shape))
    got = bench.read(do(bench, seed(shape, float64)))
    want = as_numpy(np.eye(n).reshape(n, *shape))
    np.testing.assert_array_equal(got.reshape(want.shape), want)


@pytest.mark.parametrize("name", MOVES)
def test_moves_of_rows_with_a_factor(bench: Bench, name: str) -> None:
    """Rows that vary freely, and rows whose first axis shares its letter with a row axis."""
    shape, do, as_numpy = MOVES[name]
    axes = tuple(whole(n) for n in shape)
    letters = tuple(p.letter for a in axes for p in a)
    r = Letter(2)
    x = bench.operand(2, *(n for n in shape if n != 1))
    free = rows_of(
        [normal(bench.b, Term((Factor(x, (r, *letters)),), ((pair(r),),), axes), float64)], (2,), shape, float64
    )
    wide = bench.array(x).reshape(2, *shape)
    want = as_numpy(wide)
    np.testing.assert_array_equal(bench.read(do(bench, free)).reshape(want.shape), want)


def test_positions_known_only_when_running(bench: Bench) -> None:
    ids = bench.given(np.array([2, 0, 2, 1]))
    v = moves.gathered(bench.b, seed((3,), float64), 0, ids, 4)
    np.testing.assert_array_equal(bench.read(v), np.eye(3)[:, [2, 0, 2, 1]])
    again = moves.gathered(bench.b, v, 0, Index([3, 3, 0]), 3)
    np.testing.assert_array_equal(bench.read(again), np.eye(3)[:, [2, 0, 2, 1]][:, [3, 3, 0]])
    back = moves.scattered(bench.b, v, 0, ids, 3)
    np.testing.assert_array_equal(bench.read(back), np.diag([1.0, 1.0, 2.0]))
    assert products.running(v)[0] is ids
    rows, columns = products.pattern(v, [np.array([2, 0, 2, 1])])
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == [(2, 0), (0, 1), (2, 2), (1, 3)]


def test_a_gather_of_the_identity_at_running_positions_stores_nothing(bench: Bench) -> None:
    ids = bench.given(np.array([2, 0, 2, 1]))
    v = moves.gathered(bench.b, seed((3,), float64), 0, ids, 4)
    assert stored(v) == 0
