"""Linear systems, factors and functions of matrices: values against NumPy and SciPy, two orders against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.linalg

import gradtape as tf
from tests.linalg.slopes import check_two_orders, definite, gradients, numbers, values
from tests.op_table.running import assert_near

KINDS = ["real", "complex"]
L = tf.linalg


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def regular(seed: int, n: int, *loops: int, kind: str = "real") -> Any:
    return numbers(seed, *loops, n, n, kind=kind) / n + 2 * np.eye(n)


def ridge(a: Any, b: Any, weight: float) -> Any:
    return np.linalg.solve(adjoint(a) @ a + weight * np.eye(a.shape[-1]), adjoint(a) @ b)


# A function, the same in NumPy, its operands, and which of them are Hermitian.
Case = tuple[Callable[..., Any], Callable[..., Any], list[Any], list[bool]]


def cases(kind: str) -> dict[str, Case]:
    a, b = regular(1, 3, 2, kind=kind), numbers(2, 2, 3, 2, kind=kind)
    one, tall, wide = a[0], numbers(3, 2, 4, 2, kind=kind), numbers(4, 2, 2, 4, kind=kind)
    s = definite(5, 3, 2, kind=kind)
    chol = np.linalg.cholesky(s)
    rhs4 = numbers(6, 2, 4, 1, kind=kind)
    rhs2 = numbers(7, 2, 2, 1, kind=kind)
    return {
        "inv": (L.inv, np.linalg.inv, [a], []),
        "inv adjoint": (lambda x: L.inv(x, adjoint=True), lambda x: adjoint(np.linalg.inv(x)), [a], []),
        "solve": (L.solve, np.linalg.solve, [a, b], []),
        "solve adjoint": (
            lambda x, y: L.solve(x, y, adjoint=True),
            lambda x, y: np.linalg.solve(adjoint(x), y),
            [a, b],
            [],
        ),
        "solve, one matrix": (L.solve, np.linalg.solve, [one, b], []),
        "solve, one right-hand side": (L.solve, np.linalg.solve, [a, b[0]], []),
        "cholesky": (L.cholesky, np.linalg.cholesky, [s], [True]),
        "cholesky_solve": (L.cholesky_solve, lambda c, y: np.linalg.solve(c @ adjoint(c), y), [chol, b], []),
        "logdet": (L.logdet, lambda x: np.linalg.slogdet(x)[1], [s], [True]),
        "lstsq": (L.lstsq, lambda x, y: np.linalg.pinv(x) @ y, [tall, rhs4], []),
        "lstsq wide": (L.lstsq, lambda x, y: np.linalg.pinv(x) @ y, [wide, rhs2], []),
        "lstsq regularized": (lambda x, y: L.lstsq(x, y, 0.3), lambda x, y: ridge(x, y, 0.3), [tall, rhs4], []),
        "lstsq wide regularized": (lambda x, y: L.lstsq(x, y, 0.3), lambda x, y: ridge(x, y, 0.3), [wide, rhs2], []),
        "lstsq slow": (lambda x, y: L.lstsq(x, y, fast=False), lambda x, y: np.linalg.pinv(x) @ y, [tall, rhs4], []),
        "pinv": (L.pinv, np.linalg.pinv, [tall], []),
        "pinv wide": (L.pinv, np.linalg.pinv, [wide], []),
        "expm": (L.expm, scipy.linalg.expm, [a], []),
        "normalize": (
            lambda x: L.normalize(x, axis=-1)[0],
            lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True),
            [b],
            [],
        ),
        "adjoint": (L.adjoint, adjoint, [b], []),
        "cross": (L.cross, np.cross, [np.swapaxes(b, -1, -2), np.swapaxes(b, -1, -2)[::-1].copy()], []),
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", cases("real"))
def test_value_and_two_orders(name: str, kind: str) -> None:
    f, reference, operands, hermitian = cases(kind)[name]
    (got,) = values(f, operands)
    want = reference(*operands)
    assert got.dtype == operands[0].dtype or name == "logdet"
    assert_near(got, want, name, 1e-12)
    check_two_orders(f, operands, hermitian, tolerance=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
def test_values_in_other_dtypes(dtype: str) -> None:
    """Half types are computed in float32 and rounded once."""
    kind = "complex" if dtype == "complex64" else "real"
    for name, (f, reference, operands, _) in cases(kind).items():
        if name == "normalize" or (dtype == "float16" and "lstsq" in name):
            continue  # of several ops, each rounded
        small = [a.astype(dtype) for a in operands]
        (got,) = values(f, small)
        want = reference(*[a.astype("complex128" if kind == "complex" else "float64") for a in small])
        assert got.dtype == dtype or name == "logdet", name
        assert_near(got, want, name, 4e-3 if dtype == "float16" else 2e-4)


# ------------------------------------------------------------------ triangles


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_other_triangle_is_not_read(lower: bool, adjoint: bool, kind: str) -> None:
    """NaN there is nobody's business, and receives a zero gradient."""
    a, b = regular(1, 3, 2, kind=kind), numbers(2, 2, 3, 2, kind=kind)
    kept = np.tril(np.ones((3, 3))) if lower else np.triu(np.ones((3, 3)))
    spoilt = np.where(kept > 0, a, np.nan)
    f = lambda x, y: L.triangular_solve(x, y, lower=lower, adjoint=adjoint)  # noqa: E731
    clean = a * kept
    (got,) = values(f, [spoilt, b])
    assert_near(got, np.linalg.solve(np.conj(np.swapaxes(clean, -1, -2)) if adjoint else clean, b), "value", 1e-13)
    g_spoilt, h_spoilt = gradients(f, [spoilt, b], [b])
    g, h = gradients(f, [clean, b], [b])
    assert_near(g_spoilt, g, "gradient of the matrix", 1e-13)
    assert_near(h_spoilt, h, "gradient of the right-hand side", 1e-13)
    assert not (g_spoilt * (1 - kept)).any()


