"""Variables: making, reading, assigning, copying; the tape's view of them stands in tests/tape."""

import copy
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf


def test_making() -> None:
    v = tf.Variable([1.0, 2.0], name="w", trainable=False)
    assert (v.shape, v.dtype, v.ndim, v.name, v.trainable) == ([2], tf.float32, 1, "w:0", False)
    assert tf.Variable(1.0).trainable
    assert tf.Variable(1.0).name == "Variable:0"
    assert tf.Variable(np.zeros(2)).dtype == tf.float64
    assert tf.Variable(1, dtype=tf.float16).dtype == tf.float16
    assert tf.Variable(lambda: tf.ones([2, 3])).shape == [2, 3]
    assert tf.Variable("text").numpy() == b"text"
    assert tf.Variable([True]).numpy().tolist() == [True]
    assert tf.Variable(tf.zeros([2]), shape=[2]).shape == [2]
    assert isinstance(v, tf.Variable)
    assert tf.is_tensor(v)
    assert v.ref().deref() is v


def test_making_from_nothing_or_from_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="initial_value"):
        tf.Variable()
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        tf.Variable([1.0, 2.0], shape=[3])
    with pytest.raises(TypeError, match=r"1\.5.*int32"):
        tf.Variable(1.5, dtype=tf.int32)
    with pytest.raises(ValueError, match="unsupported type"):
        tf.Variable({"a": 1})


def test_assigning() -> None:
    v = tf.Variable([1.0, 2.0])
    assert v.assign([3.0, 4.0]) is v
    assert v.assign_add([1.0, 1.0]) is v
    assert v.assign_sub(tf.constant([0.5, 0.5])) is v
    assert v.numpy().tolist() == [3.5, 4.5]
    v.assign(np.array([5, 6]))
    v.assign_add(tf.Variable([1.0, 1.0]))
    assert v.numpy().tolist() == [6.0, 7.0]
    assert v.assign(v * 2.0).assign_sub([1.0, 1.0]).numpy().tolist() == [11.0, 13.0]
    n = tf.Variable(3)
    n.assign_add(4)
    assert (n.dtype, int(n)) == (tf.int32, 7)


