"""Structured Jacobians: what they store and say, SciPy matrices of them, and the errors of wrong questions."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import gradtape as tf
from tests.jacobian.programs import PROGRAMS, W35, W53, batch_norm, jacobian, jacobian_by_rows, normal, tape_of

X = normal(4, 3)


def structured(function: Any, at: Any, **how: Any) -> Any:
    return jacobian(function, at, structured=True, **how)


# ------------------------------------------------------------------ what structure is found

STRUCTURES = {
    "elementwise": (lambda x: tf.tanh(x), "a b | a b : (ab)", 12),
    "a copy": (lambda x: x + 1.0, "a b | a b : 1", 12),
    "a transpose": (lambda x: tf.transpose(x), "a b | b a : 1", 12),
    "a reversal": (lambda x: x[:, ::-1], None, 12),
    "an example's network": (lambda x: tf.tanh(tf.matmul(x, W35)), None, 4 * 5 * 3),
    "two layers": (lambda x: tf.matmul(tf.tanh(tf.matmul(x, W35)), W53), None, 4 * 3 * 3),
    "a sum of each example": (lambda x: tf.reduce_sum(x, axis=1), "a | a b : ()", 12),
    "a sum of all": (tf.reduce_sum, " | a b : ()", 12),
    "slices": (lambda x: x[1:3], None, 6),
    "a merge": (lambda x: tf.reshape(tf.sin(x), [-1]), "ab | a b : (ab)", 12),
}


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_structure_and_number_of_entries(name: str, mode: str) -> None:
    function, text, entries = STRUCTURES[name]
    s = structured(function, X, mode=mode)
    assert s.nnz == entries
    if text is not None:
        assert s.structure.replace("(ba)", "(ab)") == text
    full = jacobian_by_rows(function, X).numpy()
    assert np.count_nonzero(full) <= entries


def test_a_kernels_jacobian_stores_the_input_alone() -> None:
    """Of a Dense layer: x stands aside, and nothing is multiplied."""
    w, x = tf.Variable(W35), tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        y = tf.matmul(x, w)
    s = tape.jacobian(y, w, structured=True)
    assert s.structure == "a b | c b : (ac)"
    plan = tape.plan_jacobian(y, w)
    assert plan.multiply_adds == 0
    want = np.einsum("bi,op->boip", X, np.eye(5))
    np.testing.assert_array_equal(s.dense().numpy(), want)


def test_batch_norm_is_a_diagonal_and_low_rank() -> None:
    s = structured(batch_norm, normal(40, 3))
    assert 2 <= len(s.structure.splitlines()) <= 3
    assert all(len(line.split("|")[0].split()) == 2 for line in s.structure.splitlines())


# ------------------------------------------------------------------ SciPy


@pytest.mark.parametrize("name", [n for n in PROGRAMS if PROGRAMS[n].at.size > 1])
def test_scipy_matrices(name: str) -> None:
    tape, y, x = tape_of(PROGRAMS[name])
    full = tape.jacobian(y, x).numpy()
    matrix = full.reshape(-1, PROGRAMS[name].at.size)
    s = tape.jacobian(y, x, structured=True)
    operator = s.to_scipy(linear=True)
    assert operator.shape == matrix.shape
    rng = np.random.default_rng(1)
    v, u = rng.normal(size=matrix.shape[1]), rng.normal(size=matrix.shape[0])
    np.testing.assert_allclose(operator @ v, matrix @ v, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(operator.T @ u, matrix.T @ u, rtol=1e-9, atol=1e-10)
    sparse = s.to_scipy()
    assert scipy.sparse.issparse(sparse)
    assert sparse.format == "csr"
    np.testing.assert_allclose(sparse.toarray(), matrix, rtol=1e-9, atol=1e-10)


def test_an_elementwise_csr_has_one_entry_per_row() -> None:
    sparse = structured(tf.tanh, X).to_scipy()
    assert sparse.nnz == 12
    np.testing.assert_array_equal(sparse.indptr, np.arange(13))


def test_positions_known_only_when_running_are_asked_for() -> None:
    s = structured(lambda x: tf.gather(x, [1, 0, 1]), X)
    assert s.structure == "a b | a* b : 1"
    np.testing.assert_array_equal(s.to_scipy().toarray(), np.kron(np.eye(4)[[1, 0, 1]], np.eye(3)))


def test_adjoints_of_complex_operators() -> None:
    at = np.array([1 + 2j, 3 - 1j])
    operator = structured(lambda z: z * z * tf.reduce_sum(z), at).to_scipy(linear=True)
    matrix = operator @ np.eye(2)
    np.testing.assert_allclose(operator.H @ np.eye(2), matrix.conj().T)


# ------------------------------------------------------------------ complex


def test_complex_rows() -> None:
    at = np.array([1 + 2j, 3 - 1j])
    f = lambda z: z * z * tf.reduce_sum(z)  # noqa: E731
    full = jacobian(f, at).numpy()
    s = structured(f, at)
    np.testing.assert_allclose(s.dense().numpy(), full)
    norms = s.row_norms()
    assert norms.dtype == tf.float64
    np.testing.assert_allclose(norms.numpy(), np.linalg.norm(full, axis=1))
    v = tf.constant(np.array([1j, 2.0]))
    np.testing.assert_allclose((s @ v).numpy(), full @ v.numpy())
    np.testing.assert_allclose((s.T @ v).numpy(), full.T @ v.numpy())


# ------------------------------------------------------------------ the object


def test_what_it_says_of_itself() -> None:
    s = structured(tf.tanh, X)
    assert "nnz=12" in repr(s)
    assert "shape=(4, 3, 4, 3)" in repr(s)
    assert s.T.T is s
    assert s.shape == (4, 3, 4, 3)
    assert s.dtype == tf.float64


def test_structures_of_sources_and_what_is_not_connected() -> None:
    x, w, lost = tf.constant(X), tf.Variable(W35), tf.constant([1.0])
    with tf.GradientTape() as tape:
        tape.watch([x, lost])
        y = tf.matmul(x, w)
    found = tape.jacobian(y, {"x": x, "w": [w, lost]}, structured=True)
    assert found["w"][1] is None
    assert found["x"].nnz == 60
    assert found["w"][0].source_shape == (3, 5)


def test_it_outlives_its_tape() -> None:
    s = structured(lambda x: tf.sin(x) * x, X)
    want = np.cos(X) * X + np.sin(X)
    np.testing.assert_allclose(s.diagonal().numpy(), want)
    np.testing.assert_allclose(s.diagonal().numpy(), want)


def test_wrong_questions() -> None:
    s = structured(lambda x: tf.matmul(x, W35), X)
    with pytest.raises(ValueError, match="equal target and source"):
        s.diagonal()
    with pytest.raises(ValueError, match=r"shape \(4, 3\)"):
        s @ np.zeros(12)
    with pytest.raises(ValueError, match="float32"):
        s @ tf.zeros([4, 3])
    with pytest.raises(ValueError, match=r"shape \(4, 5\)"):
        s.T @ np.zeros((4, 3))
    with pytest.raises(ValueError, match="first dimension"):
        structured(tf.reduce_sum, X).blocks()


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.complex64])
def test_for_numpy_and_scipy_in_every_dtype(dtype: tf.DType) -> None:
    x = tf.cast(tf.constant([1.0, 2.0, 3.0]), dtype)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.reshape(x[:, None] * x[None], [9])
    found, want = tape.jacobian(y, x, structured=True), tape.jacobian(y, x).numpy()
    np.testing.assert_array_equal(np.asarray(found), want)
    assert found.T.shape == (3, 9)
    np.testing.assert_array_equal(np.asarray(found.T), want.T)
    own = np.promote_types(want.dtype, np.float32)
    np.testing.assert_array_equal(found.to_scipy().toarray(), want.astype(own))
    vector = np.arange(1, 4).astype(own)
    np.testing.assert_allclose(found.to_scipy(linear=True) @ vector, want.astype(own) @ vector, rtol=1e-2)
