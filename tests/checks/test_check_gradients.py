"""`tf.test.compute_gradient` and `gradtape.testing.check_gradients` find what is wrong, and only that."""

from typing import Any

import numpy as np
import pytest

import gradtape as tf

X = tf.constant([0.4, 1.3, -0.7], tf.float64)
A = tf.constant([[0.5, -1.0, 2.0], [1.5, 0.3, -0.2]], tf.float64)


# ------------------------------------------------------------------ as in TensorFlow


def test_two_arguments() -> None:
    theoretical, numerical = tf.test.compute_gradient(lambda a, b: a * b, [[1.0, 2.0], [3.0, 4.0]])
    for found in (theoretical, numerical):
        assert isinstance(found, tuple)
        assert [j.dtype for j in found] == [np.float32, np.float32]
        np.testing.assert_allclose(found[0], [[3.0, 0.0], [0.0, 4.0]], rtol=1e-4)
        np.testing.assert_allclose(found[1], [[1.0, 0.0], [0.0, 2.0]], rtol=1e-4)


def test_shapes_delta_and_functions() -> None:
    f = tf.function(lambda x: tf.reduce_sum(x * x * x))
    theoretical, numerical = tf.test.compute_gradient(f, [tf.constant([[1.0, 2.0]], tf.float64)], delta=0.5)
    np.testing.assert_allclose(theoretical[0], [[3.0, 12.0]])
    np.testing.assert_allclose(numerical[0], [[3.25, 12.25]])  # (x + h)³ - (x - h)³ over 2h is 3x² + h²


def test_complex_numbers_are_pairs() -> None:
    theoretical, numerical = tf.test.compute_gradient(lambda a: a * a, [tf.constant([1 + 2j])])
    for found in (theoretical[0], numerical[0]):
        np.testing.assert_allclose(found, [[2.0, -4.0], [4.0, 2.0]], rtol=1e-6)


def test_what_is_not_connected_and_what_is_empty() -> None:
    theoretical, numerical = tf.test.compute_gradient(lambda a, b: a * 2.0, [[1.0], [3.0, 4.0]])
    assert theoretical[1].tolist() == numerical[1].tolist() == [[0.0, 0.0]]
    theoretical, numerical = tf.test.compute_gradient(lambda a: a * 2.0, [tf.zeros([0])])
    assert theoretical[0].shape == numerical[0].shape == (0, 0)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_halves(dtype: Any) -> None:
    theoretical, numerical = tf.test.compute_gradient(lambda a: a * a, [tf.cast([1.0, 2.0], dtype)], delta=0.125)
    np.testing.assert_allclose(theoretical[0].astype(np.float32), numerical[0], rtol=0.05)


def test_wrong_calls_of_compute_gradient() -> None:
    with pytest.raises(ValueError, match="must be a list or tuple"):
        tf.test.compute_gradient(tf.sin, tf.constant([1.0]))
    with pytest.raises(TypeError, match="Argument 0 is int32"):
        tf.test.compute_gradient(tf.abs, [tf.constant([1])])


# ------------------------------------------------------------------ derivatives that are right


@tf.custom_gradient
def cube(x: Any) -> Any:
    return x**3, lambda up: 3.0 * up * x**2


