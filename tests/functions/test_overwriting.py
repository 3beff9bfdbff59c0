"""Large variables that a traced function gives new values: their arrays take them, unless anything else holds these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends.clusters import POLICY

SHAPE = (300, 300)
RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def compiled_at_once() -> Iterator[None]:
    way, POLICY.compile = POLICY.compile, "now"
    yield
    POLICY.compile = way


def numbers() -> Any:
    return RNG.standard_normal(SHAPE).astype(np.float32)


def address(v: Any) -> int:
    return int(np.asarray(v).ctypes.data)


def momentum(w: Any, m: Any, g: Any) -> None:
    m.assign(0.9 * m + g * tf.exp(w * 0.1))
    w.assign_sub(0.1 * m)


@pytest.mark.host("updates in place")
def test_new_values_go_to_the_arrays_of_the_old_ones() -> None:
    start, g = [numbers(), numbers()], tf.constant(numbers())
    traced, eager = ([tf.Variable(x) for x in start] for _ in range(2))
    step = tf.function(lambda g: momentum(*traced, g))
    places = [address(v) for v in traced]
    for _ in range(4):
        step(g)
        momentum(*eager, g)
        for a, b in zip(traced, eager, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=1e-5)
    assert [address(v) for v in traced] == places


def held_tensor(v: Any) -> Any:
    return v.read_value()


def held_array(v: Any) -> Any:
    return np.asarray(v)


def held_slice(v: Any) -> Any:
    return np.asarray(v)[1:]


@pytest.mark.parametrize("hold", [held_tensor, held_array, held_slice])
@pytest.mark.parametrize("calls", [0, 1])
def test_what_was_read_before_keeps_its_value(hold: Any, calls: int) -> None:
    """Also of arrays that a call has made, which come from the pool."""
    v = tf.Variable(np.ones((600, 600), np.float32))
    step = tf.function(lambda: v.assign_add(tf.cos(v) * 0.0 + 1.0))
    first = v.read_value()
    for _ in range(calls):
        step()
    del first
    held = hold(v)
    step()
    step()
    assert np.all(np.asarray(held) == 1.0 + calls)
    assert np.all(v.numpy() == 3.0 + calls)


def test_results_stay_as_they_were_when_the_function_is_called_again() -> None:
    v = tf.Variable(np.zeros(SHAPE, np.float32))

    @tf.function
    def step() -> Any:
        old = v.read_value()
        v.assign(tf.exp(v * 0.0) + v)
        return old, v.read_value()

    made = [step() for _ in range(3)]
    assert [(float(a[0, 0]), float(b[0, 0])) for a, b in made] == [(0, 1), (1, 2), (2, 3)]
    assert [np.ptp(a.numpy()) for pair in made for a in pair] == [0.0] * 6


def test_variables_that_change_places() -> None:
    x, y = numbers(), numbers()
    a, b = tf.Variable(x), tf.Variable(y)

    @tf.function
    def swap() -> None:
        old = a.read_value()
        a.assign(-b)
        b.assign(-old)

    for _ in range(2):
        swap()
    np.testing.assert_array_equal(a.numpy(), x)
    np.testing.assert_array_equal(b.numpy(), y)


def test_a_value_that_is_read_across_its_elements() -> None:
    x = numbers()
    v = tf.Variable(x)
    step = tf.function(lambda: v.assign(tf.transpose(v) * 0.5 + tf.reduce_sum(v, 0)))
    step()
    np.testing.assert_allclose(v.numpy(), x.T * 0.5 + x.sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fails", ["an index", "an assertion"])
def test_a_call_that_fails_changes_no_variable(fails: str) -> None:
    x = numbers()
    v = tf.Variable(x)

    @tf.function
    def step(k: Any) -> Any:
        v.assign_add(tf.exp(v))
        if fails == "an assertion":
            tf.debugging.assert_less(k, 3)
        return tf.gather(tf.reshape(v, [-1])[:3], k)

    with pytest.raises(tf.errors.InvalidArgumentError):
        step(tf.constant(7))
    np.testing.assert_array_equal(v.numpy(), x)
    step(tf.constant(1))
    np.testing.assert_allclose(v.numpy(), x + np.exp(x), rtol=1e-5, atol=1e-5)


def test_a_tape_around_the_call_has_the_old_value() -> None:
    v, x = tf.Variable(np.full(SHAPE, 2.0, np.float32)), tf.constant(3.0)

    @tf.function
    def step(x: Any) -> Any:
        y = tf.reduce_mean(tf.sin(v) * 0.0 + v * v * x)
        v.assign_add(tf.exp(v * 0.0))
        return y

    step(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = step(x)
        step(x)
    slopes = tape.gradient(y, [x, v])
    np.testing.assert_allclose(float(slopes[0]), 9.0, rtol=1e-5)
    np.testing.assert_allclose(slopes[1].numpy(), 2 * 3.0 * 3.0 / v.numpy().size, rtol=1e-6)
    assert np.all(v.numpy() == 5.0)


@pytest.mark.host("updates in place")
def test_an_eager_update_writes_over_what_a_call_has_made() -> None:
    v = tf.Variable(np.ones((600, 600), np.float32))
    held = v.read_value()
    tf.function(lambda: v.assign(tf.exp(v * 0.0) + v))()
    place = address(v)
    v.assign_add(np.ones((600, 600), np.float32))
    assert (address(v), float(v[0, 0]), float(held[0, 0])) == (place, 3.0, 1.0)


LABELS = tf.constant(RNG.integers(0, 10, 300).astype(np.int32))


def labelled(x: Any, labels: Any) -> Any:
    """Labels are looked at by the host, before any of them picks an element."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x)


def called(x: Any, labels: Any) -> Any:
    return tf.numpy_function(lambda a: a[:, 0], [x], tf.float32)


@pytest.mark.host("updates in place")
@pytest.mark.parametrize("loss, in_place", [(labelled, True), (called, False)])
def test_a_users_python_alone_keeps_old_values_until_all_new_ones_are_there(loss: Any, in_place: bool) -> None:
    """It may wait for a thread that reads one of them."""
    v, x = tf.Variable(numbers()), tf.constant(numbers()[:, :10])

    @tf.function
    def step(labels: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = tf.reduce_mean(loss(tf.exp(x), labels))
        v.assign(0.5 * v + found)
        return found, tape.gradient(found, x)

    step(LABELS)
    place, before = address(v), v.numpy().copy()
    found, _ = step(LABELS)
    assert (address(v) == place) == in_place
    np.testing.assert_allclose(v.numpy(), 0.5 * before + found.numpy(), rtol=1e-5)
    assert "host" in [n.step.name for n in step.get_concrete_function(LABELS).trace.compiled.runs.nodes]
