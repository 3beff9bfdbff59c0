"""Terms of rows: contractions, sums that merge and that do not, zeros, and what is asked of structure."""

from __future__ import annotations

import numpy as np
import pytest

from gradtape.ir.dtypes import float64
from gradtape.ir.graph import Value
from gradtape.ir.index import Index
from gradtape.transforms.rows import moves, products
from gradtape.transforms.rows.arithmetic import contracted
from gradtape.transforms.rows.entering import lifted
from gradtape.transforms.rows.letters import Letter, pair
from gradtape.transforms.rows.sums import MAX_TERMS, added, settled, stored
from gradtape.transforms.rows.terms import Factor, Rows, Term, seed
from gradtape.transforms.vectorize import swapped
from tests.transforms.row_bench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


# ------------------------------------------------------------------ contractions


def test_a_contraction_over_a_shared_letter_is_no_product(bench: Bench) -> None:
    x = bench.operand(4, 3)
    v = contracted(bench.b, seed((4, 2), float64), x, "bo", "bi", "io")
    (t,) = v.terms
    assert [f.value for f in t.factors] == [x]
    want = np.einsum("bi,op->boip", bench.array(x), np.eye(2))
    np.testing.assert_array_equal(bench.read(v), want)


def test_a_contraction_of_one_factor_is_one_product(bench: Bench) -> None:
    b, o = Letter(4), Letter(2)
    g, w = bench.operand(4, 2), bench.operand(3, 2)
    rows = bench.term(Term((Factor(g, (b, o)),), ((pair(b),),), ((pair(b),), (pair(o),))), (4,), (4, 2))
    v = contracted(bench.b, rows, w, "bo", "io", "bi")
    assert stored(v) == 12
    want = np.einsum("bo,io,bc->bci", bench.array(g), bench.array(w), np.eye(4))
    np.testing.assert_array_equal(bench.read(v), want)


# ------------------------------------------------------------------ sums of terms


def diagonal_rows(bench: Bench, order: Index | None = None) -> Rows:
    c = Letter(3)
    x = bench.operand(3)
    return bench.term(Term((Factor(x, (c,)),), ((pair(c, order),),), ((pair(c, order),),)), (3,), (3,))


def test_terms_of_equal_places_merge(bench: Bench) -> None:
    v, w = diagonal_rows(bench), diagonal_rows(bench)
    s = added(bench.b, [v, w])
    assert len(s.terms) == 1
    np.testing.assert_array_equal(bench.read(s), bench.read(v) + bench.read(w))


def test_terms_merge_where_a_letter_runs_in_another_order(bench: Bench) -> None:
    v, w = diagonal_rows(bench), diagonal_rows(bench, Index([2, 0, 1]))
    s = added(bench.b, [v, w])
    assert len(s.terms) == 1
    np.testing.assert_array_equal(bench.read(s), bench.read(v) + bench.read(w))


def test_terms_of_other_places_stay_apart(bench: Bench) -> None:
    c, d = Letter(3), Letter(3)
    x, y = bench.operand(3), bench.operand(3)
    low_rank = bench.term(Term((Factor(x, (c,)), Factor(y, (d,))), ((pair(c),),), ((pair(d),),)), (3,), (3,))
    v = diagonal_rows(bench)
    s = added(bench.b, [v, low_rank])
    assert len(s.terms) == 2
    np.testing.assert_array_equal(bench.read(s), bench.read(v) + bench.read(low_rank))


def test_common_factors_are_taken_out(bench: Bench) -> None:
    c, d = Letter(5), Letter(6)
    x, y, z = bench.operand(5), bench.operand(6), bench.operand(6)

    def outer(g: Value) -> Rows:
        return bench.term(Term((Factor(x, (c,)), Factor(g, (d,))), ((pair(c),),), ((pair(d),),)), (5,), (6,))

    s = added(bench.b, [outer(y), outer(z)])
    assert len(s.terms) == 1
    assert stored(s) == 11
    np.testing.assert_array_equal(bench.read(s), np.outer(bench.array(x), bench.array(y) + bench.array(z)))


def test_outer_products_with_nothing_in_common_do_not_merge_into_something_larger(bench: Bench) -> None:
    def outer() -> Rows:
        c, d = Letter(9), Letter(9)
        x, y = bench.operand(9), bench.operand(9)
        return bench.term(Term((Factor(x, (c,)), Factor(y, (d,))), ((pair(c),),), ((pair(d),),)), (9,), (9,))

    parts = [outer(), outer()]
    s = added(bench.b, parts)
    assert len(s.terms) == 2
    assert stored(s) == 36
    np.testing.assert_array_equal(bench.read(s), sum(map(bench.read, parts)))


def test_terms_that_store_more_than_dense_are_written_out(bench: Bench) -> None:
    def outer() -> Rows:
        c, d = Letter(4), Letter(4)
        x, y = bench.operand(4), bench.operand(4)
        return bench.term(Term((Factor(x, (c,)), Factor(y, (d,))), ((pair(c),),), ((pair(d),),)), (4,), (4,))

    parts = [outer() for _ in range(3)]
    s = added(bench.b, parts)
    assert len(s.terms) == 1
    assert stored(s) == 16
    np.testing.assert_array_equal(bench.read(s), sum(map(bench.read, parts)))