@pytest.mark.parametrize("n", [31, 32, 33, 64, 65, 200])
def test_triangles_larger_than_a_block(n: int) -> None:
    a, b = regular(1, n, 2), numbers(2, 2, n, 3)
    for lower in (True, False):
        (got,) = values(lambda x, y, lower=lower: L.triangular_solve(x, y, lower=lower), [a, b])
        want = np.stack([scipy.linalg.solve_triangular(x, y, lower=lower) for x, y in zip(a, b)])
        assert_near(got, want, (n, lower), 1e-13)


def test_triangles_are_solved_as_exactly_as_by_substitution() -> None:
    """A triangle of condition 10²⁰ whose solution is exact by substitution."""
    n = 60
    a = np.triu(-np.ones((n, n)), 1) + np.eye(n)
    (got,) = values(lambda x, y: L.triangular_solve(x, y, lower=False), [a, np.ones((n, 1))])
    assert got.ravel().tolist() == [2.0 ** (n - 1 - k) for k in range(n)]


# ------------------------------------------------------------------ factors


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2), (2, 2, 3)])
def test_qr(shape: tuple[int, ...], kind: str) -> None:
    a = numbers(1, *shape, kind=kind)
    q, r = values(L.qr, [a])
    want_q, want_r = np.linalg.qr(a)
    assert_near(q, want_q, "q", 1e-13)
    assert_near(r, want_r, "r", 1e-13)
    check_two_orders(lambda x: tuple(L.qr(x)), [a], tolerance=1e-6)
    q, r = values(lambda x: L.qr(x, full_matrices=True), [a])
    assert q.shape[-2:] == (shape[-2], shape[-2]) and r.shape == shape
    assert_near(q @ r, a, "full", 1e-13)
    assert_near(adjoint(q) @ q, np.broadcast_to(np.eye(shape[-2]), q.shape), "full", 1e-13)


