"""Ops on positions, ids and classes inside `vectorized_map` and `function`, where their numbers are not known."""

import warnings

import numpy as np
import pytest

import gradtape as tf
from gradtape.runtime.devices import DEVICES

X = np.arange(6.0).reshape(2, 3)
IDS = np.array([[2, 0, 2, -1], [1, 1, 0, 2]])
ROWS = np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
AT = np.array([[[0, 1], [1, 2]], [[1, 0], [1, 0]]])
CLASSES = np.array([[0, 1, 1, 2], [2, 2, 0, 5]])

# Each takes one entry of IDS, AT or CLASSES and one of ROWS.
CASES = {
    "gather_nd": (AT, lambda at, r: tf.gather_nd(X, at) * r[0]),
    "gather_nd of rows": (AT[..., :1], lambda at, r: tf.gather_nd(tf.stack([r, r * 2.0]), at)),
    "gather_nd with a batch": (AT[..., :1], lambda at, r: tf.gather_nd(X * r[0], at, batch_dims=1)),
    "scatter_nd": (AT, lambda at, r: tf.scatter_nd(at, r[:2], [2, 3])),
    "tensor_scatter_nd_add": (AT, lambda at, r: tf.tensor_scatter_nd_add(X, at, r[:2])),
    "tensor_scatter_nd_update": (AT, lambda at, r: tf.tensor_scatter_nd_update(X, at, r[:2])),
    "tensor_scatter_nd_max": (AT, lambda at, r: tf.tensor_scatter_nd_max(X, at, r[:2])),
    "unsorted_segment_sum": (IDS, lambda i, r: tf.math.unsorted_segment_sum(r, i, 4)),
    "unsorted_segment_mean": (IDS, lambda i, r: tf.math.unsorted_segment_mean(r, i, 4)),
    "unsorted_segment_sqrt_n": (IDS, lambda i, r: tf.math.unsorted_segment_sqrt_n(r, i, 4)),
    "unsorted_segment_max": (IDS, lambda i, r: tf.math.unsorted_segment_max(r, i, 4)),
    "unsorted_segment_min": (IDS, lambda i, r: tf.math.unsorted_segment_min(r, i, 4)),
    "bincount": (CLASSES, lambda c, r: tf.math.bincount(c, weights=r, minlength=5, maxlength=5)),
    "bincount of rows": (
        CLASSES,
        lambda c, r: tf.math.bincount(tf.reshape(c, [2, 2]), minlength=3, maxlength=3, axis=-1, binary_output=True),
    ),
    "histogram_fixed_width": (IDS, lambda i, r: tf.histogram_fixed_width(r, [2.0, 6.5], 3)),
    "sequence_mask": (CLASSES, lambda c, r: tf.sequence_mask(c, 4)),
    "in_top_k": (CLASSES, lambda c, r: tf.math.in_top_k(c, tf.stack([r, -r, r, -r]), 2)),
    "confusion_matrix": (CLASSES, lambda c, r: tf.math.confusion_matrix(c, c[::-1], 6, weights=r)),
}