def test_too_many_terms_are_written_out(bench: Bench) -> None:
    n = MAX_TERMS + 1
    parts = [moves.scattered(bench.b, seed((2,), float64), 0, Index([k, 2 * n - k]), 2 * n + 1) for k in range(n)]
    s = added(bench.b, parts)
    assert len(s.terms) == 1
    np.testing.assert_array_equal(bench.read(s), sum(map(bench.read, parts)))
    assert settled(bench.b, parts[0]) is parts[0]


# ------------------------------------------------------------------ what is asked of structure


def test_described_names_letters_positions_and_factors(bench: Bench) -> None:
    assert products.described(seed((2, 1, 3), float64)) == "a 1 b | a 1 b : 1"
    v = moves.gathered(bench.b, seed((3,), float64), 0, Index([2, 0]), 2)
    assert products.described(v) == "a* | a : 1"
    x = bench.operand(4, 3)
    assert products.described(contracted(bench.b, seed((4, 2), float64), x, "bo", "bi", "io")) == "a b | c b : (ac)"


def test_rows_that_meet_are_summed_before_they_are_squared(bench: Bench) -> None:
    """Repeated positions on a row axis whose letter no own axis has: entries add up first."""
    v = moves.gathered(bench.b, seed((2,), float64), 0, Index([0, 0, 1]), 3)
    v = moves.broadcast(bench.b, moves.reshaped(bench.b, v, (3, 1)), (3, 2))
    v = moves.transposed(bench.b, v, [1])
    full = bench.read(v)
    np.testing.assert_array_equal(full, [[2, 2], [1, 1]])
    np.testing.assert_array_equal(bench.value(products.row_squares(bench.b, v)), (full**2).sum(1))


def test_swapped_rows_are_the_transpose(bench: Bench) -> None:
    x = bench.operand(4, 3)
    v = contracted(bench.b, seed((4, 2), float64), x, "bo", "bi", "io")
    np.testing.assert_array_equal(bench.read(swapped(v)), bench.read(v).transpose(2, 3, 0, 1))


def test_a_value_that_no_row_changes_has_letters_of_its_own_on_row_axes(bench: Bench) -> None:
    x = bench.operand(3)
    v = lifted(bench.b, x, (2,))
    assert stored(v) == 3
    np.testing.assert_array_equal(bench.read(v), np.broadcast_to(bench.array(x), (2, 3)))


# ------------------------------------------------------------------ zeros


def test_zeros_have_no_term(bench: Bench) -> None:
    x, zero = bench.operand(3), bench.b.constant(0, float64, (3,))
    b = bench.b
    for v in (
        zero,
        b.emit("multiply", x, zero),
        b.emit("negative", b.reshape(zero, (3, 1))),
        b.emit("add", zero, zero),
    ):
        assert not lifted(b, v, (2,)).terms
        np.testing.assert_array_equal(bench.read(lifted(b, v, (2,))), np.zeros((2, *v.aval.dims)))


def test_what_is_not_all_zeros_has_one(bench: Bench) -> None:
    x, zero = bench.operand(3), bench.b.constant(0, float64, (3,))
    b = bench.b
    for v in (
        b.emit("add", x, zero),
        b.emit("subtract", zero, x),
        b.emit("exp", zero),
        b.emit("concat", x, zero, axis=0),
    ):
        assert lifted(b, v, (2,)).terms
        np.testing.assert_array_equal(bench.read(lifted(b, v, (2,))), np.stack([bench.value(v)] * 2))


def test_a_letter_twice_on_a_merged_axis_at_running_positions(bench: Bench) -> None:
    v = moves.transposed(bench.b, moves.undiagonal(bench.b, seed((2, 3), float64)), [1, 0, 2])
    full = bench.read(v).reshape(6, 18)
    ids = np.array([17, 0, 4, 9, 4])
    picked = moves.gathered(bench.b, moves.reshaped(bench.b, v, (18,)), 0, bench.given(ids), 5)
    np.testing.assert_array_equal(bench.read(picked).reshape(6, 5), full[:, ids])


# ------------------------------------------------------------------ writing out


def test_terms_are_written_out_along_what_they_do_not_share(bench: Bench) -> None:
    """The letter that every term has on the same two axes stays, as do row letters that no factor has."""
    n = MAX_TERMS + 1
    ones = seed((4, 2), float64)
    parts = [moves.scattered(bench.b, ones, 1, Index([k, 2 * n - k]), 2 * n + 1) for k in range(n)]
    x = bench.operand(4, 2 * n + 1)
    parts = [contracted(bench.b, p, x, "bi", "bi", "bi") for p in parts]
    s = added(bench.b, parts)
    (t,) = s.terms
    assert t.rows[0] == t.own[0]
    assert stored(s) == 4 * 2 * (2 * n + 1)
    np.testing.assert_array_equal(bench.read(s), sum(map(bench.read, parts)))


def test_entries_that_meet_are_added_up_before_more_is_done_with_them(bench: Bench) -> None:
    """Rows at repeated positions hold no more numbers than the rows that there are."""
    v = moves.gathered(bench.b, seed((2, 3), float64), 0, Index([0, 1] * 20), 40)
    x = bench.operand(40, 5)
    made = contracted(bench.b, v, x, "ao", "ai", "io")
    assert stored(made) == 2 * 5
    want = np.einsum("rok,ki->roi", np.eye(2)[:, None, [0, 1] * 20], bench.array(x))[:, 0]
    np.testing.assert_array_equal(bench.read(made), np.einsum("ri,op->roip", want, np.eye(3)))
