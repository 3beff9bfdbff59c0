"""A rule stands for the derivative of its function: inputs, outputs, None, casts, and who is asked when."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf


def scaled(factor: Any) -> Any:
    """The identity whose cotangent is multiplied by a factor; None for one that answers None."""

    @tf.custom_gradient
    def f(x: Any) -> Any:
        return x * 1.0, lambda up: None if factor is None else up * factor

    return f


def test_several_inputs() -> None:
    @tf.custom_gradient
    def ratio(x: Any, y: Any) -> Any:
        return x / y, lambda up: (up * 10.0, up * x * 100.0)

    x, y = tf.constant(6.0), tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch([x, y])
        z = ratio(x, y) * 2.0
    assert float(z) == 4.0
    assert [float(g) for g in tape.gradient(z, [x, y])] == [20.0, 1200.0]


def test_several_outputs_have_a_cotangent_each() -> None:
    seen = []

    @tf.custom_gradient
    def both(x: Any) -> Any:
        def rule(da: Any, db: Any) -> Any:
            seen.append((da.numpy().tolist(), db.numpy().tolist()))
            return da * 2.0 + db * 30.0

        return (x + 1.0, x * x), rule

    x = tf.constant([1.0, 2.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        a, b = both(x)
    assert tape.gradient([a, b], x).numpy().tolist() == [32.0, 32.0]
    assert tape.gradient(b, x).numpy().tolist() == [30.0, 30.0]
    assert tape.gradient(a, x, tf.constant([5.0, 7.0])).numpy().tolist() == [10.0, 14.0]
    assert seen == [([1.0, 1.0], [1.0, 1.0]), ([0.0, 0.0], [1.0, 1.0]), ([5.0, 7.0], [0.0, 0.0])]


def test_one_rule_for_a_list_of_one() -> None:
    @tf.custom_gradient
    def single(x: Any) -> Any:
        return [x * 2.0], lambda up: [up * 7.0]

    x = tf.constant(1.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        (y,) = single(x)
    assert float(tape.gradient(y, x)) == 7.0


def test_structures_of_arguments_and_results() -> None:
    @tf.custom_gradient
    def f(pair: Any, named: Any) -> Any:
        x, y = pair
        product = x * y * named["z"]

        def rule(*ups: Any) -> Any:
            total = ups[0] + 10.0 * ups[1]
            return (total * 1.0, total * 2.0), {"z": total * 3.0}

        return {"p": product, "q": [product + 1.0]}, rule

    x, y, z = tf.constant(1.0), tf.constant(2.0), tf.constant(3.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, y, z])
        r = f((x, y), {"z": z})
    assert (sorted(r), float(r["p"]), float(r["q"][0])) == (["p", "q"], 6.0, 7.0)
    assert [float(g) for g in tape.gradient(r["p"], [x, y, z])] == [1.0, 2.0, 3.0]
    assert [float(g) for g in tape.gradient(r, [x, y, z])] == [11.0, 22.0, 33.0]


def test_none_for_the_only_way_is_none() -> None:
    x = tf.constant(2.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = scaled(None)(x)
        z = scaled(None)(x * x) * 3.0
    assert tape.gradient(y, x) is None
    assert tape.gradient(z, x) is None
    assert float(tape.gradient(z, x, unconnected_gradients="zero")) == 0.0


def test_none_beside_other_ways_leaves_them_alone() -> None:
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = scaled(None)(x) + x * x + scaled(10.0)(x)
    assert float(tape.gradient(y, x)) == 4.0 + 10.0


@pytest.mark.parametrize("factors", [(None, 3.0, 5.0), (3.0, None, 5.0), (3.0, 5.0, None), (None, None, 5.0)])
def test_several_rules_some_of_which_answer_none(factors: Any) -> None:
    """y = f₀(x) · f₁(x) + f₂(f₁(x)), with their own slopes."""
    f = [scaled(k) for k in factors]
    k0, k1, k2 = (0.0 if k is None else k for k in factors)
    for _ in range(2):
        x = tf.constant(2.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            a, b = f[0](x), f[1](x)
            y = a * b + f[2](b)
        got = tape.gradient(y, x, unconnected_gradients="zero")
        assert float(got) == 2.0 * k0 + (2.0 + k2) * k1


def test_functions_of_one_shape_do_not_share_their_nones() -> None:
    x = tf.constant(2.0)
    for factor in (None, 3.0, None, 5.0, 7.0, None):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = scaled(factor)(x)
        g = tape.gradient(y, x)
        assert g is None if factor is None else float(g) == factor


def test_none_for_one_of_two_inputs() -> None:
    @tf.custom_gradient
    def f(x: Any, y: Any) -> Any:
        return x * y, lambda up: (up * 5.0, None)

    x, y = tf.constant(2.0), tf.constant(3.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, y])
        z = f(x, y)
        w = f(x, y) + y * y
    assert [g if g is None else float(g) for g in tape.gradient(z, [x, y])] == [5.0, None]
    assert [float(g) for g in tape.gradient(w, [x, y])] == [5.0, 6.0]


ANSWERS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "a Python number": (lambda up: 4.0, [[4.0] * 3] * 2),
    "an integer tensor": (lambda up: tf.constant(4), [[4.0] * 3] * 2),
    "a scalar": (lambda up: tf.constant(4.0, tf.float64), [[4.0] * 3] * 2),
    "a row": (lambda up: tf.constant([1.0, 2.0, 3.0]), [[1.0, 2.0, 3.0]] * 2),
    "a NumPy array": (lambda up: np.full((2, 3), 5.0), [[5.0] * 3] * 2),
    "a half": (lambda up: tf.cast(up * 3.0, tf.float16), [[3.0] * 3] * 2),
    "a variable": (lambda up: tf.Variable([[6.0] * 3] * 2), [[6.0] * 3] * 2),
    "a list of one": (lambda up: [up * 8.0], [[8.0] * 3] * 2),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_what_is_answered_is_cast_and_broadcast_to_what_is_due(what: str) -> None:
    answer, want = ANSWERS[what]

    @tf.custom_gradient
    def f(x: Any) -> Any:
        return x * 1.0, answer

    x = tf.Variable(np.ones((2, 3), "float32"))
    with tf.GradientTape() as tape:
        y = f(x) * 1.0
    g = tape.gradient(y, x)
    assert (g.dtype, g.shape) == (tf.float32, [2, 3])
    assert g.numpy().tolist() == want


def test_a_constant_answer_ignores_what_comes_from_above() -> None:
    @tf.custom_gradient
    def square(x: Any) -> Any:
        return tf.square(x), lambda up: tf.constant(4.0)

    with tf.GradientTape(persistent=True) as tape:
        x = tf.Variable(5.0)
        s2 = square(x)
        s4 = square(s2) * 100.0
    assert [float(tape.gradient(s4, v)) for v in (x, s2)] == [4.0, 4.0]
    assert float(tape.gradient(s2, x)) == 4.0


def test_integer_results_have_zeros_for_cotangents() -> None:
    seen = []

    @tf.custom_gradient
    def largest(x: Any) -> Any:
        def rule(up: Any, of_place: Any) -> Any:
            seen.append((of_place.dtype.name, of_place.numpy().tolist()))
            return up * tf.one_hot(tf.argmax(x), 3) + tf.cast(of_place, tf.float32)

        return (tf.reduce_max(x), tf.argmax(x)), rule

    x = tf.constant([1.0, 5.0, 3.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        top, place = largest(x)
    assert (int(place), place.dtype) == (1, tf.int64)
    assert tape.gradient(top, x).numpy().tolist() == [0.0, 1.0, 0.0]
    assert tape.gradient(place, x) is None
    assert seen == [("int64", 0)]


def test_integer_text_and_other_arguments_have_no_gradient() -> None:
    @tf.custom_gradient
    def pick(x: Any, i: Any, mode: Any, options: Any) -> Any:
        y = x[i] * (2.0 if mode == "double" else 1.0) * (1.0 if options is None else options)
        return y, lambda up: (tf.one_hot(i, 3) * up * 2.0, None, None, None)

    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = pick(x, tf.constant(1), "double", None)
    assert float(y) == 4.0
    assert tape.gradient(y, x).numpy().tolist() == [0.0, 2.0, 0.0]


def test_outside_a_tape_only_the_value_is_there() -> None:
    asked: list[Any] = []
    f = tf.custom_gradient(lambda x: (x * 2.0, asked.append))
    y = f(tf.constant([1.0, 2.0]))
    assert y.numpy().tolist() == [2.0, 4.0]
    assert isinstance(y, tf.Tensor)
    assert not asked


def test_a_result_that_is_the_argument_itself() -> None:
    @tf.custom_gradient
    def clipped(x: Any) -> Any:
        return x, lambda up: tf.clip_by_norm(up, 0.5)

    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = v * v
        z = clipped(y)
        w = z * 1.0 + y * 0.0
    gv, gy = tape.gradient(w, [v, y])
    assert (float(gv), float(gy)) == (2.0, 0.5)


def test_the_decorator_keeps_the_functions_name_and_text() -> None:
    @tf.custom_gradient
    def named(x: Any) -> Any:
        """What it does."""
        return x, lambda up: up

    assert (named.__name__, named.__doc__) == ("named", "What it does.")
