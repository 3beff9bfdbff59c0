"""Row-sparse gradients: where they come, where they are dense, what takes them, and that duplicates add up first."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf

TABLE = np.arange(12.0, dtype=np.float32).reshape(4, 3)


def gradient(f: Callable[[Any], Any], source: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(source)
        y = f(source)
    return tape.gradient(y, source)


def dense(f: Callable[[Any], Any]) -> Any:
    """The gradient of a function of the table as tensor, which nothing can make sparse."""
    with tf.GradientTape() as tape:
        x = tf.constant(TABLE)
        tape.watch(x)
        y = f(x * 1.0)
    return tape.gradient(y, x)


SPARSE: dict[str, Callable[[Any], Any]] = {
    "one lookup": lambda v: tf.reduce_sum(tf.gather(v, [1, 1, 3]) ** 2),
    "two lookups": lambda v: tf.reduce_sum(tf.gather(v, [1, 3]) ** 2) + tf.reduce_sum(tf.gather(v, [[0], [1]]) ** 3),
    "a scalar position": lambda v: tf.reduce_sum(tf.gather(v, 2) ** 2),
    "positions of other dtypes": lambda v: tf.reduce_sum(
        tf.gather(v, tf.constant([1], tf.int64)) * tf.gather(v, tf.constant([1], tf.int32))
    ),
    "embedding_lookup": lambda v: tf.reduce_sum(tf.nn.embedding_lookup(v, [[1, 0], [1, 1]]) ** 2),
    "gather_nd of rows": lambda v: tf.reduce_sum(tf.gather_nd(v, [[2], [2]]) ** 2),
    "no position": lambda v: tf.reduce_sum(tf.gather(v, np.zeros([0], int)) ** 2),
}
DENSE: dict[str, Callable[[Any], Any]] = {
    "with the whole table": lambda v: tf.reduce_sum(tf.gather(v, [1]) ** 2) + tf.reduce_sum(v * v),
    "of a function of the table": lambda v: tf.reduce_sum(tf.gather(v * 2.0, [1]) ** 2),
    "along axis 1": lambda v: tf.reduce_sum(tf.gather(v, [1, 1], axis=1) ** 2),
    "with batch axes": lambda v: tf.reduce_sum(tf.gather(v, [[0], [1], [2], [0]], batch_dims=1) ** 2),
    "single elements": lambda v: tf.reduce_sum(tf.gather_nd(v, [[1, 1], [1, 1]]) ** 2),
    "boolean_mask": lambda v: tf.reduce_sum(tf.boolean_mask(v, [True, False, True, True]) ** 2),
    "sort": lambda v: tf.reduce_sum(tf.sort(v, axis=0) ** 2),
    "subscript": lambda v: tf.reduce_sum(v[1:3] ** 2),
}


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("make", [tf.Variable, tf.constant], ids=["variable", "tensor"])
def test_lookups_have_sparse_gradients(name: str, make: Callable[[Any], Any]) -> None:
    found = gradient(SPARSE[name], make(TABLE))
    assert isinstance(found, tf.IndexedSlices)
    assert (found.shape, found.dtype) == ((4, 3), tf.float32)
    assert found.values.shape == (found.indices.shape[0], 3) and found.dense_shape.numpy().tolist() == [4, 3]
    assert np.array_equal(tf.convert_to_tensor(found), dense(SPARSE[name]))


@pytest.mark.parametrize("name", DENSE)
def test_other_gradients_are_tensors(name: str) -> None:
    found = gradient(DENSE[name], tf.Variable(TABLE))
    assert isinstance(found, tf.Tensor)
    assert np.array_equal(found, dense(DENSE[name]))


@pytest.mark.parametrize("name", SPARSE)
def test_recorded_gradients_are_tensors_and_differentiable(name: str) -> None:
    v = tf.Variable(TABLE)
    with tf.GradientTape(persistent=True) as outer:
        first = gradient(SPARSE[name], v)
    assert isinstance(first, tf.Tensor)
    x = tf.constant(TABLE)
    with tf.GradientTape(persistent=True) as plain:
        plain.watch(x)
        same = gradient(lambda t: SPARSE[name](t * 1.0), x)
    got, want = outer.jacobian(first, v), plain.jacobian(same, x)
    np.testing.assert_allclose(got, want)


def test_jacobians_are_tensors() -> None:
    v = tf.Variable(TABLE)
    with tf.GradientTape(persistent=True) as tape:
        y = tf.gather(v, [1, 1])
    for at_once in (True, False):
        rows = tape.jacobian(y, v, experimental_use_pfor=at_once)
        assert np.array_equal(rows, np.einsum("ia,jb->ijab", np.eye(4)[[1, 1]], np.eye(3)))


def test_targets_that_are_sources() -> None:
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.gather(x, [0, 0])
    assert tape.gradient([y, x], x).numpy().tolist() == [3.0, 1.0]
    assert isinstance(tape.gradient(y, [x, tf.Variable(1.0)])[0], tf.IndexedSlices)


def slices(values: Any = ((1.0,), (2.0,), (4.0,)), indices: Any = (2, 0, 2), shape: Any = (3, 1)) -> Any:
    return tf.IndexedSlices(tf.constant(values), tf.constant(indices), None if shape is None else tf.constant(shape))


def test_as_an_operand() -> None:
    s, want = slices(), [[2.0], [0.0], [5.0]]
    for found in (tf.convert_to_tensor(s), tf.add_n([s]), tf.identity(s), tf.constant(0.0) + s):
        assert found.numpy().tolist() == want
    assert tf.convert_to_tensor(-s).numpy().tolist() == [[-2.0], [0.0], [-5.0]]
    scaled = tf.math.scalar_mul(3.0, s)
    assert isinstance(scaled, tf.IndexedSlices) and float(scaled.values[2, 0]) == 12.0
    assert np.array_equal(tf.convert_to_tensor(pickle.loads(pickle.dumps(s))), want)


def test_without_a_dense_shape() -> None:
    s = slices(shape=None)
    assert s.shape.as_list() == [None, 1] and s.dense_shape is None
    with pytest.raises(ValueError, match="dense_shape is None"):
        tf.convert_to_tensor(s)


def test_text() -> None:
    s = slices()
    assert str(s).startswith("IndexedSlices(indices=tf.Tensor([2 0 2]") and "dense_shape=" in str(s)
    assert repr(s).startswith("<tf.IndexedSlices: shape=(3, 1), dtype=float32")


def test_norms_are_those_of_the_tensor() -> None:
    """Rows at one position add up before they are squared."""
    s = slices()
    t = tf.convert_to_tensor(s)
    clipped = tf.clip_by_norm(s, 1.0)
    assert isinstance(clipped, tf.IndexedSlices)
    np.testing.assert_allclose(tf.convert_to_tensor(clipped), tf.clip_by_norm(t, 1.0))
    np.testing.assert_allclose(tf.linalg.global_norm([s, None, t]), np.sqrt(2 * 29))
    (a, none, b), size = tf.clip_by_global_norm([s, None, t], 1.0)
    assert isinstance(a, tf.IndexedSlices) and none is None
    np.testing.assert_allclose(tf.convert_to_tensor(a), b)
    np.testing.assert_allclose(size, np.sqrt(2 * 29))


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("scatter_add", [12.0, 10.0, 15.0]),
        ("scatter_sub", [8.0, 10.0, 5.0]),
        ("scatter_mul", [20.0, 10.0, 40.0]),
        ("scatter_div", [5.0, 10.0, 2.5]),
        ("scatter_max", [10.0, 10.0, 10.0]),
        ("scatter_min", [2.0, 10.0, 1.0]),
        ("scatter_update", [2.0, 10.0, 4.0]),
    ],
)
def test_variables_take_rows(name: str, want: list[float]) -> None:
    v = tf.Variable(np.full((3, 1), 10.0, np.float32))
    before = v.read_value()
    assert getattr(v, name)(slices()) is v
    assert v.numpy().ravel().tolist() == want
    assert before.numpy().ravel().tolist() == [10.0] * 3, "what was read before has changed"


@pytest.mark.parametrize(
    ("delta", "error", "says"),
    [
        (tf.constant([1.0]), TypeError, "IndexedSlices"),
        (tf.IndexedSlices(tf.constant([1]), tf.constant([0])), TypeError, "int32"),
        (tf.IndexedSlices(tf.constant([1.0]), tf.constant([5])), tf.errors.InvalidArgumentError, "5 is not in"),
        (tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([0])), tf.errors.InvalidArgumentError, "rows of shape"),
    ],
)
def test_rows_that_do_not_fit(delta: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        tf.Variable([1.0, 2.0]).scatter_add(delta)


@pytest.mark.parametrize("name", ["SGD", "Adam"])
@pytest.mark.parametrize("options", [{}, {"clipnorm": 0.5}, {"global_clipnorm": 0.5}], ids=str)
def test_optimizers_add_rows_up_first(name: str, options: dict[str, float]) -> None:
    """A row that is used twice moves as the dense gradient says."""
    sparse, whole = tf.Variable(TABLE), tf.Variable(TABLE)
    first, second = (getattr(tf.keras.optimizers, name)(0.1, **options) for _ in range(2))
    for _ in range(3):
        g = gradient(SPARSE["one lookup"], sparse)
        assert isinstance(g, tf.IndexedSlices)
        first.apply_gradients([(g, sparse)])
        second.apply_gradients([(gradient(lambda v: SPARSE["one lookup"](v * 1.0), whole), whole)])
    np.testing.assert_allclose(sparse, whole, rtol=1e-6)


def test_tables_in_parts_and_bounded_rows() -> None:
    parts = [tf.constant([[3.0, 4.0], [0.3, 0.4]]), tf.constant([[6.0, 8.0]])]
    found = tf.nn.embedding_lookup(parts, [[2, 1]], max_norm=1.0)
    np.testing.assert_allclose(found, [[[0.6, 0.8], [0.3, 0.4]]], rtol=1e-6)
    with pytest.raises(ValueError, match="at least one table"):
        tf.nn.embedding_lookup([], [0])


def test_casts_and_bounds_keep_rows() -> None:
    rows = tf.IndexedSlices(tf.constant([[1.5], [2.0]]), tf.constant([2, 2]), tf.constant([4, 1]))
    cast = tf.cast(rows, tf.float64)
    assert isinstance(cast, tf.IndexedSlices) and cast.dtype == tf.float64
    assert tf.cast(tf.IndexedSlices(rows.values, rows.indices), tf.int32).values.numpy().tolist() == [[1], [2]]
    bounded = tf.clip_by_value(rows, -3.0, 3.0)
    assert isinstance(bounded, tf.IndexedSlices)
    assert tf.convert_to_tensor(bounded).numpy().tolist() == [[0], [0], [3], [0]]


def test_rows_stand_in_the_order_of_the_lookups() -> None:
    table = tf.Variable(tf.ones([4, 1]))
    with tf.GradientTape() as tape:
        first, second, third = tf.gather(table, [0]), tf.gather(table, [2, 1]), tf.gather(table, [3])
        y = tf.reduce_sum(second) * 2.0 + tf.reduce_sum(third) * 3.0 + tf.reduce_sum(first)
    g = tape.gradient(y, table)
    assert g.indices.numpy().tolist() == [0, 2, 1, 3]
    assert g.values.numpy().ravel().tolist() == [1, 2, 2, 3]
