"""Which ways gradients go, which they do not, and what stands for what is not there."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf

NOT_CONNECTED: dict[str, Callable[[Any], Any]] = {
    "a constant": lambda x: tf.constant(1.0),
    "a cast to integers and back": lambda x: tf.cast(tf.cast(x, tf.int32), tf.float32),
    "a detour through NumPy": lambda x: tf.constant(x.numpy() * 2.0),
    "a NumPy function": lambda x: tf.convert_to_tensor(np.square(x)),
    "a Python number": lambda x: tf.constant(float(x[0])),
    "stop_gradient": lambda x: tf.stop_gradient(x) * 2.0,
    "a comparison": lambda x: tf.cast(x > 1.0, tf.float32),
    "the place of the largest": lambda x: tf.cast(tf.argmax(x), tf.float32),
    "its size": lambda x: tf.cast(tf.size(x), tf.float32),
    "its shape": lambda x: tf.cast(tf.shape(x), tf.float32),
    "zeros like it": lambda x: tf.zeros_like(x) + 1.0,
    "where it is not zero": lambda x: tf.cast(tf.where(x > 1.0), tf.float32),
    "a one-hot of its integers": lambda x: tf.one_hot(tf.cast(x, tf.int32), 5),
}


@pytest.mark.parametrize("reason", NOT_CONNECTED)
def test_no_gradient_is_none_or_zeros(reason: str) -> None:
    x = tf.constant([2.0, 3.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = NOT_CONNECTED[reason](x)
    assert tape.gradient(y, x) is None
    zeros = tape.gradient(y, x, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    assert zeros.numpy().tolist() == [0.0, 0.0]


def test_the_rest_of_a_sum_is_not_disturbed_by_what_is_not_connected() -> None:
    x = tf.constant([2.0, 3.0])
    for f in NOT_CONNECTED.values():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(f(x)) + tf.reduce_sum(x * x)
        assert tape.gradient(y, x).numpy().tolist() == [4.0, 6.0]


def test_integer_sources_and_targets_have_no_gradient() -> None:
    n, x = tf.constant([1, 2]), tf.constant([1.0, 2.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([n, x])
        whole = n * n
        real = tf.cast(n, tf.float32) * x
    assert tape.gradient(whole, n) is None
    assert tape.gradient(real, n) is None
    assert tape.gradient(real, x).numpy().tolist() == [1.0, 2.0]
    assert tape.gradient([whole, real], [x])[0].numpy().tolist() == [1.0, 2.0]
    zeros = tape.gradient(real, n, unconnected_gradients="zero")
    assert (zeros.dtype, zeros.numpy().tolist()) == (tf.int32, [0, 0])


def test_zeros_have_the_shape_and_dtype_of_the_source() -> None:
    x, v, c = tf.zeros([1, 2]), tf.Variable(np.ones((3, 0))), tf.constant(1 + 2j)
    with tf.GradientTape() as tape:
        tape.watch([x, c])
        y = x * 2.0
    g = tape.gradient(y, {"x": x, "v": v, "c": c}, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    assert g["x"].numpy().tolist() == [[2.0, 2.0]]
    assert (g["v"].shape, g["v"].dtype) == ([3, 0], tf.float64)
    assert (complex(g["c"]), g["c"].dtype) == (0j, tf.complex128)


def test_unconnected_gradients_by_name_and_by_member() -> None:
    x, y = tf.constant(1.0), tf.constant(2.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, y])
        z = y * 2.0
    for none in ("none", tf.UnconnectedGradients.NONE):
        assert tape.gradient(z, x, unconnected_gradients=none) is None
    for zero in ("zero", tf.UnconnectedGradients.ZERO):
        assert float(tape.gradient(z, x, unconnected_gradients=zero)) == 0.0
    assert [m.value for m in tf.UnconnectedGradients] == ["none", "zero"]


def test_a_zero_partial_is_zero_and_not_none() -> None:
    x = tf.constant([-1.0, 2.0])
    for f in (tf.sign, tf.nn.relu, lambda t: t * 0.0):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        assert tape.gradient(y, x) is not None


def test_complex_numbers_have_gradients() -> None:
    z = tf.constant([1 + 2j, -0.5 + 1j], tf.complex64)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(z)
        square, size = z * z, tf.abs(z)
    assert np.allclose(tape.gradient(square, z), np.conj(2 * z.numpy()))
    assert np.allclose(tape.gradient(size, z), z.numpy() / np.abs(z.numpy()))


# ------------------------------------------------------------------ output_gradients


@pytest.fixture
def squares() -> tuple[tf.GradientTape, Any, Any, Any]:
    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, z = x * x, tf.reduce_sum(x)
    return tape, x, y, z


def test_output_gradients_weigh_the_targets(squares: Any) -> None:
    tape, x, y, z = squares
    u = tf.constant([1.0, 10.0, 100.0])
    assert tape.gradient(y, x, output_gradients=u).numpy().tolist() == [2.0, 40.0, 600.0]
    assert tape.gradient(y, x, u).numpy().tolist() == [2.0, 40.0, 600.0]
    both = tape.gradient([y, z], x, output_gradients=[u, tf.constant(0.5)])
    assert both.numpy().tolist() == [2.5, 40.5, 600.5]
    assert tape.gradient({"y": y, "z": z}, x, {"y": u, "z": tf.constant(0.0)}).numpy().tolist() == [2.0, 40.0, 600.0]


def test_output_gradients_may_be_arrays_variables_numbers_and_none(squares: Any) -> None:
    tape, x, y, z = squares
    assert tape.gradient(y, x, np.array([2.0, 3.0, 4.0])).numpy().tolist() == [4.0, 12.0, 24.0]
    assert tape.gradient(y, x, tf.Variable([2.0, 3.0, 4.0])).numpy().tolist() == [4.0, 12.0, 24.0]
    assert tape.gradient(z, x, 3.0).numpy().tolist() == [3.0, 3.0, 3.0]
    assert tape.gradient([y, z], x, [None, tf.constant(10.0)]).numpy().tolist() == [12.0, 14.0, 16.0]


def test_output_gradients_broadcast_to_their_targets(squares: Any) -> None:
    tape, x, y, _ = squares
    assert tape.gradient(y, x, tf.constant(2.0)).numpy().tolist() == [4.0, 8.0, 12.0]
    assert tape.gradient(y, x, tf.constant([2.0])).numpy().tolist() == [4.0, 8.0, 12.0]


def test_output_gradients_of_a_target_that_is_a_source(squares: Any) -> None:
    tape, x, _, z = squares
    u = tf.constant([1.0, 10.0, 100.0])
    (g,) = tape.gradient([z, x], [x], output_gradients=[tf.constant(1.0), u])
    assert g.numpy().tolist() == [2.0, 11.0, 101.0]


def test_output_gradients_of_zero_and_not_a_number_are_numbers_like_others(squares: Any) -> None:
    tape, x, y, _ = squares
    g = tape.gradient(y, x, tf.constant([0.0, np.nan, np.inf]))
    assert g.numpy()[0] == 0.0
    assert np.isnan(g.numpy()[1])
    assert np.isinf(g.numpy()[2])


def test_output_gradients_are_differentiated_by_an_outer_tape() -> None:
    x, u = tf.constant(3.0), tf.constant(5.0)
    with tf.GradientTape() as outer:
        outer.watch([x, u])
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = x**3
        g = inner.gradient(y, x, output_gradients=u)  # 3 x² u
    gx, gu = outer.gradient(g, [x, u])
    assert (float(gx), float(gu)) == (90.0, 27.0)
