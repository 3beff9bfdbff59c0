"""== and != compare elements, as in TensorFlow 2; identity is for `is` and `ref()`."""

import operator
from typing import Any

import numpy as np
import pytest

import gradtape as tf


@pytest.fixture(params=["tensor", "variable"])
def x(request: pytest.FixtureRequest) -> Any:
    return tf.constant([1.0, 2.0]) if request.param == "tensor" else tf.Variable([1.0, 2.0])


def test_elementwise(x: Any) -> None:
    assert (x == tf.constant([1.0, 0.0])).numpy().tolist() == [True, False]
    assert (x != tf.constant([1.0, 0.0])).numpy().tolist() == [False, True]
    assert (x == [1.0, 2.0]).numpy().tolist() == [True, True]
    assert (x == 1).numpy().tolist() == [True, False]
    assert (2.0 == x).numpy().tolist() == [False, True]  # noqa: SIM300 - the reflected operator is meant
    assert (x == np.array([1.0, 2.0])).numpy().tolist() == [True, True]
    assert (x == x).numpy().tolist() == [True, True]
    assert (x == tf.Variable(1.0)).numpy().tolist() == [True, False]


def test_not_a_number_is_not_itself() -> None:
    nan = tf.constant(float("nan"))
    assert not bool(nan == nan)
    assert bool(nan != nan)


def test_with_none(x: Any) -> None:
    assert (x == None) is False  # noqa: E711
    assert (x != None) is True  # noqa: E711
    assert None not in [x]
    assert x not in [None]


def test_shapes_that_do_not_broadcast_are_not_equal(x: Any) -> None:
    for answer, truth in ((x == tf.constant([1.0, 2.0, 3.0]), False), (x != [1.0, 2.0, 3.0], True)):
        assert isinstance(answer, tf.Tensor)
        assert (answer.dtype, answer.shape, bool(answer)) == (tf.bool, (), truth)


def test_other_dtypes_are_an_error(x: Any) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"float .*double"):
        operator.eq(x, tf.constant([1.0, 2.0], tf.float64))


@pytest.mark.parametrize("compare", [operator.eq, operator.ne])
def test_what_the_dtype_cannot_hold_is_an_error(compare: Any) -> None:
    for value in (1.0, "a", [1.5, 2.5], 1j):
        with pytest.raises(TypeError, match="int32"):
            compare(tf.constant([1, 2]), value)
    for thing in (object(), {}):
        with pytest.raises(ValueError, match="unsupported type"):
            compare(tf.constant([1, 2]), thing)


def test_strings() -> None:
    s: Any = tf.constant(["a", "b"])
    assert (s == "a").numpy().tolist() == [True, False]
    assert (s == b"b").numpy().tolist() == [False, True]
    assert (s != tf.constant(["a", "c"])).numpy().tolist() == [False, True]


def test_no_hashing(x: Any) -> None:
    with pytest.raises(TypeError, match=r"unhashable.*ref\(\)"):
        hash(x)
    with pytest.raises(TypeError, match="unhashable"):
        set().add(x)
    assert {x.ref(): 1}[x.ref()] == 1


def test_order_needs_numbers(x: Any) -> None:
    assert (x < 2.0).numpy().tolist() == [True, False]
    assert (2.0 <= x).numpy().tolist() == [False, True]  # noqa: SIM300
    assert (x > [0.0, 5.0]).numpy().tolist() == [True, False]
    assert (x >= tf.constant(2.0)).numpy().tolist() == [False, True]
    with pytest.raises(ValueError, match="None"):
        x.__lt__(None)
    with pytest.raises(tf.errors.InvalidArgumentError, match="bool"):
        operator.lt(tf.constant(True), tf.constant(False))
