"""`tf.vectorized_map` and `tf.map_fn`: structures, nesting, what they capture, and derivatives through and inside."""

from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.ops.contraction import Contraction
from gradtape.transforms.vectorize import RULES
from tests.jacobian.programs import KERNEL, W35, layer_norm, normal

X = normal(4, 3)

# Programs of one example, and the examples.
ROWS: dict[str, tuple[Any, np.ndarray]] = {
    "elementwise": (lambda r: tf.sin(r) * r, X),
    "scalars": (lambda r: r * r + 1.0, X[:, 0]),
    "a sum": (tf.reduce_sum, X),
    "softmax": (tf.nn.softmax, X),
    "layer norm": (layer_norm, X),
    "a matrix product": (lambda r: tf.linalg.matvec(W35, r, transpose_a=True), X),
    "a product with itself": (lambda m: tf.matmul(m, m, transpose_b=True), normal(3, 2, 4)),
    "an outer product": (lambda r: r[:, None] * r[None, :], X),
    "a convolution": (lambda im: tf.nn.conv2d(im[None], KERNEL, 1, "SAME")[0], normal(2, 3, 3, 2)),
    "slices": (lambda r: r[1:] * r[:-1], X),
    "a concatenation with a constant": (lambda r: tf.concat([r, tf.zeros([2], tf.float64)], 0), X),
    "a reversal": (lambda r: r[::-1], X),
    "sort": (tf.sort, X),
    "argsort": (tf.argsort, X),
    "argmax": (tf.argmax, X),
    "gather at places of its own": (lambda r: tf.gather(r, tf.argsort(r)[:2]), X),
    "gather from a table": (lambda r: tf.gather(W35, tf.argsort(r), axis=0), X),
    "gather from columns of a table": (lambda r: tf.gather(W35, tf.argsort(r)[:2], axis=1), X),
    "where": (lambda r: tf.where(r > 0, r, -r * 2.0), X),
    "cumulative sums": (lambda r: tf.cumsum(r, reverse=True), X),
    "matrices": (lambda m: tf.linalg.inv(m), np.stack([np.eye(2) * (k + 2) + 0.1 for k in range(3)])),
    "determinants": (tf.linalg.det, normal(3, 2, 2)),
    "one hot": (lambda r: tf.one_hot(tf.argmax(r), 3, dtype=tf.float64), X),
    "a cross entropy": (
        lambda r: tf.nn.sparse_softmax_cross_entropy_with_logits(tf.argmax(r), r),
        X,
    ),
    "a constant": (lambda r: tf.constant([1.0, 2.0]), X),
    "reduce max": (tf.reduce_max, X),
    "tile": (lambda r: tf.tile(r, [2]), X),
    "transpose of a matrix": (tf.transpose, normal(3, 2, 4)),
}


@pytest.mark.parametrize("name", ROWS)
def test_all_rows_at_once_are_the_rows(name: str) -> None:
    function, at = ROWS[name]
    x = tf.constant(at)
    found = tf.vectorized_map(function, x)
    want = tf.stack([function(x[i]) for i in range(len(at))])
    assert (found.shape, found.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-12, atol=1e-13)


