"""A variable on a tape is its value at the time of the read: assignments, reads elsewhere, updates in place."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf

READS: dict[str, Callable[[tf.Variable], Any]] = {
    "read_value": lambda v: v.read_value(),
    "value": lambda v: v.value(),
    "convert_to_tensor": tf.convert_to_tensor,
    "identity": tf.identity,
    "an operator": lambda v: v * 1.0,
    "a reflected operator": lambda v: 1.0 * v,
    "a subscript": lambda v: v[...],
    "a reshape": lambda v: tf.reshape(v, [2]),
    "a list of rows": lambda v: tf.stack([v[0], v[1]]),
    "iteration": lambda v: tf.stack(list(v)),
    "a list": lambda v: tf.convert_to_tensor([v, v])[0],
}


@pytest.mark.parametrize("way", READS)
def test_every_way_to_read_is_recorded(way: str) -> None:
    v = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(READS[way](v) * [3.0, 5.0])
    assert tape.watched_variables()[0] is v
    assert tape.gradient(y, v).numpy().tolist() == [3.0, 5.0]


def test_reads_between_assignments_are_reads_of_one_variable() -> None:
    v, w = tf.Variable(2.0), tf.Variable(5.0)
    with tf.GradientTape() as tape:
        a = v * w
        v.assign(10.0)
        b = v * w
        v.assign_sub(w)
        v.assign_add(1.0)
        c = v * v
        y = a + b + c
    assert float(y) == 10.0 + 50.0 + 36.0
    gv, gw = tape.gradient(y, [v, w])
    assert (float(gv), float(gw)) == (5.0 + 5.0 + 12.0, 2.0 + 10.0)


@pytest.mark.parametrize("order", ["before the variable", "after the variable"])
def test_a_value_that_was_read_outside_stays_a_constant(order: str) -> None:
    v = tf.Variable(2.0)
    old = v.read_value()
    with tf.GradientTape() as tape:
        y = old * 5.0 + v * 3.0 if order == "before the variable" else v * 3.0 + old * 5.0
    assert float(tape.gradient(y, v)) == 3.0


def test_a_value_that_an_earlier_tape_read_stays_a_constant() -> None:
    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        old = v.value()
        y = old * v
    assert float(tape.gradient(y, v)) == 4.0
    with tf.GradientTape() as tape:
        y = (v - old) * 7.0 + v * old
    assert float(tape.gradient(y, v)) == 7.0 + 2.0


def test_a_value_that_was_read_while_stopped_stays_a_constant() -> None:
    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        a = v * 3.0
        with tape.stop_recording():
            frozen = v.read_value()
        y = a + frozen * v
    assert float(tape.gradient(y, v)) == 3.0 + 2.0


def test_a_value_that_only_the_outer_tape_saw_is_a_constant_of_the_inner() -> None:
    v = tf.Variable(2.0)
    with tf.GradientTape() as outer:
        early = v.value()
        with tf.GradientTape() as inner:
            y = early * v * v
        g = inner.gradient(y, v)  # 2 · early · v
    assert float(g) == 8.0
    assert float(outer.gradient(g, v)) == 4.0 + 4.0


def test_an_update_in_place_changes_no_tensor_that_was_read() -> None:
    v = tf.Variable(np.arange(6.0).reshape(2, 3))
    held = [
        v.read_value(),
        tf.reshape(v, [3, 2]),
        tf.transpose(v),
        v[0],
        v[..., ::-1],
        tf.expand_dims(v, 0),
        tf.identity(v),
        tf.squeeze(tf.reshape(v, [1, 2, 3])),
    ]
    with tf.device("/CPU:0"):
        on_host = tf.identity(v.value())
    arrays = [v.numpy(), np.asarray(v), np.from_dlpack(on_host)]
    before = [np.array(t) for t in [*held, *arrays]]
    for _ in range(3):
        v.assign_add(np.ones((2, 3)))
        v.assign_sub(np.full((2, 3), 0.5))
    v.assign(np.zeros((2, 3)))
    for t, b in zip([*held, *arrays], before, strict=True):
        assert np.array_equal(np.array(t), b)


def test_an_update_in_place_changes_no_residual() -> None:
    v, x = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(v * x + v * v + tf.transpose(v) * 2.0)
        v.assign_add([100.0, 100.0])
        x.assign_sub([100.0, 100.0])
    gv, gx = tape.gradient(y, [v, x])
    assert gv.numpy().tolist() == [3.0 + 2.0 + 2.0, 4.0 + 4.0 + 2.0]
    assert gx.numpy().tolist() == [1.0, 2.0]


def test_a_gradient_that_is_a_variables_value_does_not_change_with_it() -> None:
    v, x = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(v * x)
    g = tape.gradient(y, x)
    v.assign_add([10.0, 10.0])
    v.assign_add([10.0, 10.0])
    assert g.numpy().tolist() == [1.0, 2.0]


def test_a_value_given_to_a_variable_is_not_shared_with_it() -> None:
    array, x = np.array([1.0, 2.0], "float32"), tf.constant([5.0, 6.0])
    v, w = tf.Variable(array), tf.Variable(x)
    u = tf.Variable(v)
    array[:] = 0.0
    v.assign_add([1.0, 1.0])
    w.assign_add([1.0, 1.0])
    u.assign(w)
    w.assign_add([1.0, 1.0])
    assert x.numpy().tolist() == [5.0, 6.0]
    assert v.numpy().tolist() == [2.0, 3.0]
    assert u.numpy().tolist() == [6.0, 7.0]


def test_assigning_a_view_of_itself() -> None:
    v = tf.Variable([1.0, 2.0, 3.0])
    v.assign(v[::-1])
    v.assign_add(v[::-1])
    v.assign_sub(v)
    assert v.numpy().tolist() == [0.0, 0.0, 0.0]


def test_no_gradient_flows_through_an_assignment() -> None:
    source, state = tf.Variable(3.0), tf.Variable(0.0)
    with tf.GradientTape() as tape:
        state.assign_add(source)
        y = state**2
    assert float(y) == 9.0
    assert tape.gradient(y, source) is None


def test_a_name_that_is_bound_to_a_tensor_is_no_variable_any_more() -> None:
    v: Any = tf.Variable(2.0)
    found = []
    for _ in range(2):
        with tf.GradientTape() as tape:
            y = v + 1.0
        found.append(tape.gradient(y, v))
        v = v + 1.0
    assert float(found[0]) == 1.0
    assert found[1] is None


def test_copies_are_variables_of_their_own() -> None:
    v = tf.Variable([1.0, 2.0])
    w = copy.deepcopy(v)
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(v * v)
    gv, gw = tape.gradient(y, [v, w])
    assert gv.numpy().tolist() == [2.0, 4.0]
    assert gw is None


def test_many_reads_of_one_variable_in_a_loop() -> None:
    v = tf.Variable(1.01, dtype=tf.float64)
    with tf.GradientTape() as tape:
        y = tf.constant(1.0, tf.float64)
        for _ in range(50):
            y = y * v
    assert float(tape.gradient(y, v)) == pytest.approx(50 * 1.01**49)
