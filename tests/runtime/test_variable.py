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
from gradtape.backends.clusters import POLICY
from gradtape.runtime.taking import taken


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


# ------------------------------------------------------------------ threads that read


def in_thread(f: Any) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    t = threading.Thread(target=lambda: found.append(f()), daemon=True)
    t.start()
    return t, found


@pytest.mark.host("values on a device are replaced")
def test_who_reads_a_value_that_is_written_over_waits() -> None:
    v = tf.Variable(np.zeros(1000, np.float32))
    with taken([v]) as own:
        assert own is not None
        reader, found = in_thread(lambda: v.numpy())
        own[0]._array[:500] = 1.0
        reader.join(0.2)
        assert reader.is_alive() and not found
        assert v.numpy()[0] == 1.0  # who has taken it does not wait for itself
        own[0]._array[500:] = 1.0
    reader.join(60)
    assert found[0].min() == 1.0 and found[0].max() == 1.0


@pytest.mark.host("values on a device are replaced")
def test_a_value_that_somebody_holds_is_not_taken() -> None:
    v, w = tf.Variable(np.zeros(9)), tf.Variable(np.ones(9))
    held = w.read()
    with taken([v, w]) as own:
        assert own is None and v.numpy()[0] == 0.0 and w.numpy()[0] == 1.0
    del held
    with taken([v, w]) as own:
        assert own is not None
        reader, found = in_thread(lambda: taken([w]).__enter__())
        reader.join(60)
        assert found == [None]  # the second one that would write over it does not wait
    with pytest.raises(ZeroDivisionError), taken([v]):
        raise ZeroDivisionError
    assert v.numpy()[0] == 0.0


def test_a_variable_that_is_not_made_yet_has_no_value() -> None:
    unmade = tf.Variable.__new__(tf.Variable)
    with pytest.raises(AttributeError, match="not made yet"):
        unmade.numpy()
    with pytest.raises(AttributeError, match="'ResourceVariable' object has no attribute 'shap'"):
        tf.Variable(1.0).shap  # noqa: B018


@pytest.mark.host("values on a device are replaced")
@pytest.mark.parametrize("way", ["add", "rows", "optimizer", "traced"])
def test_no_thread_reads_half_of_an_update(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POLICY, "compile", "now")
    v = tf.Variable(np.zeros((1000, 1000), np.float32))
    optimizer = tf.keras.optimizers.SGD(1.0)
    ones, rows = tf.ones((1000, 1000)), tf.IndexedSlices(tf.ones((1000, 1000)), tf.range(1000))

    @tf.function
    def step() -> None:
        slow = ones
        for _ in range(20):  # so that a kernel takes its time
            slow = tf.exp(tf.tanh(slow * 0.0))
        v.assign_add(slow)

    ways: dict[str, Any] = {
        "add": lambda: v.assign_add(ones),
        "rows": lambda: v.scatter_add(rows),
        "optimizer": lambda: optimizer.apply_gradients([(ones, v)]),
        "traced": step,
    }
    ended = threading.Event()

    def reads() -> list[tuple[float, float]]:
        found = []
        while not ended.is_set() and len(found) < 60:
            value = v.numpy()
            found.append((float(value.min()), float(value.max())))
        return found

    reader, found = in_thread(reads)
    for _ in range(300):
        ways[way]()
        if not reader.is_alive():
            break
    ended.set()
    reader.join(60)
    assert found[0] and all(least == most for least, most in found[0])