WRONG: dict[str, tuple[Callable[[Any], Any], Any, str]] = {
    "another shape": (lambda v: v.assign([1.0, 2.0, 3.0]), ValueError, r"Shape mismatch.*`w`.*\(2,\).*\(3,\)"),
    "a scalar": (lambda v: v.assign(1.0), ValueError, r"Shape mismatch.*\(2,\).*\(\)"),
    "an update of another shape": (
        lambda v: v.assign_add([1.0]),
        tf.errors.InvalidArgumentError,
        r"`w`.*\(2,\).*\(1,\)",
    ),
    "an update by a scalar": (lambda v: v.assign_sub(1.0), tf.errors.InvalidArgumentError, r"`w`.*\(2,\).*\(\)"),
    "another dtype": (lambda v: v.assign(tf.zeros([2], tf.float64)), ValueError, r"float32.*float64.*tf\.cast"),
    "an update of another dtype": (lambda v: v.assign_add(tf.zeros([2], tf.int32)), ValueError, r"float32.*int32"),
    "text": (lambda v: v.assign(["a", "b"]), TypeError, "float32"),
    "nothing": (lambda v: v.assign(None), ValueError, "None"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_assigned_changes_nothing(what: str) -> None:
    f, kind, words = WRONG[what]
    v = tf.Variable([1.0, 2.0], name="w")
    with pytest.raises(kind, match=words):
        f(v)
    assert v.numpy().tolist() == [1.0, 2.0]


IN_PLACE: dict[str, Callable[[Any], Any]] = {
    "+=": lambda v: v.__iadd__(1.0),
    "-=": lambda v: v.__isub__(1.0),
    "*=": lambda v: v.__imul__(1.0),
    "/=": lambda v: v.__itruediv__(1.0),
    "**=": lambda v: v.__ipow__(1.0),
}


@pytest.mark.parametrize("sign", IN_PLACE)
def test_python_cannot_assign_in_place(sign: str) -> None:
    v = tf.Variable(1.0)
    with pytest.raises(RuntimeError, match=r"not supported.*assign_add"):
        IN_PLACE[sign](v)
    with pytest.raises(RuntimeError, match="assign_add"):
        v += 1.0
    assert float(v) == 1.0


def test_reading() -> None:
    v = tf.Variable([[1.0, 2.0]])
    for t in (v.read_value(), v.value(), tf.convert_to_tensor(v), tf.identity(v), v + 0.0):
        assert isinstance(t, tf.Tensor)
        assert t.numpy().tolist() == [[1.0, 2.0]]
    v.numpy()[0, 0] = 7.0
    np.array(v)[0, 0] = 7.0
    assert v.numpy().tolist() == [[1.0, 2.0]]
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(v)[0, 0] = 7.0
    assert (len(v), [row.numpy().tolist() for row in v]) == (1, [[1.0, 2.0]])
    assert (float(tf.Variable(2.5)), int(tf.Variable(2)), bool(tf.Variable(False))) == (2.5, 2, False)
    assert [10, 20][tf.Variable(1)] == 20


@pytest.mark.host("updates in place")
def test_an_update_writes_over_the_array_where_nobody_looks() -> None:
    v = tf.Variable(np.zeros(1000))
    place = v._snapshot._array.ctypes.data
    for _ in range(3):
        v.assign_add(np.ones(1000))
        (v * 2.0).numpy()
    assert v._snapshot._array.ctypes.data == place
    held = v.read_value()
    v.assign_add(np.ones(1000))
    assert v._snapshot._array.ctypes.data != place
    assert held.numpy().tolist() == [3.0] * 1000
    assert v.numpy().tolist() == [4.0] * 1000


@pytest.mark.host("updates in place")
def test_an_update_in_a_training_loop_writes_over_the_array() -> None:
    v = tf.Variable(np.zeros(1000))
    for k in range(4):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((v - 1.0) ** 2)
        g = tape.gradient(loss, v)
        before = v._snapshot._array.ctypes.data
        v.assign_sub(g * 0.25)
        if k:
            assert v._snapshot._array.ctypes.data == before
    assert np.allclose(v, 1.0 - 0.5**4)


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_copies(how: str) -> None:
    v = tf.Variable([1.0, 2.0], name="w", trainable=False, dtype=tf.bfloat16)
    w = copy.deepcopy(v) if how == "deepcopy" else pickle.loads(pickle.dumps(v))
    assert (w.name, w.trainable, w.dtype, w.shape) == (v.name, v.trainable, v.dtype, v.shape)
    w.assign([5.0, 6.0])
    assert v.numpy().tolist() == [1.0, 2.0]
    assert w.numpy().tolist() == [5.0, 6.0]


def test_a_structure_of_variables_is_copied_with_its_sharing() -> None:
    v = tf.Variable(1.0)
    a, b = copy.deepcopy([v, v])
    a.assign(5.0)
    assert float(b) == 5.0
    assert float(v) == 1.0


def test_an_empty_and_a_scalar_variable_are_updated() -> None:
    empty, scalar = tf.Variable(np.zeros((0, 3))), tf.Variable(1.0)
    empty.assign_add(np.zeros((0, 3)))
    old = scalar.read_value()
    scalar.assign_add(2.0)
    assert (empty.shape, float(scalar), float(old)) == ([0, 3], 3.0, 1.0)
    assert scalar.numpy().dtype == np.float32


def test_updates_of_half_types_keep_the_dtype() -> None:
    for dtype in (tf.float16, tf.bfloat16):
        v = tf.Variable([1.0, 2.0], dtype=dtype)
        v.assign_add([0.5, 0.5])
        v.assign_sub(tf.constant([1.0, 1.0], dtype))
        assert (v.dtype, v.read_value().dtype) == (dtype, dtype)
        assert tf.cast(v, tf.float32).numpy().tolist() == [0.5, 1.5]


def test_no_update_of_two_threads_is_lost() -> None:
    v, w = tf.Variable(0.0), tf.Variable(tf.zeros([3]))

    def work() -> None:
        for _ in range(300):
            v.assign_add(1.0)
            w.scatter_add(tf.IndexedSlices([1.0], [1]))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert float(v) == 1200.0
    assert w.numpy().tolist() == [0.0, 1200.0, 0.0]
