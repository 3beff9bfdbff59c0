"""Variables whose elements and slices are changed and read at rows of positions."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest

import gradtape as tf

CHANGED = {
    "scatter_nd_add": [[1.0, 22.0], [8.0, 4.0]],
    "scatter_nd_sub": [[1.0, -18.0], [-2.0, 4.0]],
    "scatter_nd_update": [[1.0, 20.0], [5.0, 4.0]],
    "scatter_nd_max": [[1.0, 20.0], [5.0, 4.0]],
    "scatter_nd_min": [[1.0, 2.0], [3.0, 4.0]],
}


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("name", CHANGED)
def test_elements_are_changed(name: str, traced: bool) -> None:
    v = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    before = v.read_value()

    def change(updates: tf.Tensor) -> None:
        getattr(v, name)([[0, 1], [1, 0]], updates)

    (tf.function(change) if traced else change)(tf.constant([20.0, 5.0]))
    np.testing.assert_array_equal(v, CHANGED[name])
    np.testing.assert_array_equal(before, [[1.0, 2.0], [3.0, 4.0]])


def test_updates_that_meet_add_up_and_slices_are_updates_too() -> None:
    v = tf.Variable(tf.zeros([3, 2]))
    assert v.scatter_nd_add([[2], [2]], [[1.0, 2.0], [3.0, 4.0]]) is v
    np.testing.assert_array_equal(v, [[0, 0], [0, 0], [4, 6]])
    with pytest.raises(tf.errors.InvalidArgumentError):
        v.scatter_nd_add([[3]], [[1.0, 2.0]])
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        v.scatter_nd_update([[0]], [[1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(v, [[0, 0], [0, 0], [4, 6]])


def test_no_update_of_two_threads_is_lost() -> None:
    v = tf.Variable(tf.zeros([4]))

    def add() -> None:
        for _ in range(200):
            v.scatter_nd_add([[1], [3]], [1.0, 2.0])
            v.scatter_nd_sub([[0]], [1.0])

    threads = [threading.Thread(target=add) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    np.testing.assert_array_equal(v, [-800.0, 800.0, 0.0, 1600.0])


def test_reading_at_positions_has_gradients() -> None:
    v = tf.Variable([1.0, 2.0, 3.0])
    with tf.GradientTape(persistent=True) as tape:
        rows, elements = tf.reduce_sum(v.sparse_read([2, 0, 2]) ** 2), tf.reduce_sum(v.gather_nd([[1]]) ** 2)
    np.testing.assert_array_equal(tf.convert_to_tensor(tape.gradient(rows, v)), [2.0, 0.0, 12.0])
    np.testing.assert_array_equal(tf.convert_to_tensor(tape.gradient(elements, v)), [0.0, 4.0, 0.0])


def test_errors_have_the_number_of_their_kind() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as e:
        tf.matmul(tf.ones([2, 3]), tf.ones([2, 3]))
    assert (e.value.error_code, e.value.op, e.value.node_def) == (3, None, None)
    assert tf.errors.NotFoundError("no").error_code == 5 and tf.errors.UnknownError("no").error_code == 2


def test_errors_are_made_as_in_tensorflow() -> None:
    for e in (
        tf.errors.OutOfRangeError(None, None, "the end"),
        tf.errors.OutOfRangeError(None, None, message="the end"),
    ):
        assert (e.message, str(e), e.error_code, e.op, e.node_def) == ("the end", "the end", 11, None, None)
    e = tf.errors.OpError("a node", "an operation", "a text", 7)
    assert (e.message, e.error_code, e.op, e.node_def) == ("a text", 7, "an operation", "a node")
    again = pickle.loads(pickle.dumps(tf.errors.AbortedError(None, None, "twice")))
    assert (again.message, again.error_code) == ("twice", 10)
    for nothing in ((), (None,), (None, None), (None, "an operation")):
        with pytest.raises(TypeError, match="`AbortedError` wants a message, got none"):
            tf.errors.AbortedError(*nothing)


@pytest.mark.parametrize("values, dtype", [([1, 2.0], "float32"), ([True, False], "bool"), ([1, 2], "int32")])
def test_numbers_are_stacked_as_they_are_converted_together(values: list[float], dtype: str) -> None:
    for axis in (0, -1):
        stacked = tf.stack(values, axis=axis)
        assert stacked.dtype.name == dtype and stacked.numpy().tolist() == values
    with pytest.raises(ValueError, match=r"`axis` = 1 not in range \[-1, 1\)"):
        tf.stack(values, axis=1)
