"""What terms are multiplied with alike is multiplied once: counted in multiply-adds, and the numbers stay."""

from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.ir.dtypes import float64
from gradtape.ir.graph import order
from gradtape.transforms.cost import multiply_adds
from gradtape.transforms.rows import moves
from gradtape.transforms.rows.arithmetic import contracted
from gradtape.transforms.rows.leaving import dense
from gradtape.transforms.rows.letters import Letter, pair
from gradtape.transforms.rows.terms import Factor, Rows, Term
from tests.jacobian.programs import Program, normal, tape_of
from tests.transforms.row_bench import Bench

ROWS, INNER = 20, 30


@pytest.fixture
def bench() -> Bench:
    return Bench()


def two_terms(bench: Bench, alike: bool) -> tuple[Rows, np.ndarray]:
    """x[r, s] + y[r] · z[s]; or with `alike` False, x[r, s] + y[r] where s is r."""
    r, s = Letter(ROWS), Letter(INNER if alike else ROWS)
    x, y, z = bench.operand(ROWS, s.size), bench.operand(ROWS), bench.operand(s.size)
    first = Term((Factor(x, (r, s)),), ((pair(r),),), ((pair(s),),))
    if alike:
        second = Term((Factor(y, (r,)), Factor(z, (s,))), ((pair(r),),), ((pair(s),),))
        numbers = bench.array(x) + np.outer(bench.array(y), bench.array(z))
    else:
        second = Term((Factor(y, (r,)),), ((pair(r),),), ((pair(r),),))
        numbers = bench.array(x) + np.diag(bench.array(y))
    return Rows((first, second), (ROWS,), (s.size,), float64), numbers


@pytest.mark.parametrize("columns", [1, 2, 1000])
@pytest.mark.parametrize("alike", [True, False])
def test_contractions_of_sums(bench: Bench, columns: int, alike: bool) -> None:
    rows, numbers = two_terms(bench, alike)
    matrix = bench.operand(numbers.shape[1], columns)
    got = contracted(bench.b, rows, matrix, "s", "sc", "c")
    np.testing.assert_array_equal(bench.read(got), numbers @ bench.array(matrix).reshape(-1, columns))


@pytest.mark.parametrize("alike", [True, False])
def test_sums_of_sums(bench: Bench, alike: bool) -> None:
    rows, numbers = two_terms(bench, alike)
    np.testing.assert_array_equal(bench.read(moves.transposed(bench.b, rows, [])), numbers.sum(1))


def products(bench: Bench, columns: int) -> int:
    """The multiply-adds of (x[r, s] · p[r, s] + x[r, s] · q[r] · t[s]) contracted with a matrix over s."""
    r, s = Letter(ROWS), Letter(INNER)
    x, p, q, t = bench.operand(ROWS, INNER), bench.operand(ROWS, INNER), bench.operand(ROWS), bench.operand(INNER)
    axes = ((pair(r),),), ((pair(s),),)
    first = Term((Factor(x, (r, s)), Factor(p, (r, s))), *axes)
    second = Term((Factor(x, (r, s)), Factor(q, (r,)), Factor(t, (s,))), *axes)
    matrix = bench.operand(INNER, columns)
    rows = contracted(bench.b, Rows((first, second), (ROWS,), (INNER,), float64), matrix, "s", "sc", "c")
    numbers = bench.array(x) * (bench.array(p) + np.outer(bench.array(q), bench.array(t)))
    np.testing.assert_array_equal(bench.read(rows), numbers @ bench.array(matrix))
    return sum(map(multiply_adds, order([dense(bench.b, rows)], bench.inputs)))


def test_one_product_for_two_terms(bench: Bench) -> None:
    assert products(bench, 1000) == ROWS * INNER * 1000


def batch_normed(axis: int) -> Program:
    """Dense, batch norm as TensorFlow spells it, dense: its slope has a diagonal and two dense terms."""
    first, second = (tf.constant(normal(*s)) for s in ((6, 40), (40, 30)))

    def program(x: Any) -> Any:
        h = tf.matmul(x, first)
        mean, variance = tf.nn.moments(h, [axis])
        return tf.matmul(tf.nn.batch_normalization(h, mean, variance, None, None, 1e-3), second)

    return Program(program, normal(35, 6))


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_batch_norm_takes_one_product_of_all_examples_with_all(mode: str) -> None:
    tape, y, x = tape_of(batch_normed(0))
    plan = tape.plan_jacobian(y, x, mode=mode)
    assert 35 * 6 * 40 * 35 * 30 <= plan.multiply_adds < 1.2 * 35 * 6 * 40 * 35 * 30
    dense_one = tape.jacobian(y, x, mode=mode)
    np.testing.assert_allclose(dense_one, tape.jacobian(y, x, experimental_use_pfor=False), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_a_sign_is_a_number_and_no_other_factor(mode: str) -> None:
    """f·w + g·(-w) is one term: (f - g)·w."""
    w = tf.constant(normal(9, 8))

    def function(x: Any) -> Any:
        u = tf.matmul(x, w)
        return tf.exp(u) + tf.sin(-u)

    tape, y, x = tape_of(Program(function, normal(5, 9)))
    assert tape.plan_jacobian(y, x, mode=mode).structure in ("a b | a c : (ab) x (cb)", "a b | a c : (cb) x (ab)")
    np.testing.assert_allclose(
        tape.jacobian(y, x, mode=mode), tape.jacobian(y, x, experimental_use_pfor=False), rtol=1e-12, atol=1e-12
    )


def test_a_sign_costs_no_pass_over_the_result() -> None:
    """-(f·w)·v: the sign goes into the smallest array that the product is made of."""
    first, second = tf.constant(normal(3, 50)), tf.constant(normal(50, 40))
    tape, y, x = tape_of(Program(lambda x: -tf.matmul(tf.tanh(tf.matmul(x, first)), second), normal(60, 3)))
    plan = tape.plan_jacobian(y, x)
    assert plan.elements_written <= 60 * 40 * 60 * 3 + 60 * 40 * 3 + 3 * 50 * 40 + 4 * 60 * 50
    np.testing.assert_allclose(tape.jacobian(y, x), tape.jacobian(y, x, experimental_use_pfor=False), atol=1e-12)
    blocks = tape.batch_jacobian(y, x)
    np.testing.assert_allclose(blocks, np.einsum("bobi->boi", tape.jacobian(y, x)), atol=1e-12)
