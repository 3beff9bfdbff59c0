"""Layout and indexing at their edges: partitions, sequences, grids, blocks, counts, scatters, ranges, values that are
on or off; values by loops or by NumPy, derivatives, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.api.slopes import assert_derivatives

RNG = np.random.default_rng(3)
X = RNG.normal(size=(3, 4))


def test_dynamic_partition_and_stitch_undo_each_other() -> None:
    which = np.array([2, 0, 2])
    parts = tf.dynamic_partition(X, which, 4)
    assert [p.shape.as_list() for p in parts] == [[1, 4], [0, 4], [2, 4], [0, 4]]
    places = tf.dynamic_partition(np.arange(3), which, 4)
    assert np.array_equal(tf.dynamic_stitch(places, parts), X)
    assert_derivatives(lambda x: tf.dynamic_partition(x * x, which, 4)[2], X)
    assert_derivatives(lambda x: tf.dynamic_stitch([[3, 0], 1], [x[:2] ** 2, x[2]]), X)
    by_element = tf.dynamic_partition(X, RNG.integers(0, 2, X.shape), 2)
    assert sum(int(p.shape[0]) for p in by_element) == X.size


def test_stitch_keeps_the_last_and_fills_with_zeros() -> None:
    assert tf.dynamic_stitch([[0, 3], [3]], [[1, 2], [9]]).numpy().tolist() == [1, 0, 0, 9]
    assert tf.dynamic_stitch([[[1, 0]], [2]], [[[True, False]], [True]]).numpy().tolist() == [False, True, True]


def test_reverse_sequence() -> None:
    lengths = [4, 0, 2]
    want = np.array([np.concatenate([row[:n][::-1], row[n:]]) for row, n in zip(X, lengths, strict=True)])
    assert np.array_equal(tf.reverse_sequence(X, lengths, seq_axis=1), want)
    assert np.array_equal(tf.reverse_sequence(X.T, lengths, seq_axis=0, batch_axis=1), want.T)
    assert_derivatives(lambda x: tf.reverse_sequence(x**2, lengths, seq_axis=-1), X)


def test_sequence_mask() -> None:
    got = tf.sequence_mask([[1, 0], [3, 2]])
    assert got.dtype == tf.bool and np.array_equal(got, np.arange(3) < np.array([[1, 0], [3, 2]])[..., None])
    assert tf.sequence_mask(2, 5, tf.float32).numpy().tolist() == [1, 1, 0, 0, 0]
    assert tf.sequence_mask([4], maxlen=2).numpy().tolist() == [[True, True]]
    assert tf.sequence_mask(tf.zeros([0], tf.int32)).shape == (0, 0)


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("sizes", [(3,), (3, 2), (2, 3, 4), (2, 0), ()])
def test_meshgrid(indexing: Any, sizes: tuple[int, ...]) -> None:
    vectors = [RNG.normal(size=n) for n in sizes]
    got, want = tf.meshgrid(*vectors, indexing=indexing), np.meshgrid(*vectors, indexing=indexing)
    assert len(got) == len(want) and all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
    if sizes == (3, 2):
        assert_derivatives(lambda x, y: tf.add_n([a * b for a, b in [tf.meshgrid(x, y)]]), *vectors)


def test_blocks() -> None:
    x = RNG.normal(size=(2, 3, 5, 2))
    pads = [[1, 0], [0, 1]]
    cut = tf.space_to_batch(x, [2, 3], pads)
    assert cut.shape == (12, 2, 2, 2)
    padded = np.pad(x, [(0, 0), (1, 0), (0, 1), (0, 0)])
    for at in np.ndindex(2, 3):
        first = 2 * (at[0] * 3 + at[1])
        assert np.array_equal(cut[first : first + 2], padded[:, at[0] :: 2, at[1] :: 3])
    assert np.array_equal(tf.batch_to_space(cut, [2, 3], pads), x)
    assert tf.space_to_batch(tf.zeros([1, 4, 4, 1]), 2, [[0, 0], [0, 0]]).shape == (4, 2, 2, 1)
    assert_derivatives(lambda v: tf.space_to_batch(v**2, [3], [[1, 0]]), RNG.normal(size=(2, 2, 1)))


def test_counting() -> None:
    x = RNG.integers(0, 3, (4, 5))
    assert np.array_equal(tf.math.count_nonzero(x, axis=[1], keepdims=True), np.count_nonzero(x, 1, keepdims=True))
    assert tf.math.count_nonzero(["", "a"], dtype=tf.int32).dtype == tf.int32
    assert np.array_equal(tf.math.bincount(x), np.bincount(x.ravel()))
    assert tf.math.bincount([1, 7], minlength=3, maxlength=5).numpy().tolist() == [0, 1, 0, 0, 0]
    assert tf.math.bincount([1], minlength=3).numpy().tolist() == [0, 1, 0]
    rows = tf.math.bincount(x, axis=-1, minlength=3)
    assert np.array_equal(rows, [np.bincount(r, minlength=3) for r in x])
    assert np.array_equal(tf.math.bincount(x, axis=-1, minlength=3, binary_output=True), rows.numpy() > 0)
    assert_derivatives(lambda w: tf.math.bincount(x[:3, :4], w**2, maxlength=2), X)
    counts = tf.math.confusion_matrix([0, 1, 1, 3], [0, 1, 0, 3], weights=[1, 2, 3, 4], dtype=tf.float32)
    assert counts.numpy().tolist() == [[1, 0, 0, 0], [3, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 4]]
    assert tf.histogram_fixed_width([-9, 0, 1, 2, 9], [0, 2], 2).numpy().tolist() == [2, 3]


def test_scattered_into_a_tensor() -> None:
    at, updates = [[0, 1], [2, 3], [0, 1]], np.array([5.0, -5.0, 4.0])
    for name, combine in (("sub", np.subtract), ("max", np.maximum), ("min", np.minimum)):
        f = getattr(tf, f"tensor_scatter_nd_{name}")
        want = X.copy()
        for place, u in zip(at, updates, strict=True):
            want[tuple(place)] = combine(want[tuple(place)], u)
        np.testing.assert_allclose(f(X, at, updates), want)
        assert_derivatives(lambda x, u, f=f: f(x**2, at, u), X, updates)
        np.testing.assert_allclose(f(X, [[1]], X[2:]), np.stack([X[0], combine(X[1], X[2]), X[2]]))


def test_extremes_share_with_the_tensor() -> None:
    x, u = tf.constant([3.0, 1.0]), tf.constant([3.0, 3.0, 0.0])
    with tf.GradientTape() as tape:
        tape.watch([x, u])
        y = tf.tensor_scatter_nd_max(x, [[0], [0], [1]], u)
    for got, want in zip(tape.gradient(y, [x, u]), ([1 / 3, 1], [1 / 3, 1 / 3, 0]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_gather_nd() -> None:
    assert float(tf.gather_nd(X, [1, 2])) == X[1, 2]
    assert np.array_equal(tf.gather_nd(X, np.zeros((2, 0), int)), [X, X])
    got = tf.gather_nd(X.reshape(3, 2, 2), [[[1]], [[0]], [[1]]], batch_dims=1)
    assert np.array_equal(got, X.reshape(3, 2, 2)[[0, 1, 2], [1, 0, 1]][:, None])
    for at in ([1, 2], [[1, 1], [1, 1], [0, 0]], [[0], [0]], np.zeros((2, 0), int)):
        assert_derivatives(lambda x, at=at: tf.gather_nd(x**2, at), X)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_linspace(axis: int) -> None:
    a, b = X[0], X[1]
    np.testing.assert_allclose(tf.linspace(a, b, 5, axis=axis), np.linspace(a, b, 5, axis=axis), rtol=1e-12)
    assert_derivatives(lambda x, y: tf.linspace(x * y, y, 4, axis=axis), a, b)


def test_linspace_ends() -> None:
    line = tf.linspace(tf.constant(-1.0), 0.1, 7)
    assert float(line[0]) == -1.0 and float(line[-1]) == float(np.float32(0.1))
    assert tf.linspace(2.0, 5.0, 1).numpy().tolist() == [2.0]
    assert tf.linspace(0.0, 1.0, 0).shape == (0,)
    assert tf.linspace([0.0, 1.0], [1.0, 2.0], 0, axis=1).shape == (2, 0)
    assert tf.linspace(0, 10, 5).dtype == tf.float64 and float(tf.linspace(0, 10, 5)[1]) == 2.5


def test_an_unknown_size_beside_zeros() -> None:
    for given, wanted, shape in (
        ([0], [0, -1], (0, 1)),
        ([0, 3], [-1, 0], (3, 0)),
        ([0, 3], [-1, 3], (0, 3)),
        ([0], [-1, 3], (0, 3)),
    ):
        assert tf.reshape(tf.zeros(given), wanted).shape == shape


def test_empty_lists() -> None:
    """Of no element no dtype follows: each function takes an empty list as what it works on."""
    for dtype in (tf.int32, tf.bool, tf.float16, tf.complex64, tf.string):
        assert tf.constant([], dtype).dtype == dtype and tf.constant([], dtype).shape == (0,)
    assert not tf.reduce_any([]) and tf.reduce_all([])
    assert tf.reduce_any([[], []], axis=1).numpy().tolist() == [False, False]
    assert tf.one_hot([], 3).shape == (0, 3) and tf.one_hot([[], []], 3).shape == (2, 0, 3)


def test_one_hot() -> None:
    ids = [[0, 3], [-1, 1]]
    want = np.array(ids)[..., None] == np.arange(3)
    assert np.array_equal(tf.one_hot(ids, 3), want) and tf.one_hot(ids, 3).dtype == tf.float32
    assert np.array_equal(tf.one_hot(ids, 3, axis=0), np.moveaxis(want, -1, 0))
    assert tf.one_hot([1], 2, on_value=3).numpy().tolist() == [[0, 3]]
    assert tf.one_hot([1], 2, off_value=0.5).numpy().tolist() == [[0.5, 1.0]]
    assert tf.one_hot([1], 2, on_value=True, off_value=False).dtype == tf.bool
    assert tf.one_hot([1], 2, on_value=7, dtype=tf.float64).dtype == tf.float64
    assert_derivatives(lambda on, off: tf.one_hot(ids, 3, on**2, off**2, axis=1), np.array(2.0), np.array(0.5))


def test_pad_of_every_kind_of_dtype() -> None:
    assert tf.pad(tf.constant([True]), [[1, 1]]).numpy().tolist() == [False, True, False]
    assert tf.pad(tf.constant([True]), [[1, 0]], constant_values=True).numpy().tolist() == [True, True]
    assert tf.pad(tf.constant(["a"]), [[0, 1]]).numpy().tolist() == [b"a", b""]
    assert tf.pad(tf.constant([3]), [[0, 1]], constant_values=7).numpy().tolist() == [3, 7]
    assert_derivatives(lambda x, c: tf.pad(x**2, [[1, 0], [0, 2]], constant_values=c), X, np.array(3.0))


def test_roll_adds_shifts_of_one_axis() -> None:
    assert np.array_equal(tf.roll(X, [1, 2, -1], [0, 1, 0]), np.roll(X, 2, 1))
    assert np.array_equal(tf.roll(X, tf.constant(-5), axis=-1), np.roll(X, -5, 1))


def test_variance_and_deviation() -> None:
    halves = tf.constant(np.tile([250.0, -250.0], 35_000), tf.float16)
    assert float(tf.math.reduce_std(halves)) == 250.0 and float(tf.math.reduce_variance(halves)) == 62_496.0
    z = np.array([1 + 2j, 3 - 1j, 0.5j])
    np.testing.assert_allclose(tf.math.reduce_variance(z), np.var(z))
    np.testing.assert_allclose(tf.math.reduce_std(z), np.std(z))
    assert np.array_equal(tf.math.reduce_variance(X, axis=[]), np.zeros_like(X))
    for f in (tf.math.reduce_std, tf.math.reduce_variance):
        with pytest.raises(TypeError, match="int32"):
            f([1, 2])


def test_shapes_that_broadcast() -> None:
    assert tf.broadcast_static_shape(tf.TensorShape([None, 1]), tf.TensorShape([3])).as_list() == [None, 3]
    assert tf.broadcast_dynamic_shape(tf.constant([1, 3]), tf.constant([2, 1])).numpy().tolist() == [2, 3]
    with pytest.raises(ValueError, match="Incompatible shapes"):
        tf.broadcast_static_shape(tf.TensorShape([2]), tf.TensorShape([3]))


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: tf.dynamic_partition([1, 2], [0, 2], 2), tf.errors.InvalidArgumentError, "2 is not in"),
        (lambda: tf.dynamic_partition([1, 2], [0], 2), tf.errors.InvalidArgumentError, "must start with"),
        (lambda: tf.dynamic_stitch([[0]], [[1, 2]]), tf.errors.InvalidArgumentError, "wants data of shape"),
        (lambda: tf.dynamic_stitch([[-1]], [[1]]), tf.errors.InvalidArgumentError, "negative"),
        (lambda: tf.reverse_sequence([[1]], [1]), ValueError, "seq_axis"),
        (lambda: tf.reverse_sequence([[1]], [2], 1), tf.errors.InvalidArgumentError, "lengths in"),
        (lambda: tf.reverse_sequence([[1]], [1], 0), tf.errors.InvalidArgumentError, "batch_axis == seq_axis"),
        (lambda: tf.sequence_mask([1.0]), tf.errors.InvalidArgumentError, "integer lengths"),
        (lambda: tf.meshgrid([1], indexing="ab"), ValueError, "indexing"),
        (lambda: tf.meshgrid([1], sparse=True), TypeError, "sparse"),
        (lambda: tf.space_to_batch(X[None], [3], [[0, 1]]), tf.errors.InvalidArgumentError, "do not divide"),
        (lambda: tf.batch_to_space(X[None], [2], [[0, 0]]), tf.errors.InvalidArgumentError, "no multiple"),
        (lambda: tf.math.bincount([-1]), tf.errors.InvalidArgumentError, "0 or more"),
        (lambda: tf.math.bincount([1], weights=[1.0, 2.0]), tf.errors.InvalidArgumentError, "weights of shape"),
        (lambda: tf.math.bincount([1], axis=2), ValueError, "axis 2"),
        (lambda: tf.math.confusion_matrix([3], [0], 2), tf.errors.InvalidArgumentError, "classes in"),
        (lambda: tf.histogram_fixed_width([1.0], [1.0, 1.0]), tf.errors.InvalidArgumentError, "rising"),
        (lambda: tf.tensor_scatter_nd_max(X, [[9]], X[:1]), tf.errors.InvalidArgumentError, "do not index"),
        (lambda: tf.tensor_scatter_nd_min(X, [[1]], X), tf.errors.InvalidArgumentError, "updates of shape"),
        (lambda: tf.gather_nd(X, [[3, 0]]), tf.errors.InvalidArgumentError, "do not index"),
        (lambda: tf.one_hot([1.0], 2), tf.errors.InvalidArgumentError, "integer indices"),
        (lambda: tf.one_hot([1], 2, on_value=1, off_value=0.5), TypeError, "does not match"),
        (lambda: tf.roll([1], [1, 2], 0), tf.errors.InvalidArgumentError, "same size"),
        (lambda: tf.stack([]), tf.errors.InvalidArgumentError, "at least one"),
        (lambda: tf.concat([], 0), tf.errors.InvalidArgumentError, "at least one"),
        (lambda: tf.linspace(0.0, 1.0, -1), tf.errors.InvalidArgumentError, "0 or more"),
    ],
)
def test_errors(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