@pytest.mark.parametrize("name", CASES)
def test_mapped_and_traced_calls_equal_eager_ones(name: str) -> None:
    ids, f = CASES[name]
    wanted = np.stack([np.asarray(f(tf.constant(i), tf.constant(r))) for i, r in zip(ids, ROWS, strict=True)])
    mapped = tf.vectorized_map(lambda p: f(*p), (tf.constant(ids), tf.constant(ROWS)))
    np.testing.assert_allclose(mapped.numpy(), wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # running op by op would be told
        traced = tf.function(f)
        np.testing.assert_allclose(traced(tf.constant(ids[1]), tf.constant(ROWS[1])).numpy(), wanted[1])


GRADIENTS = ["gather_nd with a batch", "scatter_nd", "tensor_scatter_nd_update", "unsorted_segment_sum", "bincount"]


@pytest.mark.parametrize("name", [*GRADIENTS, "unsorted_segment_max", "unsorted_segment_mean"])
def test_gradients_of_traced_calls_equal_eager_ones(name: str) -> None:
    ids, f = CASES[name]
    i, r = tf.constant(ids[1]), tf.constant(ROWS[1])
    found = []
    for g in (f, tf.function(f)):
        with tf.GradientTape() as tape:
            tape.watch(r)
            y = tf.reduce_sum(g(i, r) ** 2)
        found.append(tape.gradient(y, r).numpy())
    assert np.any(found[0])
    np.testing.assert_allclose(found[1], found[0])


TABLE = tf.constant(np.arange(20.0).reshape(4, 5))
STARTS = np.array([0, 2, 1])
WINDOWS = {
    "a size": lambda i: TABLE[0, i : i + 2],
    "of rows, in steps": lambda i: TABLE[i : i + 2, ::2],
    "both ends moved": lambda i: TABLE[1:, i - 1 + 1 : 3 + i],
    "computed alike": lambda i: TABLE[0, i * 1 + 1 : i * 1 + 2],
    "every other": lambda i: TABLE[0, i : i + 3 : 2],
    "from the end": lambda i: TABLE[0, i - 5 : i - 3],
    "a new axis and an index": lambda i: TABLE[i, None, i : i + 1],
    "the slice's own": lambda i: tf.cast(i, tf.float64) * TABLE[0, i : i + 2],
    "tf.slice": lambda i: tf.slice(TABLE, [i, 1], [2, -1]),
    "tf.slice at a vector": lambda i: tf.slice(TABLE, tf.stack([i, i + 1]), [2, 2]),
    "a traced function": tf.function(lambda i: tf.slice(TABLE, [0, i], [1, 2])),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_slices_of_known_sizes_at_mapped_positions(name: str) -> None:
    f = WINDOWS[name]
    wanted = np.stack([np.asarray(f(tf.constant(i))) for i in STARTS])
    np.testing.assert_array_equal(tf.vectorized_map(f, STARTS), wanted)
    with tf.GradientTape() as tape:
        tape.watch(TABLE)
        y = tf.vectorized_map(f, STARTS)
    slope = np.asarray(tape.gradient(y, TABLE))
    with tf.GradientTape() as tape:
        tape.watch(TABLE)
        y = tf.stack([f(tf.constant(i)) for i in STARTS])
    np.testing.assert_array_equal(slope, tape.gradient(y, TABLE))


def test_slices_that_leave_or_have_no_size() -> None:
    for f in (lambda i: TABLE[0, i : i + 2], lambda i: tf.slice(TABLE, [0, i], [1, 2])):
        for i in ([0, 4], [-1, 0]) if DEVICES.device is None else ():  # on the device nobody waits to look at them
            with pytest.raises(tf.errors.InvalidArgumentError, match="not in"):
                tf.vectorized_map(f, np.array(i))
    for f in (lambda i: TABLE[0, i:], lambda i: TABLE[0, :i], lambda i: TABLE[0, i : 2 * i]):
        with pytest.raises(TypeError, match="how many elements a slice has"):
            tf.vectorized_map(f, STARTS)
    with pytest.raises(TypeError, match="-1 is no known size"):
        tf.vectorized_map(lambda i: tf.slice(TABLE, [0, i], [1, -1]), STARTS)


def test_slices_in_a_traced_function_are_cut_off() -> None:
    f = tf.function(lambda i: TABLE[0, i : i + 2])
    with pytest.warns(UserWarning, match="op by op"):
        np.testing.assert_array_equal(f(tf.constant(4, tf.int64)), [4.0])
    np.testing.assert_array_equal(tf.vectorized_map(f, STARTS), [[0, 1], [2, 3], [1, 2]])
    np.testing.assert_array_equal(f(tf.constant(4, tf.int64)), [4.0])


BAD = {
    "gather_nd": (np.array([[[0, 3]]]), lambda at: tf.gather_nd(X, at)),
    "gather_nd, negative": (np.array([[[1, -1]]]), lambda at: tf.gather_nd(X, at)),
    "scatter_nd": (np.array([[[0, 3]]]), lambda at: tf.scatter_nd(at, [1.0], [2, 3])),
    "unsorted_segment_sum": (np.array([[0, 3]]), lambda i: tf.math.unsorted_segment_sum([1.0, 2.0], i, 3)),
    "unsorted_segment_max": (np.array([[0, 3]]), lambda i: tf.math.unsorted_segment_max([1.0, 2.0], i, 3)),
    "bincount": (np.array([[0, -1]]), lambda i: tf.math.bincount(i, minlength=2, maxlength=2)),
    "confusion_matrix": (np.array([[0, 2]]), lambda i: tf.math.confusion_matrix(i, [0, 1], 2)),
}

COUNTS = ("bincount", "confusion_matrix")  # of whole numbers, which stay on the host


@pytest.mark.parametrize("name", BAD)
def test_positions_that_do_not_exist_are_refused_when_they_are_known(name: str) -> None:
    ids, f = BAD[name]
    with pytest.raises(tf.errors.InvalidArgumentError):
        f(tf.constant(ids[0]))
    if DEVICES.device is not None and name not in COUNTS:  # on the device nobody waits to look at them
        tf.vectorized_map(f, tf.constant(ids))
        return
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.vectorized_map(f, tf.constant(ids))


NEED_NUMBERS = {
    "segment_sum": (lambda i: tf.math.segment_sum([1.0, 2.0, 3.0, 4.0], i), "unsorted_segment_sum"),
    "unsorted_segment_prod": (lambda i: tf.math.unsorted_segment_prod([1.0, 2.0, 3.0, 4.0], i, 3), "constants"),
    "bincount": (tf.math.bincount, "maxlength"),
    "sequence_mask": (tf.sequence_mask, "maxlen"),
    "confusion_matrix": (lambda i: tf.math.confusion_matrix(i, i), "num_classes"),
    "dynamic_partition": (lambda i: tf.dynamic_partition([1.0, 2.0, 3.0, 4.0], i, 3), "tf.where"),
}


@pytest.mark.parametrize("name", NEED_NUMBERS)
def test_an_op_that_needs_the_numbers_names_itself_and_the_way_out(name: str) -> None:
    f, way_out = NEED_NUMBERS[name]
    with pytest.raises(TypeError, match=f"`{name}` must read the numbers") as e:
        tf.vectorized_map(f, tf.constant([[0, 1, 1, 2]]))
    assert way_out in str(e.value)
    assert "bool()" not in str(e.value)
