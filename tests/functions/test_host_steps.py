"""Python that runs in each call of a traced function: printing, functions of tensors and arrays, assertions."""

from __future__ import annotations

import io
import sys
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.functions.test_autograph import derivatives


def test_print_in_the_order_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    @tf.function
    def f(n: Any) -> Any:
        total = tf.constant(0.0)
        for i in tf.range(n):
            tf.print("round", i, {"total": total}, output_stream=sys.stdout)
            if i == 1:
                tf.print("one", output_stream=sys.stdout, end="!\n")
            total += 1.5
        tf.print("done", output_stream=sys.stdout)
        return total

    f(tf.constant(3))
    first = capsys.readouterr().out
    assert first == "round 0 {'total': 0}\nround 1 {'total': 1.5}\none!\nround 2 {'total': 3}\ndone\n"
    f(tf.constant(0))
    assert capsys.readouterr().out == "done\n"
    tf.print("to stderr")
    assert capsys.readouterr().err == "to stderr\n"


def test_what_is_printed_of_values(tmp_path: Any) -> None:
    def text(*parts: Any, **options: Any) -> str:
        stream = io.StringIO()
        tf.print(*parts, output_stream=stream, **options)
        return stream.getvalue().rstrip("\n")

    assert text(tf.constant(1 / 3), tf.constant(1 / 3, tf.float64), 1e-8, tf.constant(1e-8)) == (
        "0.333333343 0.33333333333333331 1e-08 1e-08"
    )
    assert text(tf.constant(123456789.0), tf.constant([np.nan, np.inf])) == "123456792 [nan inf]"
    assert text(tf.range(10)) == "[0 1 2 ... 7 8 9]" and text(tf.range(10), summarize=-1) == "[0 1 2 3 4 5 6 7 8 9]"
    assert text(tf.constant([[1, 2], [3, 4]]), sep="|") == "[[1 2]\n [3 4]]"
    assert text(tf.reshape(tf.range(8), [2, 2, 2])) == "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]"
    assert text("a", True, [tf.constant([1]), "x"], (1,), tf.constant("s"), tf.constant(True), None) == (
        "a True [[1], 'x'] (1,) \"s\" 1 None"
    )
    path = tmp_path / "log"
    for _ in range(2):
        tf.print("line", output_stream=f"file://{path}")
    assert path.read_text() == "line\nline\n"
    with pytest.raises(ValueError, match="Unknown output stream 3"):
        tf.print(1, output_stream=3)
    with pytest.raises(ValueError, match="Unrecognized keyword"):
        tf.print(1, colour="red")


def slow(x: Any, y: Any) -> Any:
    return (x * y if x > 0 else x), tf.sin(y)


def hosted(x: Any, n: Any) -> Any:
    a, b = tf.py_function(slow, [x, x * 2.0], [tf.float64, tf.float64])
    return a * a + b


def plain(x: Any, n: Any) -> Any:
    a, b = slow(x, x * 2.0)
    return a * a + b


@pytest.mark.parametrize("x", [1.5, -0.5])
def test_vjp_of_vjp_of_vjp_of_a_python_function(x: float) -> None:
    t = tf.constant(x, tf.float64)
    for f in (hosted, tf.function(hosted)):
        np.testing.assert_allclose(derivatives(f, t, None), derivatives(plain, t, None), 1e-12)

    @tf.function
    def inside(t: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(t)
            y = hosted(t, None)
        return tape.gradient(y, t)

    assert float(inside(t)) == pytest.approx(derivatives(plain, t, None)[1])


def test_a_python_function_runs_once_in_each_call() -> None:
    calls = []

    def count(x: Any) -> Any:
        calls.append(float(x))
        return x + 1.0

    f = tf.function(lambda x: tf.py_function(count, [x], tf.float32))
    for value in (1.0, 1.0, 2.0):
        assert float(f(tf.constant(value))) == value + 1
    assert calls == [1, 1, 2]


def test_numpy_functions_and_their_dtypes() -> None:
    f = tf.function(lambda x: tf.numpy_function(np.cumsum, [x], tf.float32) * 2.0)
    for values in ([1.0, 2.0], [3.0, 5.0]):
        np.testing.assert_allclose(f(tf.constant(values)).numpy(), 2 * np.cumsum(values))
    assert tf.py_function(lambda x: None, [tf.constant(1.0)], []) == []
    with pytest.raises(tf.errors.InvalidArgumentError, match="float64"):
        tf.py_function(lambda x: x * 2, [tf.constant(1.0)], tf.float64)
    with pytest.raises(tf.errors.InvalidArgumentError, match="2 values"):
        tf.py_function(lambda x: x, [tf.constant(1.0)], [tf.float32, tf.float32])
    lengths = iter([2, 3])
    g = tf.function(lambda x: tf.numpy_function(lambda a: np.zeros(next(lengths), np.float32), [x], tf.float32))
    assert g(tf.constant(1.0)).shape == (2,)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"shape \(3,\), and not \(2,\), which it gave"):
        g(tf.constant(2.0))


