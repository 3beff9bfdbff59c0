"""Variables whose values may have other shapes: in eager code, under tapes and in traced functions."""

import copy
import pickle
from typing import Any

import pytest

import gradtape as tf


def test_values_of_all_shapes_that_were_declared_may_be_assigned() -> None:
    v = tf.Variable([[1.0, 2.0]], shape=[None, 2], name="v")
    assert v.shape.as_list() == [None, 2]
    assert repr(v).startswith("<tf.Variable 'v:0' shape=(None, 2) dtype=float32, numpy=")
    v.assign(tf.ones([3, 2]))
    v.assign_add(tf.ones([3, 2]))
    assert v.numpy().tolist() == [[2.0, 2.0]] * 3
    assert tf.shape(v).numpy().tolist() == [3, 2]
    with pytest.raises(ValueError, match="Shape mismatch"):
        v.assign(tf.ones([2, 3]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\(3, 2\)"):
        v.assign_add(tf.ones([1, 2]))


def test_the_rank_may_be_unknown_too() -> None:
    v = tf.Variable(1.0, shape=tf.TensorShape(None))
    assert (v.shape.rank, str(v.shape)) == (None, "<unknown>")
    assert v.assign([[1.0, 2.0]]).numpy().tolist() == [[1.0, 2.0]]


def test_copies_keep_what_was_declared() -> None:
    v = tf.Variable([1.0], shape=[None])
    for other in (copy.deepcopy(v), pickle.loads(pickle.dumps(v))):
        assert other.assign([1.0, 2.0]).shape.as_list() == [None]
    assert v.numpy().tolist() == [1.0]


def test_gradients_have_the_shape_of_the_value_that_was_read() -> None:
    v = tf.Variable([1.0, 2.0], shape=[None])
    with tf.GradientTape(persistent=True) as tape:
        before = v**2
        v.assign([1.0, 2.0, 3.0])
        after = v**3
    assert tape.gradient(before, v).numpy().tolist() == [2, 4]
    assert tape.gradient(after, v).numpy().tolist() == [3, 12, 27]


def test_a_function_is_traced_anew_where_the_shape_is_another_one() -> None:
    v = tf.Variable([1.0, 2.0], shape=[None])

    @tf.function
    def total() -> Any:
        return tf.reduce_sum(v * v)

    for value in ([1.0, 2.0], [3.0], [1.0, 2.0, 3.0], [4.0]):
        v.assign(value)
        with tf.GradientTape() as tape:
            y = total()
        assert float(y) == sum(x * x for x in value)
        assert tape.gradient(y, v).numpy().tolist() == [2 * x for x in value]


def test_a_function_assigns_another_shape() -> None:
    v = tf.Variable([1.0], shape=[None])

    @tf.function
    def grow(x: Any) -> Any:
        v.assign(tf.concat([v, x], 0))
        y = v * 2.0 if tf.reduce_sum(v) > 0.0 else v * 3.0
        for _ in tf.range(2):
            y = y + v
        return y

    for n in range(1, 4):
        assert grow(tf.ones([n])).shape == v.numpy().shape
    assert v.numpy().tolist() == [1.0] * 7


def test_a_function_in_a_function_sees_the_shape_that_was_assigned_there() -> None:
    v = tf.Variable([1.0, 2.0], shape=[None])

    @tf.function
    def square() -> Any:
        return v * v

    @tf.function
    def outer(x: Any) -> Any:
        v.assign(x)
        return square()

    assert square().numpy().tolist() == [1, 4]
    assert outer(tf.fill([3], 2.0)).numpy().tolist() == [4, 4, 4]
    assert square().numpy().tolist() == [4, 4, 4]


def test_assignments_may_return_nothing() -> None:
    v = tf.Variable(1.0)
    assert v.assign(2.0, read_value=False) is None
    assert v.assign_add(1.0, read_value=False) is None
    assert v.assign_sub(2.0, read_value=False) is None
    assert v.numpy() == 1
    assert v.assign(5.0).numpy() == 5


def test_a_target_of_several_shapes_of_a_variable_has_no_gradient_by_it() -> None:
    v, w = tf.Variable([1.0, 2.0], shape=[None]), tf.Variable(3.0)
    with tf.GradientTape(persistent=True) as tape:
        y = tf.reduce_sum(v * w)
        v.assign([1.0, 2.0, 3.0])
        y += tf.reduce_sum(v * w)
    assert [x is v for x in tape.watched_variables() if x is not w] == [True]
    assert float(tape.gradient(y, w)) == 9
    with pytest.raises(tf.errors.InvalidArgumentError, match="several shapes of the variable"):
        tape.gradient(y, v)
    with pytest.raises(tf.errors.InvalidArgumentError, match="several shapes of the variable"):
        tape.jacobian(y, v)


def test_what_was_watched_stays_watched() -> None:
    v = tf.Variable([1.0], shape=[None], trainable=False)
    with tf.GradientTape() as tape:
        tape.watch(v)
        v.assign([1.0, 2.0])
        y = v * v
    assert tape.gradient(y, v).numpy().tolist() == [2, 4]
