"""A tensor as a value: copies out, views that cannot be written to, Python's conversions, pickles."""

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf

VALUES: list[Any] = [3.0, 4, True, 1 + 2j, "text", [1.0, 2.0], [[1, 2], [3, 4]], ["a", "bc"], [], np.zeros((2, 0, 3))]


def test_numpy_is_a_copy() -> None:
    x = tf.constant([1.0, 2.0])
    x.numpy()[0] = 7.0
    assert x.numpy().tolist() == [1.0, 2.0]
    given = np.array([1.0, 2.0])
    y = tf.constant(given)
    z = tf.convert_to_tensor(given)
    given[0] = 7.0
    assert y.numpy().tolist() == z.numpy().tolist() == [1.0, 2.0]


def test_numpy_of_scalars_is_a_scalar() -> None:
    assert isinstance(tf.constant(1.5).numpy(), np.float32)
    assert isinstance(tf.constant(2).numpy(), np.int32)
    assert isinstance(tf.constant(True).numpy(), np.bool_)
    assert tf.constant("é").numpy() == "é".encode()
    assert isinstance(tf.reduce_sum(tf.constant([1.0, 2.0])).numpy(), np.float32)
    assert isinstance(tf.constant([1.0])[0].numpy(), np.float32)


@pytest.mark.host("NumPy's views of its memory")
def test_asarray_is_a_view_that_cannot_be_written_to() -> None:
    x = tf.constant([[1.0, 2.0]])
    view = np.asarray(x)
    assert np.shares_memory(view, np.asarray(x))
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 7.0
    own = np.array(x)
    own[0, 0] = 7.0
    assert x.numpy().tolist() == [[1.0, 2.0]]


def test_asarray_of_another_dtype_is_a_copy_or_an_error() -> None:
    x = tf.constant([1.0, 2.0])
    assert np.asarray(x, np.float64).dtype == np.float64
    assert np.asarray(x, copy=False).dtype == np.float32
    with pytest.raises(ValueError, match="copy"):
        np.asarray(x, np.float64, copy=False)


def test_numpy_functions_give_numpy_arrays() -> None:
    x, v = tf.constant([1.0, 4.0]), tf.Variable([1.0, 4.0])
    for t in (x, v):
        assert type(np.sqrt(t)) is np.ndarray
        assert type(np.sum(t)) is np.float32
        assert np.concatenate([t, t]).tolist() == [1.0, 4.0, 1.0, 4.0]
        assert np.allclose(t, [1.0, 4.0])
        assert np.argmax(t) == 1


def test_dlpack_shares_memory_and_cannot_be_written_to() -> None:
    with tf.device("/CPU:0"):  # NumPy takes no array of a device
        _shares_memory_by_dlpack()


def _shares_memory_by_dlpack() -> None:
    for x in (tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.transpose(tf.constant([[1, 2], [3, 4]]))):
        array = np.from_dlpack(x)
        assert np.shares_memory(array, np.asarray(x))
        assert array.tolist() == x.numpy().tolist()
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 7
    assert x.__dlpack_device__() == np.zeros(1).__dlpack_device__()
    back = tf.constant(np.from_dlpack(tf.constant([5.0])))
    assert back.numpy().tolist() == [5.0]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_pickles_and_copies(value: Any) -> None:
    x = tf.constant(value)
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
        assert (y.dtype, y.shape) == (x.dtype, x.shape)
        assert np.array_equal(np.asarray(y), np.asarray(x))
        assert isinstance(y, tf.Tensor)
    assert copy.copy(x) is x


def test_pickles_of_views_and_half_types() -> None:
    x = tf.transpose(tf.constant([[1.0, 2.0, 3.0]], tf.bfloat16))[1:]
    y = pickle.loads(pickle.dumps(x))
    assert (y.dtype, y.numpy().tolist()) == (tf.bfloat16, [[2.0], [3.0]])


CHANGES: dict[str, Callable[[Any], Any]] = {
    "an element": lambda x: x.__setitem__(0, 5.0),
    "the shape": lambda x: setattr(x, "shape", (2, 1)),
    "the dtype": lambda x: setattr(x, "dtype", tf.float64),
    "an attribute": lambda x: setattr(x, "label", 1),
}


@pytest.mark.parametrize("what", CHANGES)
def test_tensors_do_not_change(what: str) -> None:
    x = tf.constant([1.0, 2.0])
    with pytest.raises((TypeError, AttributeError)):
        CHANGES[what](x)
    assert x.numpy().tolist() == [1.0, 2.0]