TRUTHS: dict[str, Any] = {
    "chosen": lambda r: tf.where([True, False, True], r > 0, r > 1),
    "rolled": lambda r: tf.roll(r > 0, 1, 0),
    "side by side": lambda r: tf.concat([r > 0, [True], r[::-1] > 1], 0),
    "picked": lambda r: tf.gather(r > 0, tf.argsort(r)),
    "any": lambda r: tf.reduce_any(r > 1),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_truth_values(name: str) -> None:
    found = tf.vectorized_map(TRUTHS[name], X)
    np.testing.assert_array_equal(found, [TRUTHS[name](tf.constant(row)) for row in X])


@pytest.mark.parametrize("name", ROWS)
def test_map_fn_is_the_loop(name: str) -> None:
    function, at = ROWS[name]
    x = tf.constant(at)
    found = tf.map_fn(function, x)
    want = tf.stack([function(x[i]) for i in range(len(at))])
    np.testing.assert_array_equal(found.numpy(), want.numpy())


DIFFERENTIABLE = [n for n in ROWS if n not in ("argsort", "argmax", "one hot", "a constant") and "table" not in n]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_go_through(name: str) -> None:
    function, at = ROWS[name]
    x = tf.constant(at)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.reduce_sum(tf.sin(tf.vectorized_map(function, x)))
        z = tf.reduce_sum(tf.sin(tf.map_fn(function, x)))
    want = tape.gradient(z, x).numpy()
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in DIFFERENTIABLE if ROWS[n][1].ndim > 1])
def test_gradients_inside(name: str) -> None:
    """Per-example gradients: the tape stands inside the mapped function."""
    function, at = ROWS[name]
    x = tf.constant(at)

    def slope(r: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(r)
            y = tf.reduce_sum(tf.sin(function(r)))
        return tape.gradient(y, r)

    found = tf.vectorized_map(slope, x)
    want = tf.stack([slope(x[i]) for i in range(len(at))])
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in DIFFERENTIABLE if ROWS[n][1].ndim == 2])
def test_jacobians_inside_and_outside(name: str) -> None:
    function, at = ROWS[name]
    x = tf.constant(at)

    def rows(r: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(r)
            y = function(r)
        return tape.jacobian(y, r)

    inside = tf.vectorized_map(rows, x).numpy()
    want = np.stack([rows(x[i]).numpy() for i in range(len(at))])
    np.testing.assert_allclose(inside, want, rtol=1e-10, atol=1e-12)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.vectorized_map(function, x)
    outside = tape.jacobian(y, x).numpy()
    n = len(at)
    np.testing.assert_allclose(outside[range(n), ..., range(n), :], want, rtol=1e-10, atol=1e-12)


# ------------------------------------------------------------------ structures


def test_structures_in_and_out() -> None:
    elems = {"a": tf.constant(X), "b": (tf.constant(X[:, 0]), [tf.constant(np.arange(4))])}

    def f(e: Any) -> Any:
        return {"s": e["a"] * e["b"][0], "t": [tf.reduce_sum(e["a"]), (e["b"][1][0] + 1,)]}

    for mapped in (tf.vectorized_map, tf.map_fn):
        found = mapped(f, elems)
        np.testing.assert_allclose(found["s"].numpy(), X * X[:, :1])
        np.testing.assert_allclose(found["t"][0].numpy(), X.sum(1))
        np.testing.assert_array_equal(found["t"][1][0].numpy(), np.arange(4) + 1)


def test_elements_of_size_1_are_seen_by_all() -> None:
    w = normal(1, 3)
    found = tf.vectorized_map(lambda e: e[0] * e[1], (tf.constant(X), tf.constant(w)))
    np.testing.assert_allclose(found.numpy(), X * w)
    with tf.GradientTape() as tape:
        v = tf.constant(w)
        tape.watch(v)
        y = tf.reduce_sum(tf.vectorized_map(lambda e: e[0] * e[1], (tf.constant(X), v)))
    np.testing.assert_allclose(tape.gradient(y, v).numpy(), X.sum(0, keepdims=True))


def test_nested_maps() -> None:
    x = tf.constant(normal(2, 3, 4))
    f = lambda v: tf.nn.softmax(v) * tf.reduce_max(v)  # noqa: E731
    found = tf.vectorized_map(lambda m: tf.vectorized_map(f, m), x)
    want = tf.stack([tf.stack([f(x[i, j]) for j in range(3)]) for i in range(2)])
    np.testing.assert_allclose(found.numpy(), want.numpy())
    pairs = tf.vectorized_map(lambda a: tf.vectorized_map(lambda c: tf.reduce_sum(a * c), x[0]), x[1])
    np.testing.assert_allclose(pairs.numpy(), x[1].numpy() @ x[0].numpy().T)


def test_what_is_captured_is_differentiated() -> None:
    w, c = tf.Variable(W35), tf.constant(normal(5))
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(c)
        y = tf.vectorized_map(lambda r: tf.tanh(tf.linalg.matvec(w, r, transpose_a=True)) * c, x)
    by_w, by_c = tape.gradient(y, [w, c])
    with tf.GradientTape() as tape:
        tape.watch(c)
        z = tf.tanh(tf.matmul(x, w)) * c
    want_w, want_c = tape.gradient(z, [w, c])
    np.testing.assert_allclose(by_w.numpy(), want_w.numpy())
    np.testing.assert_allclose(by_c.numpy(), want_c.numpy())


def test_the_function_runs_once() -> None:
    calls = []

    def f(r: Any) -> Any:
        calls.append(1)
        return r * 2.0

    tf.vectorized_map(f, tf.constant(X))
    assert len(calls) == 1


def test_no_elements() -> None:
    found = tf.vectorized_map(lambda r: tf.reduce_sum(r) * tf.ones([2], tf.float64), tf.zeros([0, 3], tf.float64))
    assert found.shape == (0, 2)


def test_one_element() -> None:
    found = tf.vectorized_map(lambda r: r * 2.0, tf.constant(X[:1]))
    np.testing.assert_allclose(found.numpy(), 2 * X[:1])


# ------------------------------------------------------------------ errors


def test_values_are_not_known_inside() -> None:
    for f in (lambda r: r if r[0] > 0 else -r, lambda r: r.numpy(), lambda r: float(r[0]), lambda r: r * bool(r[0])):
        with pytest.raises(Exception, match="not known"):
            tf.vectorized_map(f, tf.constant(X))


def test_a_symbolic_tensor_does_not_leave_its_function() -> None:
    kept = []
    tf.vectorized_map(lambda r: kept.append(r) or r, tf.constant(X))
    with pytest.raises(TypeError, match="out of scope"):
        kept[0] + 1.0


@pytest.mark.parametrize("mapped", [tf.vectorized_map, tf.map_fn])
def test_elements_that_do_not_fit(mapped: Any) -> None:
    with pytest.raises(ValueError, match="first dimension"):
        mapped(lambda e: e[0], (tf.constant(X), tf.constant(X[:2])))
    with pytest.raises(ValueError, match=r"elems|scalar"):
        mapped(lambda e: e, tf.constant(1.0))
    with pytest.raises(ValueError, match="elems"):
        mapped(lambda e: e, [])


@pytest.mark.parametrize("mapped", [tf.vectorized_map, tf.map_fn])
def test_slices_that_are_not_there(mapped: Any) -> None:
    """What the function makes of a slice gives the shapes and dtypes."""
    assert mapped(lambda a: a * 2, tf.zeros([0, 3])).shape == (0, 3)
    found = mapped(lambda e: {"sum": tf.reduce_sum(e[0]), "flag": e[1] > 0}, (tf.zeros([0, 3]), tf.zeros([0, 2])))
    assert found["sum"].shape == (0,) and found["flag"].shape == (0, 2) and found["flag"].dtype == tf.bool


OUTER: dict[str, Any] = {
    "vectors": lambda a: tf.einsum("i,j->ij", a, a),
    "three vectors": lambda a: tf.einsum("i,j,k->ijk", a, a, a),
    "tensordot": lambda a: tf.tensordot(a, tf.sin(a), 0),
    "matrices": lambda a: tf.einsum("ij,kl->ikjl", tf.reshape(a, [2, 2]), tf.reshape(a, [2, 2])),
    "with a mapped identity": lambda a: tf.einsum("i,jk->ijk", a, tf.linalg.diag(a)),
}


@pytest.mark.parametrize("name", OUTER)
def test_outer_products_of_a_value_with_itself(name: str) -> None:
    f = OUTER[name]
    x = tf.constant(np.random.default_rng(3).normal(size=(3, 4)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        found = tf.vectorized_map(f, x)
        each = tf.stack([f(row) for row in tf.unstack(x)])
    np.testing.assert_allclose(found.numpy(), each.numpy(), 1e-12)
    np.testing.assert_allclose(tape.gradient(found, x).numpy(), tape.gradient(each, x).numpy(), 1e-12)
    np.testing.assert_allclose(tape.jacobian(found, x).numpy(), tape.jacobian(each, x).numpy(), 1e-12)


# ------------------------------------------------------------------ results that are no tensors; signatures

V = np.array([1.0, 2.0, 3.0], np.float32)


def test_none_among_the_results_stays() -> None:
    assert tf.vectorized_map(lambda e: None, tf.constant(V)) is None
    first, nothing = tf.vectorized_map(lambda e: (e * 2.0, None), tf.constant(V))
    assert nothing is None
    np.testing.assert_array_equal(first.numpy(), 2 * V)


def test_numbers_take_the_dtype_of_the_elements_or_of_the_signature() -> None:
    v = tf.constant(V)
    for size in (3, 0):
        assert tf.map_fn(lambda e: 1, v[:size]).dtype == tf.float32
        assert tf.map_fn(lambda e: 1, v[:size], fn_output_signature=tf.int64).dtype == tf.int64
        assert tf.map_fn(lambda e: 1, v[:size], dtype=tf.int64).dtype == tf.int64
        spec = tf.TensorSpec([], tf.float64)
        assert tf.map_fn(lambda e: 1, v[:size], fn_output_signature=spec).dtype == tf.float64
        a, b = tf.map_fn(lambda e: [e, 1], v[:size], fn_output_signature=[tf.float32, tf.int32])
        assert (a.dtype, b.dtype, a.shape, b.shape) == (tf.float32, tf.int32, (size,), (size,))
    assert tf.map_fn(lambda e: e > 1, v).dtype == tf.bool  # no signature: a tensor may be anything


def test_results_that_are_not_what_the_signature_says() -> None:
    v = tf.constant(V)
    with pytest.raises(tf.errors.InvalidArgumentError, match="float tensor where `fn_output_signature` says int64"):
        tf.map_fn(lambda e: e, v, fn_output_signature=tf.int64)
    with pytest.raises(ValueError, match="another structure"):
        tf.map_fn(lambda e: (e, e), v, fn_output_signature=tf.float32)


def test_running_combinations_of_nothing() -> None:
    none = tf.zeros([0])
    assert tf.scan(lambda a, e: a + e, none, initializer=1.0).shape == (0,)
    s, t = tf.scan(lambda a, e: a, none, initializer=(1.0, tf.ones([2])))
    assert (s.shape, t.shape) == ((0,), (0, 2))
    for fold in (tf.foldl, tf.foldr):
        assert float(fold(lambda a, e: a + e, none, initializer=1.5)) == 1.5
        assert isinstance(fold(lambda a, e: a + e, none, initializer=1.5), tf.Tensor)
        with pytest.raises(ValueError, match="wants an `initializer`"):
            fold(lambda a, e: a + e, none)


# ------------------------------------------------------------------ what cannot run for all rows at once


def test_an_op_without_a_rule_is_named_with_the_way_out(monkeypatch: Any) -> None:
    monkeypatch.delitem(RULES, Contraction)
    x = tf.constant(X)
    with pytest.raises(tf.NotVectorizable, match=r"`contract` cannot run for all rows at once.*`tf\.map_fn`") as found:
        tf.vectorized_map(lambda r: tf.tensordot(r, r * 1.5, 1), x)
    assert isinstance(found.value, tf.errors.UnimplementedError)
    assert found.value.op == "contract"
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.matmul(x, W35) + 0.125
    with pytest.raises(tf.NotVectorizable, match="`experimental_use_pfor=False`"):
        tape.jacobian(y, x)
    assert tape.jacobian(y, x, experimental_use_pfor=False).shape == (4, 5, 4, 3)
    assert tf.map_fn(lambda r: tf.tensordot(r, r * 1.5, 1), x).shape == (4,)