def test_assertions_hold_in_each_call() -> None:
    @tf.function
    def f(x: Any, n: Any) -> Any:
        tf.debugging.assert_positive(x, "x first:")
        for i in tf.range(n):
            tf.debugging.assert_less(i, 2)
        return tf.sqrt(x)

    assert float(f(tf.constant(4.0), tf.constant(2))) == 2
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"x first: Condition x > 0 did not hold.*-4"):
        f(tf.constant(-4.0), tf.constant(0))
    with pytest.raises(tf.errors.InvalidArgumentError, match="x < y"):
        f(tf.constant(4.0), tf.constant(3))


@tf.function
def stated(x: Any, few: int = 3) -> Any:
    assert few > 2, "more, please"
    assert tf.reduce_all(x > 0), f"all {few} positive"
    if x[0] > 5.0:
        assert x[1] > 5.0
    for i in tf.range(2):
        assert x[i] < 9.0, "not too large"
    return tf.sqrt(x)


@tf.function(input_signature=[tf.TensorSpec([None])])
def stated_of_any_size(x: Any) -> Any:
    return stated(x)


@pytest.mark.parametrize("form", [stated, stated_of_any_size], ids=["known", "unknown"])
@pytest.mark.filterwarnings("error")
def test_assert_statements_hold_in_each_call(form: Any) -> None:
    np.testing.assert_array_equal(form(tf.constant([4.0, 1.0])), [2.0, 1.0])
    for values, says in (
        ([4.0, -1.0], r"test_host_steps.py:\d+: assertion failed: all 3 positive"),
        ([6.0, 1.0], r"assertion failed$"),
        ([1.0, 9.5], "not too large"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=says):
            form(tf.constant(values))


def test_assert_statements_of_python_values_are_pythons() -> None:
    with pytest.raises(AssertionError, match="more, please"):
        stated(tf.constant([1.0, 2.0]), 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`assert` wants a scalar"):
        tf.function(lambda x: outright(x))(tf.constant([1.0, 2.0]))


def outright(x: Any) -> Any:
    assert x > 0
    return x


def test_assert_shows_its_data() -> None:
    def f(x: Any) -> Any:
        tf.Assert(x[0] > 0, [x, "and", x[1]], summarize=1)
        return x

    for g in (f, tf.function(f)):
        np.testing.assert_array_equal(g(tf.constant([1.0, 2.0, 3.0])), [1, 2, 3])
        with pytest.raises(tf.errors.InvalidArgumentError, match=r'assertion failed: \[\[-1 ... 3\]\] \["and"\] \[2\]'):
            g(tf.constant([-1.0, 2.0, 3.0]))


def test_blocks_that_run_at_once() -> None:
    @tf.function
    def f(x: Any) -> Any:
        assert not tf.executing_eagerly()
        with tf.init_scope():
            assert tf.executing_eagerly()
            y = float(tf.constant(2.0) * 3.0)
        return x * y

    assert tf.executing_eagerly() and float(f(tf.constant(1.0))) == 6