def test_item_assignment_is_pythons_error() -> None:
    values: list[Any] = [tf.constant([1.0]), tf.Variable([1.0])]
    for x in values:
        with pytest.raises(TypeError, match="does not support item assignment"):
            x[0] = 5.0


def test_in_place_operators_make_new_tensors() -> None:
    x = y = tf.constant([1.0, 2.0])
    y += 1.0
    assert x.numpy().tolist() == [1.0, 2.0]
    assert y.numpy().tolist() == [2.0, 3.0]
    a = np.array([1.0, 2.0], "float32")
    given = a
    a += x  # a tensor, as for `a + x`; the array stays as it was
    assert np.asarray(a).tolist() == [2.0, 4.0]
    assert given.tolist() == [1.0, 2.0]


def test_python_conversions() -> None:
    assert (float(tf.constant(2.5)), int(tf.constant(2.9)), complex(tf.constant(1.5))) == (2.5, 2, 1.5 + 0j)
    assert bool(tf.constant(0.1))
    assert not tf.constant([0])
    assert [10, 20, 30][tf.constant(1)] == 20
    assert list(range(tf.constant(3))) == [0, 1, 2]
    for wrong in (tf.constant(1.0), tf.constant([1]), tf.constant(True)):
        with pytest.raises(TypeError, match="index"):
            [10, 20, 30][wrong]
    for f in (float, int, complex):
        for shape in ([1], [2], [0], [1, 1]):
            for x in (tf.ones(shape), tf.Variable(tf.ones(shape))):
                with pytest.raises(TypeError, match=r"Only scalar tensors.*index"):
                    f(x)
    with pytest.raises(ValueError, match=r"\(2,\).*2 elements"):
        bool(tf.constant([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"ambiguous.*tf\.reduce_a"):
        bool(tf.constant([1.0, 2.0]) > 0.0)


def test_len_iteration_and_membership() -> None:
    x = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert len(x) == 3
    assert [row.numpy().tolist() for row in x] == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    a, b = tf.constant([1, 2])
    assert (int(a), int(b)) == (1, 2)
    assert operator.contains(tf.constant([1, 2]), 2)
    assert not operator.contains(tf.constant([1, 2]), 5)
    assert [int(v) for v in reversed(tf.constant([1, 2, 3]))] == [3, 2, 1]
    assert list(tf.zeros([0, 3])) == []
    with pytest.raises(TypeError, match="scalar"):
        len(tf.constant(1.0))
    with pytest.raises(TypeError, match="scalar"):
        iter(tf.constant(1.0))


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("astype", "tf.cast"),
        ("reshape", "tf.reshape"),
        ("T", "tf.transpose"),
        ("sum", "tf.reduce_sum"),
        ("size", "tf.size"),
        ("item", "numpy"),
        ("backward", "tape.gradient"),
        ("assign", "tf.Variable"),
    ],
)
def test_habits_of_other_libraries_are_answered(name: str, way: str) -> None:
    with pytest.raises(AttributeError, match=rf"`{name}`.*{way}"):
        getattr(tf.constant([1.0]), name)
    assert not hasattr(tf.constant([1.0]), "no_such_attribute")


def test_what_is_known_of_a_tensor() -> None:
    x = tf.constant([[1.0, 2.0]])
    assert (x.shape, x.get_shape(), x.ndim, x.dtype) == ([1, 2], [1, 2], 2, "float32")
    assert x.device.endswith(("CPU:0", "GPU:0"))
    x.set_shape([None, 2])
    with pytest.raises(ValueError, match=r"\(1, 2\).*\(3, 2\)"):
        x.set_shape([3, 2])
    assert x.ref().deref() is x
    assert len({x.ref(), x.ref(), tf.constant(1.0).ref()}) == 2


def test_single_strings_are_tensors_like_others() -> None:
    words = tf.constant(["a", "b"])
    assert str(words[0]) == "tf.Tensor(b'a', shape=(), dtype=string)" and words[1].numpy() == b"b"
    np.testing.assert_array_equal(tf.stack([words[1], words[0]]).numpy(), [b"b", b"a"])
    np.testing.assert_array_equal(words[0][None].numpy(), [b"a"])
    assert bool(words[0] == "a") and not bool(tf.equal(words[1], "a"))