RIGHT: dict[str, tuple[Any, list[Any]]] = {
    "elementwise": (lambda x: tf.sin(x) * x, [X]),
    "product": (lambda a, x: tf.linalg.matvec(a, x), [A, X]),
    "softmax": (tf.nn.softmax, [X]),
    "structure": (lambda x: {"a": tf.exp(x), "b": (x[0] * x[1], tf.argmax(x))}, [X]),
    "rule": (cube, [X]),
    "options": (
        lambda x, i, how: tf.gather(x, i) * (2.0 if how == "double" else 1.0),
        [X, tf.constant([0, 2]), "double"],
    ),
    "complex": (lambda z: z * z * tf.exp(z), [tf.constant([0.3 + 0.5j, 1.0 - 0.2j], tf.complex128)]),
    "real of complex": (lambda z: tf.abs(z), [tf.constant([0.3 + 0.5j, 1.0 - 0.2j], tf.complex128)]),
    "function": (tf.function(lambda x: tf.tanh(x) * tf.reduce_sum(x * x)), [X]),
    "cholesky": (lambda x: tf.linalg.cholesky(2.0 * tf.eye(3, dtype=tf.float64) + x[:, None] * x), [X]),
    "float32": (lambda x: tf.sin(x) * x, [tf.constant([0.4, 1.3])]),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_pass(name: str) -> None:
    fn, args = RIGHT[name]
    tf.testing.check_gradients(fn, args)


def test_third_order() -> None:
    tf.testing.check_gradients(lambda x: tf.sin(x) * x * x, [X], order=3, modes=["reverse"])
    tf.testing.check_gradients(lambda x: tf.sin(x) * x * x, [X], order=3, modes=["forward"], rtol=1e-4)


# ------------------------------------------------------------------ and that are wrong


@tf.custom_gradient
def tripled(x: Any) -> Any:
    return x * x, lambda up: 6.0 * up * x


def test_the_analytic_one_stands_above_the_numeric_one() -> None:
    with pytest.raises(AssertionError) as caught:
        tf.testing.check_gradients(tripled, [X])
    text = str(caught.value)
    assert text.startswith("Derivative of order 1 by argument 0, reverse mode, is not that of differences.")
    assert "Furthest apart at (result, element) (1, 1): 7.8 and 2.6" in text
    above, below = text.split("numeric:\n")
    assert "7.8" in above[above.index("analytic:") :]
    assert "2.6" in below and "7.8" not in below


def test_a_wrong_second_derivative() -> None:
    @tf.custom_gradient
    def f(x: Any) -> Any:
        return x**3, lambda up: 3.0 * up * tf.stop_gradient(x**2)

    tf.testing.check_gradients(f, [X], order=1)
    with pytest.raises(AssertionError, match=r"order 2 by argument 0, reverse then reverse mode"):
        tf.testing.check_gradients(f, [X])


def test_a_wrong_jvp_beside_a_right_rule() -> None:
    @tf.custom_gradient(jvp=lambda primals, tangents: 5.0 * tangents[0])
    def f(x: Any) -> Any:
        return x * x, lambda up: 2.0 * up * x

    tf.testing.check_gradients(f, [X], modes=["reverse"])
    with pytest.raises(AssertionError, match="order 1 by argument 0, forward mode"):
        tf.testing.check_gradients(f, [X])


def test_the_argument_is_named() -> None:
    @tf.custom_gradient
    def f(a: Any, i: Any, x: Any) -> Any:
        return a * x, lambda up: (up * x, None, up)

    with pytest.raises(AssertionError, match="by argument 2, reverse"):
        tf.testing.check_gradients(f, [X, tf.constant(1), X * 2.0])


def test_nan_is_no_derivative() -> None:
    @tf.custom_gradient
    def f(x: Any) -> Any:
        return x * x, lambda up: up * np.nan

    with pytest.raises(AssertionError, match="nan and"):
        tf.testing.check_gradients(f, [X])


def test_tolerances_are_those_that_were_given() -> None:
    @tf.custom_gradient
    def f(x: Any) -> Any:
        return x * x, lambda up: 2.02 * up * x

    tf.testing.check_gradients(f, [X], order=1, rtol=0.05)
    with pytest.raises(AssertionError, match=r"rtol=0\.001"):
        tf.testing.check_gradients(f, [X], order=1, rtol=0.001, delta=1e-4)


@pytest.mark.parametrize("modes", [("reverse",), ("forward",), ("reverse", "forward")])
@pytest.mark.parametrize("rule", [lambda x, up: 2.0 * x * up * up, lambda x, up: tf.clip_by_norm(2.0 * x * up, 1.0)])
def test_a_rule_that_is_not_linear(rule: Any, modes: Any) -> None:
    f = tf.custom_gradient(lambda x: (x * x, lambda up: rule(x, up)))
    with pytest.raises(AssertionError, match="is not linear in its cotangents"):
        tf.testing.check_gradients(f, [tf.constant([0.2, 0.3, 0.1], tf.float64)], modes=modes)


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (lambda x: x * 1e-9, [1.0, -2.0]),
        (lambda x: x**2, [1e8, 3e8]),
        (lambda x: x**2, [1e-9, -2e-9]),
        (lambda x: x**2, [0.0, 1e6]),
        (tf.cos, [1e-9, 0.5]),
        (tf.sin, [1e4, 0.0]),
        (lambda x: tf.exp(x) * 1e12, [1.0, 3.0]),
        (lambda x: x**3 + 10.0, [0.5, 2.0]),
    ],
)
@pytest.mark.parametrize("dtype", [tf.float64, tf.float32])
def test_numbers_of_any_scale(f: Any, x: list[float], dtype: Any) -> None:
    args = [tf.constant(x, dtype)]
    if dtype is tf.float64:
        tf.testing.check_gradients(f, args, order=1)

    @tf.custom_gradient
    def wrong(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        slope = tape.gradient(y, x)
        return y, lambda up: 5.0 * up * slope

    with pytest.raises(AssertionError, match="is not that of differences"):
        tf.testing.check_gradients(wrong, args, order=1)


def test_hessians_of_the_tape(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tf.GradientTape.hessian

    def wrong(tape: Any, y: Any, xs: Any) -> Any:
        return [[2.0 * b for b in row] for row in whole(tape, y, xs)]

    f = lambda a, x: tf.linalg.matvec(a, x * x)  # noqa: E731
    tf.testing.check_gradients(f, [A, X])
    monkeypatch.setattr(tf.GradientTape, "hessian", wrong)
    with pytest.raises(AssertionError, match=r"order 2 by argument 0, reverse then `tape\.hessian` mode"):
        tf.testing.check_gradients(f, [A, X])


def test_wrong_calls() -> None:
    with pytest.raises(ValueError, match="`order` should be 1 or more"):
        tf.testing.check_gradients(tf.sin, [X], order=0)
    with pytest.raises(ValueError, match="got 'sideways'"):
        tf.testing.check_gradients(tf.sin, [X], modes=["sideways"])
    with pytest.raises(ValueError, match="got 'none'"):
        tf.testing.check_gradients(tf.sin, [X], modes=[])
    with pytest.raises(ValueError, match="nothing to differentiate by"):
        tf.testing.check_gradients(tf.sin, [tf.constant(1)])
    unseen = tf.custom_gradient(lambda x: (x * 1.0, lambda up: tf.where(up > 0.0, up, up)))
    with pytest.raises(ValueError, match="Forward mode wants the JVP"):
        tf.testing.check_gradients(unseen, [X], order=1, modes=["forward"])


def test_arguments_that_are_no_list_and_functions_that_are_none() -> None:
    with pytest.raises(TypeError, match="a function and a list of its arguments"):
        tf.testing.check_gradients(lambda x: x, 3)
    with pytest.raises(TypeError, match="should be a function of tensors, got int"):
        tf.test.compute_gradient(3, [1.0])
