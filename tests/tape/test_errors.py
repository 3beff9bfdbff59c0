"""Wrong uses of a tape: TensorFlow's kind of error, and words that say what was given and what to do."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf


@pytest.fixture
def used() -> tuple[tf.GradientTape, Any, Any]:
    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
    return tape, y, x


def test_the_second_use_of_a_plain_tape() -> None:
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    assert float(tape.gradient(y, x)) == 6.0
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"non-persistent GradientTape.*persistent=True"):
            tape.gradient(y, x)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_tape_that_was_never_entered(persistent: bool) -> None:
    with pytest.raises(RuntimeError, match=r"GradientTape|with tape:"):
        tf.GradientTape(persistent=persistent).gradient(tf.constant(1.0), tf.constant(1.0))


def test_entering_twice() -> None:
    tape = tf.GradientTape()
    with tape, pytest.raises(ValueError, match="still recording"), tape:
        pass
    with tape:  # the failure has left it usable
        pass


def test_stopping_and_resetting_what_does_not_record() -> None:
    tape = tf.GradientTape()
    with pytest.raises(RuntimeError, match="not recording"), tape.stop_recording():
        pass
    with pytest.raises(ValueError, match="not recording"):
        tape.reset()
    with tape:
        pass
    with pytest.raises(ValueError, match="not recording"), tape.stop_recording():
        pass
    with pytest.raises(ValueError, match="not recording"):
        tape.reset()
    with tape, tape.stop_recording():
        with pytest.raises(ValueError, match="not recording"):
            tape.reset()
        with pytest.raises(ValueError, match="not recording"), tape.stop_recording():
            pass


@pytest.mark.parametrize(
    ("thing", "word"), [(2.0, "float"), (np.ones(2), "ndarray"), ("text", "str"), ([1, 2], "int"), (None, "NoneType")]
)
def test_watching_what_is_no_tensor(thing: Any, word: str) -> None:
    with tf.GradientTape() as tape, pytest.raises(ValueError, match=rf"{word}.*tf\.constant"):
        tape.watch(thing)


@pytest.mark.parametrize(("target", "word"), [(None, "None"), (3.0, "float"), ([np.ones(2)], "ndarray")])
def test_a_target_that_is_no_tensor(used: Any, target: Any, word: str) -> None:
    tape, _, x = used
    with pytest.raises(TypeError, match=rf"`target`.*{word}"):
        tape.gradient(target, x)


@pytest.mark.parametrize(
    ("source", "word"), [(None, "NoneType"), (3.0, "float"), ([np.ones(2)], "ndarray"), ({"a": "b"}, "str")]
)
def test_a_source_that_is_no_tensor(used: Any, source: Any, word: str) -> None:
    tape, y, _ = used
    with pytest.raises(TypeError, match=rf"`sources`.*{word}.*tf\.constant"):
        tape.gradient(y, source)


def test_an_unknown_word_for_unconnected_gradients(used: Any) -> None:
    tape, y, x = used
    for word in ("nonsense", 0, None):
        with pytest.raises(ValueError, match=r"Unknown value for unconnected_gradients.*tf\.UnconnectedGradients"):
            tape.gradient(y, x, unconnected_gradients=word)


def test_output_gradients_of_another_number(used: Any) -> None:
    tape, y, x = used
    for given in ([], [tf.ones(3), tf.ones(3)]):
        with pytest.raises(ValueError, match=rf"`output_gradients`.*{len(given)} for 1"):
            tape.gradient(y, x, given)


def test_output_gradients_by_key() -> None:
    """They find their targets by key, in whatever order, and in no other way."""
    x = tf.constant(2.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        a, b = x * 1.0, x * 10.0
    one, two = tf.constant(1.0), tf.constant(2.0)
    for target in ({"a": a, "b": b}, OrderedDict(b=b, a=a), defaultdict(None, a=a, b=b)):
        for given in ({"a": one, "b": two}, {"b": two, "a": one}, OrderedDict(b=two, a=one)):
            assert float(tape.gradient(target, x, given)) == 21
            assert float(tape.gradient([target, a], x, (given, two))) == 23
        for wrong in ({"a": one, "c": two}, {"a": one}, [one, two], (one, two), one):
            with pytest.raises(ValueError, match=r"`output_gradients` should have the keys \['[ab]', '[ab]'\]"):
                tape.gradient(target, x, wrong)
        with pytest.raises(ValueError, match="`output_gradients` should have 1 parts where the target has, got 2"):
            tape.gradient([target], x, [one, two])
    with pytest.raises(ValueError, match=r"has the keys \['a', 'b'\] where the target has none"):
        tape.gradient([a, b], x, {"a": one, "b": two})
    assert float(tape.gradient((a, [b, b]), x, [one, two, two])) == 41  # a flat list, as in TensorFlow


def test_output_gradients_of_another_shape_or_dtype(used: Any) -> None:
    tape, y, x = used
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"`output_gradients`.*\(3,\).*\(2,\)"):
        tape.gradient(y, x, tf.ones(2))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"`output_gradients`.*\(3,\).*\(1, 3\)"):
        tape.gradient(y, x, tf.ones([1, 3]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"`output_gradients`.*float32.*float64.*tf\.cast"):
        tape.gradient(y, x, tf.ones(3, tf.float64))
    with pytest.raises((TypeError, ValueError), match="text"):
        tape.gradient(y, x, "text")


WRONG: dict[str, Callable[[tf.GradientTape, Any, Any], Any]] = {
    "source": lambda tape, y, x: tape.gradient(y, 3.0),
    "target": lambda tape, y, x: tape.gradient(None, x),
    "unconnected": lambda tape, y, x: tape.gradient(y, x, unconnected_gradients="nonsense"),
    "output gradients": lambda tape, y, x: tape.gradient(y, x, [tf.ones(5)]),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_question_does_not_use_up_the_tape(what: str) -> None:
    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
        WRONG[what](tape, y, x)
    assert tape.gradient(y, x).numpy().tolist() == [2.0, 4.0, 6.0]


def test_a_failing_operation_is_not_recorded_and_the_block_goes_on() -> None:
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        with pytest.raises(tf.errors.InvalidArgumentError):
            x + tf.ones(3)
        y = x * x
    assert tape.gradient(y, x).numpy().tolist() == [2.0, 4.0]
