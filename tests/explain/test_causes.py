"""Each way to lose a gradient has its own explanation, on a tape that was used, with and without files and lines."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf

Program = Callable[[Any], tuple[Any, Any, Any]]  # of the tape's options, to tape, target and source


def replaced(**how: Any) -> Any:
    x = tf.Variable(2.0)
    x = x + 1
    with tf.GradientTape(**how) as tape:
        y = x * 2
    return tape, y, x


def left_by_numpy(**how: Any) -> Any:
    x = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    with tf.GradientTape(**how) as tape:
        x2 = x**2
        y = np.mean(x2, axis=0)
        y = tf.reduce_mean(y, axis=0)
    return tape, y, x


def left_by_a_number(**how: Any) -> Any:
    x = tf.Variable(3.0)
    with tf.GradientTape(**how) as tape:
        y = tf.constant(2.0) * float(x * x)
    return tape, y, x


def integer_source(**how: Any) -> Any:
    x = tf.constant(10)
    with tf.GradientTape(**how) as tape:
        tape.watch(x)
        y = x * x
    return tape, y, x


def text_source(**how: Any) -> Any:
    x = tf.constant("a")
    with tf.GradientTape(**how) as tape:
        tape.watch(x)
        y = tf.constant(1.0) * 2.0
    return tape, y, x


def integer_target(**how: Any) -> Any:
    x = tf.Variable([1.0, 5.0])
    with tf.GradientTape(**how) as tape:
        y = tf.argmax(x)
    return tape, y, x


def overwritten(**how: Any) -> Any:
    x0, x1 = tf.Variable(3.0), tf.Variable(0.0)
    with tf.GradientTape(**how) as tape:
        x1.assign_add(x0)
        y = x1**2
    return tape, y, x0


def constant(**how: Any) -> Any:
    x, c = tf.Variable(3.0), tf.constant(2.0)
    with tf.GradientTape(**how) as tape:
        y = x * c
    return tape, y, c


def not_watched(**how: Any) -> Any:
    x0, x1 = tf.Variable(0.0), tf.Variable(10.0)
    with tf.GradientTape(watch_accessed_variables=False, **how) as tape:
        tape.watch(x1)
        y = tf.sin(x0) + tf.nn.softplus(x1)
    return tape, y, x0


def not_trainable(**how: Any) -> Any:
    x, v = tf.Variable(3.0, trainable=False), tf.Variable(2.0)
    with tf.GradientTape(**how) as tape:
        y = x * v
    return tape, y, x


def unused(**how: Any) -> Any:
    x, v = tf.Variable(3.0), tf.Variable(2.0)
    with tf.GradientTape(**how) as tape:
        y = v * v
    return tape, y, x


def stopped(**how: Any) -> Any:
    x, y = tf.Variable(2.0), tf.Variable(3.0)
    with tf.GradientTape(**how) as tape:
        x_sq = x * x
        with tape.stop_recording():
            y_sq = y * y
        z = x_sq + y_sq
    return tape, z, y


def stopped_in_between(**how: Any) -> Any:
    x = tf.Variable(2.0)
    with tf.GradientTape(**how) as tape:
        x_sq = x * x
        with tape.stop_recording():
            w = x_sq * 3.0
        z = tf.Variable(1.0) * w
    return tape, z, x


def reset(**how: Any) -> Any:
    x, y = tf.Variable(2.0), tf.Variable(3.0)
    with tf.GradientTape(**how) as tape:
        y_sq = y * y
        tape.reset()
        z = x * x + y_sq
    return tape, z, y


def reset_in_between(**how: Any) -> Any:
    x, y = tf.Variable(2.0), tf.Variable(3.0)
    with tf.GradientTape(**how) as tape:
        y_sq = y * y
        tape.reset()
        z = x * x + y_sq
        y * 2.0  # read again, for something else
    return tape, z, y


def gradient_stopped(**how: Any) -> Any:
    x, y = tf.Variable(2.0), tf.Variable(3.0)
    with tf.GradientTape(**how) as tape:
        y_sq = y**2
        z = x**2 + tf.stop_gradient(y_sq)
    return tape, z, y


def no_gradient(**how: Any) -> Any:
    x = tf.Variable(2.6)
    with tf.GradientTape(**how) as tape:
        y = tf.Variable(1.0) * tf.round(x * 2.0)
    return tape, y, x


def compared(**how: Any) -> Any:
    x = tf.Variable(2.6)
    with tf.GradientTape(**how) as tape:
        y = tf.Variable(1.0) * tf.cast(x > 1.0, tf.float32)
    return tape, y, x


def ruled_out(**how: Any) -> Any:
    @tf.custom_gradient
    def swallow(a: Any, b: Any) -> Any:
        return a * b, lambda up: (up * b, None)

    x, y = tf.Variable(2.0), tf.Variable(3.0)
    with tf.GradientTape(**how) as tape:
        z = swallow(x * 1.0, y * 1.0) + x
    return tape, z, y


def in_a_function(**how: Any) -> Any:
    f = tf.function(lambda a, b: a * tf.stop_gradient(b))
    x, y = tf.Variable(2.0), tf.Variable(3.0)
    with tf.GradientTape(**how) as tape:
        z = f(x * 1.0, y * 1.0)
    return tape, z, y


def outside(**how: Any) -> Any:
    x = tf.Variable(2.0)
    with tf.GradientTape(**how) as tape:
        y = x * x
    return tape, y * tf.constant(3.0), x


@tf.custom_gradient
def swallow(x: Any) -> Any:
    return x * 2.0, lambda up: None


def ruled_out_in_a_function(**how: Any) -> Any:
    x = tf.Variable(2.0)
    with tf.GradientTape(**how) as tape:
        y = tf.function(swallow)(x)
    return tape, y, x


def square(x: Any) -> Any:
    return tf.numpy_function(np.square, [x], tf.float32) * 2.0


def python_in_a_function(**how: Any) -> Any:
    x = tf.Variable(2.0)
    with tf.GradientTape(**how) as tape:
        y = tf.function(square)(x * 1.0)
    return tape, y, x


def left_by_a_python_function(**how: Any) -> Any:
    x = tf.Variable(2.0)
    with tf.GradientTape(**how) as tape:
        y = square(x * 1.0)
    return tape, y, x


def made_of_the_source(**how: Any) -> Any:
    x = tf.Variable(2.0)
    with tf.GradientTape(**how) as tape:
        y = tf.Variable(x * 2.0) * 3.0
    return tape, y, x


CAUSES: dict[str, tuple[Any, str, str]] = {
    "numpy": (left_by_numpy, "left", r"leaves the framework: a NumPy function.*`tf\.reduce_mean` for `np\.mean`"),
    "number": (left_by_a_number, "left", r"`float\(\)` asked for the value"),
    "integer": (integer_source, "dtype", r"source is the tensor of shape \(\) and dtype int32: gradients exist for fl"),
    "text": (text_source, "dtype", "dtype string: gradients exist for floating"),
    "target": (integer_target, "dtype", "target is .* which `arg_max`|target is .*int64, which `argmax` made"),
    "overwritten": (overwritten, "overwritten", r"`Variable:0` was overwritten by `assign_add`.*`x2 = x1 \+ x0`"),
    "constant": (constant, "not watched", "not given to `tape.watch` and took part in it as a constant"),
    "not watched": (not_watched, "not watched", "watch_accessed_variables=False"),
    "not trainable": (not_trainable, "not trainable", "is not trainable.*`trainable=True`"),
    "unused": (unused, "unused", "was not read in the tape's block"),
    "stopped": (stopped, "stopped", "was stopped by `stop_recording`"),
    "stopped between": (stopped_in_between, "stopped", "was stopped by `stop_recording`.*Move what leads"),
    "reset": (reset, "reset", "before `tape.reset"),
    "reset between": (reset_in_between, "reset", "before `tape.reset"),
    "stop_gradient": (gradient_stopped, "stop_gradient", "`stop_gradient`.* stands between source and target"),
    "round": (no_gradient, "no gradient", "`rint`.* has no gradient.*`tf.grad_pass_through`"),
    "compared": (compared, "no gradient", "`greater`.* has no gradient"),
    "rule": (ruled_out, "rule", "rule of `swallow`.* returned None for what leads to the source"),
    "function": (in_a_function, "stop_gradient", "In a traced function.* stands `stop_gradient`"),
    "replaced": (replaced, "not watched", r"If it was a variable once, a statement such as `x = x \+ 1` has replaced"),
    "outside": (outside, "outside", "computed outside of the tape's block.*, after that had ended. Compute it inside"),
    "rule in a function": (
        ruled_out_in_a_function,
        "rule",
        "function stands `swallow`, a custom gradient whose rule ret",
    ),
    "python in a function": (python_in_a_function, "left", "function stands a Python function"),
    "python": (left_by_a_python_function, "left", "`tf.numpy_function` asked for the value"),
    "variable": (made_of_the_source, "overwritten", "`Variable:0` was made by `tf.Variable`"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_is_named_after_the_tape_was_used(name: str) -> None:
    program, cause, says = CAUSES[name]
    tape, target, source = program()
    assert tape.gradient(target, source) is None
    found = tape.explain(target, source)
    assert (found.cause, found.connected) == (cause, False), found
    assert re.search(says, str(found), re.DOTALL)
    assert "debug=True" in str(found)
    assert str(found) == repr(found) == found.text


WITH_LINES = {
    "numpy": r"the result of `[a-z]+` .called at",
    "replaced": "the result of `add`",
    "number": "at ",
    "overwritten": "called at ",
    "stopped": "It did not see `multiply`",
    "stopped between": "It did not see `multiply`",
    "stop_gradient": "`stop_gradient` .called at ",
    "round": "called at ",
    "compared": "called at ",
    "rule": "`swallow` .* a custom gradient",
    "outside": "It did not see `multiply`",
    "target": "called at ",
}


@pytest.mark.parametrize("name", CAUSES)
def test_debugging_adds_files_and_lines(name: str) -> None:
    program, cause, _ = CAUSES[name]
    tf.debugging.enable()
    try:
        tape, target, source = program()
        assert tape.gradient(target, source) is None
    finally:
        tf.debugging.disable()
    found = tape.explain(target, source)
    assert found.cause == {"replaced": "replaced"}.get(name, cause)
    assert "debug=True" not in str(found)
    if name in WITH_LINES:
        lines, start = inspect.getsourcelines(program)
        noted = [int(n) for n in re.findall(re.escape(__file__) + r":(\d+)", str(found))]
        assert noted, found
        assert all(start <= n < start + len(lines) for n in noted)
        assert re.search(WITH_LINES[name], str(found)), found


@pytest.mark.parametrize("name", ["numpy", "overwritten", "stopped between", "stop_gradient", "round"])
def test_one_tape_with_lines(name: str) -> None:
    tape, target, source = CAUSES[name][0](debug=True)
    assert tape.gradient(target, source) is None
    found = tape.explain(target, source)
    assert found.cause == CAUSES[name][1]
    assert __file__ in str(found)


# ------------------------------------------------------------------ gradients that are there


def test_a_gradient_that_is_there() -> None:
    x = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = tf.exp(tf.sin(x) * 3.0)
    found = tape.explain(y, x)
    assert (found.cause, found.connected) == ("connected", True)
    assert "`sin` -> `multiply` -> `exp`" in str(found)
    assert tape.explain(y, y).cause == "itself"
    assert tape.gradient(y, x) is not None
    assert tape.explain(y, x).text == found.text


def test_a_gradient_that_is_zero_whatever_the_values() -> None:
    x = tf.Variable(2.0)
    with tf.GradientTape(debug=True) as tape:
        y = tf.sign(x * 3.0) + 1.0
    found = tape.explain(y, x)
    assert float(tape.gradient(y, x)) == 0.0
    assert (found.cause, found.connected) == ("zero", True)
    assert re.search(rf"derivative of `sign` \(.*called at {re.escape(__file__)}:\d+\) is zero everywhere", str(found))


def test_several_reasons_are_all_told() -> None:
    x = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = tf.Variable(1.0) * tf.stop_gradient(x) + tf.Variable(1.0) * tf.round(x)
    found = tape.explain(y, x)
    assert found.cause == "stop_gradient"
    assert "Besides: `rint`" in str(found)


def test_what_is_asked_in_the_block_and_of_a_persistent_tape() -> None:
    x = tf.Variable(2.0)
    with tf.GradientTape(persistent=True) as tape:
        y = tf.constant(float(x))
        assert tape.explain(y, x).cause == "left"
    assert tape.gradient(y, x) is None
    assert tape.explain(y, x).cause == "left"


def test_printing_is_no_exit() -> None:
    x = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = x * x
        str(y), repr(y), f"{y}"
        z = tf.constant(1.0)
    assert tape.explain(z, x).cause == "not recorded"


def test_wrong_questions() -> None:
    with pytest.raises(RuntimeError, match="recorded nothing"):
        tf.GradientTape().explain(tf.constant(1.0), tf.constant(1.0))
    x = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = x * x
    with pytest.raises(TypeError, match="one tensor or variable as `source`"):
        tape.explain(y, [x, x])
    with pytest.raises(TypeError, match="one tensor or variable as `target`"):
        tape.explain(4.0, x)