def test_qr_is_named() -> None:
    result = L.qr(tf.constant(numbers(1, 3, 2)))
    assert (result.q.shape, result.r.shape) == ((3, 2), (2, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_eigh(kind: str) -> None:
    a = definite(1, 4, 2, kind=kind) + np.diag(np.arange(4.0))
    e, v = values(L.eigh, [a])
    assert e.dtype == a.dtype
    assert_near(e, np.linalg.eigvalsh(a), "values", 1e-13)
    assert_near(v @ (e[..., None] * adjoint(v)), a, "rebuilt", 1e-13)
    check_two_orders(lambda x: L.eigh(x), [a], tolerance=1e-6)
    check_two_orders(L.eigvalsh, [a], tolerance=1e-6)


def test_eigh_reads_the_lower_triangle() -> None:
    a = definite(1, 3)
    spoilt = np.where(np.tril(np.ones((3, 3))) > 0, a, 7.0)
    assert_near(values(L.eigvalsh, [spoilt])[0], np.linalg.eigvalsh(a), "values", 1e-14)
    (g,) = gradients(L.eigvalsh, [spoilt], [np.ones(3)])
    assert not np.triu(g, 1).any()


def test_cholesky_reads_the_lower_triangle_and_hands_out_a_symmetric_gradient() -> None:
    a = definite(1, 3)
    assert_near(values(L.cholesky, [np.tril(a)])[0], np.linalg.cholesky(a), "factor", 1e-14)
    (g,) = gradients(L.cholesky, [a], [np.tril(numbers(2, 3, 3))])
    assert_near(g, g.T, "symmetric", 1e-15)


# ------------------------------------------------------------------ pseudo-inverses, ranks, exponentials


def test_pinv_at_a_fixed_rank() -> None:
    """A = B C of rank 2: differences within matrices of that rank."""

    def f(b: Any, c: Any) -> Any:
        return L.pinv(tf.matmul(b, c), rcond=1e-6)

    check_two_orders(f, [numbers(1, 4, 2), numbers(2, 2, 3)], tolerance=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_pinv_of_a_unitary_matrix(kind: str) -> None:
    """All singular values are equal, and nothing is lost: it is the inverse."""
    q = np.linalg.qr(numbers(1, 3, 3, kind=kind))[0]
    c = numbers(2, 3, 3, kind=kind)
    assert_near(gradients(L.pinv, [q], [c])[0], gradients(L.inv, [q], [c])[0], kind, 1e-13)


def test_pinv_cuts_by_rcond() -> None:
    a = np.diag([1.0, 1e-3, 1e-9])
    assert values(lambda x: L.pinv(x, rcond=1e-2), [a])[0][1, 1] == 0
    assert_near(values(lambda x: L.pinv(x, rcond=1e-6), [a])[0], np.diag([1.0, 1e3, 0.0]), "1e-6", 1e-15)
    both = values(lambda x: L.pinv(x, rcond=[1e-2, 1e-6]), [np.stack([a, a])])[0]
    assert both[0, 1, 1] == 0 and both[1, 1, 1] != 0


def test_lstsq_of_rank_deficient_matrices() -> None:
    a, b = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]), np.array([[1.0], [2.0], [3.0]])
    (got,) = values(lambda x, y: L.lstsq(x, y, fast=False), [a, b])
    assert_near(got, np.linalg.lstsq(a, b, rcond=None)[0], "smallest norm", 1e-13)


def test_matrix_rank() -> None:
    a = np.stack([np.diag([1.0, 2.0, 3.0]), np.ones((3, 3)), np.zeros((3, 3))])
    ranks = L.matrix_rank(tf.constant(a))
    assert ranks.numpy().tolist() == [3, 1, 0] and ranks.dtype == tf.int32
    assert L.matrix_rank(tf.constant(a), tol=2.5).numpy().tolist() == [1, 1, 0]


@pytest.mark.parametrize("scale", [1e-8, 1.0, 30.0])
def test_expm_is_right_at_every_size(scale: float) -> None:
    a = np.stack([numbers(1, 4, 4) * scale, numbers(2, 4, 4)])
    (got,) = values(L.expm, [a])
    with mpmath.workdps(60):
        for x, y in zip(a, got):
            want = np.array(mpmath.expm(mpmath.matrix(x.tolist())).tolist(), float)
            assert np.abs(y - want).max() <= 1e-13 * max(scale, 1) * 4 * np.abs(want).max()


def test_expm_of_a_nilpotent_and_of_a_rotation() -> None:
    (got,) = values(L.expm, [np.array([[0.0, 1e6], [0.0, 0.0]])])  # squared often, 1 would lose its last digits
    assert_near(np.diag(got), [1.0, 1.0], "diagonal", 1e-15)
    assert_near(got, [[1.0, 1e6], [0.0, 1.0]], "nilpotent", 1e-15)
    t = 2.5
    want = np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]])
    assert_near(values(L.expm, [np.array([[0.0, -t], [t, 0.0]])])[0], want, "rotation", 1e-14)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_expm_gradient_is_linear_in_its_cotangent(size: float) -> None:
    a, c = numbers(1, 3, 3), numbers(2, 3, 3)
    (unit,), (scaled,) = gradients(L.expm, [a], [c]), gradients(L.expm, [a], [c * size])
    assert_near(scaled / size, unit, size, 1e-12)


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: L.inv(tf.ones((2, 3))), "square"),
        (lambda: L.inv(tf.ones(3)), "matrices"),
        (lambda: L.inv(tf.ones((2, 2), tf.int32)), "int32"),
        (lambda: L.solve(tf.ones((2, 2)), tf.ones(2)), "matrices"),
        (lambda: L.solve(tf.ones((2, 2)), tf.ones((3, 1))), "as many rows"),
        (lambda: L.solve(tf.ones((2, 2)), tf.ones((2, 1), tf.float64)), "one dtype"),
        (lambda: L.triangular_solve(tf.ones((2, 2, 2)), tf.ones((3, 2, 1))), "broadcast"),
        (lambda: L.cross(tf.ones(2), tf.ones(2)), r"\(\.\.\., 3\)"),
        (lambda: L.cross(tf.ones(3), tf.ones((2, 3))), r"\(\.\.\., 3\)"),
        (lambda: L.svd(tf.ones(3)), "matrices"),
        (lambda: L.qr(tf.ones(3)), "matrices"),
        (lambda: L.det(tf.ones((2, 3))), "square"),
        (lambda: L.lstsq(tf.eye(3, 2), tf.ones((2, 1))), "incompatible shapes"),
    ],
)
def test_what_does_not_fit(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=says):
        call()
